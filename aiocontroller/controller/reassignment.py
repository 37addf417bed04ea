"""Partition reassignment by znode and by request: its phases and completion (``onPartitionReassignment``).

Departures from Kafka.  Many partitions go through a phase together: one write per topic, one batch of requests.  The
topic znode is written conditionally on its version, starting from its content, so that partitions added meanwhile by
others stay.  Removed replicas become debts in the same step (``controller.debts``), so the reassignment ends as soon
as no data can be lost, and brokers delete the removed replicas from their disks whenever they can.  Where no target
replica can lead, phase B waits, and no replica is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TypeVar

from aiocontroller.controller import debts
from aiocontroller.controller.assignment_writes import to_be_deleted, too_large, write_assignments
from aiocontroller.controller.leadership_writes import carry_out_effects
from aiocontroller.controller.moving_isrs import follow_isrs
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import (
    bump_leader_epochs,
    handle_partition_state_changes,
    handle_replica_state_changes,
    remove_from_isr,
)
from aiocontroller.controller.topic_deletion import mark_ineligible, resume_deletion_for_topics
from aiocontroller.core import reassignment as plan
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import HeldBack, NonReplicasDropped, ReassignmentsEnded
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
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES
from aiocontroller.zookeeper.znodes import BadZNode, topic_znode_bytes

T = TypeVar("T")
log = logging.getLogger(__name__)

PARTITIONS_AT_ONCE = 5_000
"""Partitions checked before other tasks may run."""
COMMIT_AGAIN_S = 30.0
"""After ZooKeeper has refused a target, for instance by an ACL that an operator then mends."""

Answer = tuple[KafkaErrorCode, str]
_OK: Answer = (KafkaErrorCode.NONE, "")


# -- triggers ----------------------------------------------------------------------------------------------------------


async def api_partition_reassignment(shell: ControllerShell, event: ApiPartitionReassignment) -> None:
    """A request takes precedence over the znode's entries for the same partitions."""
    answers = dict.fromkeys(event.targets, _OK)
    wanted: dict[int, ReplicaAssignment] = {}
    for piece in _pieces(event.targets.items()):
        await shell.breathe()
        checked = plan.check_targets(shell.context, piece)
        wanted |= checked.wanted
        answers |= {tp: (why.code, why.message) for tp, why in checked.refused.items()}
    refused = await too_large_for_their_znodes(shell, wanted)
    wanted = {row: assignment for row, assignment in wanted.items() if row not in refused}
    await _remove_from_znode(shell, [shell.topic_partition(row) for row in wanted])
    refused |= await trigger_partition_reassignment(shell, wanted)
    answers |= {shell.topic_partition(row): (why.code, why.message) for row, why in refused.items()}
    event.reply.answer(answers)


async def zk_partition_reassignment(shell: ControllerShell, event: ZkPartitionReassignment) -> None:
    """Start the znode's entries; those that cannot start are removed from it, the others stay until they complete.

    The znode also changes whenever an entry completes; that does not restart the other reassignments.
    """
    await _begin_what_the_znode_says(shell, set(shell.context.partitions_being_reassigned))


async def _begin_what_the_znode_says(shell: ControllerShell, moving: AbstractSet[int] = frozenset()) -> set[int]:
    """Start or resume the znode's entries, and return their rows.  Rows in ``moving`` keep a reassignment that has the
    same target."""
    requested = await shell.zk.get_partition_reassignment(watch=True)
    if requested is None:
        return set()
    if isinstance(requested, BadZNode):
        shell.report_bad_znodes([requested])  # left in place for its author
        return set()
    refused: list[TopicPartition] = []
    wanted: dict[int, ReplicaAssignment] = {}
    for piece in _pieces(requested.items()):
        await shell.breathe()
        checked = plan.check_entries(shell.context, piece, moving)
        wanted |= checked.wanted
        for tp, why in checked.refused.items():
            log.error("Reassignment of %s to %s %s: removed from the request", tp, requested[tp], why.message)
            refused.append(tp)
    failed = await too_large_for_their_znodes(shell, wanted)
    wanted = {row: assignment for row, assignment in wanted.items() if row not in failed}
    failed |= await trigger_partition_reassignment(shell, wanted)
    log_refused(shell, failed)
    refused += [shell.topic_partition(row) for row in failed]
    await _remove_from_znode(shell, refused)
    return set(wanted) - set(failed)


