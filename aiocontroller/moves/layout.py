"""The input of a plan: the cluster's partitions, without those that cannot or may not change now."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.replica_plans import Layout
from aiocontroller.zookeeper.cluster_tree import ClusterTree, Partition


class LeftOut(NamedTuple):
    """Partitions that a plan may not change, by reason."""

    being_reassigned: list[TopicPartition]
    being_deleted: list[TopicPartition]
    without_leader: list[TopicPartition]
    """No live broker leads, so there is nothing to copy from."""

    def explained(self) -> dict[str, list[TopicPartition]]:
        """Return reason in words -> its partitions, where there are any."""
        reasons = ("being reassigned", "of topics being deleted", "without a live leader")
        return {reason: found for reason, found in zip(reasons, self, strict=True) if found}


def layout_of(
    tree: ClusterTree, sizes: Mapping[TopicPartition, int], topics: Collection[str] = ()
) -> tuple[Layout, LeftOut]:
    """Return the layout, in which the partitions of ``topics`` (none: of all) may change, and what it leaves out.

    The other partitions count as fixed load of their brokers.  BadInputError for a topic that does not exist.
    """
    for topic in topics:
        if topic not in tree.topics:
            raise BadInputError(f"found topic {topic!r}, expected one that exists")
    left_out = LeftOut([], [], [])
    may_change: dict[TopicPartition, tuple[int, ...]] = {}
    fixed: dict[TopicPartition, tuple[int, ...]] = {}
    deleting, asked_for = frozenset(tree.deletions), tree.reassignment or {}
    for partition in tree.partitions:
        name, replicas = partition.name, partition.assignment.target
        reason = _reason(partition, tree, deleting, asked_for, left_out)
        if reason is not None and (not topics or name.topic in topics):
            reason.append(name)
        if reason is None and (not topics or name.topic in topics):
            may_change[name] = replicas
        elif name.topic not in deleting:
            fixed[name] = replicas
    racks = {broker.id: broker.rack for broker in tree.brokers.values()}
    return Layout(may_change, racks, sizes, fixed), left_out


def _reason(
    partition: Partition,
    tree: ClusterTree,
    deleting: Collection[str],
    asked_for: Collection[TopicPartition],
    left_out: LeftOut,
) -> list[TopicPartition] | None:
    """Return the list of ``left_out`` to which the partition belongs; None if it may change."""
    if partition.name.topic in deleting:
        return left_out.being_deleted
    if partition.assignment.being_reassigned or partition.name in asked_for:
        return left_out.being_reassigned
    if partition.state is None or partition.state.leader not in tree.live:
        return left_out.without_leader
    return None


def check_brokers(tree: ClusterTree, brokers: Collection[int], *, live: bool) -> None:
    """BadInputError naming the first broker that is not registered; unless ``live``, having a replica is enough."""
    known = set(tree.brokers)
    if not live:
        known.update(broker for partition in tree.partitions for broker in partition.assignment.replicas)
    for broker in brokers:
        if broker not in known:
            there = ", ".join(map(str, sorted(known))) or "none"
            raise BadInputError(f"found broker {broker}, expected one of: {there}")
