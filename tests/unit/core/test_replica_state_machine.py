"""The replica state machine: all 49 steps, states at failover, and what a replica that leaves does to the ISR."""

from __future__ import annotations

from itertools import product

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.replica_state_machine import (
    CheckedReplicas,
    OfflinePlan,
    among,
    check_valid_previous_states,
    drop_replicas,
    initialize_replica_states,
    not_in_state,
    online_and_offline,
    plan_offline,
    set_replica_states,
)
from aiocontroller.core.states import VALID_PREVIOUS_REPLICA_STATES, ReplicaState
from tests.builders import ctx, lead, leadership, row_of, table

Online = ReplicaState.OnlineReplica
Offline = ReplicaState.OfflineReplica
NonExistent = ReplicaState.NonExistentReplica

# -- the 49 steps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before, after", list(product(ReplicaState, ReplicaState)))
def test_every_transition(before: ReplicaState, after: ReplicaState) -> None:
    """The new state, or refused and nothing changed; the partition's other replica keeps its own either way."""
    made = table({"t": [[1, 2]]})
    set_replica_states(made, {1: [0]}, before)
    set_replica_states(made, {2: [0]}, Online)

    checked = check_valid_previous_states(made, {1: [0]}, after)
    set_replica_states(made, checked.valid, after)

    allowed = before in VALID_PREVIOUS_REPLICA_STATES[after]
    assert checked == (({1: [0]}, {}) if allowed else ({}, {1: [0]}))
    assert made.replica_state(0, 1) is (after if allowed else before)
    assert made.replica_state(0, 2) is Online


def test_a_mixed_batch_is_sorted_out_by_broker() -> None:
    made = table({"t": [[1, 2]] * 3})
    set_replica_states(made, {1: [0, 2], 2: [1]}, Online)
    assert check_valid_previous_states(made, {2: [2, 1, 0], 1: [0, 1, 2], 3: []}, Offline) == CheckedReplicas(
        {2: [1], 1: [0, 2]}, {2: [2, 0], 1: [1]}
    )


def test_a_leader_is_no_new_replica() -> None:
    made = table({"t": [[1, 2]] * 2})
    made.set_leadership(1, leadership(1, (1,)))
    assert check_valid_previous_states(made, {1: [0, 1], 2: [0, 1]}, ReplicaState.NewReplica) == CheckedReplicas(
        {1: [0], 2: [0, 1]}, {1: [1]}
    )


def test_equal_states_of_different_assignments_are_distinguished() -> None:
    made = table({"t": [[1, 2], [2, 1]]})
    set_replica_states(made, {1: [0], 2: [1]}, Online)
    set_replica_states(made, {2: [0], 1: [1]}, ReplicaState.ReplicaDeletionStarted)
    assert check_valid_previous_states(made, {1: [0, 1], 2: [0, 1]}, Offline) == CheckedReplicas(
        {1: [0], 2: [1]}, {1: [1], 2: [0]}
    )


def test_a_broker_without_a_replica_has_no_state() -> None:
    made = table({"t": [[1, 2]]})
    assert check_valid_previous_states(made, {3: [0]}, Online).refused == {3: [0]}
    set_replica_states(made, {3: [0]}, Online)
    assert [made.replica_state(0, b) for b in (1, 2, 3)] == [NonExistent] * 3


def test_among_keeps_the_partitions_asked_for() -> None:
    replicas = {1: [1, 3, 5, 9], 2: [2, 3], 4: []}
    assert among(replicas, [3, 4, 9]) == {1: [3, 9], 2: [3]}
    assert among(replicas, [2]) == {2: [2]}
    assert among(replicas, []) == {}


# -- at failover (ReplicaStateMachineTest: testStartup…) ---------------------------------------------------------------


def replica_states(context: ControllerContext, name: str) -> list[str]:
    row = row_of(context, name)
    return [context.table.replica_state(row, r).name for r in context.table.replicas(row)]


def startup(context: ControllerContext) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """The states of all replicas; which are online and which offline then, by broker."""
    initialize_replica_states(context)
    found = {b: online_and_offline(context, b) for b in context.table.brokers_with_replicas()}
    return {b: online for b, (online, _) in found.items() if online}, {
        b: away for b, (_, away) in found.items() if away
    }


