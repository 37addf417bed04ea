"""Refusals in each API's own form (Kafka's ``AbstractRequest.getErrorResponse``).

Most answers are lists that mirror the request's lists, with an error code in each innermost element.  ``LEVELS``
defines which list mirrors which; other answers have a single error code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.server.apis import Fields, decoded, respond
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey

MESSAGES: dict[int, str] = {
    KafkaErrorCode.NONE: "NONE",
    KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "This server does not host this topic-partition.",
    KafkaErrorCode.NOT_LEADER_OR_FOLLOWER: "For requests intended only for the leader, this error indicates that the "
    "broker is not the current leader. For requests intended for any replica, this error indicates that the broker is "
    "not a replica of the topic partition.",
    KafkaErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    KafkaErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    KafkaErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    KafkaErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
    KafkaErrorCode.INVALID_REQUEST: "This most likely occurs because of a request being malformed by the client "
    "library or the message was sent to an incompatible broker. See the broker logs for more details.",
}
"""The messages of Kafka's ``Errors``, for answers that have a field for them."""
ITSELF = ""
"""Stands for a field name where the element is a plain value."""
NONE: Fields = MappingProxyType({})


class Level(NamedTuple):
    """Describes how a list in the answer mirrors a list in the request."""

    answer: str
    asked: str
    same: Mapping[str, str]
    """The answer's field -> the request's field.  Versions without the field skip it."""
    inner: Level | None = None
    error: str = "error_code"
    rest: Fields = NONE
    """Fields of an innermost element other than its error."""


def _topics(name: str, partitions: Level) -> Level:
    return Level("topics", "topics", {name: name}, partitions)


_PARTITIONS = Level("partitions", "partitions", {"partition_index": "partition_index"})
_INDEXES = Level("partitions", "partition_indexes", {"partition_index": ITSELF})
_ADDED = Level("results_by_partition", "partitions", {"partition_index": ITSELF}, error="partition_error_code")
NO_OFFSET: Fields = {"committed_offset": -1, "metadata": ""}

LEVELS: dict[ApiKey, Level] = {
    ApiKey.PRODUCE: Level(
        "responses",
        "topic_data",
        {"name": "name"},
        Level("partition_responses", "partition_data", {"index": "index"}, rest={"base_offset": -1}),
    ),
    ApiKey.FETCH: Level(
        "responses",
        "topics",
        {"topic": "topic", "topic_id": "topic_id"},
        Level(
            "partitions",
            "partitions",
            {"partition_index": "partition"},
            rest={"high_watermark": -1, "records": b""},
        ),
    ),
    ApiKey.LIST_OFFSETS: _topics("name", _PARTITIONS),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _topics("topic", Level("partitions", "partitions", {"partition": "partition"})),
    ApiKey.DELETE_RECORDS: _topics("name", _PARTITIONS._replace(rest={"low_watermark": -1})),
    ApiKey.DESCRIBE_PRODUCERS: _topics("name", _INDEXES),
    ApiKey.OFFSET_COMMIT: _topics("name", _PARTITIONS),
    ApiKey.TXN_OFFSET_COMMIT: _topics("name", _PARTITIONS),
    ApiKey.DESCRIBE_GROUPS: Level("groups", "groups", {"group_id": ITSELF}),
    ApiKey.DELETE_GROUPS: Level("results", "groups_names", {"group_id": ITSELF}),
    ApiKey.WRITE_TXN_MARKERS: Level("markers", "markers", {"producer_id": "producer_id"}, _topics("name", _INDEXES)),
    ApiKey.DESCRIBE_TRANSACTIONS: Level("transaction_states", "transactional_ids", {"transactional_id": ITSELF}),
}
OFFSETS_FETCHED = _topics("name", _INDEXES._replace(rest=NO_OFFSET))
"""OffsetFetch of versions 0 and 1; later ones have an error for the group."""
GROUPS_FETCHED = Level("groups", "groups", {"group_id": "group_id"})
"""OffsetFetch from version 8 on."""
ADDED_TOPICS = Level("results_by_topic_v3_and_below", "v3_and_below_topics", {"name": "name"}, _ADDED)
"""AddPartitionsToTxn below version 4."""
ADDED_BY_TRANSACTION = Level(
    "results_by_transaction",
    "transactions",
    {"transactional_id": "transactional_id"},
    Level("topic_results", "topics", {"name": "name"}, _ADDED),
)
COORDINATORS = Level("coordinators", "coordinator_keys", {"key": ITSELF}, rest={"node_id": -1, "port": -1})
"""FindCoordinator from version 4 on."""
NO_COORDINATOR: Fields = {"node_id": -1, "port": -1}
NO_PRODUCER_ID: Fields = {"producer_id": -1, "producer_epoch": -1}

_BESIDE_ONE_ERROR: dict[ApiKey, Fields] = {
    ApiKey.FIND_COORDINATOR: NO_COORDINATOR,
    ApiKey.INIT_PRODUCER_ID: NO_PRODUCER_ID,
}


def mirrored(level: Level, asked: Any, fill: Callable[..., KafkaErrorCode | Fields]) -> dict[str, Any]:
    """Build the answer's list; ``fill`` returns the fields of an innermost element, or just its error.

    ``fill`` is called with the request's elements on the path, the outermost first.
    """
    return {level.answer: [_one(level, element, (element,), fill) for element in getattr(asked, level.asked) or ()]}


def _one(level: Level, element: Any, path: tuple[Any, ...], fill: Callable[..., KafkaErrorCode | Fields]) -> Fields:
    fields = {
        answer: element if name == ITSELF else getattr(element, name)
        for answer, name in level.same.items()
        if name == ITSELF or hasattr(element, name)
    }
    if level.inner is None:
        filled = fill(*path)
        return {**fields, **level.rest, **({level.error: filled} if isinstance(filled, int) else filled)}
    inner = level.inner
    inside: Iterable[Any] = getattr(element, inner.asked) or ()
    return fields | {inner.answer: [_one(inner, each, (*path, each), fill) for each in inside]}


def level_of(api: int, version: int) -> Level | None:
    """The API's level; None where the answer has a single error code."""
    if api == ApiKey.OFFSET_FETCH:
        return OFFSETS_FETCHED if version < 2 else GROUPS_FETCHED if version >= 8 else None
    if api == ApiKey.ADD_PARTITIONS_TO_TXN:
        return ADDED_TOPICS if version < 4 else None
    if api == ApiKey.FIND_COORDINATOR:
        return COORDINATORS if version >= 4 else None
    return LEVELS.get(api)  # type: ignore[call-overload, no-any-return]


def refusal(request: KafkaRequest, asked: Any, code: KafkaErrorCode) -> Fields:
    """An answer with the same error for every element of the request."""
    api, version = request.context.api, request.context.version
    level = level_of(api, version)
    if level is None:
        return {"error_code": code, **_BESIDE_ONE_ERROR.get(ApiKey(api), NONE)}
    return mirrored(level, asked, lambda *path: code)


def refuse(request: KafkaRequest, code: KafkaErrorCode) -> None:
    """Answer with one error; FrameError when the request is malformed."""
    respond(request, refusal(request, decoded(request), code))
