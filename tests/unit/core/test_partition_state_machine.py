"""The partition state machine: all 16 steps, first leadership, and what waits for an election."""

from __future__ import annotations

from itertools import product

import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions, commit
from aiocontroller.core.election import Strategy, UncleanPolicy
from aiocontroller.core.ids import RECOVERED, RECOVERING, ReplicaAssignment
from aiocontroller.core.partition_state_machine import (
    Checked,
    check_valid_previous_states,
    initialize_partition_states,
    partitions_to_bring_online,
    partitions_with_offline_leader,
    plan_elections,
    plan_initialization,
    plan_leader_epochs,
)
from aiocontroller.core.states import VALID_PREVIOUS_PARTITION_STATES, PartitionState
from tests.builders import Replicas, ctx, lead, leadership, row_of, table

New = PartitionState.NewPartition
Online = PartitionState.OnlinePartition
Offline = PartitionState.OfflinePartition
NonExistent = PartitionState.NonExistentPartition

# -- the 16 steps ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("before, after", list(product(PartitionState, PartitionState)))
def test_every_transition(before: PartitionState, after: PartitionState) -> None:
    """The new state, or refused and nothing changed; and beside it partitions in every other state."""
    made = table({"t": [[1]] * 5}, online=True)
    for row, state in enumerate(PartitionState):
        made.set_state((row,), state)
    subject = 4
    made.set_state((subject,), before)

    checked = check_valid_previous_states(made, [subject, 0, 1, 2, 3], after)
    made.set_state(checked.valid, after)

    allowed = before in VALID_PREVIOUS_PARTITION_STATES[after]
    assert (subject in checked.valid, subject in checked.refused) == (allowed, not allowed)
    assert sorted(checked.valid + checked.refused) == [0, 1, 2, 3, 4]
    assert made.state[subject] == (after if allowed else before)
    for row, state in enumerate(PartitionState):
        assert made.state[row] == (after if state in VALID_PREVIOUS_PARTITION_STATES[after] else state)
    assert made.count_by_state == [list(made.state).count(s) for s in PartitionState]


def test_order_is_kept_and_no_broker_is_asked_twice() -> None:
    made = table({"t": [[1]] * 3})
    assert check_valid_previous_states(made, [2, 0, 1], New) == Checked([2, 0, 1], [])
    assert check_valid_previous_states(made, [], New) == Checked([], [])
    assert check_valid_previous_states(made, [2, 0], Online) == Checked([], [2, 0])


# -- Kafka's PartitionStateMachineTest ---------------------------------------------------------------------------------


def test_new_partition_to_online_partition_transition() -> None:
    """Brokers hear of it as of a new partition; it is written to a znode that must not exist."""
    context = ctx(brokers=1, topics={"t": [[1]]}, epoch=50, online=False)
    decisions, failed = plan_initialization(context, [0])
    assert decisions == Decisions(
        [0], [leadership(1, (1,), leader_epoch=0, controller_epoch=50, partition_epoch=-1)], [(1,)]
    )
    assert failed == []
    commit(context.table, decisions, [0])
    assert context.table.leadership(0) == leadership(1, (1,), controller_epoch=50, partition_epoch=0)


def test_online_partition_to_online_transition() -> None:
    context = ctx(brokers=1, topics={"t": [[1]]}, epoch=50)
    decisions, elections = plan_elections(context, [0], Strategy.PREFERRED)
    assert decisions.leaderships == [leadership(1, (1,), leader_epoch=1, controller_epoch=50)]
    assert decisions.recipients == [(1,)]
    assert elections.failed == []


def test_online_partition_to_online_transition_for_controlled_shutdown() -> None:
    """The broker that shuts down hears of it too."""
    context = ctx(brokers=2, topics={"t": [[1, 2]]}, shutting_down=[1])
    decisions, _ = plan_elections(context, [0], Strategy.CONTROLLED_SHUTDOWN)
    assert decisions.leaderships == [leadership(2, (2,), leader_epoch=1)]
    assert decisions.recipients == [(1, 2)]


