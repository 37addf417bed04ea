"""Partition reassignment by znode and by request, step by step: phases and completion (``onPartitionReassignment``).

``core.reassignment`` has the decisions about single partitions, and says what the phases are.

Departures from Kafka.  Many partitions go through a phase together: one write per topic, one batch of requests.  The
topic znode is written conditionally on its version, starting from its content, so that partitions added meanwhile by
others stay.  Removed replicas become debts in the same step (``core.debts``), so the reassignment ends as soon as no
data can be lost, and brokers delete the removed replicas from their disks whenever they can.  Where no target replica
can lead, phase B waits, and no replica is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from aiocontroller.core import reassignment as plan
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.context_changes import HeldBack, NonReplicasDropped, ReassignmentsEnded, ReassignmentsTold
from aiocontroller.core.effects import Effects
from aiocontroller.core.election import Strategy
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    ApiPartitionReassignment,
    ListPartitionReassignments,
    UncommittedReassignments,
    ZkPartitionReassignment,
)
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.reassignment import PhaseB, Refused, by_broker
from aiocontroller.core.states import ReplicaState
from aiocontroller.core.steps import (
    Apply,
    Breathe,
    CarryOut,
    ElectLeaders,
    Enqueue,
    FollowIsrs,
    HaltDeletions,
    HoldRequests,
    MoveReplicas,
    OweDeletions,
    RaiseLeaderEpochs,
    ReadRequestedReassignments,
    ReasonAgainstSize,
    RecordReassigned,
    ResumeDeletions,
    Schedule,
    SendMetadata,
    SendRequests,
    ShrinkIsrs,
    Steps,
    WriteAssignments,
    WriteRequestedReassignments,
    WriteToLog,
)

T = TypeVar("T")

PARTITIONS_AT_ONCE = 5_000
"""Partitions checked before other tasks may run."""
COMMIT_AGAIN_S = 30.0
"""The delay after ZooKeeper has refused a step, for instance by an ACL that an operator then corrects."""

_ACCEPTED: tuple[KafkaErrorCode, str] = (KafkaErrorCode.NONE, "")


# -- triggers ----------------------------------------------------------------------------------------------------------


def api_partition_reassignment(context: ControllerContext, event: ApiPartitionReassignment) -> Steps[None]:
    """Start and cancel what is requested, which takes precedence over the znode's entries for the same partitions."""
    answers = dict.fromkeys(event.targets, _ACCEPTED)
    wanted: dict[int, ReplicaAssignment] = {}
    for piece in _pieces(event.targets.items()):
        yield Breathe()
        checked = plan.check_targets(context, piece)
        wanted |= checked.wanted
        answers |= {tp: (why.code, why.message) for tp, why in checked.refused.items()}
    refused = yield from too_large_for_their_znodes(context, wanted)
    wanted = {row: assignment for row, assignment in wanted.items() if row not in refused}
    yield from _remove_from_znode(context, [context.table.topic_partition(row) for row in wanted])
    refused |= yield from trigger_partition_reassignment(context, wanted)
    answers |= {context.table.topic_partition(row): (why.code, why.message) for row, why in refused.items()}
    yield CarryOut(Effects(answers=[(event, answers)]))


def zk_partition_reassignment(context: ControllerContext) -> Steps[None]:
    """Start the znode's entries; those that cannot start are removed from it, the others stay until they complete.

    The znode also changes whenever an entry completes; that does not restart the other reassignments.
    """
    yield from _begin_what_the_znode_says(context, set(context.partitions_being_reassigned))


def _begin_what_the_znode_says(context: ControllerContext, moving: AbstractSet[int] = frozenset()) -> Steps[set[int]]:
    """Start or resume the znode's entries, and return their rows.  Rows in ``moving`` keep a reassignment that has the
    same target."""
    requested = yield from ReadRequestedReassignments(watch=True)
    if requested is None:
        return set()
    refused: list[TopicPartition] = []
    wanted: dict[int, ReplicaAssignment] = {}
    for piece in _pieces(requested.items()):
        yield Breathe()
        checked = plan.check_entries(context, piece, moving)
        wanted |= checked.wanted
        for tp, why in checked.refused.items():
            asked = f"Reassignment of {tp} to {requested[tp]}"
            yield WriteToLog("error", f"{asked} {why.message}: removed from the request")
            refused.append(tp)
    failed = yield from too_large_for_their_znodes(context, wanted)
    wanted = {row: assignment for row, assignment in wanted.items() if row not in failed}
    failed |= yield from trigger_partition_reassignment(context, wanted)
    yield from report_refused(context, failed)
    refused += [context.table.topic_partition(row) for row in failed]
    yield from _remove_from_znode(context, refused)
    return set(wanted) - set(failed)


