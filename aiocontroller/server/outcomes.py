"""What became of one thing that an administrator asked for: an error code, and a message for people."""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import NamedTuple

from aiozk import exc

from aiocontroller.core.errors import ControllerMovedError, KafkaErrorCode
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import api_name
from aiocontroller.wire.errors import FrameError
from aiocontroller.zookeeper.errors import RequestTooLargeError
from aiocontroller.zookeeper.topic_rules import TopicError

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 512 << 10
"""Of requests that are read as a whole: reading takes about a second for each MiB, and all others wait so long."""


class Outcome(NamedTuple):
    code: KafkaErrorCode = KafkaErrorCode.NONE
    message: str | None = None


DONE = Outcome()


def refused(error: TopicError) -> Outcome:
    return Outcome(error.code, str(error))


async def outcome_of(change: Awaitable[object]) -> Outcome:
    """What ZooKeeper refuses concerns what was asked for here, and nothing else."""
    try:
        await change
    except TopicError as error:
        return refused(error)
    except RequestTooLargeError as error:
        return Outcome(KafkaErrorCode.INVALID_REQUEST, f"It would not fit into its znode: {error}")
    except ControllerMovedError as error:
        return Outcome(KafkaErrorCode.NOT_CONTROLLER, str(error))
    except exc.ZKError as error:
        log.error("ZooKeeper would not have it", exc_info=error)
        return Outcome(KafkaErrorCode.UNKNOWN_SERVER_ERROR)
    return DONE


def check_size(request: KafkaRequest, most_bytes: int = MAX_BODY_BYTES) -> None:
    """FrameError before a request is read that would take too long to read."""
    if len(request.body) > most_bytes:
        raise FrameError(
            f"{api_name(request.context.api)}: found {len(request.body)} bytes, expected {most_bytes} at most"
        )
