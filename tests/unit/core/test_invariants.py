"""Every rule is seen to be broken, and named; a context that is well says nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.invariants import violations
from aiocontroller.core.replica_state_machine import set_replica_states
from aiocontroller.core.states import PartitionState, ReplicaState
from tests.builders import broker, ctx, lead


def healthy() -> ControllerContext:
    context = ctx(3, {"t": [[1, 2], [2, 3]], "u": [[3, 1]]}, shutting_down=[3])
    lead(context, "t-1", 3, (3,))
    context.set_offline_dir_replicas(2, [0], [])
    return context


def test_all_is_well() -> None:
    assert violations(ControllerContext()) == []
    assert violations(healthy()) == []
    assert violations(ctx(2, {"t": [[1, 2]]}, online=False)) == []


def test_a_queued_topic_is_well() -> None:
    context = healthy()
    context.topics_to_be_deleted["u"] = context.topics_to_be_deleted["gone already"] = None
    context.table.set_topic_deleting(context.table.topic_by_name["u"], True)
    assert violations(context) == []
    context.remove_brokers([3])
    assert [line[:4] for line in violations(context)] == ["t-1:"]


def spoiled(how: Callable[[ControllerContext], object]) -> list[str]:
    context = healthy()
    how(context)
    return violations(context)


def without_leadership(context: ControllerContext) -> None:
    context.table.isr_of[0] = -1
    context.table.leadership_count -= 1


@pytest.mark.parametrize(
    "how, finding",
    [
        (lambda c: c.table.count_by_state.__setitem__(1, 7), "partitions by state: found [0, 7, 0, 0], expected [0, 3"),
        (lambda c: setattr(c.table, "leadership_count", 2), "partitions with leadership: found 2, expected 3"),
        (lambda c: setattr(c.table, "preferred_replica_imbalance", 5), "imbalance: found 5, expected 1"),
        (lambda c: c.table.not_online.update({1: None}), "partitions not online: found [1], expected []"),
        (lambda c: c.table.leaders_of.update({1: 9}), "leaders by broker: found {1: 9, 3: 2}, expected {1: 1, 3: 2}"),
        (lambda c: c.table.replicas_of.update({1: 9}), "replicas by broker: found {1: 9, 2: 2, 3: 2}, expected {1: 2"),
        (lambda c: c.table.broken.offline.update({1: 5}), "offline partitions: found [1], expected []"),
        (lambda c: c.table.broken.under_replicated.clear(), "under-replicated partitions: found [], expected [1]"),
        (lambda c: c.table.broken.under_min_isr.update({1: 5}), "below min.insync.replicas: found [1], expected []"),
        (lambda c: c.table.broken.unread.clear(), "topics with small ISRs to be read: found [0], expected []"),
        (lambda c: c.table.broken.offline_of_topic.update({1: 1}), "offline partitions by topic: found {1: 1}, exp"),
        (lambda c: c.table._rows_of_assignment[0].pop(), "partitions on broker 1: found [2], expected [0, 2]"),
        (lambda c: c.brokers.update({9: broker(9)}), "live brokers: found [1, 2], expected [1, 2, 9]"),
        (lambda c: c.departed.update({1: broker(1)}), "departed brokers that are registered: found [1], expected []"),
        (lambda c: c.brokers.update({0: broker(0)}), "order of brokers: found [1, 2, 3, 0], expected [0, 1, 2, 3]"),
        (lambda c: c.offline_dirs.update({1: {0, 7}}), "on failed directories: rows that do not exist: found [7]"),
        (lambda c: c.offline_dirs.update({9: {0}}), "failed directories of brokers that are not registered: found [9]"),
        (without_leadership, "t-0: found no leadership, expected one in OnlinePartition"),
        (lambda c: c.table.set_state([0], PartitionState.NewPartition), "t-0: found leader 1, expected none in New"),
        (lambda c: lead(c, "t-0", -1, ()), "t-0: found ISR (), expected brokers, each once"),
        (lambda c: lead(c, "t-0", 1, (1, 1)), "t-0: found ISR (1, 1), expected brokers, each once"),
        (lambda c: lead(c, "t-0", 1, (2,)), "t-0: found leader 1 outside the ISR (2,)"),
        (lambda c: lead(c, "t-0", 1, (1, 3)), "expected it among the replicas (1, 2)"),
        (lambda c: lead(c, "t-0", 1, (1,), controller_epoch=2), "controller epoch 2, expected at most ours, 1"),
        (lambda c: lead(c, "t-0", -1, (1,)), "t-0: found leader -1, expected a registered broker in OnlinePartition"),
        (
            lambda c: set_replica_states(c.table, {1: [0]}, ReplicaState.NonExistentReplica),
            "t-0: found replicas [1] in NonExistentReplica, expected a known state",
        ),
        (lambda c: c.remove_brokers([1]), "t-0: found leader 1, expected a registered broker in OnlinePartition"),
        (
            lambda c: c.partitions_being_reassigned.update({9: None}),
            "reassigned: rows that do not exist: found [9]",
        ),
        (
            lambda c: c.untold_reassignments.update({0: None}),
            "reassignments to be told of that have ended: found [0], expected []",
        ),
        (lambda c: c.held_back.update({9: {9}}), "held back: rows that do not exist: found [9]"),
        (lambda c: c.held_back.update({1: {0}}), "held back from broker 1 and online there: found [0]"),
        (
            lambda c: c.debts.set(1, "t", {0: c.table.topic_by_name["t"].id}, 0),
            "t-0 on broker 1: found a debt, expected none for a replica",
        ),
        (
            lambda c: c.debts.set(1, "t", {0: b"an earlier one.."}, 0),
            "t-0 on broker 1: found that its broker may hear of the present topic",
        ),
        (
            lambda c: c.table.set_assignment(0, ReplicaAssignment((1, 2), (), (2,))),
            "reassignments that the context does not track: found ['t-0']",
        ),
        (lambda c: c.topics_to_be_deleted.update({"u": None}), "topics being deleted: found [], expected ['u']"),
    ],
)
def test_what_is_wrong_is_named(how: Callable[[ControllerContext], object], finding: str) -> None:
    found = spoiled(how)
    assert any(finding in line for line in found), found


def test_partitions_on_unknown_brokers_are_missed() -> None:
    assert any("brokers with replicas" in line for line in spoiled(lambda c: c.table._assignments_of_broker.pop(3)))