def report_refused(context: ControllerContext, failed: Mapping[int, Refused]) -> Steps[None]:
    """Report each reason in one line; a reason about a topic names it."""
    by_reason: dict[str, list[int]] = {}
    for row, why in failed.items():
        by_reason.setdefault(why.message, []).append(row)
    for message, rows in by_reason.items():
        yield WriteToLog("error", f"Not reassigned: {context.table.sample(rows)}: {message}")


def list_partition_reassignments(context: ControllerContext, event: ListPartitionReassignments) -> Steps[None]:
    """Answer with the partitions that are being moved: all, or those that were asked for."""
    table, moving = context.table, context.partitions_being_reassigned
    asked: Iterable[int] = sorted(moving)
    if event.partitions is not None:
        asked = (table.row(*tp) for tp in event.partitions)
    found: dict[TopicPartition, ReplicaAssignment] = {}
    for rows in _pieces(asked):
        yield Breathe()
        found |= {table.topic_partition(row): table.assignment(row) for row in rows if row >= 0 and row in moving}
    yield CarryOut(Effects(answers=[(event, found)]))


def initialize_partition_reassignments(context: ControllerContext) -> Steps[None]:
    """At failover: clean up a predecessor's unfinished steps, then resume the znode's and the topic znodes' entries."""
    yield from drop_non_replicas_read_again(context)
    yield from resume_reassignments(context)


def resume_reassignments(context: ControllerContext) -> Steps[None]:
    """The znode's entries first, then the other partitions that are being moved."""
    resumed = yield from _begin_what_the_znode_says(context)
    yield from on_partition_reassignment(
        context, [row for row in sorted(context.partitions_being_reassigned) if row not in resumed]
    )


def drop_non_replicas(context: ControllerContext, found: Mapping[int, Sequence[int]]) -> Steps[None]:
    """Brokers that are not replicas stop leading, leave the ISR and delete their logs; leaders get the real replicas.

    They exist when a controller ended between writing an assignment and sending it, or when another client wrote one.
    In Kafka they stay as long as they follow.  They are kept where the partition would have no leader without them.
    """
    led = plan.led_by_non_replicas(context, found)
    if led:
        yield ElectLeaders(led, Strategy.REASSIGN)
        yield SendRequests()
    odd = plan.plan_non_replicas(context, found)
    yield Apply(NonReplicasDropped([row for row, brokers in found.items() if row in odd.all or not brokers]))
    if not odd.all:
        return
    names = context.table.sample(list(odd.all))
    yield WriteToLog("info", f"Removing brokers that are not replicas from the ISRs of {names}")
    yield ShrinkIsrs(by_broker(odd.in_sync))
    raised = yield from RaiseLeaderEpochs([row for row in odd.all if row not in odd.in_sync])
    left = plan.no_longer_in_sync(context, odd)
    yield OweDeletions(left, "replica is none any more")
    yield CarryOut(Effects(leader_and_isr=[plan.to_replicas(context, raised)], owed=plan.debts_owed(context, left)))
    yield SendRequests()


def drop_non_replicas_read_again(context: ControllerContext) -> Steps[None]:
    """Drop brokers that ISRs had when they were read, such as those that a leader added without knowing the assignment.

    Called after each event: during a reassignment memory is ahead of ZooKeeper, and a replica may have begun to lead.
    """
    yield from drop_non_replicas(context, plan.still_non_replicas(context))


def maybe_complete_reassignment(context: ControllerContext, rows: Iterable[int]) -> Steps[None]:
    """ISRs have changed: partitions whose whole target is in sync go on to phase B."""
    ready = plan.ready_for_phase_b(context, rows)
    if ready:
        yield from on_partition_reassignment(context, ready)


def uncommitted_reassignments(context: ControllerContext) -> Steps[None]:
    """Go on with the reassignments that no other event resumes."""
    rows = plan.uncommitted(context)
    if rows:
        yield from on_partition_reassignment(context, rows)


def move_replicas_of_controllers(context: ControllerContext) -> Steps[None]:
    """Start reassigning partitions that name a controller and are not moving away from it already."""
    table = context.table
    live = sorted(context.live)
    wanted: dict[int, ReplicaAssignment] = {}
    for row in plan.naming_controllers(context):
        target = table.assignment(row).target
        if context.controllers.isdisjoint(target) or table.topic(row).deleting:
            continue
        spread = table.index_of[row]
        other = plan.without_controllers(ReplicaAssignment(target), context.controllers, live, spread).replicas
        assignment = plan.check_target(context, row, other)
        if isinstance(assignment, Refused):
            named = f"{table.topic_partition(row)} names a controller as a replica"
            yield WriteToLog("warning", f"{named} and cannot be moved now: {assignment.message}")
        else:
            wanted[row] = assignment
    if wanted:
        refused = yield from too_large_for_their_znodes(context, wanted)
        wanted = {row: assignment for row, assignment in wanted.items() if row not in refused}
        yield from report_refused(context, refused)
        names = table.sample(list(wanted))
        yield WriteToLog("info", f"Reassigning partitions that name a controller as a replica: {names}")
        refused = yield from trigger_partition_reassignment(context, wanted)
        yield from report_refused(context, refused)


