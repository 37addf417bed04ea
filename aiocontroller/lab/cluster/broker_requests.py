"""Fast decoders of the controller's requests to brokers: LeaderAndIsr 0-7, UpdateMetadata 0-8, StopReplica 0-4.

A request of 100,000 partitions must not block the process, which also sends ZooKeeper heartbeats.  So the decoders are
generators: a step reads at most ``STEP`` partitions, and the caller lets the event loop run between steps.  Replica
lists repeat; ``IntArrays`` keeps one tuple for each distinct list.

Field orders are those of Kafka's message definitions (clients/src/main/resources/common/message, 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from struct import Struct, error, unpack
from typing import NamedTuple, TypeVar

from aiocontroller.core.ids import NO_EPOCH, NO_TOPIC_ID, UNKNOWN_BROKER_EPOCH, Endpoint
from aiocontroller.wire.apis import ApiKey, api_name, is_flexible
from aiocontroller.wire.frames import FrameError
from aiocontroller.wire.primitives import INT32, Cursor

STEP = 1000
"""Partitions decoded before the event loop may run: about 2 ms."""

_MAX_ARRAYS = 1 << 18
_FOUR = Struct(">iiii")
_INDEX_EPOCH_DELETE = Struct(">ii?")
_SECURITY_PROTOCOLS = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Yields between steps; the result is the generator's return value."""


