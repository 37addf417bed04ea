"""Each reason, from the smallest cluster that has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiocontroller.core.broken_partitions import BrokenKind
from aiocontroller.core.broken_reasons import Clause, reason
from aiocontroller.core.context import ControllerContext, SickBroker
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.states import PartitionState
from tests.builders import ctx, lead

OLD = b"an earlier topic"


def texts(context: ControllerContext, kind: BrokenKind, row: int = 0) -> list[str]:
    return [clause.text for clause in reason(context, kind, row)]


def offline(isr: tuple[int, ...], leader: int = -1) -> ControllerContext:
    context = ctx(3, {"t": [[1, 2, 3]]})
    context.table.broken.now_us = 5
    context.remove_brokers([3])
    context.table.set_state([lead(context, "t-0", leader, isr)], PartitionState.OfflinePartition)
    return context


def test_no_in_sync_replica_lives() -> None:
    assert reason(offline((3,)), BrokenKind.OFFLINE, 0) == [
        Clause("no in-sync replica is alive"),
        Clause("broker 3 dead", 5),
        Clause("broker 1 alive, not caught up"),
        Clause("broker 2 alive, not caught up"),
    ]


def test_the_leader_that_died_last_is_named() -> None:
    assert texts(offline((3,), leader=3), BrokenKind.OFFLINE)[0] == "leader 3 died, no other in-sync replica is alive"


def test_a_replica_could_lead() -> None:
    assert texts(offline((3, 1)), BrokenKind.OFFLINE)[0] == "an in-sync replica is alive: an election is due"


def test_it_has_never_had_a_leader() -> None:
    context = ctx([1], {"t": [[2], [1]]}, online=False)
    assert texts(context, BrokenKind.OFFLINE) == ["it has never had a leader", "broker 2 not registered"]
    assert texts(context, BrokenKind.OFFLINE, 1)[0] == "it has never had a leader: an election is due"


@pytest.mark.parametrize(
    "how, found",
    [
        (lambda c: None, "broker 2 alive, not caught up"),
        (lambda c: c.remove_brokers([2]), "broker 2 dead"),
        (lambda c: c.set_offline_dir_replicas(2, [0], ()), "log directory of 2 failed"),
        (lambda c: c.suspect([2]), "broker 2 is suspected to be dead"),
        (lambda c: c.begin_shutdown(2), "broker 2 is shutting down"),
        (lambda c: c.set_sick(SickBroker(2, 1)), "broker 2 is judged sick"),
    ],
)
def test_what_keeps_a_replica_out_of_the_isr(how: Callable[[ControllerContext], object], found: str) -> None:
    context = ctx(2, {"t": [[1, 2]]})
    context.table.broken.now_us = 5
    lead(context, "t-0", 1, (1,))
    how(context)
    assert texts(context, BrokenKind.UNDER_REPLICATED) == [found]


def test_a_replica_of_an_earlier_topic_has_to_go_first() -> None:
    context = ctx(2, {"t": [[1, 2]]})
    lead(context, "t-0", 1, (1,))
    context.debts.set(2, "t", {0: OLD}, 0)
    context.hold_back([0])
    [found] = texts(context, BrokenKind.UNDER_REPLICATED)
    assert found == "being recreated: broker 2 has yet to delete its replica of an earlier topic of this name"


def test_replicas_that_are_being_added_lack_nothing() -> None:
    context = ctx(3, {"t": [ReplicaAssignment((1, 2, 3), adding=(3,))]})
    lead(context, "t-0", 1, (1,))
    assert texts(context, BrokenKind.UNDER_REPLICATED) == ["broker 2 alive, not caught up"]


def test_how_many_are_needed_in_sync() -> None:
    context = ctx(3, {"t": [[1, 2, 3]]}, dead=[3])
    lead(context, "t-0", 1, (1,))
    context.table.broken.set_min_isrs(context.table, {"t": 2})
    assert texts(context, BrokenKind.UNDER_MIN_ISR) == [
        "1 in sync, min.insync.replicas needs 2",
        "broker 3 dead" if context.gone_since.get(3) else "broker 3 not registered",
        "broker 2 alive, not caught up",
    ]
