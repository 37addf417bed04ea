"""Partition reassignment by znode and by request: its phases and completion (``onPartitionReassignment``).

Departures from Kafka.  Many partitions go through a phase together: one write per topic, one batch of requests.  The
topic znode is written conditionally on its version, starting from its content, so that partitions added meanwhile by
others stay.  Removed replicas become debts in the same step (``controller.debts``), so the reassignment ends as soon
as no data can be lost, and brokers delete the removed replicas from their disks whenever they can.  Where no target
replica can lead, phase B waits, and no replica is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

from aiocontroller.controller import debts
from aiocontroller.controller.assignment_writes import to_be_deleted, too_large, write_assignments
from aiocontroller.controller.moving_isrs import follow_isrs
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import (
    bump_leader_epochs,
    handle_partition_state_changes,
    handle_replica_state_changes,
    remove_from_isr,
)
from aiocontroller.controller.topic_deletion import mark_ineligible, resume_deletion_for_topics
from aiocontroller.core.alter_partition import strangers
from aiocontroller.core.election import Strategy, elect
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    ApiPartitionReassignment,
    ListPartitionReassignments,
    ZkPartitionReassignment,
)
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.reassignment import (
    Refused,
    by_broker,
    check_target,
    in_sync_replica_stays,
    is_complete,
    nothing_can_be_lost,
)
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES
from aiocontroller.zookeeper.znodes import BadZNode, topic_znode_bytes

log = logging.getLogger(__name__)

PARTITIONS_AT_ONCE = 5_000
"""Partitions checked before other tasks may run."""

Answer = tuple[KafkaErrorCode, str]
_OK: Answer = (KafkaErrorCode.NONE, "")


# -- triggers ----------------------------------------------------------------------------------------------------------


async def api_partition_reassignment(shell: ControllerShell, event: ApiPartitionReassignment) -> None:
    """A request takes precedence over the znode's entries for the same partitions."""
    answers: dict[TopicPartition, Answer] = {}
    wanted: dict[int, ReplicaAssignment] = {}
    for number, (tp, target) in enumerate(event.targets.items()):
        if number % PARTITIONS_AT_ONCE == 0:
            await shell.breathe()
        row = _movable(shell, tp)
        assignment = check_target(shell.context, row, target)
        if isinstance(assignment, Refused):
            answers[tp] = (assignment.code, assignment.message)
        else:
            answers[tp], wanted[row] = _OK, assignment
    refused = await too_large_for_their_znodes(shell, wanted)
    wanted = {row: assignment for row, assignment in wanted.items() if row not in refused}
    await _remove_from_znode(shell, [shell.topic_partition(row) for row in wanted])
    refused |= await trigger_partition_reassignment(shell, wanted)
    answers |= {shell.topic_partition(row): (why.code, why.message) for row, why in refused.items()}
    event.reply.answer(answers)


async def zk_partition_reassignment(shell: ControllerShell, event: ZkPartitionReassignment) -> None:
    """Start the znode's entries; those that cannot start are removed from it, the others stay until they complete.

    The znode also changes whenever an entry completes; that does not restart the entries under way.
    """
    await _begin_what_the_znode_says(shell, set(shell.context.partitions_being_reassigned))


async def _begin_what_the_znode_says(shell: ControllerShell, under_way: AbstractSet[int] = frozenset()) -> set[int]:
    """Start or resume the znode's entries, and return their rows.  Those ``under_way`` to the same target are kept."""
    requested = await shell.zk.get_partition_reassignment(watch=True)
    if requested is None:
        return set()
    if isinstance(requested, BadZNode):
        shell.report_bad_znodes([requested])  # left in place for its author
        return set()
    refused: list[TopicPartition] = []
    wanted: dict[int, ReplicaAssignment] = {}
    for number, (tp, target) in enumerate(requested.items()):
        if number % PARTITIONS_AT_ONCE == 0:
            await shell.breathe()
        row = _movable(shell, tp)
        # Targets need not be alive: as in Kafka, a dead target is waited for.
        sound = row >= 0 and target and len(set(target)) == len(target) and min(target) >= 0
        if not sound or not shell.context.controllers.isdisjoint(target):
            log.error("Reassignment of %s to %s is impossible: removed from the request", tp, target)
            refused.append(tp)
            continue
        assignment = shell.context.table.assignment(row).reassign_to(target)
        if (
            row in under_way
            and assignment == shell.context.table.assignment(row)
            and not is_complete(shell.context, row)
        ):
            continue
        if in_sync_replica_stays(shell.context, row, assignment):
            wanted[row] = assignment
        else:
            log.error("Reassignment of %s to %s would lose data: removed from the request", tp, target)
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
    table, under_way = shell.context.table, shell.context.partitions_being_reassigned
    asked: Iterable[int] = sorted(under_way)
    if event.partitions is not None:
        asked = (table.row(*tp) for tp in event.partitions)
    found: dict[TopicPartition, ReplicaAssignment] = {}
    for number, row in enumerate(asked):
        if number % PARTITIONS_AT_ONCE == 0:
            await shell.breathe()
        if row >= 0 and row in under_way:
            found[table.topic_partition(row)] = table.assignment(row)
    event.reply.answer(found)


