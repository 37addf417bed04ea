"""LeaderAndIsr (API key 4), versions 0 to 7: our own encoder of the request and decoder of the answer.

version  adds
0        one flat list of partitions, each with its topic's name
1        is new
2        broker epoch; partitions grouped by topic
3        adding and removing replicas
4        flexible
5        type (always 0, unknown, as from Kafka's controller) and topic ids; the answer is by topic id
6        leader recovery state
7        is a KRaft controller (never)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from struct import Struct

import msgspec

from aiocontroller.core.columns import take
from aiocontroller.core.ids import RECOVERED, ReplicaAssignment
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.wire.apis import ApiKey, check_supported, is_flexible
from aiocontroller.wire.primitives import INT32, NO_TAGS, Buffer, Cursor, array_length, string
from aiocontroller.wire.state_matrix import Used
from aiocontroller.wire.topic_states import (
    ControlRequestBody,
    Cores,
    EncodedValues,
    TopicStatesEncoder,
)

_KEY = ApiKey.LEADER_AND_ISR
_START = Struct(">iBi")
_START_WITHOUT_KRAFT = Struct(">ii")

AT_REST = ReplicaAssignment(())
LiveLeader = tuple[int, str, int]
"""(broker id, host, port) on the inter-broker listener."""


class LeaderAndIsrEncoder(TopicStatesEncoder):
    """Encodes the request; see ``topic_states``.  ``body`` does the work.

    ``new``: the rows whose replica the broker may create even if a log directory is offline.  Every row must have
    leadership.  ``live_leaders``: registered brokers; the request names those that lead one of its partitions.
    """

    def __init__(
        self,
        version: int,
        *,
        controller_id: int,
        controller_epoch: int,
        table: PartitionTable,
        rows: Sequence[int],
        new: Collection[int] = (),
        live_leaders: Sequence[LiveLeader] = (),
        kept: EncodedValues | None = None,
        cores: Cores | None = None,
    ) -> None:
        check_supported(_KEY, version)
        flexible = is_flexible(_KEY, version)
        super().__init__(
            table,
            rows,
            flexible=flexible,
            grouped=version >= 2,
            with_topic_ids=version >= 5,
            for_update_metadata=False,
            kept=kept,
            cores=cores,
        )
        self._version = version
        self._new = new if isinstance(new, set | frozenset | dict) else frozenset(new)
        self._head = (
            _START.pack(controller_id, 0, controller_epoch)
            if version >= 7
            else _START_WITHOUT_KRAFT.pack(controller_id, controller_epoch)
        )
        self._live_leaders = live_leaders

    def _named(self, leaders: Collection[int]) -> bytes:
        flexible = self._flexible
        named = [self._live_leader(*leader) for leader in self._live_leaders if leader[0] in leaders]
        return b"".join((array_length(len(named), flexible=flexible), *named, NO_TAGS if flexible else b""))

    def _live_leader(self, broker: int, host: str, port: int) -> bytes:
        flexible = self._flexible
        end = NO_TAGS if flexible else b""
        return INT32.pack(broker) + string(host, flexible=flexible) + INT32.pack(port) + end

    def _ends(self, rows: Sequence[int], used: Used) -> bytes | list[bytes]:
        table, new, moving = self._table, self._new, self._kept.moving()
        if not new and used.recovery_states == {RECOVERED} and moving.isdisjoint(used.assignments):
            return self._end_of(new=False, recovery_state=RECOVERED, assignment=AT_REST)
        recovery_states, assigned = take(rows, table.recovery_state, table.assignment_of)
        known: dict[tuple[bool, int, int], bytes] = {}
        ends = []
        for row, recovery_state, assignment in zip(rows, recovery_states, assigned, strict=True):
            key = row in new, recovery_state, assignment if assignment in moving else -1
            if key not in known:
                where = table.assignments.values[assignment] if assignment in moving else AT_REST
                known[key] = self._end_of(new=key[0], recovery_state=key[1], assignment=where)
            ends.append(known[key])
        return ends if len(known) > 1 else ends[0]

    def _end_of(self, *, new: bool, recovery_state: int, assignment: ReplicaAssignment) -> bytes:
        version = self._version
        end = self._array(assignment.adding) + self._array(assignment.removing) if version >= 3 else b""
        if version >= 1:
            end += bytes((new,))
        if version >= 6:
            end += bytes((recovery_state,))
        return end + (NO_TAGS if self._flexible else b"")

    def body(self) -> ControlRequestBody:
        """The body with all states that were added; call it once."""
        states, used = self._states()
        end = self._named(used.leaders)
        if self._version < 2:
            return ControlRequestBody(b"".join((self._head, *states, end)), None)
        type_unknown = b"\x00" if self._version >= 5 else b""
        return ControlRequestBody(self._head, b"".join((type_unknown, *states, end)))


def encode_leader_and_isr(
    version: int,
    *,
    controller_id: int,
    controller_epoch: int,
    broker_epoch: int,
    table: PartitionTable,
    rows: Sequence[int],
    new: Collection[int] = (),
    live_leaders: Sequence[LiveLeader] = (),
) -> bytes:
    """The body in one call; the arguments are the encoder's."""
    encoder = LeaderAndIsrEncoder(
        version,
        controller_id=controller_id,
        controller_epoch=controller_epoch,
        table=table,
        rows=rows,
        new=new,
        live_leaders=live_leaders,
    )
    return encoder.body().for_broker(broker_epoch)


