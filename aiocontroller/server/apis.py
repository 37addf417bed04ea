"""What a family of APIs registers: for each API key the versions it answers, and the function that answers.

A family is a module with a function ``apis(shell)``; ``kafka_apis`` calls them all and dispatches.  A handler is either
a plain function, for what is answered from memory, or a coroutine function, for what has to wait (for ZooKeeper, for
a timer, or for a long answer to be made in slices).  Coroutines run as tasks of the listener.

A handler takes one of the request's ways out.  What it raises instead concerns that request alone:
 * FrameError (the request cannot be understood) closes the connection it came by, with a log line;
 * TimeoutError, raised when a coroutine takes longer than ``HANDLER_TIMEOUT_S``, and whatever else it raises, is
   answered with an error if the API has a form for one, else closes the connection too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple

from aiocontroller.server.outcomes import check_size
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange, api_name

log = logging.getLogger(__name__)

HANDLER_TIMEOUT_S = 25.0
"""Below the request time-out of clients (30 s), so that they hear from us and not from their own timer."""

MAX_BODY_BYTES = 64 << 10
"""To read a request takes about a millisecond for each KiB, and all others wait so long.  A client that asks the wrong
node for so much sees its connection end, and asks for metadata."""

BYTES_PER_ELEMENT = 64
"""On average, in what real clients ask: a name or a partition.  An answer has as many elements as its request, each of
which takes ten times as long to write as it took to read."""

Handler = Callable[[KafkaRequest], Coroutine[Any, Any, None] | None]
Fields = Mapping[str, Any]
"""An answer as ``cold.response`` takes it: plain values by Kafka's field names in snake_case."""


class Api(NamedTuple):
    versions: VersionRange
    handle: Handler


Apis = Mapping[int, Api]
"""By API key."""


def all_versions(api: ApiKey, handle: Handler) -> Api:
    """Every version that Kafka 3.9 has."""
    return Api(SUPPORTED[api], handle)


def decoded(request: KafkaRequest, most_bytes: int = MAX_BODY_BYTES) -> Any:
    """The request's body by kio's schema; FrameError when it is longer, holds more, or cannot be understood."""
    check_size(request, most_bytes)
    most_elements = most_bytes // BYTES_PER_ELEMENT
    return cold.decode_request(request.context.api, request.context.version, request.body, most_elements)


def respond(request: KafkaRequest, fields: Fields) -> None:
    """Answer by kio's schema, in the request's version; fields that this version lacks are left out."""
    api, version = request.context.api, request.context.version
    request.respond(cold.encode_response(api, version, cold.response(api, version, **fields)))


def could_not_answer(request: KafkaRequest, error: Exception) -> None:
    context = request.context
    name = api_name(context.api)
    log.error("%s version %d from %s could not be answered", name, context.version, context.host, exc_info=error)
    request.refuse(f"{name} could not be answered")
