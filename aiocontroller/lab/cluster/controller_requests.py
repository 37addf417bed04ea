"""A broker's requests to its controller, encoded by hand: AlterPartition 0-3 and ControlledShutdown 1-3.

They deliberately do not use the package's own codec: this is an independent check of it, and it encodes 10,000 ISR
changes of a restart storm in one request without blocking the event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from aiocontroller.core.ids import NO_TOPIC_ID, RECOVERED
from aiocontroller.lab.cluster.partition import IsrChange
from aiocontroller.wire.apis import ApiKey, is_flexible
from aiocontroller.wire.primitives import INT32, NO_TAGS, Buffer, Cursor, array_length, int32_array, string

_BROKER = Struct(">iq")
_TWO = Struct(">ii")
_LEADERSHIP = Struct(">ihii")
_NO_BROKER_EPOCH = -1
"""A broker in ZooKeeper mode does not know the epochs of other brokers."""


class AlteredPartition(NamedTuple):
    """``topic`` is a topic id from version 2 on."""

    topic: str | bytes
    partition: int
    error_code: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class AlterPartitionAnswer(NamedTuple):
    error_code: int
    partitions: list[AlteredPartition]


def alter_partition_version(changes: Sequence[IsrChange], highest: int, *, topic_ids: bool) -> int:
    """Return ``highest``, or 1 at most without ``topic_ids`` or if a topic has no id."""
    named_by_id = topic_ids and all(change.partition.topic_id != NO_TOPIC_ID for change in changes)
    return min(3 if named_by_id else 1, highest)


def encode_alter_partition(version: int, broker_id: int, broker_epoch: int, changes: Sequence[IsrChange]) -> bytes:
    by_topic: dict[str | bytes, list[IsrChange]] = {}
    for change in changes:
        topic = change.partition.topic_id if version >= 2 else change.partition.topic
        by_topic.setdefault(topic, []).append(change)
    out = [_BROKER.pack(broker_id, broker_epoch), array_length(len(by_topic), flexible=True)]
    for topic, of_topic in by_topic.items():
        out.append(topic if isinstance(topic, bytes) else string(topic, flexible=True))
        out.append(array_length(len(of_topic), flexible=True))
        out.extend(_partition(version, change) for change in of_topic)
        out.append(NO_TAGS)
    out.append(NO_TAGS)
    return b"".join(out)


def _partition(version: int, change: IsrChange) -> bytes:
    if version >= 3:
        isr = array_length(len(change.isr), flexible=True)
        isr += b"".join([_BROKER.pack(replica, _NO_BROKER_EPOCH) + NO_TAGS for replica in change.isr])
    else:
        isr = int32_array(change.isr, flexible=True)
    recovery_state = bytes((RECOVERED,)) if version >= 1 else b""
    start = _TWO.pack(change.partition.partition, change.leader_epoch)
    return start + isr + recovery_state + change.partition_epoch.to_bytes(4, "big", signed=True) + NO_TAGS


def decode_alter_partition_response(version: int, body: Buffer) -> AlterPartitionAnswer:
    """FrameError when it cannot be understood."""
    cursor = Cursor(f"ALTER_PARTITION version {version} response", body, flexible=True)
    cursor.int32("throttle time")
    error_code = cursor.int16("error code")
    partitions: list[AlteredPartition] = []
    for _ in range(cursor.array_length("topics", 3)):
        topic = cursor.uuid("topic id") if version >= 2 else cursor.string("topic name")
        for _ in range(cursor.array_length("partitions", 20)):
            index, error, leader, leader_epoch = cursor.unpack(_LEADERSHIP, "partition")
            isr = cursor.int32_array("isr")
            if version >= 1:
                cursor.int8("leader recovery state")
            partition_epoch = cursor.int32("partition epoch")
            cursor.tags()
            partitions.append(AlteredPartition(topic, index, error, leader, leader_epoch, isr, partition_epoch))
        cursor.tags()
    cursor.tags()
    cursor.end()
    return AlterPartitionAnswer(error_code, partitions)


def encode_controlled_shutdown(version: int, broker_id: int, broker_epoch: int) -> bytes:
    if version < 2:
        return INT32.pack(broker_id)
    return _BROKER.pack(broker_id, broker_epoch) + (
        NO_TAGS if is_flexible(ApiKey.CONTROLLED_SHUTDOWN, version) else b""
    )


def decode_controlled_shutdown_response(version: int, body: Buffer) -> tuple[int, list[tuple[str, int]]]:
    """Return the error code, and the partitions that the broker still leads."""
    flexible = is_flexible(ApiKey.CONTROLLED_SHUTDOWN, version)
    cursor = Cursor(f"CONTROLLED_SHUTDOWN version {version} response", body, flexible=flexible)
    error_code = cursor.int16("error code")
    remaining: list[tuple[str, int]] = []
    for _ in range(cursor.array_length("remaining partitions", 6)):
        remaining.append((cursor.string("topic name"), cursor.int32("partition")))
        cursor.tags()
    cursor.tags()
    return error_code, remaining
