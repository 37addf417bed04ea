"""New, grown and deleted topics: ``TopicChange``, ``PartitionModifications`` and ``onNewPartitionCreation``."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import msgspec

from aiocontroller.controller import own_replicas, repairs
from aiocontroller.controller.leadership_writes import is_still_there
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import handle_partition_state_changes, handle_replica_state_changes
from aiocontroller.core.apply import apply
from aiocontroller.core.audit import DifferenceKind, compare_topic
from aiocontroller.core.columns import in_range
from aiocontroller.core.context_changes import TopicsGone, TopicsRemoved
from aiocontroller.core.election import Strategy
from aiocontroller.core.events import PartitionModifications, TopicChange, TopicDeletion, ZkPartitionReassignment
from aiocontroller.core.ids import NO_TOPIC_ID, TopicAssignment, of_different_topics
from aiocontroller.core.partitions import PartitionTable, Topic
from aiocontroller.core.request_batch import Sent
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.zookeeper.errors import TOO_LARGE, Code
from aiocontroller.zookeeper.paths import topic_of

log = logging.getLogger(__name__)

STEP_PARTITIONS = 5_000
"""Partitions added to the table before other tasks may run: some milliseconds."""


async def topic_change(shell: ControllerShell, event: TopicChange) -> Sent | None:
    """Take in new and vanished topics; returns the requests about new partitions, for callers that await them."""
    table = shell.context.table
    topics = await shell.zk.get_all_topics_in_cluster(watch=True)
    present = set(topics)
    gone = [topic for topic in table.topic_by_name if topic not in present]
    found = await read_assignments(shell, [topic for topic in topics if topic not in table.topic_by_name])
    for topic in gone:
        # By a foreign write: a deletion of ours removes the topic from the table itself.
        shell.vanished[topic] = as_assignment(table, table.topic_by_name[topic])
        if any(row in shell.context.partitions_being_reassigned for row in table.topic_by_name[topic].partitions()):
            shell.queue.append(ZkPartitionReassignment())  # takes the topic's entries out of the request
        apply(shell.context, TopicsRemoved([table.topic_by_name[topic]]))
    readable = {assignment.topic for assignment in found}

    def is_well_or_gone(path: str) -> bool:
        name = topic_of(path)
        return name is not None and (name in readable or name not in present)

    shell.forget_bad_znodes(is_well_or_gone)
    if found:
        shell.queue.append(TopicDeletion())  # it may have been requested before the topic was known
    if found or gone:
        log.info("New topics: %s, deleted topics: %s", [a.topic for a in found][:10], gone[:10])
    await replace_vanished_topics(shell, found)
    created = await add_partitions(shell, found)
    return await on_new_partition_creation(shell, created) if created else None


async def partition_modifications(shell: ControllerShell, events: Sequence[PartitionModifications]) -> Sent | None:
    """Create new partitions only; changed replicas of known ones are ignored: only reassignments may move them."""
    known = {event.topic: shell.context.table.topic_by_name.get(event.topic) for event in events}
    if None in known.values():
        # A znode could not be read when its topic appeared: this may be its repair.
        shell.queue.append(TopicChange())
    await _restore_deleting(shell, [topic for topic in known.values() if topic is not None and topic.deleting])
    grown = [name for name, topic in known.items() if topic is not None and not topic.deleting]
    found = await read_assignments(shell, grown)
    usual = {assignment.topic for assignment in found if not _is_odd(shell, assignment)}
    shell.auditor.check_soon(name for name in grown if name not in usual)
    created = await add_partitions(shell, found)
    if not created:
        return None
    log.info("New partitions to be added: %s", shell.sample(created))
    return await on_new_partition_creation(shell, created)


def _is_odd(shell: ControllerShell, found: TopicAssignment) -> bool:
    """Whether a topic's znode has changed in other ways than by new partitions, so that it needs an audit."""
    topic = shell.context.table.topic_by_name[found.topic]
    differences = list(compare_topic(shell.context, topic, found))
    new = len(found.partitions) - len(topic.partitions())
    return (
        not differences or len(differences) != new or any(f.kind is not DifferenceKind.PARTITIONS for f in differences)
    )


async def _restore_deleting(shell: ControllerShell, topics: Sequence[Topic]) -> None:
    if not topics:
        return
    read = await shell.zk.get_topic_assignments([topic.name for topic in topics], watch=True)
    shell.report_bad_znodes(read.bad)
    by_name = {topic.name: topic for topic in topics}
    for assignment in read.found:
        if of_different_topics(assignment.topic_id, by_name[assignment.topic].id):
            continue  # created again, with partitions of its own
        await _restore_partition_replica_assignment(shell, by_name[assignment.topic], assignment)


async def _restore_partition_replica_assignment(shell: ControllerShell, topic: Topic, found: TopicAssignment) -> None:
    """Remove partitions from the znode that were added while the topic is being deleted."""
    added = [number for number in found.partitions if shell.context.table.row(topic.name, number) < 0]
    if not added:
        return
    log.error("Topic %s is being deleted: its new partitions %s are not created", topic.name, added)
    known = {number: replicas for number, replicas in found.partitions.items() if number not in added}
    restored = msgspec.structs.replace(found, partitions=known)
    await shell.zk.set_topic_assignments([restored], fence=shell.context.epoch_zk_version)


