"""When a broker may be restarted, when it is back, and what a roll that was killed has done."""

from __future__ import annotations

import pytest

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.moving import MoveView, Now
from aiocontroller.core.rolling import Restarted, RestartGate, gate, order, resumed, returned

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
WELL = Now(ReplicaAssignment((1, 2)), 1, (2, 1))
LIVE = frozenset({1, 2, 3})


def test_the_gate_is_open_while_all_is_well() -> None:
    found = gate(MoveView({A: WELL}, LIVE), {1, 2, 3})
    assert found.open
    assert found.reasons() == ()


@pytest.mark.parametrize(
    "now, live, known, reason",
    [
        (WELL._replace(isr=(1,)), LIVE, (), "1 partitions with replicas that are not in sync (t-0)"),
        (WELL._replace(leader=-1), LIVE, (), "1 partitions without a leader (t-0)"),
        (WELL, frozenset({1, 2}), (1, 3), "brokers away: 3"),
        (WELL, frozenset({1}), (), "brokers away: 2"),
    ],
)
def test_the_gate_is_shut_with_its_reason(now: Now, live: frozenset[int], known: tuple[int, ...], reason: str) -> None:
    found = gate(MoveView({A: now, B: WELL}, live), known)
    assert not found.open
    assert reason in found.reasons()


def test_what_would_be_lost_is_said() -> None:
    assert RestartGate((), (), (), (A,), (A, B)).reasons() == (
        "1 partitions that would have no leader (t-0)",
        "2 partitions that would be below min.insync.replicas (t-0, …)",
    )


def test_the_controller_comes_last() -> None:
    assert order({3, 1, 2}, 2) == [1, 3, 2]
    assert order({3, 1, 2}, 1_000_001) == [1, 2, 3]


def test_a_broker_is_back_when_it_has_registered_anew_and_is_in_sync() -> None:
    view = MoveView({A: WELL}, LIVE)
    assert returned(view, 1, 8, 7)
    assert returned(view, 1, 8, None)
    assert not returned(view, 1, 7, 7)
    assert not returned(view, 1, None, 7)
    assert not returned(MoveView({A: WELL._replace(isr=(2,))}, LIVE), 1, 8, 7)
    assert returned(MoveView({A: WELL._replace(isr=(2,))}, LIVE), 3, 8, 7), "others are not its business"


def test_a_roll_goes_on_where_it_was_cut_off() -> None:
    records: list[dict[str, object]] = []
    assert resumed(records) is None
    records.append({"what": "roll"})
    assert resumed(records) == Restarted((), None, None)
    records.append({"what": "restart", "broker": 1, "epoch": 7})
    assert resumed(records) == Restarted((), 1, 7)
    records += [{"what": "command", "broker": 1}, {"what": "restarted", "broker": 1}]
    records += [{"what": "end", "result": "held"}, {"what": "roll"}]
    assert resumed(records) == Restarted((1,), None, None)
    records.append({"what": "end", "result": "rolled"})
    assert resumed(records) is None
    with pytest.raises(KeyError):
        resumed([{"what": "roll"}, {"what": "restart"}])
