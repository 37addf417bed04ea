"""Replicas move: reassignment by znode and by request, its phases, its end (``onPartitionReassignment``).

Departures from Kafka.  Many partitions go through a phase together: one write for each topic, one batch of requests.
The topic znode is written conditionally on its version, from what is in it, so that partitions added meanwhile by
somebody else stay.  A removed replica is waited for: the reassignment ends when its broker has answered StopReplica
without an error, or is gone; who comes back before that is asked again.  Where no target replica can lead, phase B
waits, and nothing is taken away.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import msgspec

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
    StopReplicaResponseReceived,
    ZkPartitionReassignment,
)
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.reassignment import Refused, by_broker, check_target, in_sync_replica_stays, is_complete
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES
from aiocontroller.zookeeper.errors import TOO_LARGE, Code
from aiocontroller.zookeeper.znodes import BadZNode, topic_znode_bytes

log = logging.getLogger(__name__)

PARTITIONS_AT_ONCE = 5_000
"""Looked at before others may run."""
MAX_ATTEMPTS = 16
MAX_STOP_REPLICA_ATTEMPTS = 5
"""A broker that refuses to delete a removed replica this often is let be; the replica stays on its disk."""

Answer = tuple[KafkaErrorCode, str]
_OK: Answer = (KafkaErrorCode.NONE, "")
_UNKNOWN: Answer = (KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


# -- triggers ----------------------------------------------------------------------------------------------------------


async def api_partition_reassignment(shell: ControllerShell, event: ApiPartitionReassignment) -> None:
    """A request takes precedence over what the znode says about the same partitions."""
    answers: dict[TopicPartition, Answer] = {}
    wanted: dict[int, ReplicaAssignment] = {}
    for number, (tp, target) in enumerate(event.targets.items()):
        if number % PARTITIONS_AT_ONCE == 0:
            await shell.breathe()
        pid = _movable(shell, tp)
        if pid < 0:
            answers[tp] = _UNKNOWN
            continue
        assignment = check_target(shell.context, pid, target)
        if isinstance(assignment, Refused):
            answers[tp] = (assignment.code, assignment.message)
        else:
            answers[tp], wanted[pid] = _OK, assignment
    refused = await too_large_for_their_znodes(shell, wanted)
    wanted = {pid: assignment for pid, assignment in wanted.items() if pid not in refused}
    await _remove_from_znode(shell, [shell.topic_partition(pid) for pid in wanted])
    refused |= await trigger_partition_reassignment(shell, wanted)
    answers |= {shell.topic_partition(pid): (why.code, why.message) for pid, why in refused.items()}
    event.reply.answer(answers)


async def zk_partition_reassignment(shell: ControllerShell, event: ZkPartitionReassignment) -> None:
    """Entries that cannot begin are taken out of the znode; those that do stay in it until they end.

    The znode also changes whenever one of them has ended: what is under way is not begun again by that.
    """
    await _begin_what_the_znode_says(shell, set(shell.context.partitions_being_reassigned))


async def _begin_what_the_znode_says(shell: ControllerShell, under_way: AbstractSet[int] = frozenset()) -> set[int]:
    """The partitions that have begun, or gone on; those ``under_way`` to the same target are let be while they wait."""
    requested = await shell.zk.get_partition_reassignment(watch=True)
    if requested is None:
        return set()
    if isinstance(requested, BadZNode):
        shell.report_bad_znodes([requested])  # left in place for whoever wrote it
        return set()
    refused: list[TopicPartition] = []
    wanted: dict[int, ReplicaAssignment] = {}
    for number, (tp, target) in enumerate(requested.items()):
        if number % PARTITIONS_AT_ONCE == 0:
            await shell.breathe()
        pid = _movable(shell, tp)
        # Liveness is not asked for: a dead target is waited for, as with Kafka.
        sound = pid >= 0 and target and len(set(target)) == len(target) and min(target) >= 0
        if not sound or not shell.context.controllers.isdisjoint(target):
            log.error("Reassignment of %s to %s cannot be: removed from the request", tp, target)
            refused.append(tp)
            continue
        assignment = shell.context.table.assignment(pid).reassign_to(target)
        if pid in under_way and assignment == shell.context.table.assignment(pid) and _waits(shell, pid):
            continue
        if in_sync_replica_stays(shell.context, pid, assignment):
            wanted[pid] = assignment
        else:
            log.error("Reassignment of %s to %s would lose data: removed from the request", tp, target)
            refused.append(tp)
    failed = await too_large_for_their_znodes(shell, wanted)
    wanted = {pid: assignment for pid, assignment in wanted.items() if pid not in failed}
    failed |= await trigger_partition_reassignment(shell, wanted)
    log_refused(shell, failed)
    refused += [shell.topic_partition(pid) for pid in failed]
    await _remove_from_znode(shell, refused)
    return set(wanted) - set(failed)


def log_refused(shell: ControllerShell, failed: Mapping[int, Refused]) -> None:
    """One line for each reason, which names the topic where it is about one."""
    by_reason: dict[str, list[int]] = {}
    for pid, why in failed.items():
        by_reason.setdefault(why.message, []).append(pid)
    for message, pids in by_reason.items():
        log.error("Not reassigned: %s: %s", shell.sample(pids), message)


def _waits(shell: ControllerShell, pid: int) -> bool:
    """For replicas that are to catch up, or to be deleted."""
    return pid in shell.context.replicas_being_removed or not is_complete(shell.context, pid)


async def list_partition_reassignments(shell: ControllerShell, event: ListPartitionReassignments) -> None:
    table, under_way = shell.context.table, shell.context.partitions_being_reassigned
    asked: Iterable[int] = sorted(under_way)
    if event.partitions is not None:
        asked = (table.pid(*tp) for tp in event.partitions)
    found: dict[TopicPartition, ReplicaAssignment] = {}
    for number, pid in enumerate(asked):
        if number % PARTITIONS_AT_ONCE == 0:
            await shell.breathe()
        if pid >= 0 and pid in under_way:
            found[table.topic_partition(pid)] = _under_way(shell, pid)
    event.reply.answer(found)


def _under_way(shell: ControllerShell, pid: int) -> ReplicaAssignment:
    """With the replicas that are taken away already, until their brokers have answered: as the topic znode says it."""
    assignment = shell.context.table.assignment(pid)
    going = tuple(b for b in shell.context.replicas_being_removed.get(pid, ()) if b not in assignment.replicas)
    return ReplicaAssignment((*assignment.replicas, *going), assignment.adding, (*assignment.removing, *going))


async def initialize_partition_reassignments(shell: ControllerShell) -> None:
    """At failover: what a predecessor left half done, the znode's, then what the topic znodes say is under way."""
    await _drop_leftovers(shell)
    resumed = await _begin_what_the_znode_says(shell)
    await on_partition_reassignment(
        shell, [pid for pid in sorted(shell.context.partitions_being_reassigned) if pid not in resumed]
    )


