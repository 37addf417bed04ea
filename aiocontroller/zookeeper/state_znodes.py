"""Codec of partition states, ``/brokers/topics/T/partitions/N/state``; the rules and the theory are those of
``znodes``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec

from aiocontroller.core.ids import Eligible, LeaderAndIsr
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znode_json import (
    BadZNode,
    Epoch,
    Id,
    Leader,
    Wrong,
    check_distinct,
    ints_as_json,
    reading,
)


class _State(msgspec.Struct, gc=False):
    leader: Leader
    leader_epoch: Epoch
    isr: tuple[Id, ...]
    controller_epoch: Id
    leader_recovery_state: int = 0
    eligible_leader_replicas: Any = None
    """Our own key; Kafka's controller drops it when it writes the state."""


class _Eligible(msgspec.Struct):
    config_zxid: Annotated[int, msgspec.Meta(ge=0)]
    replicas: Annotated[tuple[tuple[Id, int], ...], msgspec.Meta(min_length=1)]


_state_decoder = msgspec.json.Decoder(_State)
_STATE_EXPECTED = (
    'a partition state: "leader" (-1 or a broker id), "leader_epoch", "controller_epoch", '
    '"isr" (distinct broker ids), optionally "leader_recovery_state" 0 or 1'
)
_MEMO_LIMIT = 1 << 16


def _read_state(data: bytes) -> _State:
    state = _state_decoder.decode(data)
    check_distinct(state.isr, "isr")
    if state.leader_recovery_state not in (0, 1):
        raise Wrong(f"leader_recovery_state is {state.leader_recovery_state}")
    return state


def decode_partition_state(path: str, data: bytes | None, version: int) -> LeaderAndIsr | BadZNode:
    """One state; ``version``, the znode's, is the partition epoch."""
    state = reading(path, data, _STATE_EXPECTED, _read_state)
    if isinstance(state, BadZNode):
        return state
    return LeaderAndIsr(
        state.leader,
        state.leader_epoch,
        state.isr,
        state.controller_epoch,
        version,
        state.leader_recovery_state,
        None if state.eligible_leader_replicas is None else _eligible(state.eligible_leader_replicas),
    )


def _eligible(found: Any) -> Eligible | None:
    """The eligible replicas; None if the field is unreadable: the leadership is valid without it."""
    try:
        read = msgspec.convert(found, _Eligible)
    except msgspec.ValidationError:
        return None
    return Eligible(read.config_zxid, read.replicas)


class PartitionStates(NamedTuple):
    """Many state znodes: their few distinct values, and each znode's value."""

    values: list[LeaderAndIsr | BadZNode | None]
    """None for a missing znode.  Without ``partition_epoch``, which is the znode's version."""
    number: list[int]
    """For each znode, its value's index in ``values``."""
    version: list[int]

    def states(self) -> list[LeaderAndIsr | BadZNode | None]:
        """One value for each znode, with its version."""
        return [
            LeaderAndIsr(s.leader, s.leader_epoch, s.isr, s.controller_epoch, version, s.recovery_state, s.eligible)
            if isinstance(s := self.values[number], LeaderAndIsr)
            else s
            for number, version in zip(self.number, self.version, strict=True)
        ]


def decode_partition_states(
    topics: Sequence[str], partitions: Sequence[int], datas: Sequence[bytes | None], versions: Sequence[int]
) -> PartitionStates:
    """Takes and returns columns.  Equal bytes are parsed once, and equal ISRs are one object."""
    memo: dict[bytes | None, int] = {}
    isrs: dict[tuple[int, ...], tuple[int, ...]] = {}
    found = PartitionStates([], [], list(versions))
    append, known = found.number.append, memo.get
    for index, data in enumerate(datas):
        number = known(data)
        if number is None:
            path = paths.topic_partition_state(topics[index], partitions[index])
            state = decode_partition_state(path, data, -1)
            number = len(found.values)
            if isinstance(state, LeaderAndIsr):
                state = msgspec.structs.replace(state, isr=isrs.setdefault(state.isr, state.isr))
                memo[data] = number
            found.values.append(state)
        append(number)
    return found


def encode_partition_states(leaderships: Iterable[LeaderAndIsr]) -> list[bytes]:
    """Version 1 with Kafka's key order; the partition epoch is not written: it is the znode's version."""
    memo: dict[tuple[int, int, tuple[int, ...], int, int, Eligible | None], bytes] = {}
    encoded: list[bytes] = []
    append, known = encoded.append, memo.get
    for state in leaderships:
        key = (
            state.leader,
            state.leader_epoch,
            state.isr,
            state.controller_epoch,
            state.recovery_state,
            state.eligible,
        )
        data = known(key)
        if data is None:
            if len(memo) >= _MEMO_LIMIT:
                memo.clear()
            data = memo[key] = _write_state(*key)
        append(data)
    return encoded


def _write_state(
    leader: int,
    leader_epoch: int,
    isr: tuple[int, ...],
    controller_epoch: int,
    recovery: int,
    eligible: Eligible | None,
) -> bytes:
    more = b',"leader_recovery_state":%d' % recovery if recovery else b""
    if eligible is not None:
        pairs = b",".join(b"[%d,%d]" % pair for pair in eligible.replicas)
        more += b',"eligible_leader_replicas":{"config_zxid":%d,"replicas":[%b]}' % (eligible.config_zxid, pairs)
    return b'{"controller_epoch":%d,"leader":%d,"version":1,"leader_epoch":%d,"isr":%b%b}' % (
        controller_epoch,
        leader,
        leader_epoch,
        ints_as_json(isr),
        more,
    )