class LeaderAndIsrResponse(msgspec.Struct, frozen=True):
    """A broker's answer."""

    error_code: int
    partitions: tuple[tuple[bytes | str, int, int], ...]
    """(topic id, or name below version 5; partition; error code) of each partition with an error."""


_PARTITION = Struct(">ih")
_TAGGED_PARTITION_BYTES = 7


def decode_leader_and_isr_response(version: int, body: Buffer) -> LeaderAndIsrResponse:
    """Decode a response; only its errors are returned.  FrameError if it is truncated, too long or malformed."""
    check_supported(_KEY, version)
    subject = f"LEADER_AND_ISR(4) version {version} response"
    cursor = Cursor(subject, body, flexible=is_flexible(_KEY, version))
    error_code = cursor.int16("error code")
    errors: list[tuple[bytes | str, int, int]] = []
    if version >= 5:
        for _ in range(cursor.array_length("topics", 18)):
            topic_id = cursor.uuid("topic id")
            _read_partition_errors(cursor, topic_id, errors)
            cursor.tags()
    else:
        for _ in range(cursor.array_length("partitions", 8)):
            topic = cursor.string("topic")
            partition, code = cursor.unpack(_PARTITION, "partition and error code")
            cursor.tags()
            if code:
                errors.append((topic, partition, code))
    cursor.tags()
    cursor.end()
    return LeaderAndIsrResponse(error_code, tuple(errors))


def _read_partition_errors(cursor: Cursor, topic_id: bytes, errors: list[tuple[bytes | str, int, int]]) -> None:
    count = cursor.array_length("partitions", _TAGGED_PARTITION_BYTES)
    width, first = _TAGGED_PARTITION_BYTES, cursor.at
    rows = bytes(cursor.data[first : first + width * count])
    # Codes and tag counts are nearly always zero: three strided comparisons replace a loop.
    if not (any(rows[4::width]) or any(rows[5::width]) or any(rows[6::width])):
        cursor.at = first + width * count
        return
    for _ in range(count):
        partition, code = cursor.unpack(_PARTITION, "partition and error code")
        cursor.tags()
        if code:
            errors.append((topic_id, partition, code))


__all__ = [
    "EncodedValues",
    "LeaderAndIsrEncoder",
    "LeaderAndIsrResponse",
    "LiveLeader",
    "decode_leader_and_isr_response",
    "encode_leader_and_isr",
]
