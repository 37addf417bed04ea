"""Topic deletion: ``TopicDeletion``, and Kafka's ``TopicDeletionManager`` without its thread.

``resume_deletions`` takes the next step for every queued topic (``core.topic_deletion`` has the steps); handlers call
it after each change that a deletion may be waiting for.  Departures from Kafka: one StopReplica both stops and deletes,
where Kafka sends two; the state znodes of a topic being deleted are not written; and topics with ids are deleted
even while some brokers are dead, silent or refuse: these brokers' replicas become debts (``controller.debts``).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from aiocontroller.controller import debts
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import handle_partition_state_changes, handle_replica_state_changes
from aiocontroller.core import topic_deletion as plan
from aiocontroller.core.events import (
    SilentDeletions,
    StopReplicaResponseReceived,
    TopicDeletion,
    ZkPartitionReassignment,
)
from aiocontroller.core.partitions import Topic
from aiocontroller.core.states import PartitionState, ReplicaState

log = logging.getLogger(__name__)

SILENCE_S = 10.0
"""How long to wait for live brokers, which go on deleting afterwards."""
_SILENCE = "silent deletions"

_DELETED_AT_ONCE = (
    ReplicaState.OfflineReplica,
    ReplicaState.ReplicaDeletionStarted,
    ReplicaState.ReplicaDeletionSuccessful,
)
"""States that a replica naming a controller passes through: there is no broker to ask, and nothing to delete."""


async def topic_deletion(shell: ControllerShell, event: TopicDeletion) -> None:
    """Queue new entries in ``/admin/delete_topics``; remove those for topics that do not exist."""
    context, table = shell.context, shell.context.table
    names = await shell.zk.get_topic_deletions(watch=True)
    await _drop_unknown(shell, names)
    new = [name for name in names if name in table.topic_by_name and name not in context.topics_to_be_deleted]
    if new and not shell.policy.delete_topic_enable:
        log.info("delete.topic.enable is false: dropping the requests to delete %s", new[:10])
        await shell.zk.delete_topic_deletions(new, fence=context.epoch_zk_version)
    elif new:
        log.info("Starting topic deletion for %s", new[:10])
        mark_ineligible(shell, [t for t in new if _is_being_reassigned(shell, table.topic_by_name[t])], "reassignment")
        queue(shell, new)
        await resume_deletions(shell)


async def load_topic_deletions(shell: ControllerShell) -> None:
    """At failover: read the queued topics, and mark those that have to wait.  ``resume_deletions`` is a later step."""
    names = await shell.zk.get_topic_deletions(watch=True)
    if not shell.policy.delete_topic_enable:
        await shell.zk.delete_topic_deletions(names, fence=shell.context.epoch_zk_version)
        return
    await _drop_unknown(shell, names)
    queue(shell, [name for name in names if name in shell.context.table.topic_by_name])
    blocked = plan.blocked_at_failover(shell.context, shell.context.topics_to_be_deleted)
    mark_ineligible(shell, blocked, "a replica is not online, or a partition is being reassigned")


async def _drop_unknown(shell: ControllerShell, names: Iterable[str]) -> None:
    """Remove entries for topics that do not exist; those for topics not known yet wait for ``TopicChange``.

    A topic may be created and deleted before its ``TopicChange`` is handled.  Kafka loses such a request.
    """
    unknown = [name for name in names if name not in shell.context.table.topic_by_name]
    if unknown:
        there = set(await shell.zk.get_all_topics_in_cluster(watch=False))
        missing = [name for name in unknown if name not in there]
        await shell.zk.delete_topic_deletions(missing, fence=shell.context.epoch_zk_version)


def queue(shell: ControllerShell, names: Iterable[str]) -> None:
    for name in names:
        shell.context.topics_to_be_deleted[name] = None
        shell.context.table.set_topic_deleting(shell.context.table.topic_by_name[name], True)


def mark_ineligible(shell: ControllerShell, names: Iterable[str], why: str) -> None:
    """Halt the topics' deletion until it is resumed."""
    halted = [name for name in names if name not in shell.context.topics_ineligible_for_deletion]
    for name in halted:
        shell.context.topics_ineligible_for_deletion[name] = None
    if halted:
        log.info("Halted deletion of topics %s: %s", halted[:10], why)


