"""Effects and changes as they enter the context."""

from __future__ import annotations

from aiocontroller.core.apply import adopt, apply, load_states
from aiocontroller.core.context_changes import BrokersRemoved, ReassignmentsBegun, ShutdownBegun
from aiocontroller.core.effects import Effects, Entered
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.invariants import violations
from aiocontroller.core.states import PartitionState, ReplicaState
from tests.builders import ctx, leadership


def test_states_assignments_and_replicas_are_entered() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2], [1, 2]]})
    moved = ReplicaAssignment((1, 2, 3), adding=(3,))
    apply(
        context,
        Effects(
            (Entered([0], PartitionState.OfflinePartition), Entered([1], None, "journal only")),
            assigned={1: moved},
            replicas=[({3: [1]}, ReplicaState.NewReplica), ({2: [0]}, ReplicaState.OfflineReplica)],
        ),
    )
    table = context.table
    assert [table.state[row] for row in (0, 1)] == [PartitionState.OfflinePartition, PartitionState.OnlinePartition]
    assert table.assignment(1) == moved
    assert table.replica_state(1, 3) is ReplicaState.NewReplica
    assert table.replica_state(0, 2) is ReplicaState.OfflineReplica
    assert violations(context) == ["reassignments that the context does not track: found ['t-1'], expected []"]
    apply(context, ReassignmentsBegun([1]))
    assert violations(context) == []


def test_replicas_that_no_longer_exist_leave_their_assignment() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2]]})
    apply(context, Effects(replicas=[({2: [0]}, ReplicaState.NonExistentReplica)]))
    assert context.table.replicas(0) == (1,)


def test_changes_come_in_order() -> None:
    context = ctx(brokers=2)
    apply(context, ShutdownBegun(1), BrokersRemoved([1]), Effects(), BrokersRemoved([2]))
    assert (list(context.brokers), list(context.shutting_down)) == ([], [])


def test_a_state_read_again_is_taken_over_and_odd_brokers_are_noted() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2], [1, 2]]})
    adopt(context, 0, leadership(2, (2, 1), leader_epoch=4, partition_epoch=9))
    adopt(context, 1, leadership(1, (1, 3)))
    assert context.table.leadership(0) == leadership(2, (2, 1), leader_epoch=4, partition_epoch=9)
    assert context.read_with_non_replicas == {1: (3,)}


def test_states_are_loaded_by_their_few_values() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2]] * 5}, online=False)
    values = [None, leadership(1, (1, 2)), None, leadership(2, (2,), leader_epoch=3, recovery_state=1)]
    load_states(context, [0, 1, 2, 3, 4], values, [1, 3, 0, 1, 2], [10, 11, 12, 13, 14])
    table = context.table
    assert table.leadership(0) == leadership(1, (1, 2), partition_epoch=10)
    assert table.leadership(1) == leadership(2, (2,), leader_epoch=3, partition_epoch=11, recovery_state=1)
    assert table.leadership(3) == leadership(1, (1, 2), partition_epoch=13)
    assert [table.leadership(row) for row in (2, 4)] == [None, None], "a state that is missing or cannot be read"
    assert table.leadership_count == 3


def test_no_state_can_be_read() -> None:
    context = ctx(brokers=1, topics={"t": [[1]]}, online=False)
    load_states(context, [0], [None], [0], [3])
    load_states(context, [], [], [], [])
    assert context.table.leadership_count == 0
