"""Each change of the context does something, and only what its name says."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from aiocontroller.core import context_changes as changes
from aiocontroller.core.apply import apply
from aiocontroller.core.broker_starts import BrokerStarts
from aiocontroller.core.context import ControllerContext, SickBroker
from aiocontroller.core.ids import ReplicaAssignment
from tests.builders import broker, ctx

OLD = b"an earlier topic"
STARTS = BrokerStarts(1, 1, 2, 1, {})


def cluster() -> ControllerContext:
    context = ctx(brokers=[1, 2], topics={"t": [[1, 2]], "u": [[2, 1]], "v": [[1]], "w": []})
    context.table.topic_by_name["w"].min_isr = 2
    context.suspect([2])
    context.queue_topic_deletion(["u", "v"])
    context.mark_topics_ineligible_for_deletion(["u"])
    context.table.set_assignment(0, ReplicaAssignment((1, 2), adding=(2,)))
    context.begin_reassignments([0])
    context.tell_of_reassignments([], untold=[0])
    context.read_with_non_replicas[0] = (3,)
    context.debts.set(1, "t", {0: OLD}, 0)
    context.hold_back([0])
    [debt] = context.debts
    debt.asked = debt.fenced = True
    context.debt_parents[1] = 0
    context.debt_attempts[1] = 3
    return context


def of(context: ControllerContext, name: str) -> Any:
    return context.table.topic_by_name[name]


Make = Callable[[ControllerContext], changes.ContextChange]
Look = Callable[[ControllerContext], object]
EXAMPLES: list[tuple[Make, Look, object, object]] = [
    (
        lambda c: changes.TermBegun(7, 9),
        lambda c: (c.epoch, c.epoch_zk_version, c.debts_epoch),
        (1, 1, 1),
        (7, 9, 7),
    ),
    (lambda c: changes.BrokersAdded([broker(3)]), lambda c: list(c.live), [1], [1, 3]),
    (lambda c: changes.BrokersRemoved([2]), lambda c: list(c.brokers), [1, 2], [1]),
    (lambda c: changes.BrokersRemoved([2]), lambda c: [b.id for b in c.listed()], [1, 2], [1]),
    (lambda c: changes.BrokersRemoved([1], listed=True), lambda c: [b.id for b in c.listed()], [1, 2], [2, 1]),
    (lambda c: changes.BrokerUnlisted(9), lambda c: [b.id for b in c.listed()], [1, 2], [1, 2]),
    (lambda c: changes.BrokersReturning([1]), lambda c: sorted(c.returning), [], [1]),
    (lambda c: changes.ShutdownBegun(1), lambda c: list(c.live), [1], []),
    (lambda c: changes.BrokersSuspected([1]), lambda c: list(c.suspected), [2], [2, 1]),
    (lambda c: changes.BrokersTrusted([2]), lambda c: sorted(c.live), [1], [1, 2]),
    (lambda c: changes.BrokerSick(SickBroker(2, 102)), lambda c: c.leader_preferences.sick, None, 2),
    (lambda c: changes.StartsRecorded(STARTS), lambda c: c.starts, None, STARTS),
    (lambda c: changes.LastEpochsKnown({2: 7, 5: 9}), lambda c: c.last_epochs, {1: 101, 2: 102}, {1: 101, 2: 7, 5: 9}),
    (lambda c: changes.ControllersKnown(frozenset((9,))), lambda c: c.controllers, frozenset(), frozenset((9,))),
    (lambda c: changes.LogDirs(2, [0, 1], []), lambda c: c.offline_dirs, {1: {0}}, {1: {0}, 2: {0, 1}}),
    (lambda c: changes.LogDirs(1, [], [0]), lambda c: c.offline_dirs, {1: {0}}, {1: {0}}),
    (lambda c: changes.TopicsLoaded(), lambda c: c.loaded, False, True),
    (lambda c: changes.TimeSet(7), lambda c: c.table.broken.now_us, 0, 7),
    (lambda c: changes.MinIsrsForgotten(["w", "z"]), lambda c: len(c.table.broken.unread), 0, 1),
    (lambda c: changes.MinIsrsRead({"t": 2}), lambda c: of(c, "t").min_isr, 0, 2),
    (lambda c: changes.DefaultMinIsr(2), lambda c: c.table.broken.min_isr, 1, 2),
    (lambda c: changes.TopicsRemoved([of(c, "u")]), lambda c: list(c.topics_to_be_deleted), ["u", "v"], ["v"]),
    (lambda c: changes.TopicsGone([of(c, "t")]), lambda c: of(c, "t").deleting, False, True),
    (lambda c: changes.DeletionsQueued(["t"]), lambda c: list(c.topics_to_be_deleted), ["u", "v"], ["u", "v", "t"]),
    (lambda c: changes.DeletionsWithdrawn(["u"]), lambda c: list(c.topics_to_be_deleted), ["u", "v"], ["v"]),
    (lambda c: changes.DeletionsStarted(["v"]), lambda c: list(c.topics_with_deletion_started), [], ["v"]),
    (lambda c: changes.DeletionsHalted(["v"]), lambda c: list(c.topics_ineligible_for_deletion), ["u"], ["u", "v"]),
    (lambda c: changes.DeletionsResumed(["u"]), lambda c: list(c.topics_ineligible_for_deletion), ["u"], []),
    (lambda c: changes.DeletionsUndecided(["t"]), lambda c: c.deletions_undecided, [], ["t"]),
    (lambda c: changes.DeletionsWatched((of(c, "u"),)), lambda c: len(c.deletions_watched), 0, 1),
    (lambda c: changes.LeftBehind({2: [1]}), lambda c: c.left_behind, {}, {1: {2: None}}),
    (lambda c: changes.ReassignmentsBegun([1]), lambda c: list(c.partitions_being_reassigned), [0], [0, 1]),
    (lambda c: changes.ReassignmentsTold([0, 1], [1]), lambda c: c.untold_reassignments, {0: None}, {1: None}),
    (lambda c: changes.ReassignmentsEnded([0]), lambda c: list(c.partitions_being_reassigned), [0], []),
    (lambda c: changes.NonReplicasNoted({1: (3,)}), lambda c: c.read_with_non_replicas, {0: (3,)}, {0: (3,), 1: (3,)}),
    (lambda c: changes.NonReplicasDropped([0, 1]), lambda c: c.read_with_non_replicas, {0: (3,)}, {}),
    (lambda c: changes.HeldBack([1]), lambda c: c.held_back, {1: {0}}, {1: {0}}),
    (lambda c: changes.HoldReleased(1, [0]), lambda c: (c.held_back, c.offline_dirs), ({1: {0}}, {1: {0}}), ({}, {})),
    (lambda c: changes.DebtsStored(2, "t", {0: OLD}, 4), lambda c: c.debts.version(2, "t"), -1, 4),
    (lambda c: changes.DebtsGivenUp(list(c.debts), 5), lambda c: (len(c.debts), c.debts_epoch), (1, 1), (0, 5)),
    (lambda c: changes.DebtParents({2: -102}), lambda c: c.debt_parents, {1: 0}, {1: 0, 2: -102}),
    (lambda c: changes.DebtParentsForgotten(), lambda c: c.debt_parents, {1: 0}, {}),
    (
        lambda c: changes.DebtsRefused(dict.fromkeys(c.debts, False)),
        lambda c: [(debt.asked, debt.fenced) for debt in c.debts],
        [(True, True)],
        [(False, False)],
    ),
    (
        lambda c: changes.DebtsUnpaid(list(c.debts)),
        lambda c: [(debt.asked, debt.fenced) for debt in c.debts],
        [(True, True)],
        [(False, True)],
    ),
    (
        lambda c: changes.DebtsNotAsked(1),
        lambda c: ([debt.asked for debt in c.debts], c.debt_attempts),
        ([True], {1: 3}),
        ([False], {}),
    ),
    (lambda c: changes.DebtAttempts(1, 4), lambda c: c.debt_attempts, {1: 3}, {1: 4}),
    (lambda c: changes.DebtAttempts(1, 0), lambda c: c.debt_attempts, {1: 3}, {}),
]


@pytest.mark.parametrize("make, look, before, after", EXAMPLES)
def test_each_change(make: Make, look: Look, before: object, after: object) -> None:
    context = cluster()
    assert look(context) == before
    apply(context, make(context))
    assert look(context) == after


def test_the_same_partition_of_an_earlier_topic_is_held_back_from_the_broker_that_owes_it() -> None:
    context = cluster()
    apply(context, changes.HoldReleased(1, [0]))
    apply(context, changes.HeldBack([0, 1]))
    assert context.held_back == {1: {0}}


def test_each_change_has_an_example() -> None:
    kinds = {
        name
        for name, kind in vars(changes).items()
        if inspect.isclass(kind) and kind.__module__ == changes.__name__ and name != "ContextChange"
    }
    assert {type(make(cluster())).__name__ for make, *_ in EXAMPLES} == kinds
