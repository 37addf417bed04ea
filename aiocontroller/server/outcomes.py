"""The outcome of one element of an admin request: an error code and a message."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import NamedTuple

from aiocontroller.core.errors import ControllerMovedError, KafkaErrorCode
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import api_name
from aiocontroller.wire.errors import FrameError
from aiocontroller.zookeeper.errors import RequestTooLargeError
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.topic_rules import TopicError

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 512 << 10
"""Largest request decoded in one step: decoding takes about a second per MiB and blocks all other tasks."""


class AdminOutcome(NamedTuple):
    """An error code and a message for one element of a request."""

    code: KafkaErrorCode = KafkaErrorCode.NONE
    message: str | None = None


DONE = AdminOutcome()


def refused(error: TopicError) -> AdminOutcome:
    """The outcome that carries this error."""
    return AdminOutcome(error.code, str(error) or None)


async def outcome_of(change: Awaitable[object]) -> AdminOutcome:
    """The outcome of a change; an error of ZooKeeper affects only this element."""
    try:
        await change
    except TopicError as error:
        return refused(error)
    except RequestTooLargeError as error:
        return AdminOutcome(KafkaErrorCode.INVALID_REQUEST, f"It would not fit into its znode: {error}")
    except ControllerMovedError as error:
        return AdminOutcome(KafkaErrorCode.NOT_CONTROLLER, str(error))
    except exc.ZKError as error:
        log.error("Cannot write to ZooKeeper", exc_info=error)
        return AdminOutcome(KafkaErrorCode.UNKNOWN_SERVER_ERROR)
    return DONE


def check_size(request: KafkaRequest, most_bytes: int = MAX_BODY_BYTES) -> None:
    """FrameError for a request that would take too long to decode."""
    if len(request.body) > most_bytes:
        raise FrameError(
            f"{api_name(request.context.api)}: found {len(request.body)} bytes, expected {most_bytes} at most"
        )
