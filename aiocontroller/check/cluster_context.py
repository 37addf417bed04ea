"""Fills a controller's context from a cluster's tree, as a failover does, but decides nothing."""

from __future__ import annotations

import msgspec

from aiocontroller.check.rules import min_isr
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core.apply import apply, load_states
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.context_changes import BrokersAdded, DeletionsQueued, MinIsrsRead, TopicsLoaded
from aiocontroller.core.ids import TopicAssignment
from aiocontroller.zookeeper.cluster_tree import ClusterTree


def context_of(tree: ClusterTree) -> ControllerContext:
    """Return the context; partitions whose state cannot be read are left out."""
    context = ControllerContext(max(tree.controller_epoch, 1), 0)
    apply(context, BrokersAdded(list(tree.brokers.values())))
    rows = context.add_partitions(_readable(tree))
    apply(context, DeletionsQueued([name for name in tree.deletions if name in context.table.topic_by_name]))
    apply(context, MinIsrsRead(min_isr(tree)))
    states = {partition.name: partition.state for partition in tree.partitions}
    values = [states.get(context.table.topic_partition(row)) for row in rows]
    load_states(context, rows, values, range(len(rows)), [0] * len(rows))
    rsm.initialize_replica_states(context)
    psm.initialize_partition_states(context)
    apply(context, TopicsLoaded())
    return context


def _readable(tree: ClusterTree) -> list[TopicAssignment]:
    """The topics, without the partitions whose state cannot be read."""
    unread: dict[str, set[int]] = {}
    for partition in tree.partitions:
        if partition.state is None and partition.name not in tree.without_state:
            unread.setdefault(partition.name.topic, set()).add(partition.name.partition)
    return [
        topic
        if (without := unread.get(name)) is None
        else msgspec.structs.replace(topic, partitions={n: a for n, a in topic.partitions.items() if n not in without})
        for name, topic in tree.topics.items()
    ]