# -- phases ------------------------------------------------------------------------------------------------------------


def trigger_partition_reassignment(
    context: ControllerContext, wanted: Mapping[int, ReplicaAssignment]
) -> Steps[dict[int, Refused]]:
    """Run phase U for new assignments, then continue with all; returns row -> why it could not start.

    Dropped replicas leave the ISR before the assignment is written: a controller that ends in between leaves replicas
    that catch up again.  Kafka writes the assignment first, and may leave a broker in the ISR that can never lead.
    A leader that no other replica can replace is not dropped.
    """
    yield HaltDeletions(plan.queued_topics(context, wanted), "reassignment")
    phase = plan.plan_phase_u(context, wanted)
    yield HoldRequests()  # a leader would take replicas into its ISR that are not assigned yet
    yield Apply(Effects(assigned=phase.wanted))
    elected = yield from ElectLeaders(plan.led_by_dropped(context, phase.dropped), Strategy.OFFLINE)
    failed = dict.fromkeys(plan.led_by_dropped(context, phase.dropped), "no replica that stays can lead")
    if dropped := phase.dropped_without(failed):
        failed |= yield from ShrinkIsrs(by_broker(dropped))
    going = {row: assignment for row, assignment in (phase.wanted | phase.unchanged).items() if row not in failed}
    failed |= yield from WriteAssignments(going, phase.dropped_without(failed))
    yield CarryOut(plan.effects_of_phase_u(phase, failed))
    yield Apply(HeldBack(list(phase.before)))
    yield SendRequests()
    begun = [row for row in wanted if row not in failed]
    yield Apply(plan.begun(phase, begun))
    yield from on_partition_reassignment(context, begun, elected)
    raised = yield from RaiseLeaderEpochs(plan.epochs_not_raised(context, phase, failed))
    yield CarryOut(plan.effects_of_dropping(context, phase, failed, raised))
    yield SendRequests()
    return {row: Refused(KafkaErrorCode.UNKNOWN_SERVER_ERROR, why) for row, why in failed.items()}


def too_large_for_their_znodes(
    context: ControllerContext, wanted: Mapping[int, ReplicaAssignment]
) -> Steps[dict[int, Refused]]:
    """Returns row -> why, for topics whose znode would be too large with the wanted and current reassignments.

    A reassignment in progress is stored with its adding and removing replicas, so it needs more room than its result.
    Checked before anything starts; ZooKeeper's refusal covers a znode that grows meanwhile.
    """
    table = context.table
    by_topic: dict[str, list[int]] = {}
    for row in wanted:
        by_topic.setdefault(table.topic(row).name, []).append(row)
    refused: dict[int, Refused] = {}
    looked_at = 0
    for name, rows in by_topic.items():
        topic = table.topic_by_name[name]
        looked_at += len(topic.rows)
        if looked_at > PARTITIONS_AT_ONCE:
            looked_at = 0
            yield Breathe()
        assignments = {table.index_of[row]: wanted.get(row) or table.assignment(row) for row in topic.partitions()}
        why = yield from ReasonAgainstSize(TopicAssignment(name, topic.id, assignments), len(rows))
        if why is not None:
            refused |= dict.fromkeys(rows, Refused(KafkaErrorCode.POLICY_VIOLATION, why))
    return refused


def on_partition_reassignment(
    context: ControllerContext, rows: Sequence[int], elected: AbstractSet[int] = frozenset()
) -> Steps[None]:
    """Go on with these partitions: phase A for those whose target is not in sync yet, phase B for the others.

    ``elected``: those that phase U has just given another leader.
    """
    yield HaltDeletions(plan.queued_topics(context, rows), "reassignment")
    waiting = [row for row in rows if not plan.is_complete(context, row)]
    yield from _phase_a(context, waiting)
    yield FollowIsrs(waiting)
    # A partition none of whose replicas was ever alive is New: an added replica may lead it.  Kafka refuses to move it,
    # with an unknown error.
    never_led = [row for row in rows if context.table.isr_of[row] == NO_ISR]
    if never_led:
        yield ElectLeaders(never_led, Strategy.OFFLINE)
        yield SendRequests()
    yield from _phase_b(context, [row for row in rows if plan.is_complete(context, row)], elected)