def test_offline_partition_to_online_partition_transition() -> None:
    context = ctx(brokers=1, topics={"t": [[1]]})
    lead(context, "t-0", -1, (1,))
    decisions, _ = plan_elections(context, [0], Strategy.OFFLINE)
    assert decisions.leaderships == [leadership(1, (1,), leader_epoch=1)]


@pytest.mark.parametrize("recovery_supported", [True, False])
def test_offline_partition_to_unclean_online_partition_transition(recovery_supported: bool) -> None:
    context = ctx(brokers=[1], topics={"t": [[2, 1]]})
    lead(context, "t-0", 2, (2,))
    decisions, elections = plan_elections(
        context, [0], Strategy.OFFLINE, UncleanPolicy(default=True), recovery_supported=recovery_supported
    )
    state = RECOVERING if recovery_supported else RECOVERED
    assert decisions.leaderships == [leadership(1, (1,), leader_epoch=1, recovery_state=state)]
    assert decisions.recipients == [(1,)]
    assert elections.outcomes[0].unclean


def test_updating_offline_partitions_count() -> None:
    made = table({"t": [[1]] * 4})
    counts = []
    for state in (New, Offline, Online):
        made.set_state(check_valid_previous_states(made, range(4), state).valid, state)
        counts.append(made.count_by_state[Offline])
    assert counts == [0, 4, 0]


def test_no_offline_partitions_change_for_topics_being_deleted() -> None:
    made = table({"t": [[1]] * 4})
    made.set_topic_deleting(made.topic_by_name["t"], True)
    for state in (New, Offline):
        made.set_state(range(4), state)
    assert made.count_by_state == [0, 0, 0, 0]


def test_updating_offline_partitions_count_during_topic_deletion() -> None:
    made = table({"t": [[1]] * 4})
    for state in (New, Offline):
        made.set_state(range(4), state)
    made.set_topic_deleting(made.topic_by_name["t"], True)
    assert made.count_by_state[Offline] == 0
    for state in (Offline, NonExistent):
        made.set_state(range(4), state)
    made.remove_topic(made.topic_by_name["t"])
    assert made.count_by_state == [0, 0, 0, 0]


# -- first leadership --------------------------------------------------------------------------------------------------


def test_the_first_live_replica_leads_and_all_live_ones_are_in_sync() -> None:
    topics: dict[str, list[Replicas]] = {"t": [[3, 1, 2], [4, 2, 1], [4], ReplicaAssignment((1, 2, 3), (2,), ())]}
    context = ctx(brokers=3, topics=topics, online=False, shutting_down=[3])
    decisions, failed = plan_initialization(context, [3, 0, 2, 1])
    assert decisions.rows == [3, 0, 1]
    assert [(w.leader, w.isr) for w in decisions.leaderships] == [(1, (1, 2)), (1, (1, 2)), (2, (2, 1))]
    assert decisions.recipients == [(1, 2), (1, 2), (2, 1)]
    assert failed == [2]


def test_a_failed_log_directory_does_not_lead_first() -> None:
    """Partitions of one assignment are told apart where directories have failed."""
    context = ctx(topics={"t": [[1, 2]] * 3}, online=False)
    context.set_offline_dir_replicas(1, [1], [])
    context.set_offline_dir_replicas(2, [1, 2], [])
    decisions, failed = plan_initialization(context, [0, 1, 2])
    assert [(p, w.isr) for p, w in zip(decisions.rows, decisions.leaderships, strict=True)] == [(0, (1, 2)), (2, (1,))]
    assert failed == [1]


# -- at failover -------------------------------------------------------------------------------------------------------


def failed_over() -> ControllerContext:
    context = ctx(topics={"t": [[1, 2]] * 4, "u": [[2, 3]]}, dead=[3], shutting_down=[2])
    context.table.isr_of[row_of(context, "t-0")] = -1
    lead(context, "t-1", 1, (1, 2))
    lead(context, "t-2", 2, (1, 2))
    lead(context, "t-3", 1, (1,))
    lead(context, "u-0", -1, (3,))
    return context