def test_startup_online_partition() -> None:
    context = ctx(brokers=1, topics={"t": [[1]]})
    assert startup(context) == ({1: [0]}, {})
    assert replica_states(context, "t-0") == ["OnlineReplica"]


def test_startup_offline_partition() -> None:
    context = ctx(brokers=[], topics={"t": [[1]]})
    assert startup(context) == ({}, {1: [0]})
    assert replica_states(context, "t-0") == ["ReplicaDeletionIneligible"]


def test_startup_with_replica_without_leader() -> None:
    context = ctx(brokers=1, topics={"t": [[1, 2]]}, online=False)
    assert startup(context) == ({1: [0]}, {2: [0]})
    assert replica_states(context, "t-0") == ["OnlineReplica", "ReplicaDeletionIneligible"]


def test_startup_tells_brokers_shutting_down_and_failed_directories_apart() -> None:
    context = ctx(topics={"t": [[1, 2], [1, 2], [3, 1]]}, shutting_down=[3])
    context.set_offline_dir_replicas(1, [1], [])
    assert startup(context) == ({1: [0, 2], 2: [0, 1]}, {1: [1], 3: [2]})
    assert [replica_states(context, f"t-{n}") for n in range(3)] == [
        ["OnlineReplica", "OnlineReplica"],
        ["ReplicaDeletionIneligible", "OnlineReplica"],
        ["ReplicaDeletionIneligible", "OnlineReplica"],
    ]


# -- OfflineReplica ----------------------------------------------------------------------------------------------------


def test_online_replica_to_offline_replica_transition() -> None:
    """The leader goes: there is no leader, the ISR shrinks, the others hear of it."""
    context = ctx(topics={"t": [[1, 2]]}, epoch=5)
    lead(context, "t-0", 1, (1, 2), leader_epoch=3, partition_epoch=4)
    assert plan_offline(context, {1: [0]}) == OfflinePlan(
        Decisions([0], [leadership(-1, (2,), leader_epoch=4, partition_epoch=4, controller_epoch=5)], [(2,)]),
        [],
        [],
    )


@pytest.mark.parametrize(
    "leader, isr, gone, after",
    [
        (1, (1, 2, 3), [2], (1, (1, 3))),  # a follower goes: the leader stays
        (1, (1, 2, 3), [1], (-1, (2, 3))),
        (1, (1,), [1], (-1, (1,))),  # the last member always stays in the ISR
        (-1, (1,), [1], (-1, (1,))),
        (2, (3, 2), [2], (-1, (3,))),
        (1, (1, 2, 3), [1, 2], (-1, (3,))),
        (1, (1, 2), [1, 2], (-1, (1, 2))),  # none is left: all that were in sync stay (not as Kafka)
        (1, (1,), [2], None),  # it was not in sync: nothing to write
        (3, (3, 4, 1), [1, 3], (-1, (3, 4, 1))),  # only 4 is left, which is no replica and can never lead
        (1, (4, 1), [1], (-1, (4, 1))),
        (1, (1, 4, 3), [1], (-1, (4, 3))),
    ],
)
def test_isr_without_the_replicas_that_go(
    leader: int, isr: tuple[int, ...], gone: list[int], after: tuple[int, tuple[int, ...]] | None
) -> None:
    context = ctx(topics={"t": [[1, 2, 3]]})
    lead(context, "t-0", leader, isr, leader_epoch=7, recovery_state=1)
    plan = plan_offline(context, {broker: [0] for broker in gone})
    if after is None:
        assert plan == OfflinePlan(Decisions.none(), [0], [])
        return
    assert plan.shrink.leaderships == [leadership(*after, leader_epoch=8, recovery_state=1)]
    assert plan.shrink.recipients == [tuple(r for r in (1, 2, 3) if r not in gone)]
    assert (plan.unchanged, plan.without_leadership) == ([], [])


def test_partitions_are_sorted_out_by_what_they_need() -> None:
    context = ctx(topics={"t": [[1, 2]] * 4})
    lead(context, "t-1", 2, (2,))
    context.table.isr_of[2] = -1
    plan = plan_offline(context, {1: [3, 2, 1, 0]})
    assert (plan.shrink.rows, plan.unchanged, plan.without_leadership) == ([0, 3], [1], [2])


