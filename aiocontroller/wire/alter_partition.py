"""AlterPartition (API key 56), versions 0 to 3: a partition's leader asks the controller to change the ISR.

version  adds
0        topics by name
1        leader recovery state
2        topics by id; an ineligible replica has an error code of its own
3        the ISR with broker epochs

When a broker restarts, every leader sends a change for each partition that it shares with that broker, so the response
has our own encoder (a tenth of kio's time).  The broker epochs of version 3 are skipped, as in Kafka's ZooKeeper-mode
controller.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import msgspec

from aiocontroller.core.alter_partition import AlterPartitionResult
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.wire.apis import ApiKey, check_supported
from aiocontroller.wire.primitives import (
    COMPACT_INT32_ARRAY,
    INT8,
    INT32,
    INT64,
    NO_TAGS,
    Buffer,
    Cursor,
    array_length,
    string,
)

_KEY = ApiKey.ALTER_PARTITION
_REQUEST = Struct(">iq")
_BEFORE_ISR = Struct(">ii")
_BROKER_STATE = Struct(">iqB")
_RESPONSE = Struct(">ih")
_RESULT = Struct(">ihii")


class AlterPartitionRequest(msgspec.Struct, frozen=True):
    """The ISR changes that a broker requests as the leader of partitions."""

    broker: int
    broker_epoch: int
    partitions: tuple[AlterPartition, ...]
    """``topic`` is a name below version 2, and a 16-byte id from version 2 on."""


class AlterPartitionResponse(msgspec.Struct, frozen=True):
    """The top-level error code, and a result for each partition."""

    error_code: int
    results: tuple[AlterPartitionResult, ...]


def decode_alter_partition_request(version: int, body: Buffer) -> AlterPartitionRequest:
    """Decode a request.  FrameError for a truncated or malformed one; trailing bytes are ignored, as in any request."""
    cursor = _cursor(version, body, "request")
    broker, broker_epoch = cursor.unpack(_REQUEST, "broker id and epoch")
    partitions = []
    for _ in range(cursor.array_length("topics", 3)):
        topic = _read_topic(cursor, version)
        for _ in range(cursor.array_length("partitions", 14)):
            change = _read_usual_change(cursor, topic) if version >= 3 else None
            partitions.append(change or _read_change(cursor, version, topic))
        cursor.tags()
    cursor.tags()
    return AlterPartitionRequest(broker, broker_epoch, tuple(partitions))


def _read_change(cursor: Cursor, version: int, topic: str | bytes) -> AlterPartition:
    partition, leader_epoch = cursor.unpack(_BEFORE_ISR, "partition and leader epoch")
    isr = _read_isr_with_epochs(cursor) if version >= 3 else cursor.int32_array("new ISR")
    recovery_state = cursor.int8("leader recovery state") if version >= 1 else 0
    partition_epoch = cursor.int32("partition epoch")
    cursor.tags()
    return AlterPartition(topic, partition, leader_epoch, isr, partition_epoch, recovery_state)


_ISR_LENGTH_AT = 8
_USUAL_FORMS = [Struct(">iiB" + "iqB" * n + "biB") for n in range(16)]
"""A partition in version 3 by the size of its ISR: partition, leader epoch, [broker, its epoch, tags], …"""


def _read_usual_change(cursor: Cursor, topic: str | bytes) -> AlterPartition | None:
    """Read in one unpack; reads nothing if the ISR is long, a tagged field is present or bytes are missing."""
    data, at = cursor.data, cursor.at
    if at + _ISR_LENGTH_AT >= len(data) or not 1 <= data[at + _ISR_LENGTH_AT] <= len(_USUAL_FORMS):
        return None
    n = data[at + _ISR_LENGTH_AT] - 1
    form = _USUAL_FORMS[n]
    if at + form.size > len(data):
        return None
    values = form.unpack_from(data, at)
    if values[-1] or any(values[5:-3:3]):
        return None
    cursor.at = at + form.size
    return AlterPartition(topic, values[0], values[1], values[3:-3:3], values[-2], values[-3])


def encode_alter_partition_request(version: int, message: AlterPartitionRequest) -> bytes:
    """The broker's side; all broker epochs in the ISR are unknown (-1)."""
    check_supported(_KEY, version)
    parts = [_REQUEST.pack(message.broker, message.broker_epoch)]
    by_topic: dict[str | bytes, list[AlterPartition]] = {}
    for change in message.partitions:
        by_topic.setdefault(change.topic, []).append(change)
    parts.append(array_length(len(by_topic), flexible=True))
    for topic, changes in by_topic.items():
        parts += (_topic(version, topic), array_length(len(changes), flexible=True))
        for change in changes:
            parts.append(_BEFORE_ISR.pack(change.partition, change.leader_epoch))
            if version >= 3:
                parts.append(array_length(len(change.isr), flexible=True))
                parts += [_BROKER_STATE.pack(broker, -1, 0) for broker in change.isr]
            else:
                parts.append(COMPACT_INT32_ARRAY(change.isr))
            if version >= 1:
                parts.append(INT8.pack(change.recovery_state))
            parts += (INT32.pack(change.partition_epoch), NO_TAGS)
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    return b"".join(parts)


