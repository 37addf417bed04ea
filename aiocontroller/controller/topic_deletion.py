"""Topic deletion: ``TopicDeletion``, and Kafka's ``TopicDeletionManager`` without its thread.

``resume_deletions`` takes the next step for every queued topic (``core.topic_deletion`` has the steps); handlers call
it after each change that a deletion may be waiting for.  Departures from Kafka: one StopReplica both stops and deletes,
where Kafka sends two; the state znodes of a topic being deleted are not written; and topics with ids are deleted
even while some brokers are dead, silent or refuse to: these brokers' replicas become debts (``controller.debts``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from aiocontroller.controller import debts
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import (
    handle_partition_state_changes,
    handle_replica_state_changes,
    trigger_online_partition_state_change,
)
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import topic_deletion as plan
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import (
    DeletionsHalted,
    DeletionsQueued,
    DeletionsResumed,
    DeletionsStarted,
    DeletionsUndecided,
    DeletionsWatched,
    DeletionsWithdrawn,
    LeftBehind,
    TopicsRemoved,
)
from aiocontroller.core.events import (
    SilentDeletions,
    StopReplicaResponseReceived,
    TopicDeletion,
    ZkPartitionReassignment,
)
from aiocontroller.core.partitions import Topic
from aiocontroller.core.states import PartitionState, ReplicaState

log = logging.getLogger(__name__)

DELETION = "delete.topic.enable"
UNDECIDED_S = 3.0
"""How often to look whether a broker has reported its settings, where none had before."""
SILENCE_S = 10.0
"""How long to wait for live brokers, which go on deleting afterwards."""
_SILENCE = "silent deletions"


async def topic_deletion(shell: ControllerShell, event: TopicDeletion) -> None:
    """Queue new entries in ``/admin/delete_topics``; remove those for topics that do not exist."""
    context = shell.context
    names = await shell.zk.get_topic_deletions(watch=True)
    await _drop_unknown(shell, names)
    new = plan.to_be_queued(context, names)
    if new and _wait_undecided(shell, new):
        return
    if not _enabled(shell):
        await _drop_forbidden(shell, new)
    elif new:
        log.info("Starting topic deletion for %s", new[:10])
        mark_ineligible(shell, [name for name in new if plan.is_being_reassigned(context, name)], "reassignment")
        apply(context, DeletionsQueued(new))
        await resume_deletions(shell)


async def _drop_forbidden(shell: ControllerShell, new: list[str]) -> None:
    """Drop new requests, and those that had not started when the brokers forbade deletion."""
    context = shell.context
    waiting = plan.not_started(context)
    if not (new or waiting):
        return
    log.info("%s is false: dropping the requests to delete %s", DELETION, [*new, *waiting][:10])
    await shell.zk.delete_topic_deletions([*new, *waiting], fence=context.epoch_zk_version)
    if not waiting:
        return
    apply(context, DeletionsWithdrawn(waiting))
    leaderless = psm.partitions_with_offline_leader(context)
    await handle_partition_state_changes(shell, leaderless, PartitionState.OfflinePartition)
    rows = [row for name in waiting for row in context.table.topic_by_name[name].partitions()]
    await shell.send_update_metadata(context.brokers, context.table.for_update_metadata(rows))
    await trigger_online_partition_state_change(shell)


async def load_topic_deletions(shell: ControllerShell) -> None:
    """At failover: read the queued topics, and mark those that have to wait.  ``resume_deletions`` is a later step."""
    await take_topic_deletions(shell, await read_topic_deletions(shell))


async def read_topic_deletions(shell: ControllerShell) -> list[str]:
    """Read the queued topics."""
    return await shell.zk.get_topic_deletions(watch=True)


async def take_topic_deletions(shell: ControllerShell, names: list[str]) -> None:
    """At failover: mark queued topics that have to wait."""
    if names and _wait_undecided(shell, names):
        return
    if not _enabled(shell):
        await shell.zk.delete_topic_deletions(names, fence=shell.context.epoch_zk_version)
        return
    await _drop_unknown(shell, names)
    apply(shell.context, DeletionsQueued(plan.to_be_queued(shell.context, names)))
    blocked = plan.blocked_at_failover(shell.context, shell.context.topics_to_be_deleted)
    mark_ineligible(shell, blocked, "a replica is not online, or a partition is being reassigned")


def are_undecided(shell: ControllerShell) -> bool:
    """Whether requests to delete topics wait for the first broker, which may forbid them."""
    return shell.settings.undecided(DELETION)


def _wait_undecided(shell: ControllerShell, names: list[str]) -> bool:
    if not are_undecided(shell):
        return False
    if names != shell.context.deletions_undecided:
        apply(shell.context, DeletionsUndecided(names))
        log.info("No broker has reported its %s yet: waiting with the requests to delete %s", DELETION, names[:10])
    shell.queue.schedule("undecided deletions", UNDECIDED_S, TopicDeletion())
    return True


def _enabled(shell: ControllerShell) -> bool:
    """Whether deletion is enabled by the settings of this term and by the latest, which are adopted soon."""
    return shell.policy.delete_topic_enable and shell.settings.policy.delete_topic_enable


async def _drop_unknown(shell: ControllerShell, names: Iterable[str]) -> None:
    """Remove entries for topics that do not exist; those for topics not known yet wait for ``TopicChange``.

    A topic may be created and deleted before its ``TopicChange`` is handled.  Kafka loses such a request.
    """
    unknown = [name for name in names if name not in shell.context.table.topic_by_name]
    if unknown:
        there = set(await shell.zk.get_all_topics_in_cluster(watch=False))
        missing = [name for name in unknown if name not in there]
        await shell.zk.delete_topic_deletions(missing, fence=shell.context.epoch_zk_version)


def mark_ineligible(shell: ControllerShell, names: Iterable[str], why: str) -> None:
    """Halt the topics' deletion until it is resumed."""
    halted = plan.to_be_halted(shell.context, names)
    if halted:
        apply(shell.context, DeletionsHalted(halted))
        log.info("Halted deletion of topics %s: %s", halted[:10], why)