async def on_new_partition_creation(shell: ControllerShell, rows: Sequence[int]) -> Sent:
    """Elect first leaders of new rows and create their replicas; returns the requests that were sent."""
    table = shell.context.table
    batch = shell.new_batch()
    replicas: dict[int, list[int]] = {}
    for row in rows:
        for broker in table.replicas(row):
            replicas.setdefault(broker, []).append(row)
    await handle_partition_state_changes(shell, rows, PartitionState.NewPartition)
    await handle_replica_state_changes(shell, replicas, ReplicaState.NewReplica, batch=batch)
    await handle_partition_state_changes(shell, rows, PartitionState.OnlinePartition, Strategy.OFFLINE, batch=batch)
    await handle_replica_state_changes(shell, replicas, ReplicaState.OnlineReplica, batch=batch)
    return await shell.send(batch)


async def read_assignments(shell: ControllerShell, topics: Sequence[str]) -> list[TopicAssignment]:
    """Read assignments and repair them: missing topic ids are assigned or restored, controllers' ids replaced.

    Tools older than Kafka 2.8 drop a topic's id when they write its znode (KAFKA-14190); the brokers' logs keep it, so
    the same id must be restored.

    An assignment is not in use before the first election, so it can still be changed.
    """
    if not topics:
        return []
    read = await shell.zk.get_topic_assignments(topics, watch=True)
    shell.report_bad_znodes(read.bad)
    ours = await own_replicas.without_leader(shell, read.found)
    recreated = await _recreated_without_id(shell, read.found)
    found = [assignment for assignment in read.found if assignment.topic not in recreated]
    mended: dict[str, TopicAssignment] = {}
    for assignment in found:
        changed = own_replicas.replaced(shell, assignment, ours.get(assignment.topic, ()))
        if changed.topic_id == NO_TOPIC_ID and shell.policy.topic_ids_supported:
            known = shell.context.table.topic_by_name.get(assignment.topic)
            had = NO_TOPIC_ID if known is None else known.id
            changed = msgspec.structs.replace(changed, topic_id=_new_topic_id(shell) if had == NO_TOPIC_ID else had)
        if changed is not assignment:
            mended[assignment.topic] = changed
    if not mended:
        return found
    writes = await shell.zk.set_topic_assignments(list(mended.values()), fence=shell.context.epoch_zk_version)
    refused = [(topic, code) for topic, code in zip(mended, writes.code, strict=True) if code != Code.OK]
    for topic, code in refused:  # if the znode was changed or deleted, the watch fires
        why = "there is no room for more in its znode" if code == TOO_LARGE else "its znode changed meanwhile"
        log.warning("Topic %s is left as it was found: %s", topic, why)
        del mended[topic]
    return [mended.get(a.topic, a) for a in found]


async def _recreated_without_id(shell: ControllerShell, found: Sequence[TopicAssignment]) -> set[str]:
    """Return topics that we know by an id and whose znodes have none because they were deleted and created again.

    If an old tool has only dropped the id, the partitions' states are still there.
    """
    recreated: set[str] = set()  # membership only
    for assignment in found:
        topic = shell.context.table.topic_by_name.get(assignment.topic)
        lost_it = topic is not None and topic.id != NO_TOPIC_ID == assignment.topic_id
        if topic is not None and lost_it and not await is_still_there(shell, topic):
            recreated.add(topic.name)
    return recreated


def _new_topic_id(shell: ControllerShell) -> bytes:
    """A random UUID, version 4, other than the two that Kafka reserves (zero and one)."""
    bits = shell.world.random.randrange(1 << 128)
    bits = (bits & ~(0xF << 76) & ~(0x3 << 62)) | (0x4 << 76) | (0x2 << 62)
    return bits.to_bytes(16, "big")


async def add_partitions(shell: ControllerShell, found: Sequence[TopicAssignment]) -> Sequence[int]:
    """Add the topics' new partitions to the table; returns their rows."""
    created: list[int] = []
    step: list[TopicAssignment] = []
    partitions = 0
    for assignment in found:
        step.append(assignment)
        partitions += len(assignment.partitions)
        if partitions >= STEP_PARTITIONS:
            created += shell.context.add_partitions(step)
            step, partitions = [], 0
            await shell.breathe()
    created += shell.context.add_partitions(step)
    return in_range(created)


# -- topics that a foreign write has deleted ---------------------------------------------------------------------------


async def replace_vanished_topics(shell: ControllerShell, found: Iterable[TopicAssignment]) -> None:
    """End vanished topics whose names other topics have now, so that brokers can host replicas of the new ones."""
    if earlier := replaced_by(shell, [(assignment.topic, assignment.topic_id) for assignment in found]):
        await end_earlier_topics(shell, earlier)
        await repairs.ask_for_deletion(shell, {each.topic for each in earlier})


async def end_earlier_topics(shell: ControllerShell, earlier: Sequence[TopicAssignment]) -> None:
    """End topics that the context no longer knows, before it takes in others of the same names."""
    await add_partitions(shell, earlier)
    topics = [shell.context.table.topic_by_name[each.topic] for each in earlier]
    apply(shell.context, TopicsGone(topics))
    await repairs.end_topics(shell, topics)


def replaced_by(shell: ControllerShell, present: Iterable[tuple[str, bytes]]) -> list[TopicAssignment]:
    """Remove and return the vanished topics whose names are now those of topics with other ids (name, id)."""
    found = []
    for name, topic_id in present:
        earlier = shell.vanished.pop(name, None)
        if earlier is not None and of_different_topics(topic_id, earlier.topic_id):
            found.append(earlier)
    return found


def as_assignment(table: PartitionTable, topic: Topic) -> TopicAssignment:
    """The topic's id and assignments, for when its rows are gone."""
    partitions = {number: table.assignment(row) for number, row in enumerate(topic.rows) if row >= 0}
    return TopicAssignment(topic.name, topic.id, partitions)