def encode_alter_partition_response(
    version: int, error_code: int, results: Sequence[AlterPartitionResult] = ()
) -> bytes:
    """Takes results in any order; topics appear once, in order of first appearance.  No leadership is sent as zeros."""
    check_supported(_KEY, version)
    by_topic: dict[str | bytes, list[AlterPartitionResult]] = {}
    for result in results:
        by_topic.setdefault(result.topic, []).append(result)
    throttle_time_ms = 0
    parts = [_RESPONSE.pack(throttle_time_ms, error_code), array_length(len(by_topic), flexible=True)]
    for topic, members in by_topic.items():
        parts += (_topic(version, topic), array_length(len(members), flexible=True))
        parts += [_result(version, member) for member in members]
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    return b"".join(parts)


_NOTHING = LeaderAndIsr(0, 0, (), 0, 0, 0)


def _result(version: int, result: AlterPartitionResult) -> bytes:
    held = result.leadership or _NOTHING
    return b"".join(
        (
            _RESULT.pack(result.partition, result.error_code, held.leader, held.leader_epoch),
            COMPACT_INT32_ARRAY(held.isr),
            INT8.pack(held.recovery_state) if version >= 1 else b"",
            INT32.pack(held.partition_epoch),
            NO_TAGS,
        )
    )


def decode_alter_partition_response(version: int, body: Buffer) -> AlterPartitionResponse:
    """The broker's side; a result with an error has no leadership, and the controller epoch is always unknown (0)."""
    cursor = _cursor(version, body, "response")
    _, error_code = cursor.unpack(_RESPONSE, "throttle time and error code")
    results = []
    for _ in range(cursor.array_length("topics", 3)):
        topic = _read_topic(cursor, version)
        for _ in range(cursor.array_length("partitions", 20)):
            partition, code, leader, leader_epoch = cursor.unpack(_RESULT, "partition, error code and leader")
            isr = cursor.int32_array("ISR")
            recovery_state = cursor.int8("leader recovery state") if version >= 1 else 0
            partition_epoch = cursor.int32("partition epoch")
            cursor.tags()
            held = None if code else LeaderAndIsr(leader, leader_epoch, isr, 0, partition_epoch, recovery_state)
            results.append(AlterPartitionResult(topic, partition, code, held))
        cursor.tags()
    cursor.tags()
    cursor.end()
    return AlterPartitionResponse(error_code, tuple(results))


def _cursor(version: int, body: Buffer, kind: str) -> Cursor:
    check_supported(_KEY, version)
    return Cursor(f"ALTER_PARTITION(56) version {version} {kind}", body, flexible=True)


def _topic(version: int, topic: str | bytes) -> bytes:
    if isinstance(topic, bytes):
        assert version >= 2 and len(topic) == 16, (version, topic)
        return topic
    assert version < 2, (version, topic)
    return string(topic, flexible=True)


def _read_topic(cursor: Cursor, version: int) -> str | bytes:
    return cursor.uuid("topic id") if version >= 2 else cursor.string("topic")


def _read_isr_with_epochs(cursor: Cursor) -> tuple[int, ...]:
    isr = []
    for _ in range(cursor.array_length("new ISR", 13)):
        isr.append(cursor.int32("broker id"))
        cursor.skip(INT64.size, "broker epoch")
        cursor.tags()
    return tuple(isr)