def log_refused(shell: ControllerShell, failed: Mapping[int, Refused]) -> None:
    """Log one line per reason; a reason about a topic names it."""
    by_reason: dict[str, list[int]] = {}
    for row, why in failed.items():
        by_reason.setdefault(why.message, []).append(row)
    for message, rows in by_reason.items():
        log.error("Not reassigned: %s: %s", shell.sample(rows), message)


async def list_partition_reassignments(shell: ControllerShell, event: ListPartitionReassignments) -> None:
    table, moving = shell.context.table, shell.context.partitions_being_reassigned
    asked: Iterable[int] = sorted(moving)
    if event.partitions is not None:
        asked = (table.row(*tp) for tp in event.partitions)
    found: dict[TopicPartition, ReplicaAssignment] = {}
    for rows in _pieces(asked):
        await shell.breathe()
        found |= {table.topic_partition(row): table.assignment(row) for row in rows if row >= 0 and row in moving}
    event.reply.answer(found)


async def initialize_partition_reassignments(shell: ControllerShell) -> None:
    """At failover: clean up a predecessor's unfinished steps, then resume the znode's and the topic znodes' entries."""
    found = plan.leftovers(shell.context)
    if found:
        await drop_non_replicas(shell, found)
    await resume_reassignments(shell)


async def resume_reassignments(shell: ControllerShell) -> None:
    resumed = await _begin_what_the_znode_says(shell)
    await on_partition_reassignment(
        shell, [row for row in sorted(shell.context.partitions_being_reassigned) if row not in resumed]
    )


async def drop_non_replicas(shell: ControllerShell, found: Mapping[int, Sequence[int]]) -> None:
    """Brokers that are not replicas stop leading, leave the ISR and delete their logs; leaders hear the real replicas.

    They exist when a controller ended between writing an assignment and sending it, or when somebody else wrote one.
    In Kafka they stay as long as they follow.  They are kept where the partition would have no leader without them.
    """
    context = shell.context
    led = plan.led_by_non_replicas(context, found)
    if led:
        await handle_partition_state_changes(shell, led, PartitionState.OnlinePartition, Strategy.REASSIGN)
    odd = plan.plan_non_replicas(context, found)
    if not odd.all:
        return
    log.info("Removing brokers that are not replicas from the ISRs of %s", shell.sample(list(odd.all)))
    batch = shell.new_batch()
    await remove_from_isr(shell, by_broker(odd.in_sync), batch)
    raised = await bump_leader_epochs(shell, [row for row in odd.all if row not in odd.in_sync])
    left = plan.no_longer_in_sync(context, odd)
    await debts.write(shell, to_be_deleted(shell, left), "replica is none any more")
    effects = Effects(leader_and_isr=[plan.to_replicas(context, raised.done)], owed=plan.owed(context, left))
    carry_out_effects(shell, effects, batch)
    await shell.send(batch)


async def drop_non_replicas_read_again(shell: ControllerShell) -> None:
    """Drop brokers that a leader added to its ISR without knowing the assignment, as states read again have shown.

    Called after each event, because during a reassignment memory is ahead of ZooKeeper.
    """
    found = plan.non_replicas_of(shell.context, shell.context.read_with_non_replicas)
    apply(shell.context, NonReplicasDropped())
    await drop_non_replicas(shell, found)


async def maybe_complete_reassignment(shell: ControllerShell, rows: Iterable[int]) -> None:
    """ISRs have changed: partitions whose whole target is in sync go on to phase B."""
    ready = plan.ready(shell.context, rows)
    if ready:
        await on_partition_reassignment(shell, ready)


async def uncommitted_reassignments(shell: ControllerShell, event: UncommittedReassignments) -> None:
    await maybe_complete_reassignment(shell, sorted(shell.context.partitions_being_reassigned))


async def resume_for_brokers(shell: ControllerShell, brokers: Sequence[int]) -> None:
    """Brokers have started: resume reassignments to them, and those whose partition has got its first leader."""
    await on_partition_reassignment(shell, plan.waiting_for(shell.context, brokers))


# -- phases ------------------------------------------------------------------------------------------------------------


