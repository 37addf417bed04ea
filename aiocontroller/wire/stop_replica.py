"""StopReplica (API key 5), versions 0 to 4: our own encoder of the request and decoder of the answer.

version  adds
0        one flat list of partitions; one *delete* flag for all
1        broker epoch; partitions grouped by topic
2        flexible
3        leader epoch and *delete* for each partition
4        is a KRaft controller (never)

Below version 3 a request deletes all its partitions or none, so two may be needed; the deleting one goes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

import msgspec

from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire.apis import ApiKey, check_supported, is_flexible
from aiocontroller.wire.primitives import INT16, INT32, INT64, NO_TAGS, Buffer, Cursor, array_length, string

_KEY = ApiKey.STOP_REPLICA
_PARTITION_STATE = Struct(">iiBB")
_PARTITION = Struct(">ih")


class StopReplicaPartition(NamedTuple):
    """A replica to stop, and whether to delete it."""

    topic: str
    partition: int
    leader_epoch: int
    delete: bool


def encode_stop_replica(
    version: int,
    *,
    controller_id: int,
    controller_epoch: int,
    broker_epoch: int,
    partitions: Sequence[StopReplicaPartition],
) -> list[bytes]:
    """One body from version 3 on; below that, one for each *delete* flag in use, deleting first."""
    check_supported(_KEY, version)
    head = INT32.pack(controller_id) + (b"\x00" if version >= 4 else b"") + INT32.pack(controller_epoch)
    if version >= 1:
        head += INT64.pack(broker_epoch)
    if version >= 3:
        return [head + _states(version, partitions)]
    bodies = []
    for delete in (True, False):
        chosen = [p for p in partitions if p.delete == delete]
        if chosen:
            bodies.append(head + bytes((delete,)) + _states(version, chosen))
    return bodies


def _states(version: int, partitions: Sequence[StopReplicaPartition]) -> bytes:
    flexible = is_flexible(_KEY, version)
    end = NO_TAGS if flexible else b""
    by_topic: dict[str, list[StopReplicaPartition]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition)
    parts = [array_length(len(by_topic) if version >= 1 else len(partitions), flexible=flexible)]
    for topic, states in by_topic.items():
        name = string(topic, flexible=flexible)
        if version == 0:
            parts += [name + INT32.pack(number) for _, number, _, _ in states]
            continue
        parts += (name, array_length(len(states), flexible=flexible))
        if version >= 3:
            parts += [_PARTITION_STATE.pack(number, epoch, delete, 0) for _, number, epoch, delete in states]
        else:
            parts.append(Struct(f">{len(states)}i").pack(*[number for _, number, _, _ in states]))
        parts.append(end)
    parts.append(end)
    return b"".join(parts)


class StopReplicaResponse(msgspec.Struct, frozen=True):
    """A broker's answer."""

    error_code: int
    partitions: tuple[tuple[str, int, int], ...]
    """(topic, partition, error code) of every partition, including those without an error."""

    def failed(self) -> tuple[TopicPartition, ...]:
        """Partitions with an error, in the answer's order."""
        return tuple(TopicPartition(topic, partition) for topic, partition, code in self.partitions if code)


def decode_stop_replica_response(version: int, body: Buffer) -> StopReplicaResponse:
    """Raises FrameError when the body is truncated, too long or malformed."""
    check_supported(_KEY, version)
    cursor = Cursor(f"STOP_REPLICA(5) version {version} response", body, flexible=is_flexible(_KEY, version))
    error_code = cursor.unpack(INT16, "error code")[0]
    partitions = []
    for _ in range(cursor.array_length("partitions", 8)):
        topic = cursor.string("topic")
        partition, code = cursor.unpack(_PARTITION, "partition and error code")
        cursor.tags()
        partitions.append((topic, partition, code))
    cursor.tags()
    cursor.end()
    return StopReplicaResponse(error_code, tuple(partitions))