def run_to_end(steps: Steps[T]) -> T:
    """Return the result, without pauses (for tests and small requests)."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


class IntArrays(dict[bytes, tuple[int, ...]]):
    """Decoded int32 arrays by their bytes on the wire."""

    def __missing__(self, raw: bytes) -> tuple[int, ...]:
        if len(self) >= _MAX_ARRAYS:
            self.clear()
        value = self[raw] = unpack(f">{len(raw) // 4}i", raw)
        return value


class PartitionState(NamedTuple):
    """One partition of LeaderAndIsr (without ``offline``) or UpdateMetadata (without ``adding`` and later fields)."""

    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_new: bool = False
    recovery_state: int = 0


class TopicStates(NamedTuple):
    topic: str
    topic_id: bytes
    partitions: list[PartitionState]


class LeaderAndIsrRequest(NamedTuple):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topics: list[TopicStates]
    live_leaders: list[tuple[int, str, int]]
    """(id, host, port)"""


class LiveBroker(NamedTuple):
    id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None


class UpdateMetadataRequest(NamedTuple):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    topics: list[TopicStates]
    live_brokers: list[LiveBroker]


class StopReplicaRequest(NamedTuple):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: list[tuple[str, int, int, bool]]
    """(topic, index, leader epoch, delete); the epoch is NO_EPOCH below version 3"""


def decode_leader_and_isr(version: int, body: bytes, arrays: IntArrays) -> Steps[LeaderAndIsrRequest]:
    """FrameError when it cannot be understood."""
    cursor = _cursor(ApiKey.LEADER_AND_ISR, version, body)
    controller_id = cursor.int32("controller id")
    if version >= 7:
        cursor.int8("is KRaft controller")
    controller_epoch = cursor.int32("controller epoch")
    broker_epoch = cursor.int64("broker epoch") if version >= 2 else UNKNOWN_BROKER_EPOCH
    if version >= 5:
        cursor.int8("type")
    read = _leader_and_isr_partition(version, arrays)
    topics = yield from _topics(cursor, grouped=version >= 2, ids=version >= 5, read=read)
    live_leaders = []
    for _ in range(cursor.array_length("live leaders", 10)):
        live_leaders.append((cursor.int32("leader id"), cursor.string("host"), cursor.int32("port")))
        cursor.tags()
    cursor.tags()
    return LeaderAndIsrRequest(controller_id, controller_epoch, broker_epoch, topics, live_leaders)


def decode_update_metadata(version: int, body: bytes, arrays: IntArrays) -> Steps[UpdateMetadataRequest]:
    """FrameError when it cannot be understood."""
    cursor = _cursor(ApiKey.UPDATE_METADATA, version, body)
    controller_id = cursor.int32("controller id")
    if version >= 8:
        cursor.int8("is KRaft controller")
    controller_epoch = cursor.int32("controller epoch")
    broker_epoch = cursor.int64("broker epoch") if version >= 5 else UNKNOWN_BROKER_EPOCH
    read = _update_metadata_partition(version, arrays)
    topics = yield from _topics(cursor, grouped=version >= 5, ids=version >= 7, read=read)
    live = [_live_broker(cursor, version) for _ in range(cursor.array_length("live brokers", 4))]
    cursor.tags()
    return UpdateMetadataRequest(controller_id, controller_epoch, broker_epoch, topics, live)


def decode_stop_replica(version: int, body: bytes) -> Steps[StopReplicaRequest]:
    """FrameError when it cannot be understood."""
    cursor = _cursor(ApiKey.STOP_REPLICA, version, body)
    controller_id = cursor.int32("controller id")
    if version >= 4:
        cursor.int8("is KRaft controller")
    controller_epoch = cursor.int32("controller epoch")
    broker_epoch = cursor.int64("broker epoch") if version >= 1 else UNKNOWN_BROKER_EPOCH
    delete_all = bool(cursor.int8("delete partitions")) if version <= 2 else False
    partitions: list[tuple[str, int, int, bool]] = []
    for _ in range(cursor.array_length("topics", 3)):
        topic = cursor.string("topic name")
        if version == 0:
            partitions.append((topic, cursor.int32("partition"), NO_EPOCH, delete_all))
        elif version <= 2:
            indexes = cursor.int32_array("partitions")
            partitions.extend((topic, index, NO_EPOCH, delete_all) for index in indexes)
        else:
            for _ in range(cursor.array_length("partitions", 9)):
                index, epoch, delete = cursor.unpack(_INDEX_EPOCH_DELETE, "partition")
                cursor.tags()
                partitions.append((topic, index, epoch, bool(delete)))
                if len(partitions) % STEP == 0:
                    yield
        cursor.tags()
    cursor.tags()
    return StopReplicaRequest(controller_id, controller_epoch, broker_epoch, partitions)


def decode_metadata_topics(version: int, body: bytes) -> list[tuple[str | None, bytes]] | None:
    """Return the topics that a Metadata request of version 0-12 asks for, as (name, id); None for all."""
    cursor = _cursor(ApiKey.METADATA, version, body)
    all_topics = b"\x00" if cursor.flexible else b"\xff\xff\xff\xff"
    if version >= 1 and body.startswith(all_topics):
        return None
    topics: list[tuple[str | None, bytes]] = []
    for _ in range(cursor.array_length("topics", 2)):
        topic_id = cursor.uuid("topic id") if version >= 10 else NO_TOPIC_ID
        topics.append((cursor.nullable_string("topic name"), topic_id))
        cursor.tags()
    return topics if version >= 1 else topics or None  # in version 0 an empty list means all


def _cursor(api: ApiKey, version: int, body: bytes) -> Cursor:
    return Cursor(f"{api_name(api)} version {version} request", body, flexible=is_flexible(api, version))


ReadPartition = Callable[[bytes, int], tuple[PartitionState, int]]
ReadArray = Callable[[bytes, int], tuple[tuple[int, ...], int]]


def _topics(cursor: Cursor, *, grouped: bool, ids: bool, read: ReadPartition) -> Steps[list[TopicStates]]:
    """Read the topics with their partitions; in the oldest versions each partition carries its topic's name."""
    topics: list[TopicStates] = []
    if not grouped:
        by_name: dict[str, TopicStates] = {}
        for number in range(cursor.array_length("partitions", 30)):
            name = cursor.string("topic name")
            if name not in by_name:
                by_name[name] = TopicStates(name, NO_TOPIC_ID, [])
            by_name[name].partitions.extend(_partitions(cursor, 1, read))
            if number % STEP == STEP - 1:
                yield
        return list(by_name.values())
    since_pause = 0
    for _ in range(cursor.array_length("topics", 3)):
        name = cursor.string("topic name")
        topic = TopicStates(name, cursor.uuid("topic id") if ids else NO_TOPIC_ID, [])
        left = cursor.array_length("partitions", 28)
        while left:
            n = min(left, STEP)
            topic.partitions.extend(_partitions(cursor, n, read))
            left -= n
            since_pause += n
            if since_pause >= STEP:
                since_pause = 0
                yield
        cursor.tags()
        topics.append(topic)
    return topics