def _phase_a(context: ControllerContext, rows: Sequence[int]) -> Steps[None]:
    """Raise the leader epoch, send all replicas the union of old and new, and have the added replicas created."""
    if not rows:
        return
    raised = yield from RaiseLeaderEpochs(rows)
    untold = plan.untold(context, rows, raised)
    yield Apply(ReassignmentsTold(rows, untold))
    yield CarryOut(plan.effects_of_phase_a(context, raised))
    waiting = set(untold)
    created = plan.replicas_to_create(context, [row for row in rows if row not in waiting])
    yield MoveReplicas(created, ReplicaState.NewReplica)
    yield SendRequests()
    if untold:
        # An election may inform these replicas first.
        yield Apply(Effects(replicas=[(plan.replicas_to_create(context, untold), ReplicaState.NewReplica)]))
        yield _later()


def _phase_b(context: ControllerContext, rows: Sequence[int], elected_before: AbstractSet[int]) -> Steps[None]:
    """The whole target is in sync: move the leader into it, and remove the other replicas."""
    if not rows:
        return
    phase = plan.plan_phase_b(context, rows)
    yield Apply(Effects(replicas=[(phase.found, ReplicaState.NewReplica)]))
    yield MoveReplicas(phase.added, ReplicaState.OnlineReplica)
    if phase.unelectable:
        names = context.table.sample(phase.unelectable)
        yield WriteToLog("warning", f"No target replica can lead {names} yet; nothing is removed")
    yield Apply(Effects(assigned=phase.targets()))
    elected = yield from ElectLeaders(phase.moving, Strategy.REASSIGN)
    unmoved = plan.not_moved(context, phase, elected)
    yield Apply(plan.give_back({row: phase.before[row] for row in unmoved}, phase.states))
    moved = phase.without(unmoved)
    staying = plan.leaders_that_stay(context, moved, elected | elected_before)
    raised = yield from RaiseLeaderEpochs(staying)
    untold = plan.untold(context, staying, raised)
    yield Apply(plan.give_back({row: phase.before[row] for row in untold}, phase.states))
    told = moved.without(untold)
    yield CarryOut(Effects(leader_and_isr=[plan.to_replicas(context, raised)]))
    if told.removed():
        yield ShrinkIsrs(by_broker(told.removed()))
    ended = yield from _commit(context, told)
    done = frozenset(ended)
    if any(row not in done and plan.is_complete(context, row) for row in phase.before):
        yield _later()
    yield from _finish(context, ended)


def _commit(context: ControllerContext, phase: PhaseB) -> Steps[list[int]]:
    """Write the target as the assignment, and the debts of removed replicas; returns the rows that have ended so."""
    safe, removed = plan.plan_commit(context, phase)
    failed = yield from WriteAssignments(safe.targets(), removed)
    yield from report_refused(
        context, {row: Refused(KafkaErrorCode.UNKNOWN_SERVER_ERROR, why) for row, why in failed.items()}
    )
    ended = [row for row in safe.before if row not in failed]
    yield CarryOut(plan.effects_of_commit(context, phase, set(ended), removed))
    yield SendRequests()
    return ended


def _later() -> Schedule:
    """Try again what ZooKeeper has refused."""
    return Schedule("uncommitted reassignments", COMMIT_AGAIN_S, UncommittedReassignments())


def _finish(context: ControllerContext, done: Sequence[int]) -> Steps[None]:
    """Finish reassignments whose target has been written to ZooKeeper."""
    if not done:
        return
    table = context.table
    cancelled = {row: row in context.cancelled_reassignments for row in done}
    yield Apply(ReassignmentsEnded(done))
    yield RecordReassigned(cancelled)
    yield WriteToLog("info", f"Reassignment finished: {table.sample(done)}")
    yield from _remove_from_znode(context, [table.topic_partition(row) for row in done], only_finished=True)
    yield SendMetadata(list(context.brokers), done)
    yield ResumeDeletions(list(dict.fromkeys(table.topic(row).name for row in done)))


# -- the request znode -------------------------------------------------------------------------------------------------


def _remove_from_znode(
    context: ControllerContext, partitions: Sequence[TopicPartition], *, only_finished: bool = False
) -> Steps[None]:
    """Remove partitions from ``/admin/reassign_partitions``; the znode is deleted with the last of them."""
    if not partitions:
        return
    requested = yield from ReadRequestedReassignments(watch=False)
    if requested is None:
        return
    left = plan.entries_left(context, requested, set(partitions), only_finished=only_finished)
    if len(left) == len(requested):
        return
    yield WriteRequestedReassignments(left)
    if not left:
        yield Enqueue(ZkPartitionReassignment())  # reads it again, which re-arms the watch


def _pieces(items: Iterable[T]) -> Iterator[Sequence[T]]:
    """The items in pieces; other tasks may run between two of them."""
    several = list(items)
    return (several[start : start + PARTITIONS_AT_ONCE] for start in range(0, len(several), PARTITIONS_AT_ONCE))