async def resume_deletion_for_topics(shell: ControllerShell, names: Iterable[str]) -> None:
    """Resume deletions that may no longer be blocked.  A reassignment under way still blocks, and its end calls again.

    Kafka ignores the reassignment when a broker starts, and then moves replicas that have been deleted already.
    """
    by_name = shell.context.table.topic_by_name
    queued = [
        name
        for name in names
        if name in shell.context.topics_to_be_deleted
        and (name not in by_name or not _is_being_reassigned(shell, by_name[name]))
    ]
    for name in queued:
        shell.context.topics_ineligible_for_deletion.pop(name, None)
    if queued:
        await resume_deletions(shell)


async def resume_deletions(shell: ControllerShell) -> None:
    context = shell.context
    if not context.topics_to_be_deleted:
        return
    found = plan.progress(context)
    if found.complete:
        await _complete_delete_topics(shell, found.complete)
    batch = shell.new_batch()
    await handle_replica_state_changes(shell, found.retry, ReplicaState.OfflineReplica, batch=batch)
    if found.start:
        await _on_topic_deletion(shell, found.start)
    await shell.send(batch)


async def _on_topic_deletion(shell: ControllerShell, topics: list[Topic]) -> None:
    context = shell.context
    batch = shell.new_batch()
    fresh = [t for t in topics if t.name not in context.topics_with_deletion_started]
    rows = [row for topic in fresh for row in topic.partitions()]
    await handle_partition_state_changes(shell, rows, PartitionState.OfflinePartition)
    await handle_partition_state_changes(shell, rows, PartitionState.NonExistentPartition)
    context.topics_with_deletion_started.update((t.name, None) for t in fresh)
    everything = [row for topic in topics for row in topic.partitions()]
    batch.add_update_metadata_request_for_brokers(context.brokers, everything)
    deletion = plan.plan_deletion(context, topics)
    await handle_replica_state_changes(shell, deletion.delete, ReplicaState.OfflineReplica, batch=batch)
    await handle_replica_state_changes(shell, deletion.delete, ReplicaState.ReplicaDeletionStarted, batch=batch)
    await handle_replica_state_changes(shell, deletion.ineligible, ReplicaState.ReplicaDeletionIneligible, batch=batch)
    mark_ineligible(shell, deletion.blocked, "replicas are on brokers that are not live")
    for step in _DELETED_AT_ONCE if deletion.nowhere else ():
        await handle_replica_state_changes(shell, deletion.nowhere, step, batch=batch)
    await shell.send(batch)
    await _leave_behind(shell, deletion.left)
    _watch_for_silence(shell, topics)
    if deletion.nowhere or deletion.left:
        await resume_deletions(shell)


async def _leave_behind(shell: ControllerShell, replicas: plan.Replicas) -> None:
    """Stop waiting for these replicas: record their debts first, then send requests about them."""
    context = shell.context
    unsent = shell.new_batch()
    for state, going in plan.way_to_successful(context, replicas):
        await handle_replica_state_changes(shell, going, state, batch=unsent)
        if state is ReplicaState.ReplicaDeletionSuccessful:
            for broker, rows in going.items():
                log.info("Not waiting for broker %d to delete %s", broker, shell.sample(rows))
                for row in rows:
                    context.left_behind.setdefault(row, {})[broker] = None


def _watch_for_silence(shell: ControllerShell, topics: Sequence[Topic]) -> None:
    """Schedule a check for silent brokers; topics added meanwhile are checked after the running timer."""
    context = shell.context
    watched = tuple(
        t for t in topics if not plan.waits_for_all(context, t) and context.table.topic_by_name.get(t.name) is t
    )
    if watched and not context.deletions_watched:
        context.deletions_watched = watched
        shell.queue.schedule(_SILENCE, SILENCE_S, SilentDeletions())


async def silent_deletions(shell: ControllerShell, event: SilentDeletions) -> None:
    """Stop waiting for brokers that have not answered yet."""
    context = shell.context
    watched, context.deletions_watched = context.deletions_watched, ()
    known, started = context.table.topic_by_name, ReplicaState.ReplicaDeletionStarted
    for topic in watched:
        if known.get(topic.name) is topic:
            await _leave_behind(shell, plan.replicas_in_state(context, topic, started))
    await resume_deletions(shell)
    left = [known[name] for name in context.topics_with_deletion_started if name in known]
    _watch_for_silence(shell, [t for t in left if plan.replicas_in_state(context, t, started)])