async def _drop_leftovers(shell: ControllerShell) -> None:
    """Whoever is in an ISR and no replica: one of Kafka's controllers ended after writing the assignment."""
    table = shell.context.table
    replicas, in_sync = table.assignments.values, table.isrs.values
    combinations = set(zip(table.assignment_of, table.isr_of, strict=True))  # membership only
    odd = {
        (a, i) for a, i in combinations if i != NO_ISR and a >= 0 and not set(in_sync[i]) <= set(replicas[a].replicas)
    }
    if odd:
        pids = [pid for pid in table.pids() if (table.assignment_of[pid], table.isr_of[pid]) in odd]
        await drop_strangers(shell, {pid: strangers(shell.context, pid, table.isr(pid)) for pid in pids})


async def drop_strangers(shell: ControllerShell, found: Mapping[int, Sequence[int]]) -> None:
    """Brokers that leaders take for replicas leave the ISR and delete what they have; the leaders hear who is one.

    A controller ended between writing an assignment and telling it.  With Kafka they stay for as long as they follow.
    Nothing is taken from a partition that would have no leader left.
    """
    table = shell.context.table
    odd = {
        pid: brokers
        for pid, brokers in found.items()
        if brokers and table.leader[pid] in table.replicas(pid) and not table.topic(pid).deleting
    }
    if not odd:
        return
    log.info("Brokers that are no replicas are dropped by the leaders of %s", shell.sample(list(odd)))
    batch = shell.new_batch()
    in_sync = {pid: brokers for pid, brokers in odd.items() if not set(brokers).isdisjoint(table.isr(pid))}
    await remove_from_isr(shell, by_broker(in_sync), batch)
    raised = await bump_leader_epochs(shell, [pid for pid in odd if pid not in in_sync])
    batch.add_leader_and_isr_requests(raised.done, [table.replicas(pid) for pid in raised.done])
    stop_removed_replicas(by_broker(odd), batch)
    await shell.send(batch)