async def resume_deletion_for_topics(shell: ControllerShell, names: Iterable[str]) -> None:
    """Resume deletions that may no longer be blocked.  A reassignment still blocks; its end calls this again."""
    resumed = plan.to_be_resumed(shell.context, names)
    apply(shell.context, DeletionsResumed(resumed))
    if resumed:
        await resume_deletions(shell)


async def resume_deletions(shell: ControllerShell) -> None:
    """Take the next step for every queued topic."""
    if not shell.context.topics_to_be_deleted:
        return
    found = plan.progress(shell.context)
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
    fresh = plan.to_be_started(context, topics)
    rows = [row for topic in fresh for row in topic.partitions()]
    await handle_partition_state_changes(shell, rows, PartitionState.OfflinePartition, why="deletion")
    await handle_partition_state_changes(shell, rows, PartitionState.NonExistentPartition)
    apply(context, DeletionsStarted([topic.name for topic in fresh]))
    batch.add_update_metadata_request_for_brokers(context.brokers, [row for t in topics for row in t.partitions()])
    apply(context, plan.never_created(context, topics))
    deletion = plan.plan_deletion(context, topics)
    for state, replicas in deletion.transitions():
        await handle_replica_state_changes(shell, replicas, state, batch=batch)
    mark_ineligible(shell, deletion.blocked, "replicas are on brokers that are not live")
    await shell.send(batch)
    await _leave_behind(shell, deletion.left)
    _watch_for_silence(shell, topics)
    if deletion.nowhere or deletion.left:
        await resume_deletions(shell)


async def _leave_behind(shell: ControllerShell, replicas: plan.Replicas) -> None:
    """Stop waiting for these replicas: record their debts first, then send requests about them."""
    way, unsent = plan.way_to_successful(shell.context, replicas), shell.new_batch()
    for state, going in way:
        await handle_replica_state_changes(shell, going, state, batch=unsent)
    _, left = way[-1]
    for broker, rows in left.items():
        log.info("Not waiting for broker %d to delete %s", broker, shell.sample(rows))
    apply(shell.context, LeftBehind(left))


def _watch_for_silence(shell: ControllerShell, topics: Iterable[Topic]) -> None:
    """Schedule a check for silent brokers; topics added meanwhile are checked after the running timer."""
    watched = plan.to_be_watched(shell.context, topics)
    if watched and not shell.context.deletions_watched:
        apply(shell.context, DeletionsWatched(watched))
        shell.queue.schedule(_SILENCE, SILENCE_S, SilentDeletions())


async def silent_deletions(shell: ControllerShell, event: SilentDeletions) -> None:
    """Stop waiting for brokers that have not answered yet."""
    context = shell.context
    watched = context.deletions_watched
    apply(context, DeletionsWatched())
    for replicas in plan.unanswered(context, watched):
        await _leave_behind(shell, replicas)
    await resume_deletions(shell)
    _watch_for_silence(shell, plan.being_deleted(context))


async def fail_replica_deletion(shell: ControllerShell, replicas: plan.Replicas) -> None:
    """Handle failed deletions (dead broker, failed directory, refusal): they become debts, or are retried later."""
    failure = plan.plan_failure(shell.context, replicas)
    await _leave_behind(shell, failure.left)
    for state, going in failure.transitions():
        await handle_replica_state_changes(shell, going, state)
    mark_ineligible(shell, failure.halted, f"replicas on {sorted(failure.ineligible)} could not be deleted")
    if failure.queued:
        await resume_deletions(shell)


async def stop_replica_response_received(shell: ControllerShell, event: StopReplicaResponseReceived) -> None:
    """Record which replicas a broker has deleted; those removed by a reassignment are handled elsewhere."""
    found = plan.answered(shell.context, event)
    if event.error_code and found.failed:
        # The whole request was refused: the response names no partition, but each has failed (Kafka leaves them stuck).
        log.error("Broker %d refused StopReplica with error %d", event.broker, event.error_code)
    if found.deleted:
        deleted = {event.broker: found.deleted}
        await handle_replica_state_changes(shell, deleted, ReplicaState.ReplicaDeletionSuccessful)
    if found.failed:
        await fail_replica_deletion(shell, {event.broker: found.failed})
    elif found.deleted:
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
    if plan.is_being_reassigned(context, topic.name):
        shell.queue.append(ZkPartitionReassignment())  # removes the topic's entries from the request
    apply(context, TopicsRemoved([topic]))
    shell.topic_deleted(topic.name)
    shell.journal.append("topic_deleted", topic=topic.name)
    log.info("Deletion of topic %s successfully completed", topic.name)
