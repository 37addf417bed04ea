"""What follows from written decisions, without a controller: states entered, requests sent, replicas stopped."""

from __future__ import annotations

import pytest

from aiocontroller.core.apply import apply
from aiocontroller.core.debts import Debt
from aiocontroller.core.effects import Effects, Entered, LeaderAndIsrRequests, Replicas, SharedLeaderAndIsrRequests
from aiocontroller.core.election import Strategy
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.partition_state_machine import (
    effects_of_elections,
    effects_of_initialization,
    plan_elections,
    plan_initialization,
)
from aiocontroller.core.replica_state_machine import effects_of_offline, effects_of_transition, plan_offline
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState, ReplicaState
from tests.builders import ctx, lead

Online = PartitionState.OnlinePartition


def test_initialized_partitions_are_new_to_their_replicas() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2], [2, 1]]}, online=False)
    decisions, _ = plan_initialization(context, [0, 1])
    assert effects_of_initialization(decisions) == Effects(
        (Entered([0, 1], Online, "initialized"),), (LeaderAndIsrRequests([0, 1], [(1, 2), (2, 1)], is_new=True),)
    )


def test_only_what_was_written_has_effects() -> None:
    context = ctx(brokers=[2, 3], topics={"t": [[1, 2, 3], [1, 3, 2], [2, 3, 1]]})
    decisions, _ = plan_elections(context, [0, 1, 2], Strategy.OFFLINE)
    effects = effects_of_elections(Strategy.OFFLINE, {2}, decisions.select([1, 2]))
    assert effects.entered == (
        Entered([1], Online, "OfflinePartitionLeaderElectionStrategy"),
        Entered([2], Online, "OfflinePartitionLeaderElectionStrategy, unclean"),
    )
    assert effects.leader_and_isr == (LeaderAndIsrRequests([1, 2], [(3, 2), (2, 3)]),)
    assert (effects.metadata, effects.stopped) == ((), {})
    assert effects_of_elections(Strategy.OFFLINE, {2}, decisions.select([])).leader_and_isr == (
        LeaderAndIsrRequests([], []),
    )


def test_offline_replicas_leave_and_stop() -> None:
    """The ISR of 0 shrinks; in 1 the replica was out of sync, so nothing is written."""
    context = ctx(brokers=3, topics={"t": [[1, 2, 3], [1, 2, 3]]})
    lead(context, "t-0", 2, (2, 1))
    lead(context, "t-1", 2, (2, 3))
    replicas = {1: [0, 1]}
    plan = plan_offline(context, replicas)
    assert (plan.shrink.rows, plan.unchanged) == ([0], [1])
    leader_and_isr = (LeaderAndIsrRequests([0], [(2, 3)]), LeaderAndIsrRequests([1], [(2, 3)], unless_sent=True))
    entered = (Entered([0], None, "OfflineReplica"),)
    assert effects_of_offline(context, replicas, plan, False, plan.shrink) == Effects(entered, leader_and_isr, [], {})
    assert effects_of_offline(context, replicas, plan, True, plan.shrink).stopped == {1: [0, 1]}
    refused = effects_of_offline(context, replicas, plan, True, plan.shrink.select([]))
    assert refused.stopped == {1: [1]}, "a replica stops once its leader need not wait for it"


def test_partition_without_leader_is_sent_to_all() -> None:
    context = ctx(brokers=[2], topics={"t": [[1, 2]]}, online=False)
    replicas = {1: [0]}
    plan = plan_offline(context, replicas)
    effects = effects_of_offline(context, replicas, plan, False, plan.shrink)
    assert effects.metadata == [0]
    batch = RequestBatch(context)
    effects.add_to(batch, context.brokers)
    leader_and_isr = batch.take().update_metadata
    assert leader_and_isr is not None
    assert (list(leader_and_isr.brokers), list(leader_and_isr.rows)) == ([2], [0])


@pytest.mark.parametrize(
    "target, effects",
    [
        (ReplicaState.NewReplica, Effects(leader_and_isr=[SharedLeaderAndIsrRequests((1,), [0, 1], is_new=True)])),
        (
            ReplicaState.OnlineReplica,
            Effects(leader_and_isr=[SharedLeaderAndIsrRequests((1,), [1])]),
        ),  # 0 is new: it was sent already
        (ReplicaState.ReplicaDeletionStarted, Effects(deleted={1: [0, 1]})),
        (ReplicaState.ReplicaDeletionSuccessful, Effects()),
        (ReplicaState.ReplicaDeletionIneligible, Effects()),
        (ReplicaState.NonExistentReplica, Effects()),
    ],
)
def test_what_follows_from_a_replicas_transition(target: ReplicaState, effects: Effects) -> None:
    context = ctx(2, {"t": [[1, 2], [1, 2]]})
    replicas: Replicas = {1: [0, 1]}
    apply(context, Effects(replicas=[({1: [0]}, ReplicaState.NewReplica)]))
    assert effects_of_transition(context.table, replicas, target) == effects._replace(replicas=[(replicas, target)])


def test_effects_reach_the_context() -> None:
    context = ctx(2, {"t": [[1, 2], [2, 1], [1]]})
    left = ReplicaAssignment((2, 1), adding=(2,))
    apply(
        context,
        Effects(
            (Entered([0], PartitionState.OfflinePartition), Entered([1], None)),
            assigned={2: left},
            replicas=[({1: [0]}, ReplicaState.OfflineReplica), ({1: [1]}, ReplicaState.NonExistentReplica)],
        ),
    )
    table = context.table
    assert [PartitionState(state) for state in table.state] == [PartitionState.OfflinePartition, Online, Online]
    assert [table.assignment(row) for row in range(3)] == [ReplicaAssignment((1, 2)), ReplicaAssignment((2,)), left]
    assert [table.replica_state(0, broker).name for broker in (1, 2)] == ["OfflineReplica", "OnlineReplica"]


def test_requests_of_effects() -> None:
    context = ctx(3, {"t": [[1, 2], [2, 3]]})
    debt = Debt(3, "t", b"", 1)
    context.debts.set(3, "old", {0: b"i"}, 0)
    owed = context.debts.of_broker(3)
    batch = RequestBatch(context)
    Effects(
        leader_and_isr=[SharedLeaderAndIsrRequests((1, 9), [0])], stopped={2: [1]}, deleted={2: [0]}, owed=[*owed, debt]
    ).add_to(batch, context.brokers)
    requests = batch.take()
    assert [(r.broker, r.rows) for r in requests.leader_and_isr] == [(1, [0])], "9 is not registered"
    stopped = [(r.broker, r.partitions, [d for d, _ in r.debts]) for r in requests.stop_replica]
    assert stopped == [(2, [(0, 0, True), (1, 0, False)], []), (3, [], owed)], "what is not owed is not asked for"