async def maybe_complete_reassignment(shell: ControllerShell, pids: Iterable[int]) -> None:
    """ISRs have changed: whatever has all of its target in sync goes on to phase B."""
    under_way = shell.context.partitions_being_reassigned
    ready = [
        pid
        for pid in pids
        if pid in under_way and pid not in shell.context.replicas_being_removed and is_complete(shell.context, pid)
    ]
    if ready:
        await on_partition_reassignment(shell, ready)


async def resume_for_brokers(shell: ControllerShell, brokers: Sequence[int]) -> None:
    """Brokers have started: reassignments to them may go on, and those that a first leader has made complete."""
    await _stop_removed_replicas_again(shell, brokers)
    table, started = shell.context.table, set(brokers)
    waiting = [
        pid
        for pid in shell.context.partitions_being_reassigned
        if pid not in shell.context.replicas_being_removed
        and (started & set(table.assignment(pid).target) or is_complete(shell.context, pid))
    ]
    await on_partition_reassignment(shell, sorted(waiting))


# -- phases ------------------------------------------------------------------------------------------------------------


async def trigger_partition_reassignment(
    shell: ControllerShell, wanted: Mapping[int, ReplicaAssignment]
) -> dict[int, Refused]:
    """Phase U for those whose assignment is new, then on with all; returns pid -> why it could not begin."""
    context, table = shell.context, shell.context.table
    mark_ineligible(shell, _queued_topics(shell, wanted), "reassignment")
    before = {pid: table.assignment(pid) for pid, assignment in wanted.items() if table.assignment(pid) != assignment}
    dropped = {pid: [b for b in old.replicas if b not in wanted[pid].replicas] for pid, old in before.items()}
    batch = shell.new_batch()
    for pid in before:
        table.set_assignment(pid, wanted[pid])
    failed = await _leave_isrs(shell, {pid: brokers for pid, brokers in dropped.items() if brokers}, batch)
    failed |= await _write_assignments(shell, {pid: wanted[pid] for pid in before if pid not in failed})
    for pid in failed:
        table.set_assignment(pid, before[pid])
    batch.add_leader_and_isr_requests(list(failed), [table.replicas(pid) for pid in failed])
    stop_removed_replicas(by_broker({pid: brokers for pid, brokers in dropped.items() if pid not in failed}), batch)
    await shell.send(batch)
    going = [pid for pid in wanted if pid not in failed]
    for pid in going:
        if pid in before:
            context.replicas_being_removed.pop(pid, None)
        context.partitions_being_reassigned[pid] = None
    await on_partition_reassignment(shell, going)
    return {pid: Refused(KafkaErrorCode.UNKNOWN_SERVER_ERROR, why) for pid, why in failed.items()}


async def too_large_for_their_znodes(
    shell: ControllerShell, wanted: Mapping[int, ReplicaAssignment]
) -> dict[int, Refused]:
    """Of topics whose znode could not hold what is wanted, and what is under way, besides the rest: pid -> why.

    A reassignment under way is written with what it adds and removes, so it needs more room than what comes of it.
    Asked before anything is begun; a znode that has grown meanwhile is refused when it is written.
    """
    table = shell.context.table
    by_topic: dict[str, list[int]] = {}
    for pid in wanted:
        by_topic.setdefault(table.topic(pid).name, []).append(pid)
    refused: dict[int, Refused] = {}
    looked_at = 0
    for name, pids in by_topic.items():
        topic = table.topic_by_name[name]
        looked_at += len(topic.pids)
        if looked_at > PARTITIONS_AT_ONCE:
            looked_at = 0
            await shell.breathe()
        assignments = {table.index_of[pid]: wanted.get(pid) or table.assignment(pid) for pid in topic.partitions()}
        size = topic_znode_bytes(TopicAssignment(name, topic.id, assignments))
        if size > MAX_DATA_BYTES:
            refused |= dict.fromkeys(pids, Refused(KafkaErrorCode.POLICY_VIOLATION, _too_large(name, size, len(pids))))
    return refused


def _too_large(topic: str, size: int, partitions: int) -> str:
    return (
        f"the znode of topic {topic!r} would have {size} bytes with {partitions} more partitions under way, "
        f"{MAX_DATA_BYTES} fit: reassign fewer of them at a time"
    )


