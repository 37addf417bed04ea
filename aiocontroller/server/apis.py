"""Registration of APIs: for each API key, the versions that are served and the handler.

A family of APIs is a module with a function ``apis(shell)``; ``kafka_apis`` calls them all and dispatches.  A handler
that answers from memory is a plain function; one that waits (for ZooKeeper, for a timer, or to build a long answer in
slices) is a coroutine function.  Coroutines run as tasks of the listener.

A handler calls one of the request's completions.  An exception affects only that request:
 * FrameError (the request is malformed) closes its connection, with a log line;
 * TimeoutError, raised when a coroutine takes longer than ``HANDLER_TIMEOUT_S``, and any other exception close it too,
   unless a broker forwarded the request: then the broker gets UNKNOWN_SERVER_ERROR (``envelope``).
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
"""Below the clients' request timeout (30 s), so that they get an answer first."""

MAX_BODY_BYTES = 64 << 10
"""Decoding takes about a millisecond per KiB and blocks all other tasks.  When a larger request closes the connection,
a client that asked the wrong node refreshes its metadata."""

BYTES_PER_ELEMENT = 64
"""Average size of an element, a name or a partition, in real clients' requests.  An answer has as many elements as its
request, and each takes ten times as long to encode as to decode."""

Handler = Callable[[KafkaRequest], Coroutine[Any, Any, None] | None]
Fields = Mapping[str, Any]
"""An answer as ``cold.response`` takes it: plain values by Kafka's field names in snake_case."""


class Api(NamedTuple):
    """The versions of an API that this node offers, and its handler."""

    versions: VersionRange
    handle: Handler


Apis = Mapping[int, Api]
"""By API key."""


def all_versions(api: ApiKey, handle: Handler) -> Api:
    """Register every version of Kafka 3.9."""
    return Api(SUPPORTED[api], handle)


def decoded(request: KafkaRequest, most_bytes: int = MAX_BODY_BYTES) -> Any:
    """The request's body by kio's schema; FrameError when it is too long, has too many elements, or is malformed."""
    check_size(request, most_bytes)
    most_elements = most_bytes // BYTES_PER_ELEMENT
    return cold.decode_request(request.context.api, request.context.version, request.body, most_elements)


def respond(request: KafkaRequest, fields: Fields) -> None:
    """Answer by kio's schema, in the request's version; fields missing from this version are dropped."""
    api, version = request.context.api, request.context.version
    request.respond(cold.encode_response(api, version, cold.response(api, version, **fields)))


def could_not_answer(request: KafkaRequest, error: Exception) -> None:
    """Log a bug in a handler and fail the request, which closes its connection."""
    context = request.context
    name = api_name(context.api)
    log.error("%s version %d from %s could not be answered", name, context.version, context.host, exc_info=error)
    request.fail(f"{name} could not be answered")