async def initialize_partition_reassignments(shell: ControllerShell) -> None:
    """At failover: clean up a predecessor's unfinished steps, then resume the znode's and the topic znodes' entries."""
    await _drop_leftovers(shell)
    resumed = await _begin_what_the_znode_says(shell)
    await on_partition_reassignment(
        shell, [row for row in sorted(shell.context.partitions_being_reassigned) if row not in resumed]
    )


async def _drop_leftovers(shell: ControllerShell) -> None:
    """Drop brokers in ISRs that are not replicas: a Kafka controller ended just after writing the assignment."""
    table = shell.context.table
    replicas, in_sync = table.assignments.values, table.isrs.values
    combinations = set(zip(table.assignment_of, table.isr_of, strict=True))  # membership only
    odd = {
        (a, i) for a, i in combinations if i != NO_ISR and a >= 0 and not set(in_sync[i]) <= set(replicas[a].replicas)
    }
    if odd:
        rows = [row for row in table.rows() if (table.assignment_of[row], table.isr_of[row]) in odd]
        await drop_strangers(shell, {row: strangers(shell.context, row, table.isr(row)) for row in rows})


async def drop_strangers(shell: ControllerShell, found: Mapping[int, Sequence[int]]) -> None:
    """Remove brokers that are not replicas from ISRs, have them delete their logs, and tell leaders the real replicas.

    They exist when a controller ended between writing an assignment and sending it.  In Kafka they stay as long as they
    follow.  They are kept where the partition would have no leader without them.
    """
    table = shell.context.table
    odd = {
        row: brokers
        for row, brokers in found.items()
        if brokers and table.leader[row] in table.replicas(row) and not table.topic(row).deleting
    }
    if not odd:
        return
    log.info("Removing brokers that are not replicas from the ISRs of %s", shell.sample(list(odd)))
    batch = shell.new_batch()
    in_sync = {row: brokers for row, brokers in odd.items() if not set(brokers).isdisjoint(table.isr(row))}
    await remove_from_isr(shell, by_broker(in_sync), batch)
    raised = await bump_leader_epochs(shell, [row for row in odd if row not in in_sync])
    batch.add_leader_and_isr_requests(raised.done, [table.replicas(row) for row in raised.done])
    left = {row: brokers for row, brokers in odd.items() if set(brokers).isdisjoint(table.isr(row))}
    await debts.write(shell, to_be_deleted(shell, left), "replica is none any more")
    stop_removed_replicas(shell, left, batch)
    await shell.send(batch)


async def drop_strangers_read_again(shell: ControllerShell) -> None:
    """Drop brokers that a leader added to its ISR without knowing the assignment, as states read again have shown.

    Called after each event, because during a reassignment memory is ahead of ZooKeeper.
    """
    context = shell.context
    rows, context.read_with_strangers = context.read_with_strangers, {}
    await drop_strangers(
        shell,
        {
            row: strangers(context, row, context.table.isr(row))
            for row in rows
            if context.table.topic_of[row] >= 0 and context.table.isr_of[row] != NO_ISR
        },
    )


async def maybe_complete_reassignment(shell: ControllerShell, rows: Iterable[int]) -> None:
    """ISRs have changed: partitions whose whole target is in sync go on to phase B."""
    under_way = shell.context.partitions_being_reassigned
    ready = [row for row in rows if row in under_way and is_complete(shell.context, row)]
    if ready:
        await on_partition_reassignment(shell, ready)