def _partitions(cursor: Cursor, n: int, read: ReadPartition) -> Iterator[PartitionState]:
    data, at = cursor.data, cursor.at
    assert isinstance(data, bytes)
    try:
        for _ in range(n):
            state, at = read(data, at)
            yield state
    except (error, IndexError, OverflowError):
        cursor.at = at
        raise cursor.error("partition state", f"{len(data) - at} bytes left", "a whole one") from None
    cursor.at = at


def _leader_and_isr_partition(version: int, arrays: IntArrays) -> ReadPartition:
    flexible = version >= 4
    array = _array_reader(flexible, arrays)

    def read(data: bytes, at: int) -> tuple[PartitionState, int]:
        index, controller_epoch, leader, leader_epoch = _FOUR.unpack_from(data, at)
        isr, at = array(data, at + 16)
        (partition_epoch,) = INT32.unpack_from(data, at)
        replicas, at = array(data, at + 4)
        adding: tuple[int, ...] = ()
        removing: tuple[int, ...] = ()
        is_new = False
        recovery_state = 0
        if version >= 3:
            adding, at = array(data, at)
            removing, at = array(data, at)
        if version >= 1:
            is_new = data[at] != 0
            at += 1
        if version >= 6:
            recovery_state = data[at]
            at += 1
        if flexible:
            at = _skip_tags(data, at)
        return (
            PartitionState(
                index,
                controller_epoch,
                leader,
                leader_epoch,
                isr,
                partition_epoch,
                replicas,
                (),
                adding,
                removing,
                is_new,
                recovery_state,
            ),
            at,
        )

    return read


def _update_metadata_partition(version: int, arrays: IntArrays) -> ReadPartition:
    flexible = version >= 6
    array = _array_reader(flexible, arrays)

    def read(data: bytes, at: int) -> tuple[PartitionState, int]:
        index, controller_epoch, leader, leader_epoch = _FOUR.unpack_from(data, at)
        isr, at = array(data, at + 16)
        (partition_epoch,) = INT32.unpack_from(data, at)
        replicas, at = array(data, at + 4)
        offline: tuple[int, ...] = ()
        if version >= 4:
            offline, at = array(data, at)
        if flexible:
            at = _skip_tags(data, at)
        return PartitionState(
            index, controller_epoch, leader, leader_epoch, isr, partition_epoch, replicas, offline
        ), at

    return read


def _array_reader(flexible: bool, arrays: IntArrays) -> ReadArray:
    def compact(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
        n = data[at]
        at += 1
        if n >= 128:
            n, at = _varint(data, at - 1)
        if n == 0:
            raise FrameError(f"array of broker ids at byte {at}: found null, expected an array")
        end = at + 4 * n - 4
        return arrays[data[at:end]], end

    def legacy(data: bytes, at: int) -> tuple[tuple[int, ...], int]:
        (n,) = INT32.unpack_from(data, at)
        if n < 0:
            raise FrameError(f"array of broker ids at byte {at}: found length {n}, expected an array")
        at += 4
        end = at + 4 * n
        return arrays[data[at:end]], end

    return compact if flexible else legacy


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 128 or shift > 28:
            return value, at
        shift += 7


def _skip_tags(data: bytes, at: int) -> int:
    if data[at] == 0:
        return at + 1
    count, at = _varint(data, at)
    for _ in range(min(count, len(data))):
        _, at = _varint(data, at)
        size, at = _varint(data, at)
        at += size
    return at


def _live_broker(cursor: Cursor, version: int) -> LiveBroker:
    broker_id = cursor.int32("broker id")
    endpoints: list[Endpoint] = []
    if version == 0:
        host, port = cursor.string("host"), cursor.int32("port")
        endpoints.append(Endpoint("PLAINTEXT", host, port))
    else:
        for _ in range(cursor.array_length("endpoints", 8)):
            port, host = cursor.int32("port"), cursor.string("host")
            listener = cursor.string("listener name") if version >= 3 else None
            protocol = _SECURITY_PROTOCOLS.get(cursor.int16("security protocol"), "UNKNOWN")
            cursor.tags()
            endpoints.append(Endpoint(listener or protocol, host, port, protocol))
    rack = cursor.nullable_string("rack") if version >= 2 else None
    cursor.tags()
    return LiveBroker(broker_id, tuple(endpoints), rack)