async def _leave_isrs(
    shell: ControllerShell, dropped: Mapping[int, Sequence[int]], batch: RequestBatch
) -> dict[int, str]:
    """Whoever is to be no replica any more leads no more and is not in sync; returns pid -> why it still is.

    Before the assignment is written: a controller that ends in between leaves replicas that catch up again.  Kafka
    writes the assignment first, and leaves an ISR with somebody in it who can never lead.
    """
    await _lead_without(shell, dropped, batch)
    return await remove_from_isr(shell, by_broker(dropped), batch) if dropped else {}


async def on_partition_reassignment(shell: ControllerShell, pids: Sequence[int]) -> None:
    mark_ineligible(shell, _queued_topics(shell, pids), "reassignment")
    complete = {pid: None for pid in pids if is_complete(shell.context, pid)}
    await _phase_a(shell, [pid for pid in pids if pid not in complete])
    complete |= dict.fromkeys(await _lead_at_last(shell, pids))
    await _phase_b(shell, list(complete))


async def _phase_a(shell: ControllerShell, pids: Sequence[int]) -> None:
    """Raise the epoch, tell everybody the union, have the added replicas made."""
    if not pids:
        return
    table = shell.context.table
    batch = shell.new_batch()
    written = await bump_leader_epochs(shell, pids)
    for pid in written.done:
        assignment = table.assignment(pid)
        batch.add_leader_and_isr_request_for_brokers(assignment.origin, (pid,), is_new=False)
        batch.add_leader_and_isr_request_for_brokers(assignment.adding, (pid,), is_new=True)
    leaderless = [pid for pid in pids if table.isr_of[pid] == NO_ISR]  # their first leader tells the new replicas
    fresh = by_broker({pid: _nonexistent(shell, pid) for pid in [*written.done, *leaderless]})
    await handle_replica_state_changes(shell, fresh, ReplicaState.NewReplica, batch=batch)
    await shell.send(batch)


async def _phase_b(shell: ControllerShell, pids: Sequence[int]) -> None:
    """All of the target is in sync: the leader moves into it, the rest goes."""
    if not pids:
        return
    context, table = shell.context, shell.context.table
    batch = shell.new_batch()
    added = by_broker({pid: [b for b in table.assignment(pid).adding if _is_not_online(shell, pid, b)] for pid in pids})
    await handle_replica_state_changes(shell, added, ReplicaState.OnlineReplica, batch=batch)
    outside = [pid for pid in pids if not _leader_stays(shell, pid)]
    hopeless = set(elect(context, [p for p in outside if table.isr_of[p] != NO_ISR], Strategy.REASSIGN).failed)
    if hopeless:
        log.warning("No target replica can lead %s yet; nothing is removed", shell.sample(sorted(hopeless)))
    before = {pid: table.assignment(pid) for pid in pids if pid not in hopeless}
    for pid, assignment in before.items():
        table.set_assignment(pid, ReplicaAssignment(assignment.target))
    moving = [pid for pid in outside if pid not in hopeless]
    moved = await handle_partition_state_changes(
        shell, moving, PartitionState.OnlinePartition, Strategy.REASSIGN, batch=batch
    )
    # Where the ISR turned out to be another one there is no new leader: nothing is taken away there either.
    elected = set(moved.elected)
    for pid in moving:
        if pid not in elected and table.isr_of[pid] != NO_ISR:
            table.set_assignment(pid, before.pop(pid))
    going = list(before)
    removed: dict[int, Sequence[int]] = {pid: assignment.removing for pid, assignment in before.items()}
    staying = [pid for pid in going if pid not in set(moving) and table.isr_of[pid] != NO_ISR]
    written = await bump_leader_epochs(shell, staying)
    batch.add_leader_and_isr_requests(written.done, [table.replicas(p) for p in written.done], is_new=False)
    await _remove_replicas(shell, {pid: brokers for pid, brokers in removed.items() if brokers}, batch, wait=True)
    await shell.send(batch)
    await _finish(shell, [pid for pid in going if pid not in context.replicas_being_removed])


async def _lead_at_last(shell: ControllerShell, pids: Sequence[int]) -> list[int]:
    """A partition none of whose replicas ever lived is new: an added one may lead it.  Returns what that completes.

    Kafka refuses to move it, with an unknown error.
    """
    table = shell.context.table
    never_led = [pid for pid in pids if table.isr_of[pid] == NO_ISR]
    if not never_led:
        return []
    await handle_partition_state_changes(shell, never_led, PartitionState.OnlinePartition, Strategy.OFFLINE)
    return [pid for pid in never_led if table.isr_of[pid] != NO_ISR and is_complete(shell.context, pid)]