async def resume_for_brokers(shell: ControllerShell, brokers: Sequence[int]) -> None:
    """Brokers have started: resume reassignments to them, and those whose partition has got its first leader."""
    table, started = shell.context.table, set(brokers)
    waiting = [
        row
        for row in shell.context.partitions_being_reassigned
        if started & set(table.assignment(row).target) or is_complete(shell.context, row)
    ]
    await on_partition_reassignment(shell, sorted(waiting))


# -- phases ------------------------------------------------------------------------------------------------------------


async def trigger_partition_reassignment(
    shell: ControllerShell, wanted: Mapping[int, ReplicaAssignment]
) -> dict[int, Refused]:
    """Run phase U for new assignments, then continue with all; returns row -> why it could not start."""
    context, table = shell.context, shell.context.table
    mark_ineligible(shell, _queued_topics(shell, wanted), "reassignment")
    before = {row: table.assignment(row) for row, assignment in wanted.items() if table.assignment(row) != assignment}
    dropped = {row: [b for b in old.replicas if b not in wanted[row].replicas] for row, old in before.items()}
    known_epochs, batch = {row: table.leader_epoch[row] for row in before}, shell.new_batch()
    for row in before:
        table.set_assignment(row, wanted[row])
    dropped = {row: brokers for row, brokers in dropped.items() if brokers}
    failed = await _leave_isrs(shell, dropped, batch)
    going = {row: wanted[row] for row in before if row not in failed}
    failed |= await write_assignments(shell, going, {row: b for row, b in dropped.items() if row in going})
    for row in failed:
        table.set_assignment(row, before[row])
    context.hold_back(before)
    batch.add_leader_and_isr_requests(list(failed), [table.replicas(row) for row in failed])
    await shell.send(batch)
    begun = [row for row in wanted if row not in failed]
    context.partitions_being_reassigned.update(dict.fromkeys(begun))
    await on_partition_reassignment(shell, begun)
    await _stop_dropped(shell, {row: b for row, b in dropped.items() if row not in failed}, known_epochs)
    return {row: Refused(KafkaErrorCode.UNKNOWN_SERVER_ERROR, why) for row, why in failed.items()}


async def _stop_dropped(
    shell: ControllerShell, dropped: Mapping[int, Sequence[int]], known_epochs: Mapping[int, int]
) -> None:
    """Stop replicas that are no longer wanted, once the phases have raised the epochs above ``known_epochs``.

    Kafka stops them first; brokers of 2.6 to 3.4.0 ignore a StopReplica of their own leader epoch (KAFKA-13972).
    """
    table, batch = shell.context.table, shell.new_batch()
    dropped = {row: brokers for row, brokers in dropped.items() if table.topic_of[row] >= 0}
    same = [row for row in dropped if table.isr_of[row] != NO_ISR and table.leader_epoch[row] == known_epochs[row]]
    raised = (await bump_leader_epochs(shell, same)).done
    batch.add_leader_and_isr_requests(raised, [table.replicas(row) for row in raised])
    stop_removed_replicas(shell, dropped, batch)
    await shell.send(batch)


