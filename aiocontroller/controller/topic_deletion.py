"""Topics go: ``TopicDeletion`` and Kafka's ``TopicDeletionManager`` without its thread.

``resume_deletions`` does whatever is next for every queued topic (see ``core.topic_deletion`` for the steps); whoever
changes something that a deletion may wait for calls it.  Departure from Kafka: brokers get one StopReplica that stops
and deletes, where Kafka stops first and deletes by a second request; and nothing is written into the state znodes of a
topic that is about to go.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import handle_partition_state_changes, handle_replica_state_changes
from aiocontroller.core import topic_deletion as plan
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import StopReplicaResponseReceived, TopicDeletion, ZkPartitionReassignment
from aiocontroller.core.partitions import Topic
from aiocontroller.core.states import PartitionState, ReplicaState

log = logging.getLogger(__name__)

_DELETED_AT_ONCE = (
    ReplicaState.OfflineReplica,
    ReplicaState.ReplicaDeletionStarted,
    ReplicaState.ReplicaDeletionSuccessful,
)
"""The way of a replica that names a controller: there is nobody to ask, and nothing to delete."""


async def topic_deletion(shell: ControllerShell, event: TopicDeletion) -> None:
    """New entries in ``/admin/delete_topics``; those for topics that do not exist are removed."""
    context, table = shell.context, shell.context.table
    names = await shell.zk.get_topic_deletions(watch=True)
    await _drop_unknown(shell, names)
    new = [name for name in names if name in table.topic_by_name and name not in context.topics_to_be_deleted]
    if new and not shell.config.delete_topic_enable:
        log.info("delete.topic.enable is false: the requests to delete %s are dropped", new[:10])
        await shell.zk.delete_topic_deletions(new, fence=context.epoch_zk_version)
    elif new:
        log.info("Starting topic deletion for %s", new[:10])
        mark_ineligible(shell, [t for t in new if _is_being_reassigned(shell, table.topic_by_name[t])], "reassignment")
        queue(shell, new)
        await resume_deletions(shell)


async def load_topic_deletions(shell: ControllerShell) -> None:
    """At failover: what is queued, and what of it has to wait.  ``resume_deletions`` comes later, in its own place."""
    names = await shell.zk.get_topic_deletions(watch=True)
    if not shell.config.delete_topic_enable:
        await shell.zk.delete_topic_deletions(names, fence=shell.context.epoch_zk_version)
        return
    await _drop_unknown(shell, names)
    queue(shell, [name for name in names if name in shell.context.table.topic_by_name])
    blocked = plan.blocked_at_failover(shell.context, shell.context.topics_to_be_deleted)
    mark_ineligible(shell, blocked, "a replica is not online, or a partition is being reassigned")


async def _drop_unknown(shell: ControllerShell, names: Iterable[str]) -> None:
    """Entries for topics that do not exist go; those for topics not looked at yet wait for ``TopicChange``.

    A topic may be created and deleted before its ``TopicChange`` is its turn.  Kafka loses such a request.
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
    """The topics wait until somebody resumes them."""
    halted = [name for name in names if name not in shell.context.topics_ineligible_for_deletion]
    for name in halted:
        shell.context.topics_ineligible_for_deletion[name] = None
    if halted:
        log.info("Halted deletion of topics %s: %s", halted[:10], why)