async def trigger_partition_reassignment(
    shell: ControllerShell, wanted: Mapping[int, ReplicaAssignment]
) -> dict[int, Refused]:
    """Run phase U for new assignments, then continue with all; returns row -> why it could not start.

    Dropped replicas leave the ISR before the assignment is written: a controller that ends in between leaves replicas
    that catch up again.  Kafka writes the assignment first, and may leave a broker in the ISR that can never lead.
    """
    context = shell.context
    mark_ineligible(shell, plan.queued_topics(context, wanted), "reassignment")
    phase, batch = plan.plan_phase_u(context, wanted), shell.new_batch()
    batch.held_back = True  # a leader would take replicas into its ISR that are not assigned yet
    apply(context, Effects(assigned=phase.wanted))
    led = plan.led_by_dropped(context, phase.dropped)
    await handle_partition_state_changes(shell, led, PartitionState.OnlinePartition, Strategy.OFFLINE, batch=batch)
    failed = await remove_from_isr(shell, by_broker(phase.dropped), batch) if phase.dropped else {}
    going = {row: assignment for row, assignment in phase.wanted.items() if row not in failed}
    failed |= await write_assignments(shell, going, phase.dropped_but(failed))
    carry_out_effects(shell, plan.effects_of_phase_u(phase, failed), batch)
    apply(context, HeldBack(list(phase.before)))
    await shell.send(batch)
    begun = [row for row in wanted if row not in failed]
    apply(context, plan.begun(phase, begun))
    await on_partition_reassignment(shell, begun)
    batch = shell.new_batch()
    raised = await bump_leader_epochs(shell, plan.not_raised(context, phase, failed))
    carry_out_effects(shell, plan.effects_of_dropping(context, phase, failed, raised.done), batch)
    await shell.send(batch)
    return {row: Refused(KafkaErrorCode.UNKNOWN_SERVER_ERROR, why) for row, why in failed.items()}


async def too_large_for_their_znodes(
    shell: ControllerShell, wanted: Mapping[int, ReplicaAssignment]
) -> dict[int, Refused]:
    """Returns row -> why, for topics whose znode would be too large with the wanted and current reassignments.

    A reassignment in progress is stored with its adding and removing replicas, so it needs more room than its result.
    Checked before anything starts; ZooKeeper's refusal covers a znode that grows meanwhile.
    """
    table = shell.context.table
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
            await shell.breathe()
        assignments = {table.index_of[row]: wanted.get(row) or table.assignment(row) for row in topic.partitions()}
        size = topic_znode_bytes(TopicAssignment(name, topic.id, assignments))
        if size > MAX_DATA_BYTES:
            refused |= dict.fromkeys(rows, Refused(KafkaErrorCode.POLICY_VIOLATION, too_large(name, size, len(rows))))
    return refused


async def on_partition_reassignment(shell: ControllerShell, rows: Sequence[int]) -> None:
    context = shell.context
    mark_ineligible(shell, plan.queued_topics(context, rows), "reassignment")
    waiting = [row for row in rows if not plan.is_complete(context, row)]
    await _phase_a(shell, waiting)
    await follow_isrs(shell, waiting)
    # A partition none of whose replicas was ever alive is New: an added replica may lead it.  Kafka refuses to move it,
    # with an unknown error.
    never_led = [row for row in rows if context.table.isr_of[row] == NO_ISR]
    if never_led:
        await handle_partition_state_changes(shell, never_led, PartitionState.OnlinePartition, Strategy.OFFLINE)
    await _phase_b(shell, [row for row in rows if plan.is_complete(context, row)])


async def _phase_a(shell: ControllerShell, rows: Sequence[int]) -> None:
    """Raise the leader epoch, send all replicas the union of old and new, and have the added replicas created."""
    if not rows:
        return
    batch = shell.new_batch()
    raised = (await bump_leader_epochs(shell, rows)).done
    carry_out_effects(shell, plan.effects_of_phase_a(shell.context, raised), batch)
    fresh = plan.replicas_to_create(shell.context, rows, raised)
    await handle_replica_state_changes(shell, fresh, ReplicaState.NewReplica, batch=batch)
    await shell.send(batch)


