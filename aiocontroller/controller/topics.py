"""Topics appear, grow and go: ``TopicChange``, ``PartitionModifications`` and ``onNewPartitionCreation``."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import handle_partition_state_changes, handle_replica_state_changes
from aiocontroller.core.election import Strategy
from aiocontroller.core.events import PartitionModifications, TopicChange
from aiocontroller.core.ids import NO_TOPIC_ID, TopicAssignment
from aiocontroller.core.partitions import Topic
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.zookeeper.errors import Code

log = logging.getLogger(__name__)


async def load_topics(shell: ControllerShell) -> None:
    """Every topic's assignment, at failover."""
    for assignment in await _read(shell, await shell.zk.get_all_topics_in_cluster(watch=True)):
        _add(shell, assignment)


async def topic_change(shell: ControllerShell, event: TopicChange) -> None:
    table = shell.context.table
    topics = await shell.zk.get_all_topics_in_cluster(watch=True)
    present = set(topics)
    gone = [topic for topic in table.topic_by_name if topic not in present]
    found = await _read(shell, [topic for topic in topics if topic not in table.topic_by_name])
    for topic in gone:
        shell.context.remove_topic(table.topic_by_name[topic])
    if found or gone:
        log.info("New topics: %s, deleted topics: %s", [a.topic for a in found][:10], gone[:10])
    created = [pid for assignment in found for pid in _add(shell, assignment)]
    if created:
        await on_new_partition_creation(shell, created)


async def partition_modifications(shell: ControllerShell, event: PartitionModifications) -> None:
    """Only new partitions count; changed replicas of known ones are nobody's right way to move them."""
    topic = shell.context.table.topic_by_name.get(event.topic)
    if topic is None:
        # Its znode could not be read when the topic appeared: this may be its repair.
        shell.queue.append(TopicChange())
        return
    read = await shell.zk.get_topic_assignments([event.topic], watch=True)
    shell.report_bad_znodes(read.bad)
    for assignment in read.found:
        created = _add(shell, assignment)
        if created and topic.deleting:
            log.error("Partitions added to topic %s, which is being deleted, are ignored", event.topic)
        elif created:
            log.info("New partitions to be added: %s", shell.sample(created))
            await on_new_partition_creation(shell, created)


async def on_new_partition_creation(shell: ControllerShell, pids: Sequence[int]) -> None:
    table = shell.context.table
    batch = shell.new_batch()
    replicas: dict[int, list[int]] = {}
    for pid in pids:
        for broker in table.replicas(pid):
            replicas.setdefault(broker, []).append(pid)
    await handle_partition_state_changes(shell, pids, PartitionState.NewPartition)
    await handle_replica_state_changes(shell, replicas, ReplicaState.NewReplica, batch=batch)
    await handle_partition_state_changes(shell, pids, PartitionState.OnlinePartition, Strategy.OFFLINE, batch=batch)
    await handle_replica_state_changes(shell, replicas, ReplicaState.OnlineReplica, batch=batch)
    await shell.send(batch)


async def _read(shell: ControllerShell, topics: Sequence[str]) -> list[TopicAssignment]:
    """Their assignments, with topic ids given to those that have none."""
    if not topics:
        return []
    read = await shell.zk.get_topic_assignments(topics, watch=True)
    shell.report_bad_znodes(read.bad)
    without_id = [a for a in read.found if a.topic_id == NO_TOPIC_ID]
    if not without_id or not shell.config.topic_ids_supported:
        return read.found
    given = {a.topic: msgspec.structs.replace(a, topic_id=_new_topic_id(shell)) for a in without_id}
    writes = await shell.zk.set_topic_assignments(list(given.values()), fence=shell.context.epoch_zk_version)
    refused = [topic for topic, code in zip(given, writes.code, strict=True) if code != Code.OK]
    for topic in refused:  # somebody changed the znode meanwhile, or removed it: the watch tells us
        log.warning("Topic %s gets its id later: its znode changed meanwhile", topic)
        del given[topic]
    return [given.get(a.topic, a) for a in read.found]


def _new_topic_id(shell: ControllerShell) -> bytes:
    """A random UUID, version 4, none of the two that Kafka reserves (zero and one)."""
    bits = shell.world.random.randrange(1 << 128)
    bits = (bits & ~(0xF << 76) & ~(0x3 << 62)) | (0x4 << 76) | (0x2 << 62)
    return bits.to_bytes(16, "big")


def _add(shell: ControllerShell, assignment: TopicAssignment) -> list[int]:
    """Take the topic's partitions that are new into the table; returns their pids."""
    context, table = shell.context, shell.context.table
    topic: Topic | None = table.topic_by_name.get(assignment.topic)
    if topic is None:
        topic = table.add_topic(assignment.topic, assignment.topic_id)
    elif topic.id != assignment.topic_id and assignment.topic_id != NO_TOPIC_ID:
        table.set_topic_id(topic, assignment.topic_id)
    created = []
    for partition, replicas in sorted(assignment.partitions.items()):
        if table.pid(topic.name, partition) < 0:
            pid = table.add_partition(topic, partition, replicas)
            created.append(pid)
            if replicas.being_reassigned:
                context.partitions_being_reassigned[pid] = None
    return created