async def _lead_without(shell: ControllerShell, dropped: Mapping[int, Sequence[int]], batch: RequestBatch) -> None:
    """A replica that was being added may lead already when it is taken back.

    Kafka leaves its partition without a leader, so that the new target can never catch up.  Where the new target is in
    sync already, phase B follows at once and elects.
    """
    table = shell.context.table
    led = [pid for pid, gone in dropped.items() if table.leader[pid] in gone and not is_complete(shell.context, pid)]
    await handle_partition_state_changes(shell, led, PartitionState.OnlinePartition, Strategy.OFFLINE, batch=batch)


async def _remove_replicas(
    shell: ControllerShell, removed: Mapping[int, Sequence[int]], batch: RequestBatch, *, wait: bool
) -> None:
    """Out of the ISRs, stopped and deleted; with ``wait``, until those on registered brokers are."""
    if not removed:
        return
    replicas = by_broker(removed)
    await remove_from_isr(shell, replicas, batch)
    stop_removed_replicas(replicas, batch)
    if wait:
        for pid, brokers in removed.items():
            if any(broker in shell.context.brokers for broker in brokers):
                shell.context.replicas_being_removed[pid] = dict.fromkeys(brokers, 1)


def stop_removed_replicas(replicas: Mapping[int, Sequence[int]], batch: RequestBatch) -> None:
    """Stopped and deleted at once: replicas, ``{broker: pids}``, that their assignments no longer name."""
    for broker, pids in replicas.items():
        batch.add_stop_replica_request_for_brokers((broker,), pids, delete=True)


async def _finish(shell: ControllerShell, pids: Sequence[int]) -> None:
    """The target alone is written, last of all: the topic znode was the only place that knew the origin."""
    if not pids:
        return
    context, table = shell.context, shell.context.table
    failed = await _write_assignments(shell, {pid: ReplicaAssignment(table.assignment(pid).target) for pid in pids})
    done = [pid for pid in pids if pid not in failed]
    for pid in done:
        context.partitions_being_reassigned.pop(pid, None)
        shell.journal.append(
            "reassigned", topic=table.topic(pid).name, partition=table.index_of[pid], replicas=table.replicas(pid)
        )
    if done:
        log.info("Reassignment finished: %s", shell.sample(done))
    await _remove_from_znode(shell, [shell.topic_partition(pid) for pid in done], only_finished=True)
    await shell.send_update_metadata(context.brokers, done)
    await resume_deletion_for_topics(shell, dict.fromkeys(table.topic(pid).name for pid in done))


async def removed_replicas_answered(shell: ControllerShell, event: StopReplicaResponseReceived) -> None:
    """A broker has deleted replicas that were taken from it, or is asked again."""
    context, table = shell.context, shell.context.table
    errors = {pid: code for t, p, code in event.partitions if code and (pid := table.pid(t, p)) >= 0}
    again: list[int] = []
    done: list[int] = []
    for pid in event.deleted:
        waiting = context.replicas_being_removed.get(pid, {})
        if event.broker not in waiting:
            continue
        failed = bool(event.error_code or errors.get(pid))
        if failed and waiting[event.broker] < MAX_STOP_REPLICA_ATTEMPTS:
            waiting[event.broker] += 1
            again.append(pid)
            continue
        if failed:
            log.error("Broker %d keeps a removed replica of %s", event.broker, table.topic_partition(pid))
        del waiting[event.broker]
        done.append(pid)
    if again:
        batch = shell.new_batch()
        batch.add_stop_replica_request_for_brokers((event.broker,), again, delete=True)
        await shell.send(batch)
    await finish_what_waits_for_nobody(shell, done)


async def finish_what_waits_for_nobody(shell: ControllerShell, pids: Iterable[int] | None = None) -> None:
    """Removed replicas are deleted, or their brokers are gone; ends those ``pids`` (None: all) that no other holds up.

    Those whose brokers are gone are kept in mind until then: a broker may come back while another is waited for.
    """
    waiting, registered = shell.context.replicas_being_removed, shell.context.brokers
    asked = list(waiting) if pids is None else pids
    finished = [pid for pid in asked if not any(broker in registered for broker in waiting[pid])]
    for pid in finished:
        del waiting[pid]
    await _finish(shell, finished)