async def _phase_b(shell: ControllerShell, rows: Sequence[int]) -> None:
    """The whole target is in sync: move the leader into it, and remove the other replicas."""
    if not rows:
        return
    context, batch = shell.context, shell.new_batch()
    phase = plan.plan_phase_b(context, rows)
    await handle_replica_state_changes(shell, phase.added, ReplicaState.OnlineReplica, batch=batch)
    if phase.hopeless:
        log.warning("No target replica can lead %s yet; nothing is removed", shell.sample(phase.hopeless))
    apply(context, Effects(assigned=phase.targets()))
    moved = await handle_partition_state_changes(
        shell, phase.moving, PartitionState.OnlinePartition, Strategy.REASSIGN, batch=batch
    )
    elected = set(moved.elected)
    unmoved = plan.not_moved(context, phase, elected)
    apply(context, Effects(assigned={row: phase.before[row] for row in unmoved}))
    phase = phase.but(unmoved)
    raised = (await bump_leader_epochs(shell, plan.leaders_that_stay(context, phase, elected))).done
    carry_out_effects(shell, Effects(leader_and_isr=[plan.to_replicas(context, raised)]), batch)
    if phase.removed():
        await remove_from_isr(shell, by_broker(phase.removed()), batch)
    await _commit(shell, phase, batch)


async def _commit(shell: ControllerShell, phase: PhaseB, batch: RequestBatch) -> None:
    """Write the target as the assignment, and the debts of removed replicas; this completes the reassignment."""
    safe, removed = plan.plan_commit(shell.context, phase)
    failed = await write_assignments(shell, safe.targets(), removed)
    log_refused(shell, {row: Refused(KafkaErrorCode.UNKNOWN_SERVER_ERROR, why) for row, why in failed.items()})
    if failed:
        shell.queue.schedule("uncommitted reassignments", COMMIT_AGAIN_S, UncommittedReassignments())
    ended = [row for row in safe.before if row not in failed]
    carry_out_effects(shell, plan.effects_of_commit(shell.context, phase, set(ended), removed), batch)
    await shell.send(batch)
    await _finish(shell, ended)


async def _finish(shell: ControllerShell, done: Sequence[int]) -> None:
    """Finish reassignments whose target has been written to ZooKeeper."""
    if not done:
        return
    context, table = shell.context, shell.context.table
    cancelled = set(done) & context.cancelled_reassignments.keys()  # membership only
    apply(context, ReassignmentsEnded(done))
    for row in done:
        shell.journal.append(
            "reassigned",
            topic=table.topic(row).name,
            partition=table.index_of[row],
            replicas=table.replicas(row),
            detail="cancelled" if row in cancelled else None,
        )
    log.info("Reassignment finished: %s", shell.sample(done))
    await _remove_from_znode(shell, [shell.topic_partition(row) for row in done], only_finished=True)
    await shell.send_update_metadata(context.brokers, done)
    await resume_deletion_for_topics(shell, dict.fromkeys(table.topic(row).name for row in done))


# -- the request znode -------------------------------------------------------------------------------------------------


async def _remove_from_znode(
    shell: ControllerShell, partitions: Sequence[TopicPartition], *, only_finished: bool = False
) -> None:
    """Remove partitions from ``/admin/reassign_partitions``; the znode is deleted with the last of them."""
    if not partitions:
        return
    requested = await shell.zk.get_partition_reassignment(watch=False)
    if requested is None or isinstance(requested, BadZNode):
        return
    left = plan.entries_left(shell.context, requested, set(partitions), only_finished=only_finished)
    if len(left) == len(requested):
        return
    if left:
        if not await shell.zk.set_or_create_partition_reassignment(left, fence=shell.context.epoch_zk_version):
            log.error("/admin/reassign_partitions is too large to be rewritten: finished reassignments stay in it")
    else:
        await shell.zk.delete_partition_reassignment(fence=shell.context.epoch_zk_version)
        shell.queue.append(ZkPartitionReassignment())  # reads it again, which re-arms the watch


def _pieces(items: Iterable[T]) -> Iterator[Sequence[T]]:
    """Between two pieces, other tasks may run."""
    several = list(items)
    return (several[start : start + PARTITIONS_AT_ONCE] for start in range(0, len(several), PARTITIONS_AT_ONCE))
