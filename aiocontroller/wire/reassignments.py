"""AlterPartitionReassignments and ListPartitionReassignments 0, both sides; the controller's side is hand-written,
since requests with 40,000 partitions are not unusual.

A null list means *all* and an empty one *none*; the codecs keep the distinction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from struct import Struct

import msgspec

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, check_supported
from aiocontroller.wire.long_requests import (
    DEFAULT_TIMEOUT_MS,
    CodeAndMessage,
    by_topic,
    partition_outcomes,
    request_cursor,
)
from aiocontroller.wire.primitives import (
    COMPACT_INT32_ARRAY,
    INT32,
    NO_TAGS,
    Buffer,
    Cursor,
    array_length,
    nullable_string,
    string,
)

_THROTTLED_AND_CODE = Struct(">ih")


Targets = Mapping[TopicPartition, Sequence[int] | None]
"""The target replicas, preferred leader first; None cancels the reassignment in progress."""


class AlterPartitionReassignmentsResponse(msgspec.Struct, frozen=True):
    """The top-level error, and an outcome for each partition."""

    error_code: int
    error_message: str
    results: dict[TopicPartition, CodeAndMessage]


def encode_alter_partition_reassignments_request(version: int, targets: Targets) -> bytes:
    """``targets``: partition -> replicas; None cancels its reassignment (KIP-455)."""
    message = cold.request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        version,
        timeout=DEFAULT_TIMEOUT_MS,
        topics=[
            {
                "name": topic,
                "partitions": [
                    {"partition_index": tp.partition, "replicas": None if (r := targets[tp]) is None else list(r)}
                    for tp in tps
                ],
            }
            for topic, tps in by_topic(targets).items()
        ],
    )
    return cold.encode_request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, message)


def decode_alter_partition_reassignments_request(
    version: int, body: Buffer
) -> dict[TopicPartition, tuple[int, ...] | None]:
    """Partition -> replicas, None to cancel.  If a partition is named twice, the last entry counts, as in Kafka."""
    cursor = request_cursor(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, body)
    cursor.int32("timeout")
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    topics = cursor.array_length("topics", 3)
    cursor.count("topics", topics)
    for _ in range(topics):
        topic = cursor.string("name")
        partitions = cursor.array_length("partitions", 6)
        cursor.count("partitions", partitions)
        for _ in range(partitions):
            number, replicas = _target(cursor)
            targets[TopicPartition(topic, number)] = replicas
        cursor.tags()
    cursor.tags()
    return targets


@cache
def _form(replicas: int) -> Struct:
    """Partition, the array's length, the replicas, and the number of tagged fields."""
    return Struct(f">iB{replicas}iB")


def _target(cursor: Cursor) -> tuple[int, tuple[int, ...] | None]:
    """Read one partition; the usual form is read in one step."""
    at, data = cursor.at, cursor.data
    if at + 5 <= len(data) and 0 < data[at + 4] < 128:
        form = _form(data[at + 4] - 1)
        if at + form.size <= len(data):
            number, _, *replicas, tags = form.unpack_from(data, at)
            if not tags:
                cursor.at = at + form.size
                return number, tuple(replicas)
    number, found = cursor.int32("partition"), cursor.nullable_int32_array("replicas")
    cursor.tags()
    return number, found


def encode_alter_partition_reassignments_response(
    version: int, error_code: int, results: Mapping[TopicPartition, CodeAndMessage], *, error_message: str = ""
) -> bytes:
    """``results``: partition -> outcome, in their order."""
    check_supported(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version)
    return b"".join((_head(error_code, error_message), partition_outcomes(results, flexible=True), NO_TAGS))


def _head(error_code: int, error_message: str) -> bytes:
    """Without an error the message is empty, not null."""
    message = error_message or (None if error_code else "")
    return _THROTTLED_AND_CODE.pack(0, error_code) + nullable_string(message, flexible=True)


def decode_alter_partition_reassignments_response(version: int, body: Buffer) -> AlterPartitionReassignmentsResponse:
    """Raises FrameError for a malformed body."""
    message = cold.decode_response(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, body)
    results = {
        TopicPartition(t.name, p.partition_index): (int(p.error_code), p.error_message or "")
        for t in message.responses
        for p in t.partitions
    }
    return AlterPartitionReassignmentsResponse(int(message.error_code), message.error_message or "", results)


# -- ListPartitionReassignments ----------------------------------------------------------------------------------------


class ListPartitionReassignmentsResponse(msgspec.Struct, frozen=True):
    """The top-level error, and the replicas of each partition that is being reassigned."""

    error_code: int
    error_message: str
    ongoing: dict[TopicPartition, ReplicaAssignment]


def encode_list_partition_reassignments_request(version: int, partitions: Sequence[TopicPartition] | None) -> bytes:
    """``partitions`` None requests all."""
    message = cold.request(
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        version,
        timeout=DEFAULT_TIMEOUT_MS,
        topics=None
        if partitions is None
        else [
            {"name": t, "partition_indexes": [tp.partition for tp in tps]} for t, tps in by_topic(partitions).items()
        ],
    )
    return cold.encode_request(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, message)


def decode_list_partition_reassignments_request(version: int, body: Buffer) -> tuple[TopicPartition, ...] | None:
    """The partitions; None for all.  Their number is not limited: the response has only reassignments in progress."""
    cursor = request_cursor(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, body)
    cursor.int32("timeout")
    n = cursor.nullable_array_length("topics", 3)
    cursor.count("topics", max(n, 0))
    asked: list[TopicPartition] = []
    for _ in range(n):
        topic = cursor.string("name")
        asked += [TopicPartition(topic, number) for number in cursor.int32_array("partitions")]
        cursor.tags()
    cursor.tags()
    return None if n < 0 else tuple(asked)


def encode_list_partition_reassignments_response(
    version: int, error_code: int, ongoing: Mapping[TopicPartition, ReplicaAssignment], *, error_message: str = ""
) -> bytes:
    """``ongoing``: partition -> its replicas, the adding and the removing ones."""
    check_supported(ApiKey.LIST_PARTITION_REASSIGNMENTS, version)
    topics = by_topic(ongoing)
    out = [_head(error_code, error_message), array_length(len(topics), flexible=True)]
    for topic, partitions in topics.items():
        out += (string(topic, flexible=True), array_length(len(partitions), flexible=True))
        for tp in partitions:
            moving = ongoing[tp]
            out.append(INT32.pack(tp.partition))
            out += map(COMPACT_INT32_ARRAY, (moving.replicas, moving.adding, moving.removing))
            out.append(NO_TAGS)
        out.append(NO_TAGS)
    out.append(NO_TAGS)
    return b"".join(out)


def decode_list_partition_reassignments_response(version: int, body: Buffer) -> ListPartitionReassignmentsResponse:
    """Raises FrameError for a malformed body."""
    message = cold.decode_response(ApiKey.LIST_PARTITION_REASSIGNMENTS, version, body)
    ongoing = {
        TopicPartition(t.name, p.partition_index): ReplicaAssignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for t in message.topics
        for p in t.partitions
    }
    return ListPartitionReassignmentsResponse(int(message.error_code), message.error_message or "", ongoing)