async def _stop_removed_replicas_again(shell: ControllerShell, brokers: Sequence[int]) -> None:
    """Brokers have started that were away, or died, while their replicas were taken from them: now they are waited for.

    Kafka's reassignment has ended by then, and such a broker keeps its replica.
    """
    batch = shell.new_batch()
    for broker in brokers:
        pids = [pid for pid, waiting in shell.context.replicas_being_removed.items() if broker in waiting]
        for pid in pids:
            shell.context.replicas_being_removed[pid][broker] = 1
        if pids:
            batch.add_stop_replica_request_for_brokers((broker,), pids, delete=True)
    await shell.send(batch)


# -- the topic znodes and the request znode ----------------------------------------------------------------------------


async def _write_assignments(shell: ControllerShell, wanted: Mapping[int, ReplicaAssignment]) -> dict[int, str]:
    """Write the partitions' assignments, each topic at once, into what its znode holds now; returns the failures."""
    table = shell.context.table
    by_topic: dict[str, dict[int, int]] = {}
    for pid in wanted:
        by_topic.setdefault(table.topic(pid).name, {})[table.index_of[pid]] = pid
    failed: dict[int, str] = {}
    for _attempt in range(MAX_ATTEMPTS):
        if not by_topic:
            return failed
        read = await shell.zk.get_topic_assignments(list(by_topic), watch=False)
        shell.report_bad_znodes(read.bad)
        found = {assignment.topic: assignment for assignment in read.found}
        for topic in [t for t in by_topic if t not in found]:
            failed |= dict.fromkeys(by_topic.pop(topic).values(), "its topic znode is gone or cannot be read")
        changed = [
            msgspec.structs.replace(
                found[topic], partitions=found[topic].partitions | {n: wanted[pid] for n, pid in numbers.items()}
            )
            for topic, numbers in by_topic.items()
        ]
        writes = await shell.zk.set_topic_assignments(changed, fence=shell.context.epoch_zk_version)
        for assignment, code in zip(changed, writes.code, strict=True):
            if code == Code.OK:
                del by_topic[assignment.topic]
            elif code == TOO_LARGE:
                pids = by_topic.pop(assignment.topic).values()
                failed |= dict.fromkeys(pids, _too_large(assignment.topic, topic_znode_bytes(assignment), len(pids)))
    for numbers in by_topic.values():
        failed |= dict.fromkeys(numbers.values(), f"its topic znode changed {MAX_ATTEMPTS} times meanwhile")
    return failed


async def _remove_from_znode(
    shell: ControllerShell, partitions: Sequence[TopicPartition], *, only_finished: bool = False
) -> None:
    """Take partitions out of ``/admin/reassign_partitions``; the znode goes with the last of them.

    ``only_finished`` leaves entries whose target is not what the partition has now: they are later wishes.
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
        if tp not in gone or (only_finished and table.replicas(table.pid(*tp)) != tuple(target))
    }
    if len(left) == len(requested):
        return
    if left:
        if not await shell.zk.set_or_create_partition_reassignment(left, fence=shell.context.epoch_zk_version):
            log.error("/admin/reassign_partitions is too large to be written anew: what has ended stays in it")
    else:
        await shell.zk.delete_partition_reassignment(fence=shell.context.epoch_zk_version)
        shell.queue.append(ZkPartitionReassignment())  # looks again, which arms the watch


def _movable(shell: ControllerShell, tp: TopicPartition) -> int:
    """The pid, or -1 where there is none or its topic is about to go."""
    pid = shell.context.table.pid(*tp)
    return -1 if pid < 0 or shell.context.table.topic(pid).deleting else pid


def _queued_topics(shell: ControllerShell, pids: Iterable[int]) -> list[str]:
    table = shell.context.table
    names = dict.fromkeys(table.topic(pid).name for pid in pids)
    return [name for name in names if name in shell.context.topics_to_be_deleted]


def _nonexistent(shell: ControllerShell, pid: int) -> list[int]:
    table = shell.context.table
    return [
        broker
        for broker in table.assignment(pid).adding
        if table.replica_state(pid, broker) is ReplicaState.NonExistentReplica
    ]


def _is_not_online(shell: ControllerShell, pid: int, broker: int) -> bool:
    return shell.context.table.replica_state(pid, broker) is not ReplicaState.OnlineReplica


def _leader_stays(shell: ControllerShell, pid: int) -> bool:
    table = shell.context.table
    leader = table.leader[pid]
    return leader in table.assignment(pid).target and shell.context.is_replica_online(pid, leader)