async def too_large_for_their_znodes(
    shell: ControllerShell, wanted: Mapping[int, ReplicaAssignment]
) -> dict[int, Refused]:
    """Returns row -> why, for topics whose znode would be too large with the wanted and current reassignments.

    A reassignment under way is stored with its adding and removing replicas, so it needs more room than its result.
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


async def _leave_isrs(
    shell: ControllerShell, dropped: Mapping[int, Sequence[int]], batch: RequestBatch
) -> dict[int, str]:
    """Removed replicas stop leading and leave the ISR; returns row -> why they could not.

    This comes before the assignment is written: a controller that ends in between leaves replicas that catch up again.
    Kafka writes the assignment first, and may leave a broker in the ISR that can never lead.
    """
    await _lead_without(shell, dropped, batch)
    return await remove_from_isr(shell, by_broker(dropped), batch) if dropped else {}


async def on_partition_reassignment(shell: ControllerShell, rows: Sequence[int]) -> None:
    mark_ineligible(shell, _queued_topics(shell, rows), "reassignment")
    waiting = [row for row in rows if not is_complete(shell.context, row)]
    await _phase_a(shell, waiting)
    await follow_isrs(shell, waiting)
    await _lead_at_last(shell, rows)
    await _phase_b(shell, [row for row in rows if is_complete(shell.context, row)])


async def _phase_a(shell: ControllerShell, rows: Sequence[int]) -> None:
    """Raise the leader epoch, send all replicas the union of old and new, and have the added replicas created."""
    if not rows:
        return
    table = shell.context.table
    batch = shell.new_batch()
    written = await bump_leader_epochs(shell, rows)
    for row in written.done:
        assignment = table.assignment(row)
        batch.add_leader_and_isr_request_for_brokers(assignment.origin, (row,), is_new=False)
        batch.add_leader_and_isr_request_for_brokers(assignment.adding, (row,), is_new=True)
    leaderless = [row for row in rows if table.isr_of[row] == NO_ISR]  # their first election informs new replicas
    fresh = by_broker({row: _nonexistent(shell, row) for row in [*written.done, *leaderless]})
    await handle_replica_state_changes(shell, fresh, ReplicaState.NewReplica, batch=batch)
    await shell.send(batch)


async def _phase_b(shell: ControllerShell, rows: Sequence[int]) -> None:
    """The whole target is in sync: move the leader into it, and remove the other replicas."""
    if not rows:
        return
    context, table = shell.context, shell.context.table
    batch = shell.new_batch()
    added = by_broker({row: [b for b in table.assignment(row).adding if _is_not_online(shell, row, b)] for row in rows})
    await handle_replica_state_changes(shell, added, ReplicaState.OnlineReplica, batch=batch)
    outside = [row for row in rows if not _leader_stays(shell, row)]
    hopeless = set(elect(context, [p for p in outside if table.isr_of[p] != NO_ISR], Strategy.REASSIGN).failed)
    if hopeless:
        log.warning("No target replica can lead %s yet; nothing is removed", shell.sample(sorted(hopeless)))
    before = {row: table.assignment(row) for row in rows if row not in hopeless}
    for row, assignment in before.items():
        table.set_assignment(row, ReplicaAssignment(assignment.target))
    moving = [row for row in outside if row not in hopeless]
    moved = await handle_partition_state_changes(
        shell, moving, PartitionState.OnlinePartition, Strategy.REASSIGN, batch=batch
    )
    # Where the ISR turned out to be different, no new leader was elected, so no replica is removed either.
    elected = set(moved.elected)
    for row in moving:
        if row not in elected and table.isr_of[row] != NO_ISR:
            table.set_assignment(row, before.pop(row))
    staying = [row for row in before if row not in elected and table.isr_of[row] != NO_ISR]
    written = await bump_leader_epochs(shell, staying)
    batch.add_leader_and_isr_requests(written.done, [table.replicas(p) for p in written.done], is_new=False)
    removed = {row: assignment.removing for row, assignment in before.items() if assignment.removing}
    if removed:
        await remove_from_isr(shell, by_broker(removed), batch)
    await _commit(shell, before, batch)


async def _lead_at_last(shell: ControllerShell, rows: Sequence[int]) -> None:
    """A partition none of whose replicas was ever alive is New: an added replica may lead it.

    Kafka refuses to move it, with an unknown error.
    """
    never_led = [row for row in rows if shell.context.table.isr_of[row] == NO_ISR]
    if never_led:
        await handle_partition_state_changes(shell, never_led, PartitionState.OnlinePartition, Strategy.OFFLINE)


async def _lead_without(shell: ControllerShell, dropped: Mapping[int, Sequence[int]], batch: RequestBatch) -> None:
    """Elect a new leader where a replica leads whose addition is cancelled.

    Kafka leaves such a partition without a leader, so the new target can never catch up.  Where the new target is in
    sync already, phase B follows at once and elects.
    """
    table = shell.context.table
    led = [row for row, gone in dropped.items() if table.leader[row] in gone and not is_complete(shell.context, row)]
    await handle_partition_state_changes(shell, led, PartitionState.OnlinePartition, Strategy.OFFLINE, batch=batch)


async def _commit(shell: ControllerShell, before: Mapping[int, ReplicaAssignment], batch: RequestBatch) -> None:
    """Write the target as the assignment, and the debts of removed replicas; this completes the reassignment.

    Where the ISR or leader has changed meanwhile, or the topic znode cannot be written, the partition stays between
    origin and target (``before``) and is resumed later.
    """
    context, table = shell.context, shell.context.table
    safe = {row: assignment for row, assignment in before.items() if nothing_can_be_lost(context, row)}
    removed = {row: old.removing for row, old in safe.items() if old.removing and table.isr_of[row] != NO_ISR}
    failed = await write_assignments(shell, {row: ReplicaAssignment(old.target) for row, old in safe.items()}, removed)
    log_refused(shell, {row: Refused(KafkaErrorCode.UNKNOWN_SERVER_ERROR, why) for row, why in failed.items()})
    waiting = [row for row in before if row not in safe or row in failed]
    for row in waiting:
        table.set_assignment(row, before[row])
    batch.add_leader_and_isr_requests(waiting, [table.replicas(row) for row in waiting])
    stop_removed_replicas(shell, {row: b for row, b in removed.items() if row not in failed}, batch)
    await shell.send(batch)
    await _finish(shell, [row for row in safe if row not in failed])


def stop_removed_replicas(shell: ControllerShell, removed: Mapping[int, Sequence[int]], batch: RequestBatch) -> None:
    """Stop and delete, in one request, replicas ``{row: brokers}`` that the assignments no longer name."""
    ledger, table = shell.context.debts, shell.context.table
    for row, brokers in removed.items():
        name, number = table.topic_partition(row)
        batch.add_debts(debt for broker in brokers if (debt := ledger.get(broker, name, number)) is not None)


async def _finish(shell: ControllerShell, done: Sequence[int]) -> None:
    """Finish reassignments whose target has been written to ZooKeeper."""
    if not done:
        return
    context, table = shell.context, shell.context.table
    for row in done:
        context.partitions_being_reassigned.pop(row, None)
        shell.journal.append(
            "reassigned", topic=table.topic(row).name, partition=table.index_of[row], replicas=table.replicas(row)
        )
    log.info("Reassignment finished: %s", shell.sample(done))
    await _remove_from_znode(shell, [shell.topic_partition(row) for row in done], only_finished=True)
    await shell.send_update_metadata(context.brokers, done)
    await resume_deletion_for_topics(shell, dict.fromkeys(table.topic(row).name for row in done))


# -- the request znode -------------------------------------------------------------------------------------------------


async def _remove_from_znode(
    shell: ControllerShell, partitions: Sequence[TopicPartition], *, only_finished: bool = False
) -> None:
    """Remove partitions from ``/admin/reassign_partitions``; the znode is deleted with the last of them.

    ``only_finished`` keeps entries whose target differs from the present replicas: they are newer requests.
    """
    if not partitions:
        return
    requested = await shell.zk.get_partition_reassignment(watch=False)
    if requested is None or isinstance(requested, BadZNode):
        return
    gone = set(partitions)
    table = shell.context.table
    left = {
        tp: target
        for tp, target in requested.items()
        if tp not in gone or (only_finished and table.replicas(table.row(*tp)) != tuple(target))
    }
    if len(left) == len(requested):
        return
    if left:
        if not await shell.zk.set_or_create_partition_reassignment(left, fence=shell.context.epoch_zk_version):
            log.error("/admin/reassign_partitions is too large to be rewritten: finished reassignments stay in it")
    else:
        await shell.zk.delete_partition_reassignment(fence=shell.context.epoch_zk_version)
        shell.queue.append(ZkPartitionReassignment())  # reads it again, which re-arms the watch


def _movable(shell: ControllerShell, tp: TopicPartition) -> int:
    """The row, or -1 where the partition does not exist or its topic is being deleted."""
    row = shell.context.table.row(*tp)
    return -1 if row < 0 or shell.context.table.topic(row).deleting else row


def _queued_topics(shell: ControllerShell, rows: Iterable[int]) -> list[str]:
    table = shell.context.table
    names = dict.fromkeys(table.topic(row).name for row in rows)
    return [name for name in names if name in shell.context.topics_to_be_deleted]


def _nonexistent(shell: ControllerShell, row: int) -> list[int]:
    table = shell.context.table
    return [
        broker
        for broker in table.assignment(row).adding
        if table.replica_state(row, broker) is ReplicaState.NonExistentReplica
    ]


def _is_not_online(shell: ControllerShell, row: int, broker: int) -> bool:
    return shell.context.table.replica_state(row, broker) is not ReplicaState.OnlineReplica


def _leader_stays(shell: ControllerShell, row: int) -> bool:
    table = shell.context.table
    leader = table.leader[row]
    return leader in table.assignment(row).target and shell.context.is_replica_online(row, leader)