async def resume_deletion_for_topics(shell: ControllerShell, names: Iterable[str]) -> None:
    """What blocked them may be gone.  A reassignment that is under way still blocks: its end calls here again.

    Kafka's forgets that when a broker starts, and then moves replicas that have been deleted already.
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
    pids = [pid for topic in fresh for pid in topic.partitions()]
    await handle_partition_state_changes(shell, pids, PartitionState.OfflinePartition)
    await handle_partition_state_changes(shell, pids, PartitionState.NonExistentPartition)
    context.topics_with_deletion_started.update((t.name, None) for t in fresh)
    everything = [pid for topic in topics for pid in topic.partitions()]
    batch.add_update_metadata_request_for_brokers(context.brokers, everything)
    deletion = plan.plan_deletion(context, topics)
    await handle_replica_state_changes(shell, deletion.delete, ReplicaState.OfflineReplica, batch=batch)
    await handle_replica_state_changes(shell, deletion.delete, ReplicaState.ReplicaDeletionStarted, batch=batch)
    await handle_replica_state_changes(shell, deletion.ineligible, ReplicaState.ReplicaDeletionIneligible, batch=batch)
    mark_ineligible(shell, deletion.blocked, "replicas are on brokers that are not live")
    for step in _DELETED_AT_ONCE if deletion.nowhere else ():
        await handle_replica_state_changes(shell, deletion.nowhere, step, batch=batch)
    await shell.send(batch)
    if deletion.nowhere:
        await resume_deletions(shell)


async def fail_replica_deletion(shell: ControllerShell, replicas: plan.Replicas) -> None:
    """Replicas of queued topics whose broker or directory failed, or refused: they are tried again later."""
    table, context = shell.context.table, shell.context
    queued = {
        b: [p for p in pids if table.topic(p).name in context.topics_to_be_deleted] for b, pids in replicas.items()
    }
    failed, standing = plan.failed_replicas(context, queued)
    if not any(failed.values()):
        return
    await handle_replica_state_changes(shell, standing, ReplicaState.OfflineReplica)
    await handle_replica_state_changes(shell, failed, ReplicaState.ReplicaDeletionIneligible)
    names = dict.fromkeys(table.topic(pid).name for pids in failed.values() for pid in pids)
    mark_ineligible(shell, names, f"replicas on {sorted(failed)} could not be deleted")
    await resume_deletions(shell)


async def stop_replica_response_received(shell: ControllerShell, event: StopReplicaResponseReceived) -> None:
    """A broker has deleted replicas, or has not; those taken away by a reassignment are the reassignment's matter."""
    context, table = shell.context, shell.context.table
    broker = context.brokers.get(event.broker)
    if broker is None or broker.epoch != event.broker_epoch:
        return
    errors = {pid: code for t, p, code in event.partitions if code and (pid := table.pid(t, p)) >= 0}
    if event.error_code:
        # The whole request was refused: no partition is named, but each of them has failed (Kafka leaves them stuck).
        log.error("Broker %d refused StopReplica with error %d", event.broker, event.error_code)
        errors = dict.fromkeys(event.deleted, event.error_code)
    started = [
        pid
        for pid in event.deleted
        if table.topic_of[pid] >= 0 and table.replica_state(pid, event.broker) is ReplicaState.ReplicaDeletionStarted
    ]
    failed = [pid for pid in started if errors.get(pid, KafkaErrorCode.NONE)]
    done = [pid for pid in started if not errors.get(pid, KafkaErrorCode.NONE)]
    if done:
        await handle_replica_state_changes(shell, {event.broker: done}, ReplicaState.ReplicaDeletionSuccessful)
    if failed:
        await fail_replica_deletion(shell, {event.broker: failed})
    elif done:
        await resume_deletions(shell)


async def _complete_delete_topics(shell: ControllerShell, topics: Sequence[Topic]) -> None:
    """The znodes go, the entries in ``/admin/delete_topics`` last: until then another controller would begin again."""
    context, fence = shell.context, shell.context.epoch_zk_version
    await handle_replica_state_changes(shell, plan.replicas_of(context, topics), ReplicaState.NonExistentReplica)
    names = [topic.name for topic in topics]
    await shell.zk.delete_topic_znodes(names, fence=fence)
    await shell.zk.delete_topic_configs(names, fence=fence)
    await shell.zk.delete_topic_deletions(names, fence=fence)
    for topic in topics:
        _forget(shell, topic)


def _forget(shell: ControllerShell, topic: Topic) -> None:
    context = shell.context
    if _is_being_reassigned(shell, topic):
        shell.queue.append(ZkPartitionReassignment())  # takes the topic's entries out of the request, which would stay
    for pid in topic.partitions():
        context.partitions_being_reassigned.pop(pid, None)
        context.replicas_being_removed.pop(pid, None)
        for offline in context.offline_dirs.values():
            offline.discard(pid)
    context.table.remove_topic(topic)
    for names in (
        context.topics_to_be_deleted,
        context.topics_with_deletion_started,
        context.topics_ineligible_for_deletion,
    ):
        names.pop(topic.name, None)
    shell.topic_deleted(topic.name)
    shell.journal.append("topic_deleted", topic=topic.name)
    log.info("Deletion of topic %s successfully completed", topic.name)


def _is_being_reassigned(shell: ControllerShell, topic: Topic) -> bool:
    return any(pid in shell.context.partitions_being_reassigned for pid in topic.partitions())