async def fail_replica_deletion(shell: ControllerShell, replicas: plan.Replicas) -> None:
    """Handle failed deletions (dead broker, failed directory, refusal): they become debts, or are retried later."""
    table, context = shell.context.table, shell.context
    queued = {
        b: [p for p in rows if table.topic(p).name in context.topics_to_be_deleted] for b, rows in replicas.items()
    }
    not_waited_for = _of_topics(shell, queued, lambda topic: not plan.waits_for_all(context, topic))
    begun = _of_topics(shell, not_waited_for, lambda topic: topic.name in context.topics_with_deletion_started)
    await _leave_behind(shell, begun)
    _, standing = plan.failed_replicas(context, not_waited_for)
    await handle_replica_state_changes(
        shell, standing, ReplicaState.OfflineReplica
    )  # they become debts when the deletion starts
    failed, standing = plan.failed_replicas(
        context, _of_topics(shell, queued, lambda topic: plan.waits_for_all(context, topic))
    )
    if any(failed.values()):
        await handle_replica_state_changes(shell, standing, ReplicaState.OfflineReplica)
        await handle_replica_state_changes(shell, failed, ReplicaState.ReplicaDeletionIneligible)
        names = dict.fromkeys(table.topic(row).name for rows in failed.values() for row in rows)
        mark_ineligible(shell, names, f"replicas on {sorted(failed)} could not be deleted")
    if any(queued.values()):
        await resume_deletions(shell)


def _of_topics(shell: ControllerShell, replicas: plan.Replicas, wanted: Callable[[Topic], bool]) -> plan.Replicas:
    table = shell.context.table
    return {b: own for b, rows in replicas.items() if (own := [row for row in rows if wanted(table.topic(row))])}


async def stop_replica_response_received(shell: ControllerShell, event: StopReplicaResponseReceived) -> None:
    """Record which replicas a broker has deleted; those removed by a reassignment are handled elsewhere."""
    context, table = shell.context, shell.context.table
    broker = context.brokers.get(event.broker)
    if broker is None or broker.epoch != event.broker_epoch:
        return
    deleted = [
        row
        for row, topic in zip(event.asked.rows, event.asked.topics, strict=True)
        if table.topic_of[row] >= 0 and table.topic(row) is topic
    ]
    if event.error_code:
        # The whole request was refused: the response names no partition, but each has failed (Kafka leaves them stuck).
        log.error("Broker %d refused StopReplica with error %d", event.broker, event.error_code)
    code_of = event.codes()
    started = [row for row in deleted if table.replica_state(row, event.broker) is ReplicaState.ReplicaDeletionStarted]
    codes = [code_of(table.topic(row).name, table.index_of[row]) for row in started]
    failed = [row for row, code in zip(started, codes, strict=True) if code]
    done = [row for row, code in zip(started, codes, strict=True) if not code]
    if done:
        await handle_replica_state_changes(shell, {event.broker: done}, ReplicaState.ReplicaDeletionSuccessful)
    if failed:
        await fail_replica_deletion(shell, {event.broker: failed})
    elif done:
        await resume_deletions(shell)


async def _complete_delete_topics(shell: ControllerShell, topics: Sequence[Topic]) -> None:
    """Delete the znodes, with ``/admin/delete_topics`` last: until then another controller would start over."""
    context, fence = shell.context, shell.context.epoch_zk_version
    owed = plan.left_behind(context, topics)
    if not await debts.write(shell, owed, "topic deleted"):
        return  # the next step of any deletion tries again
    await handle_replica_state_changes(shell, plan.replicas_of(context, topics), ReplicaState.NonExistentReplica)
    names = [topic.name for topic in topics]
    await shell.zk.delete_topic_znodes(names, fence=fence)
    await shell.zk.delete_topic_configs(names, fence=fence)
    await shell.zk.delete_topic_deletions(names, fence=fence)
    for topic in topics:
        _forget(shell, topic)
    await debts.pay(shell, context.debts.of_topics(names))


def _forget(shell: ControllerShell, topic: Topic) -> None:
    context = shell.context
    if _is_being_reassigned(shell, topic):
        shell.queue.append(ZkPartitionReassignment())  # takes the topic's entries out of the request, which would stay
    context.remove_topic(topic)
    shell.topic_deleted(topic.name)
    shell.journal.append("topic_deleted", topic=topic.name)
    log.info("Deletion of topic %s successfully completed", topic.name)


def _is_being_reassigned(shell: ControllerShell, topic: Topic) -> bool:
    return any(row in shell.context.partitions_being_reassigned for row in topic.partitions())
