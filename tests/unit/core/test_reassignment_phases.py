"""Reassignments step by step: what is written and sent, in which order, and what follows where ZooKeeper refuses."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.core import reassignment_phases as phases
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Strategy
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import (
    ApiPartitionReassignment,
    ListPartitionReassignments,
    UncommittedReassignments,
    ZkPartitionReassignment,
)
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.reassignment import Refused
from aiocontroller.core.replica_state_machine import check_valid_previous_states, set_replica_states
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.core.steps import (
    Breathe,
    ElectLeaders,
    Enqueue,
    HaltDeletions,
    MoveReplicas,
    OweDeletions,
    RaiseLeaderEpochs,
    ReadRequestedReassignments,
    ReasonAgainstSize,
    RecordReassigned,
    ResumeDeletions,
    Schedule,
    SendMetadata,
    ShrinkIsrs,
    WriteAssignments,
    WriteRequestedReassignments,
    WriteToLog,
)
from tests.builders import ctx, lead
from tests.unit.core.playing import Answers, Played

MOVE = ReplicaAssignment((3, 1, 2), adding=(3,), removing=(2,))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LATER = Schedule("uncommitted reassignments", phases.COMMIT_AGAIN_S, UncommittedReassignments())


def refuse_all(step: WriteAssignments) -> dict[int, str]:
    return dict.fromkeys(step.wanted, "ZooKeeper refused it")


def asked_for(*entries: tuple[TopicPartition, tuple[int, ...]]) -> Answers:
    return {ReadRequestedReassignments: lambda _: dict(entries)}


def moving() -> ControllerContext:
    """t-0 moves from (1, 2) to (3, 1), and 3 has caught up."""
    context = ctx(3, {"t": [MOVE]})
    lead(context, "t-0", 1, (1, 2, 3))
    context.begin_reassignments([0])
    return context


# -- phases ------------------------------------------------------------------------------------------------------------


def test_a_move_writes_the_union_first_and_then_has_the_added_replica_created() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    played = Played(context, phases.trigger_partition_reassignment(context, {0: MOVE}))
    assert played.result == {}
    assert played.kinds[:9] == [
        *("HaltDeletions", "HoldRequests", "Apply", "ElectLeaders", "WriteAssignments"),
        *("CarryOut", "Apply", "SendRequests", "Apply"),
    ]
    assert played.kinds[9:16] == [
        *("HaltDeletions", "RaiseLeaderEpochs", "Apply", "CarryOut", "MoveReplicas", "SendRequests", "FollowIsrs"),
    ]
    assert played.of(WriteAssignments) == [WriteAssignments({0: MOVE}, {})]
    assert played.of(RaiseLeaderEpochs)[0] == RaiseLeaderEpochs([0])
    assert played.of(MoveReplicas) == [MoveReplicas({3: [0]}, ReplicaState.NewReplica)]
    sent = {r.broker: (r.rows, r.new) for r in played.sent[1].leader_and_isr}
    assert sent == {1: ([0], frozenset()), 2: ([0], frozenset()), 3: ([0], frozenset({0}))}
    assert list(context.partitions_being_reassigned) == [0]


def test_the_end_of_a_move_shrinks_the_isr_before_the_target_is_written() -> None:
    context = moving()
    played = Played(context, phases.maybe_complete_reassignment(context, [0]))
    assert [type(s) for s in played.steps if isinstance(s, ShrinkIsrs | WriteAssignments | RecordReassigned)] == [
        ShrinkIsrs,
        WriteAssignments,
        RecordReassigned,
    ]
    assert played.of(ShrinkIsrs) == [ShrinkIsrs({2: [0]})]
    assert played.of(WriteAssignments) == [WriteAssignments({0: ReplicaAssignment((3, 1))}, {0: (2,)})]
    assert played.of(RecordReassigned) == [RecordReassigned({0: False})]
    assert (context.table.replicas(0), context.table.isr(0)) == ((3, 1), (1, 3))
    assert [(r.broker, len(r.debts)) for r in played.sent[-1].stop_replica] == [(2, 1)]
    assert played.steps[-2:] == [SendMetadata([1, 2, 3], [0]), ResumeDeletions(["t"])]
    assert not context.partitions_being_reassigned


def test_an_added_replica_that_phase_a_could_not_make_is_online_in_the_end() -> None:
    """Its state znode could not be read; once mended, the replica was told of the partition, and has caught up."""
    context = moving()
    set_replica_states(context.table, {3: [0]}, ReplicaState.NonExistentReplica)
    Played(context, phases.maybe_complete_reassignment(context, [0]))
    assert context.table.assignment(0) == ReplicaAssignment((3, 1))
    assert context.table.replica_state(0, 3) is ReplicaState.OnlineReplica


def test_a_leader_outside_the_target_hands_over_first() -> None:
    context = moving()
    lead(context, "t-0", 2, (1, 2, 3))
    played = Played(context, phases.maybe_complete_reassignment(context, [0]))
    assert ElectLeaders([0], Strategy.REASSIGN) in played.steps
    assert played.steps.index(ElectLeaders([0], Strategy.REASSIGN)) < played.kinds.index("ShrinkIsrs")
    assert context.table.leader[0] == 3


def test_nothing_is_removed_where_no_target_replica_can_lead() -> None:
    context = ctx(4, {"t": [ReplicaAssignment((4, 2), (4,), (2,))]}, dead=[4])
    lead(context, "t-0", 2, (4, 2))
    context.begin_reassignments([0])
    played = Played(context, phases.maybe_complete_reassignment(context, [0]))
    assert WriteToLog("warning", "No target replica can lead t-0 yet; nothing is removed") in played.steps
    assert played.of(ShrinkIsrs) == []
    assert played.of(WriteAssignments) == [WriteAssignments({}, {})]
    assert list(context.partitions_being_reassigned) == [0]


def test_a_target_that_zookeeper_refuses_is_tried_again_later() -> None:
    context = moving()
    played = Played(context, phases.maybe_complete_reassignment(context, [0]), {WriteAssignments: refuse_all})
    assert WriteToLog("error", "Not reassigned: t-0: ZooKeeper refused it") in played.steps
    assert played.of(Schedule) == [LATER]
    assert context.table.assignment(0) == MOVE, "the context says what ZooKeeper holds"
    assert list(context.partitions_being_reassigned) == [0]
    assert played.of(RecordReassigned) == []


def test_a_leader_that_cannot_be_told_of_the_end_keeps_the_move() -> None:
    context = moving()
    played = Played(context, phases.maybe_complete_reassignment(context, [0]), {RaiseLeaderEpochs: lambda _: []})
    assert played.of(WriteAssignments) == [WriteAssignments({}, {})]
    assert played.of(Schedule) == [LATER]
    assert context.table.assignment(0) == MOVE
    assert context.table.replica_state(0, 2) is ReplicaState.OnlineReplica


def test_replicas_that_could_not_be_told_of_a_move_are_told_later() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    none = {RaiseLeaderEpochs: lambda _: []}
    played = Played(context, phases.trigger_partition_reassignment(context, {0: MOVE}), none)
    assert played.of(Schedule) == [LATER]
    assert not any(r.leader_and_isr for r in played.sent), "its present leader would take it for no replica"
    assert context.table.replica_state(0, 3) is ReplicaState.NewReplica
    played = Played(context, phases.uncommitted_reassignments(context))
    sent = {r.broker: (r.rows, r.new) for r in played.sent[0].leader_and_isr}
    assert sent == {1: ([0], frozenset()), 2: ([0], frozenset()), 3: ([0], frozenset({0}))}
    assert Played(context, phases.uncommitted_reassignments(context)).steps == []


@pytest.mark.parametrize("refused", [ElectLeaders, WriteAssignments])
def test_a_replica_that_was_not_removed_after_all_hears_of_the_partition_when_it_restarts(refused: type) -> None:
    context = ctx(3, {"t": [MOVE]}, dead=[2])
    lead(context, "t-0", 2, (1, 2, 3))
    set_replica_states(context.table, {2: [0]}, ReplicaState.OfflineReplica)
    context.begin_reassignments([0])
    answers = {ElectLeaders: lambda _: set()} if refused is ElectLeaders else {WriteAssignments: refuse_all}
    Played(context, phases.maybe_complete_reassignment(context, [0]), answers)
    assert context.table.assignment(0) == MOVE
    assert context.table.replica_state(0, 2) is ReplicaState.OfflineReplica
    assert check_valid_previous_states(context.table, {2: [0]}, ReplicaState.OnlineReplica).valid == {2: [0]}


def test_a_dropped_replica_leaves_the_isr_before_the_assignment_is_written() -> None:
    """A controller that ends in between leaves a replica that catches up again."""
    context = moving()
    other = context.table.assignment(0).reassign_to((1, 4))
    played = Played(context, phases.trigger_partition_reassignment(context, {0: other}))
    assert played.of(ShrinkIsrs)[0] == ShrinkIsrs({3: [0]})
    assert played.kinds.index("ShrinkIsrs") < played.kinds.index("WriteAssignments")
    assert played.kinds.index("WriteAssignments") < played.kinds.index("SendRequests"), "nothing is sent before"
    assert played.of(WriteAssignments)[0] == WriteAssignments({0: other}, {0: [3]})
    assert [(r.broker, len(r.debts)) for r in played.sent[-1].stop_replica] == [(3, 1)]


def test_a_dropped_replica_that_stays_in_the_isr_keeps_its_assignment() -> None:
    context = moving()
    other = context.table.assignment(0).reassign_to((1, 4))
    answers: Answers = {ShrinkIsrs: lambda _: {0: "its state znode changed 16 times meanwhile"}}
    played = Played(context, phases.trigger_partition_reassignment(context, {0: other}), answers)
    why = "its state znode changed 16 times meanwhile"
    assert played.result == {0: Refused(KafkaErrorCode.UNKNOWN_SERVER_ERROR, why)}
    assert played.of(WriteAssignments) == [WriteAssignments({}, {})]
    assert context.table.assignment(0) == MOVE


def test_a_dropped_leader_hands_over_before_it_leaves_the_isr() -> None:
    """Also where the new target is in sync: without a leader, the partition might wait for what logs hold."""
    context = moving()
    lead(context, "t-0", 3, (1, 2, 3))
    epoch = context.table.leader_epoch[0]
    back = context.table.assignment(0).reassign_to((1, 2))
    played = Played(context, phases.trigger_partition_reassignment(context, {0: back}))
    assert played.result == {}
    assert [step for step in played.steps if isinstance(step, ElectLeaders | ShrinkIsrs)][:2] == [
        ElectLeaders([0], Strategy.OFFLINE),
        ShrinkIsrs({3: [0]}),
    ]
    assert (context.table.leader[0], context.table.isr(0)) == (1, (1, 2))
    assert context.table.leader_epoch[0] == epoch + 2, "elected, and out of the ISR: as Kafka counts"


def test_a_dropped_leader_stays_where_no_other_replica_can_lead() -> None:
    context = moving()
    lead(context, "t-0", 3, (1, 2, 3))
    back = context.table.assignment(0).reassign_to((1, 2))
    answers: Answers = {ElectLeaders: lambda _: frozenset()}
    played = Played(context, phases.trigger_partition_reassignment(context, {0: back}), answers)
    why = "no replica that stays can lead"
    assert played.result == {0: Refused(KafkaErrorCode.UNKNOWN_SERVER_ERROR, why)}
    assert played.of(ShrinkIsrs) == []
    assert played.of(WriteAssignments) == [WriteAssignments({}, {})]
    assert (context.table.assignment(0), context.table.leader[0], context.table.isr(0)) == (MOVE, 3, (1, 2, 3))


def test_an_assignment_that_was_not_written_is_taken_back() -> None:
    context = ctx(3, {"t": [[1, 2], [1, 2]]})
    answers: Answers = {WriteAssignments: lambda step: {0: "refused"}}
    played = Played(context, phases.trigger_partition_reassignment(context, {0: MOVE, 1: MOVE}), answers)
    assert played.result == {0: Refused(KafkaErrorCode.UNKNOWN_SERVER_ERROR, "refused")}
    assert context.table.assignment(0) == ReplicaAssignment((1, 2))
    assert list(context.partitions_being_reassigned) == [1]
    assert played.of(RaiseLeaderEpochs)[0] == RaiseLeaderEpochs([1])


def test_a_cancelled_move_is_recorded_as_such() -> None:
    context = moving()
    back = context.table.assignment(0).reassign_to((1, 2))
    played = Played(context, phases.trigger_partition_reassignment(context, {0: back}))
    assert played.result == {}
    assert played.of(RecordReassigned) == [RecordReassigned({0: True})]
    assert context.table.assignment(0) == ReplicaAssignment((1, 2))
    assert not context.cancelled_reassignments


def test_an_added_replica_may_be_the_first_leader() -> None:
    context = ctx([3], {"t": [[1, 2]]}, online=False)
    context.table.set_state([0], PartitionState.NewPartition)
    set_replica_states(context.table, {1: [0], 2: [0]}, ReplicaState.NewReplica)
    Played(context, phases.trigger_partition_reassignment(context, {0: MOVE}))
    assert (context.table.leader[0], context.table.isr(0)) == (3, (3,))


def test_a_move_halts_the_deletion_of_its_topic() -> None:
    context = ctx(3, {"t": [[1, 2]], "u": [[1, 2]]})
    context.queue_topic_deletion(["t"])
    played = Played(context, phases.trigger_partition_reassignment(context, {0: MOVE, 1: MOVE}))
    assert played.steps[0] == HaltDeletions(["t"], "reassignment")


# -- requests ----------------------------------------------------------------------------------------------------------


def request(context: ControllerContext, targets: dict[TopicPartition, Any], answers: Answers | None = None) -> Any:
    given: list[Any] = []
    event = ApiPartitionReassignment(reply=Reply(given.append), targets=targets)
    played = Played(context, phases.api_partition_reassignment(context, event), answers)
    assert len(given) == 1
    return {tp: code for tp, (code, _) in given[0].items()}, played


def test_a_request_is_answered_by_partition() -> None:
    context = ctx(3, {"t": [[1, 2], [1, 2]]})
    codes, played = request(context, {T0: (3, 1), T1: (9,), TopicPartition("u", 0): None})
    assert codes == {
        T0: KafkaErrorCode.NONE,
        T1: KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
        TopicPartition("u", 0): KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    }
    assert list(context.partitions_being_reassigned) == [0]
    assert played.kinds[-1] == "CarryOut", "the answer comes last"


def test_a_request_says_what_zookeeper_refused() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    codes, _ = request(context, {T0: (3, 1)}, {WriteAssignments: refuse_all})
    assert codes == {T0: KafkaErrorCode.UNKNOWN_SERVER_ERROR}


def test_a_topic_that_would_be_too_large_is_refused_before_anything_starts() -> None:
    context = ctx(3, {"t": [[1, 2]], "u": [[1, 2]]})
    answers: Answers = {ReasonAgainstSize: lambda step: "too large" if step.assignment.topic == "t" else None}
    u0 = TopicPartition("u", 0)
    codes, played = request(context, {T0: (3, 1), u0: (3, 1)}, answers)
    assert codes == {T0: KafkaErrorCode.POLICY_VIOLATION, u0: KafkaErrorCode.NONE}
    assert [list(step.wanted) for step in played.of(WriteAssignments)] == [[1]]
    [first, _] = played.of(ReasonAgainstSize)
    assert (first.assignment.partitions, first.reassigned) == ({0: MOVE}, 1), "as the znode would say"


def test_a_request_replaces_the_znodes_entry() -> None:
    context = ctx(3, {"t": [[1, 2], [1, 2]]})
    _, played = request(context, {T0: (3, 1)}, asked_for((T0, (2, 3)), (T1, (2, 3))))
    assert played.of(WriteRequestedReassignments) == [WriteRequestedReassignments({T1: (2, 3)})]
    assert played.of(ReadRequestedReassignments)[0] == ReadRequestedReassignments(watch=False)
    assert played.of(Enqueue) == []


def test_the_last_entry_goes_with_its_znode() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    _, played = request(context, {T0: (3, 1)}, asked_for((T0, (2, 3))))
    assert played.of(WriteRequestedReassignments) == [WriteRequestedReassignments({})]
    assert played.of(Enqueue) == [Enqueue(ZkPartitionReassignment())], "which watches it again"


@pytest.mark.parametrize("at_once, breaths", [(1, 2), (2, 1), (5_000, 1)])
def test_other_tasks_run_between_the_pieces_of_a_request(
    monkeypatch: pytest.MonkeyPatch, at_once: int, breaths: int
) -> None:
    monkeypatch.setattr(phases, "PARTITIONS_AT_ONCE", at_once)
    _, played = request(ctx(3, {"t": [[1, 2], [1, 2]]}), {T0: None, T1: None})
    assert len(played.of(Breathe)) == breaths


@pytest.mark.parametrize(
    "asked, found", [(None, {T0: MOVE}), ((T0, T1), {T0: MOVE}), ((T1,), {}), ((TopicPartition("?", 0),), {})]
)
def test_moves_are_listed(asked: tuple[TopicPartition, ...] | None, found: dict[TopicPartition, Any]) -> None:
    context = ctx(3, {"t": [MOVE, [1, 2]]})
    context.begin_reassignments([0])
    given: list[Any] = []
    event = ListPartitionReassignments(reply=Reply(given.append), partitions=asked)
    Played(context, phases.list_partition_reassignments(context, event))
    assert given == [found]


# -- the request znode, and failovers ----------------------------------------------------------------------------------


def test_an_entry_that_cannot_start_is_removed() -> None:
    context = ctx(3, {"t": [[1, 2], [1, 2]]})
    played = Played(context, phases.zk_partition_reassignment(context), asked_for((T0, (3, 1)), (T1, (1, 1))))
    assert WriteToLog("error", "Reassignment of t-1 to (1, 1) is impossible: removed from the request") in played.steps
    assert list(context.partitions_being_reassigned) == [0]
    assert played.of(WriteRequestedReassignments) == [WriteRequestedReassignments({T0: (3, 1)})]


def test_a_znode_that_cannot_be_read_starts_nothing() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    played = Played(context, phases.zk_partition_reassignment(context))
    assert played.steps == [ReadRequestedReassignments(watch=True)]


def test_an_entry_that_is_moving_already_is_left_alone() -> None:
    context = ctx(3, {"t": [MOVE]})
    context.begin_reassignments([0])
    lead(context, "t-0", 1, (1, 2))
    played = Played(context, phases.zk_partition_reassignment(context), asked_for((T0, (3, 1))))
    assert played.of(RaiseLeaderEpochs) == [RaiseLeaderEpochs([])]


def test_a_failover_resumes_each_move_once() -> None:
    context = ctx(3, {"t": [MOVE, MOVE]})
    context.begin_reassignments([0, 1])
    lead(context, "t-0", 1, (1, 2))
    lead(context, "t-1", 1, (1, 2))
    played = Played(context, phases.initialize_partition_reassignments(context), asked_for((T0, (3, 1))))
    raised = [row for step in played.of(RaiseLeaderEpochs) for row in step.rows]
    assert raised == [0, 1]


def test_a_failover_drops_brokers_that_are_not_replicas_first() -> None:
    context = ctx(3, {"t": [[1, 2], [1, 2]]})
    lead(context, "t-1", 3, (3, 1))
    context.read_with_non_replicas[1] = (3,)
    played = Played(context, phases.initialize_partition_reassignments(context))
    assert played.steps[0] == ElectLeaders([1], Strategy.REASSIGN)
    assert played.kinds.index("OweDeletions") < played.kinds.index("ReadRequestedReassignments")
    assert (context.table.leader[1], context.table.isr(1)) == (1, (1,))
    assert played.of(OweDeletions) == [OweDeletions({1: [3]}, "replica is none any more")]


def test_a_broker_that_holds_a_log_and_is_not_in_sync_hears_a_higher_epoch() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    before = context.table.leader_epoch[0]
    played = Played(context, phases.drop_non_replicas(context, {0: [3]}))
    assert played.of(RaiseLeaderEpochs) == [RaiseLeaderEpochs([0])]
    assert context.table.leader_epoch[0] == before + 1
    assert [r.broker for r in played.sent[0].leader_and_isr] == [1, 2]
    assert [r.broker for r in played.sent[0].stop_replica] == [3]


def test_rows_that_were_read_again_are_looked_at_once() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    lead(context, "t-0", 1, (1, 2, 3))
    context.read_with_non_replicas[0] = (3,)
    Played(context, phases.drop_non_replicas_read_again(context))
    assert (context.table.isr(0), context.read_with_non_replicas) == ((1, 2), {})
    assert Played(context, phases.drop_non_replicas_read_again(context)).kinds == ["Apply"]


def test_a_non_replica_goes_once_a_replica_leads() -> None:
    """Until then its copy may be needed; the election may already have taken it out of the ISR."""
    context = ctx(3, {"t": [[1, 2]]})
    lead(context, "t-0", -1, (3, 1))
    context.read_with_non_replicas[0] = (3,)
    assert Played(context, phases.drop_non_replicas_read_again(context)).kinds == ["Apply"]
    assert context.read_with_non_replicas == {0: (3,)}
    lead(context, "t-0", 1, (1,))
    played = Played(context, phases.drop_non_replicas_read_again(context))
    assert played.of(OweDeletions) == [OweDeletions({0: [3]}, "replica is none any more")]
    assert context.read_with_non_replicas == {}


def test_a_non_replica_that_has_become_a_replica_stays() -> None:
    context = ctx(3, {"t": [[1, 2]]})
    context.read_with_non_replicas[0] = (2,)
    assert Played(context, phases.drop_non_replicas_read_again(context)).kinds == ["Apply"]
    assert context.read_with_non_replicas == {}


# -- controllers as replicas -------------------------------------------------------------------------------------------


def test_a_replica_of_a_controller_moves_to_a_broker() -> None:
    context = ctx([1, 2], {"t": [[1, 9], [1, 2]], "going": [[9]]})
    context.controllers = frozenset({9})
    context.queue_topic_deletion(["going"])
    Played(context, phases.move_replicas_of_controllers(context))
    assert list(context.partitions_being_reassigned) == [0]
    assert context.table.assignment(0) == ReplicaAssignment((1, 2, 9), (2,), (9,))
    again = Played(context, phases.move_replicas_of_controllers(context))
    assert again.steps == [], "it is moving away already"


def test_a_replica_of_a_controller_that_holds_the_only_copy_stays() -> None:
    context = ctx([1, 2], {"t": [[9]]})
    context.controllers = frozenset({9})
    context.partitions_being_reassigned.clear()
    [step] = Played(context, phases.move_replicas_of_controllers(context)).steps[:1]
    assert isinstance(step, WriteToLog | ReasonAgainstSize)
