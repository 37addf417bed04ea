"""LeaderAndIsr, UpdateMetadata and StopReplica as a broker reads them: for simulated brokers, and to check encoders.

Theory.  A request has a hundred thousand partitions that nearly all have the same shape: as many replicas, as many in
sync.  So a partition is read by the compiled form that fitted the one before it, and only when the lengths in it turn
out to be others (or a tagged field is there) it is read again step by step, which yields the next form.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from struct import Struct, error
from typing import Any, NamedTuple

import msgspec

from aiocontroller.core.ids import NO_TOPIC_ID, UNKNOWN_BROKER_EPOCH, Broker, Endpoint
from aiocontroller.wire.apis import ApiKey, api_name, check_supported, is_flexible
from aiocontroller.wire.primitives import Buffer, Cursor
from aiocontroller.wire.update_metadata import SECURITY_PROTOCOLS


class LeaderAndIsrPartition(NamedTuple):
    """What a version does not say is empty, False or 0."""

    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    is_new: bool = False
    recovery_state: int = 0


class UpdateMetadataPartition(NamedTuple):
    partition: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    offline: tuple[int, ...] = ()


class StopReplicaPartition(NamedTuple):
    """``leader_epoch`` is -1 below version 3."""

    partition: int
    leader_epoch: int
    delete: bool


class TopicStates(NamedTuple):
    topic: str
    topic_id: bytes
    """Zero where the version does not say it."""
    partitions: list[Any]


class LeaderAndIsrRequest(msgspec.Struct, frozen=True):
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    """UNKNOWN_BROKER_EPOCH where the version does not say it."""
    topics: list[TopicStates]
    """Of ``LeaderAndIsrPartition``."""
    live_leaders: tuple[tuple[int, str, int], ...]


class UpdateMetadataRequest(msgspec.Struct, frozen=True):
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    topics: list[TopicStates]
    """Of ``UpdateMetadataPartition``."""
    live_brokers: tuple[Broker, ...]
    """Their own epochs are not said (UNKNOWN_BROKER_EPOCH)."""


class StopReplicaRequest(msgspec.Struct, frozen=True):
    controller_id: int
    is_kraft_controller: bool
    controller_epoch: int
    broker_epoch: int
    topics: list[TopicStates]
    """Of ``StopReplicaPartition``."""


# -- many partitions ---------------------------------------------------------------------------------------------------


class _Shape:
    """A compiled form for rows whose arrays have these lengths: unpack, compare the lengths, pick the values."""

    def __init__(self, layout: str, lengths: tuple[int, ...], *, flexible: bool) -> None:
        form, at, waiting = ">", 0, iter(lengths)
        picks: list[int | slice] = []
        checks: list[int] = []
        expected: list[int] = []
        for kind in layout:
            if kind == "A":
                n = next(waiting)
                form += f"{'B' if flexible else 'i'}{n}i"
                checks.append(at)
                expected.append(n + 1 if flexible else n)
                picks.append(slice(at + 1, at + 1 + n))
                at += 1 + n
            else:
                form += kind
                picks.append(at)
                at += 1
        if flexible:  # no tagged fields
            form += "B"
            checks.append(at)
            expected.append(0)
        compiled = Struct(form)
        self.unpack_from = compiled.unpack_from
        self.size = compiled.size
        self.lengths = itemgetter(*checks)
        self.expected: Any = tuple(expected) if len(expected) > 1 else expected[0]
        self.pick = itemgetter(*picks)


_READ_VALUE: dict[str, Callable[[Cursor], Any]] = {
    "i": lambda cursor: cursor.int32("a number of a partition"),
    "b": lambda cursor: cursor.int8("a flag of a partition"),
    "?": lambda cursor: cursor.int8("a flag of a partition") != 0,
    "A": lambda cursor: cursor.int32_array("replicas of a partition"),
}


class _RowReader:
    """Reads rows of one layout: a ``struct`` letter for each number, A for an array of int32."""

    def __init__(self, layout: str, *, flexible: bool) -> None:
        self._layout = layout
        self._arrays = [at for at, kind in enumerate(layout) if kind == "A"]
        self._flexible = flexible
        self._shapes: dict[tuple[int, ...], _Shape] = {}
        self._last: _Shape | None = None

    def read_one(self, cursor: Cursor) -> tuple[Any, ...]:
        row = tuple([_READ_VALUE[kind](cursor) for kind in self._layout])
        cursor.tags()
        if self._arrays:
            lengths = tuple([len(row[at]) for at in self._arrays])
            if max(lengths) < 127:  # the form takes lengths of one byte
                shape = self._shapes.get(lengths)
                if shape is None:
                    shape = self._shapes[lengths] = _Shape(self._layout, lengths, flexible=self._flexible)
                self._last = shape
        return row

    def read(self, cursor: Cursor, n: int) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        data, shape = cursor.data, self._last
        while len(rows) < n:
            if shape is not None:
                at, unpack_from, size = cursor.at, shape.unpack_from, shape.size
                lengths, expected, pick = shape.lengths, shape.expected, shape.pick
                try:
                    for _ in range(n - len(rows)):
                        values = unpack_from(data, at)
                        if lengths(values) != expected:
                            break
                        rows.append(pick(values))
                        at += size
                except error:  # fewer bytes left than the form has: another shape, or the end
                    pass
                cursor.at = at
            if len(rows) < n:
                rows.append(self.read_one(cursor))
                shape = self._last
        return rows


def _read_topics(
    cursor: Cursor, reader: _RowReader, make: Callable[[tuple[Any, ...]], Any], *, grouped: bool, with_topic_ids: bool
) -> list[TopicStates]:
    if not grouped:
        named = [(cursor.string("topic"), reader.read_one(cursor)) for _ in range(cursor.array_length("partitions", 6))]
        return [
            TopicStates(topic, NO_TOPIC_ID, [make(row) for _, row in members])
            for topic, members in groupby(named, itemgetter(0))
        ]
    topics = []
    for _ in range(cursor.array_length("topics", 2)):
        name = cursor.string("topic")
        topic_id = cursor.uuid("topic id") if with_topic_ids else NO_TOPIC_ID
        rows = reader.read(cursor, cursor.array_length("partitions", 4))
        cursor.tags()
        topics.append(TopicStates(name, topic_id, [make(row) for row in rows]))
    return topics


_Start = tuple[int, bool, int, int]
"""Controller id, is it a KRaft controller, controller epoch, broker epoch."""


def _begin(api: ApiKey, version: int, body: Buffer, *, kraft_from: int, epoch_from: int) -> tuple[Cursor, _Start]:
    check_supported(api, version)
    cursor = Cursor(f"{api_name(api)} version {version} request", body, flexible=is_flexible(api, version))
    controller_id = cursor.int32("controller id")
    is_kraft = cursor.int8("is a KRaft controller") != 0 if version >= kraft_from else False
    controller_epoch = cursor.int32("controller epoch")
    broker_epoch = cursor.int64("broker epoch") if version >= epoch_from else UNKNOWN_BROKER_EPOCH
    return cursor, (controller_id, is_kraft, controller_epoch, broker_epoch)


# -- the three requests ------------------------------------------------------------------------------------------------

_LEADER_AND_ISR_LAYOUTS = ["iiiiAiA", "iiiiAiA?", "iiiiAiA?", *["iiiiAiAAA?"] * 3, *["iiiiAiAAA?b"] * 2]


def decode_leader_and_isr_request(version: int, body: Buffer) -> LeaderAndIsrRequest:
    """FrameError when the body is cut short, too long or garbled.  About 1 µs a partition."""
    cursor, start = _begin(ApiKey.LEADER_AND_ISR, version, body, kraft_from=7, epoch_from=2)
    if version >= 5:
        cursor.skip(1, "type")
    make: Callable[[tuple[Any, ...]], Any] = LeaderAndIsrPartition._make
    if version < 3:  # no adding and removing replicas between the replicas and the flag
        make = _old_leader_and_isr_partition
    elif version < 6:
        make = lambda row: LeaderAndIsrPartition(*row)  # noqa: E731
    reader = _RowReader(_LEADER_AND_ISR_LAYOUTS[version], flexible=cursor.flexible)
    topics = _read_topics(cursor, reader, make, grouped=version >= 2, with_topic_ids=version >= 5)
    live_leaders = []
    for _ in range(cursor.array_length("live leaders", 9)):
        live_leaders.append((cursor.int32("broker id"), cursor.string("host"), cursor.int32("port")))
        cursor.tags()
    cursor.tags()
    cursor.end()
    return LeaderAndIsrRequest(*start, topics, tuple(live_leaders))


def _old_leader_and_isr_partition(row: tuple[Any, ...]) -> LeaderAndIsrPartition:
    is_new = len(row) > 7 and row[7]
    return LeaderAndIsrPartition._make((*row[:7], (), (), is_new, 0))


def decode_update_metadata_request(version: int, body: Buffer) -> UpdateMetadataRequest:
    """FrameError when the body is cut short, too long or garbled.  About 1 µs a partition."""
    cursor, start = _begin(ApiKey.UPDATE_METADATA, version, body, kraft_from=8, epoch_from=5)
    make: Callable[[tuple[Any, ...]], Any] = UpdateMetadataPartition._make
    if version < 4:
        make = lambda row: UpdateMetadataPartition(*row)  # noqa: E731
    reader = _RowReader("iiiiAiAA" if version >= 4 else "iiiiAiA", flexible=cursor.flexible)
    topics = _read_topics(cursor, reader, make, grouped=version >= 5, with_topic_ids=version >= 7)
    live_brokers = tuple([_read_broker(version, cursor) for _ in range(cursor.array_length("live brokers", 6))])
    cursor.tags()
    cursor.end()
    return UpdateMetadataRequest(*start, topics, live_brokers)


_PROTOCOL_NAMES = {number: name for name, number in SECURITY_PROTOCOLS.items()}


def _read_broker(version: int, cursor: Cursor) -> Broker:
    broker = cursor.int32("broker id")
    if version == 0:
        host, port = cursor.string("host"), cursor.int32("port")
        return Broker(broker, UNKNOWN_BROKER_EPOCH, (Endpoint("PLAINTEXT", host, port),))
    endpoints = []
    for _ in range(cursor.array_length("endpoints", 7)):
        port, host = cursor.int32("port"), cursor.string("host")
        listener = cursor.string("listener") if version >= 3 else None
        number = cursor.int16("security protocol")
        protocol = _PROTOCOL_NAMES.get(number)
        if protocol is None:
            raise cursor.error("security protocol", number, f"one of {sorted(_PROTOCOL_NAMES)}")
        cursor.tags()
        endpoints.append(Endpoint(protocol if listener is None else listener, host, port, protocol))
    rack = cursor.nullable_string("rack") if version >= 2 else None
    cursor.tags()
    return Broker(broker, UNKNOWN_BROKER_EPOCH, tuple(endpoints), rack)


def decode_stop_replica_request(version: int, body: Buffer) -> StopReplicaRequest:
    """FrameError when the body is cut short, too long or garbled."""
    cursor, start = _begin(ApiKey.STOP_REPLICA, version, body, kraft_from=4, epoch_from=1)
    delete = cursor.int8("delete partitions") != 0 if version < 3 else False
    topics = []
    if version in (1, 2):
        for _ in range(cursor.array_length("topics", 2)):
            name, numbers = cursor.string("topic"), cursor.int32_array("partitions")
            cursor.tags()
            topics.append(TopicStates(name, NO_TOPIC_ID, [StopReplicaPartition(n, -1, delete) for n in numbers]))
    else:
        reader = _RowReader("ii?" if version >= 3 else "i", flexible=cursor.flexible)
        make: Callable[[tuple[Any, ...]], Any] = StopReplicaPartition._make
        if version == 0:
            make = lambda row: StopReplicaPartition(row[0], -1, delete)  # noqa: E731
        topics = _read_topics(cursor, reader, make, grouped=version >= 3, with_topic_ids=False)
    cursor.tags()
    cursor.end()
    return StopReplicaRequest(*start, topics)