def states(context: ControllerContext) -> dict[str, str]:
    made = context.table
    return {str(made.topic_partition(p)): PartitionState(made.state[p]).name for p in made.rows()}


def test_states_at_failover() -> None:
    context = failed_over()
    context.set_offline_dir_replicas(1, [row_of(context, "t-3")], [])
    initialize_partition_states(context)
    assert states(context) == {
        "t-0": "NewPartition",
        "t-1": "OnlinePartition",
        "t-2": "OfflinePartition",
        "t-3": "OfflinePartition",
        "u-0": "OfflinePartition",
    }
    assert context.table.count_by_state == [1, 1, 3, 0]


def test_whom_an_election_may_bring_online() -> None:
    context = failed_over()
    initialize_partition_states(context)
    offline = [row_of(context, name) for name in ("t-0", "t-2", "u-0")]
    assert partitions_to_bring_online(context) == offline
    assert partitions_to_bring_online(context, "u") == [row_of(context, "u-0")]
    assert partitions_to_bring_online(context, "v") == []
    context.table.set_topic_deleting(context.table.topic_by_name["t"], True)
    assert partitions_to_bring_online(context) == [row_of(context, "u-0")]


def test_whose_leader_is_offline() -> None:
    """No leader is an offline leader; no leadership is not, and a topic that is being deleted needs none."""
    context = failed_over()
    assert partitions_with_offline_leader(context) == [row_of(context, "t-2"), row_of(context, "u-0")]
    context.set_offline_dir_replicas(1, [row_of(context, "t-1")], [])
    context.table.set_topic_deleting(context.table.topic_by_name["u"], True)
    assert partitions_with_offline_leader(context) == [row_of(context, "t-1"), row_of(context, "t-2")]


# -- decisions ---------------------------------------------------------------------------------------------------------


def test_only_what_was_written_is_committed() -> None:
    context = ctx(topics={"t": [[1, 2]] * 3}, dead=[1])
    decisions, _ = plan_elections(context, [0, 1, 2], Strategy.OFFLINE)
    accepted = decisions.select([0, 2])
    commit(context.table, accepted, [5, 6])
    assert [context.table.leadership(p) for p in range(3)] == [
        leadership(2, (2,), leader_epoch=1, partition_epoch=5),
        leadership(1, (1, 2)),
        leadership(2, (2,), leader_epoch=1, partition_epoch=6),
    ]
    assert accepted.recipients == [(2,), (2,)]
    assert decisions.select([0, 1, 2]) is decisions
    assert decisions.select([]) == Decisions.none()


def test_a_leader_epoch_can_be_raised_by_itself() -> None:
    """So that brokers take the next LeaderAndIsr for news; everything else stays as it is."""
    context = ctx(topics={"t": [[1, 2]] * 3}, epoch=6)
    lead(context, "t-0", 2, (2, 1), leader_epoch=4, partition_epoch=8, recovery_state=RECOVERING, controller_epoch=2)
    context.table.isr_of[1] = -1
    assert plan_leader_epochs(context, [2, 1, 0]) == Decisions(
        [2, 0],
        [
            leadership(1, (1, 2), leader_epoch=1, controller_epoch=6),
            leadership(2, (2, 1), leader_epoch=5, partition_epoch=8, recovery_state=RECOVERING, controller_epoch=6),
        ],
        [(), ()],
    )


def test_partitions_of_one_assignment_share_the_decision() -> None:
    context = ctx(brokers=2, topics={"t": [[3, 2, 1]] * 3, "u": [[3]] * 2}, online=False)
    decisions, failed = plan_initialization(context, range(5))
    assert decisions.rows == [0, 1, 2]
    assert {id(w) for w in decisions.leaderships} == {id(decisions.leaderships[0])}
    assert decisions.recipients == [(2, 1)] * 3
    assert failed == [3, 4]