@st.composite
def departures(draw: st.DrawFn) -> tuple[ControllerContext, dict[int, list[int]]]:
    ids = (1, 2, 3, 4)
    some = st.lists(st.sampled_from(ids), unique=True, min_size=1)
    context = ctx(brokers=ids, topics={"t": draw(st.lists(some, min_size=1, max_size=8))}, epoch=3)
    for row in context.table.rows():
        replicas = context.table.replicas(row)
        isr = draw(st.lists(st.sampled_from(replicas), unique=True, min_size=1))
        context.table.set_leadership(row, leadership(draw(st.sampled_from((-1, *isr))), isr, leader_epoch=row))
    gone = draw(some)
    return context, {b: context.table.partitions_on_broker(b) for b in gone}


def one_by_one(before: LeaderAndIsr, gone: list[int]) -> tuple[int, tuple[int, ...]]:
    """Kafka's way: one broker after the other; the last member of the ISR stays."""
    leader, isr = before.leader, before.isr
    for broker in gone:
        if broker in isr:
            leader = -1 if leader == broker else leader
            isr = isr if len(isr) == 1 else tuple(r for r in isr if r != broker)
    return leader, isr


@settings(max_examples=200)
@given(departures())
def test_many_brokers_at_once_agree_with_one_after_the_other(
    departure: tuple[ControllerContext, dict[int, list[int]]],
) -> None:
    """But for two things: one leader epoch in all, and the whole ISR stays when all of it goes."""
    context, replicas = departure
    plan = plan_offline(context, replicas)
    assert plan.without_leadership == []
    assert sorted(plan.shrink.rows + plan.unchanged) == sorted({p for rows in replicas.values() for p in rows})
    for row in plan.unchanged:
        assert not set(context.table.isr(row)) & set(replicas)
    for row, after in zip(plan.shrink.rows, plan.shrink.leaderships, strict=True):
        before = context.table.leadership(row)
        assert before is not None
        leader, isr = one_by_one(before, list(replicas))
        if set(before.isr) <= set(replicas):
            assert (after.leader, after.isr) == (-1, before.isr)
            assert leader == -1
            assert set(isr) <= set(after.isr)
        else:
            assert (after.leader, after.isr) == (leader, isr)
        assert after.leader_epoch == before.leader_epoch + 1
        assert (after.partition_epoch, after.controller_epoch) == (before.partition_epoch, 3)


# -- NonExistentReplica ------------------------------------------------------------------------------------------------


def test_successful_replica_to_nonexistent_replica_transition() -> None:
    """A deleted replica is no longer assigned, wherever the assignment names it."""
    reassigned = ReplicaAssignment((1, 2)).reassign_to((3, 2))
    made = table({"t": [[1, 2], reassigned, [2]]})
    set_replica_states(made, {2: [0, 1]}, Online)
    drop_replicas(made, {1: [0, 1], 3: [1]})
    assert [made.assignment(row) for row in range(3)] == [ReplicaAssignment((2,))] * 3
    assert made.partitions_on_broker(1) == []
    assert [made.replica_state(row, 2) for row in (0, 1)] == [Online, Online]
    drop_replicas(made, {2: [2]})
    assert made.assignment(2) == ReplicaAssignment(())


def test_many_partitions_of_one_assignment_change_alike() -> None:
    made = table({"t": [[1, 2]] * 3})
    set_replica_states(made, {2: [0, 1, 2], 1: [1]}, Online)
    assert [[made.replica_state(row, broker) for broker in (1, 2)] for row in range(3)] == [
        [NonExistent, Online],
        [Online, Online],
        [NonExistent, Online],
    ]


def test_replicas_not_in_a_state() -> None:
    context = ctx(2, {"t": [[1, 2], [1, 2], [2, 1], [2]]})
    set_replica_states(context.table, {1: [0]}, ReplicaState.NewReplica)
    assert not_in_state(context.table, 1, [0, 1, 2, 3], ReplicaState.NewReplica) == [1, 2, 3]
    assert not_in_state(context.table, 2, [0, 1, 2, 3], ReplicaState.NewReplica) == [0, 1, 2, 3]
    assert not_in_state(context.table, 1, [], ReplicaState.NewReplica) == []
