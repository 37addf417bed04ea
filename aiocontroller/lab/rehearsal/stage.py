"""The part of a cluster's tree that is rehearsed: its brokers, with the simulation's numbers from 1 on, and a sample of
its partitions.

All that matters about a partition is its *shape*: assignment, leader, ISR and the settings that decide elections.  A
large tree has few shapes for its size.  One partition of each shape is rehearsed, the most frequent shapes first, and
stands for all partitions of that shape.

Left out are topics that are being deleted, topics that share an id (brokers cannot tell them apart), partitions whose
znodes are unreadable or contradictory, and all settings except the two that decide elections.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from aiocontroller.check.rules import MIN_ISR, UNCLEAN, is_true, is_valid, min_isr
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import (
    MAX_CONTROLLER_EPOCH,
    NO_LEADER,
    NO_TOPIC_ID,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.cluster_tree import ClusterTree, Partition
from aiocontroller.zookeeper.cluster_znodes import encode_config
from aiocontroller.zookeeper.znodes import encode_controller_epoch, encode_partition_states, encode_topic

MOST_BROKERS = 100
MOST_EPOCH = MAX_CONTROLLER_EPOCH - 1_000
"""A controller's epoch; elections go on from there, and a KRaft controller's begin above."""


class Staged(NamedTuple):
    """A partition of the rehearsal; its brokers have the simulation's numbers."""

    name: TopicPartition
    assignment: ReplicaAssignment
    state: LeaderAndIsr | None
    """None: there is no state znode, and the controller creates one."""
    least: int
    """Its ``min.insync.replicas``."""
    stands_for: int
    """The number of partitions of this shape, this one included."""


class Stage(NamedTuple):
    """The cluster as rehearsed."""

    brokers: tuple[int, ...]
    """The ids in the cluster; the simulation numbers them from 1, in this order."""
    alive: frozenset[int]
    """The simulation's numbers of the registered brokers."""
    missing: tuple[int, ...]
    """The ids in the cluster of those that have replicas, perhaps of partitions that are not rehearsed, and are not
    registered: a KRaft controller waits for them."""
    partitions: tuple[Staged, ...]
    topics: tuple[TopicAssignment, ...]
    """The topics of these partitions, with the rehearsed partitions only."""
    topic_configs: Mapping[str, Mapping[str, str]]
    defaults: Mapping[str, str]
    """Settings of all brokers."""
    controller_epoch: int
    found: int
    """Partitions in the tree."""
    left_out: int
    """Partitions that cannot be rehearsed; the others are rehearsed or not chosen."""

    def id_of(self, number: int) -> int:
        """Return the id in the cluster of a broker of the simulation."""
        return self.brokers[number - 1]

    @property
    def stood_for(self) -> int:
        """The number of partitions that the rehearsed ones stand for, themselves included."""
        return sum(staged.stands_for for staged in self.partitions)

    @property
    def sampled(self) -> bool:
        """Whether some partitions stand for others."""
        return len(self.partitions) < self.found - self.left_out

    @property
    def rare(self) -> int:
        """The number of partitions whose shape is not rehearsed."""
        return self.found - self.left_out - self.stood_for

    def znodes(self) -> dict[str, bytes]:
        """Return the znodes' data by path when the rehearsal begins."""
        found = {paths.CONTROLLER_EPOCH: encode_controller_epoch(self.controller_epoch)}
        for name, configs in self.topic_configs.items():
            found[paths.config_entity("topics", name)] = encode_config(configs)
        for topic in self.topics:
            found[paths.topic(topic.topic)] = encode_topic(topic)
        led = [staged for staged in self.partitions if staged.state is not None]
        encoded = encode_partition_states([staged.state for staged in led if staged.state is not None])
        for staged, data in zip(led, encoded, strict=True):
            found[paths.topic_partition_state(*staged.name)] = data
        return found


def stage(tree: ClusterTree, most: int, needed: Collection[TopicPartition] = ()) -> Stage:
    """Choose at most ``most`` partitions of the tree, the ``needed`` ones first.

    BadInputError for a tree without a registered broker, with too many brokers, with too high an epoch, or with nothing
    to rehearse.
    """
    if tree.controller_epoch > MOST_EPOCH:
        raise BadInputError(f"{paths.CONTROLLER_EPOCH}: found {tree.controller_epoch}, expected at most {MOST_EPOCH}")
    if not tree.live:
        raise BadInputError("found no registered broker, expected a cluster with brokers to rehearse")
    without = _unfit_topics(tree)
    fit = [partition for partition in tree.partitions if _fits(partition, tree, without)]
    if not fit:
        raise BadInputError(f"found {len(tree.partitions)} partitions, none of which can be rehearsed")
    minimum = min_isr(tree)
    chosen, counts = _sample(fit, tree, minimum, most, needed)
    brokers = tuple(sorted(tree.live.union(*(_brokers_of(partition) for partition in chosen))))
    if len(brokers) > MOST_BROKERS:
        raise BadInputError(f"found {len(brokers)} brokers, expected {MOST_BROKERS} at most")
    number = {broker: at for at, broker in enumerate(brokers, 1)}
    staged = tuple(
        Staged(
            partition.name,
            ReplicaAssignment(*(_renumbered(ids, number) for ids in partition.assignment)),
            _state(partition.state, number),
            minimum[partition.name.topic],
            count,
        )
        for partition, count in zip(chosen, counts, strict=True)
    )
    of: dict[str, dict[int, ReplicaAssignment]] = {}
    for each in staged:
        of.setdefault(each.name.topic, {})[each.name.partition] = each.assignment
    return Stage(
        brokers=brokers,
        alive=frozenset(number[broker] for broker in tree.live),
        missing=tuple(sorted({n for each in tree.partitions for n in _brokers_of(each)} - tree.live)),
        partitions=staged,
        topics=tuple(TopicAssignment(name, tree.topics[name].topic_id, own) for name, own in of.items()),
        topic_configs={name: own for name in of if (own := _deciding(tree.topic_configs.get(name, {})))},
        defaults=_deciding(tree.broker_configs.get(paths.DEFAULT_ENTITY, {})),
        controller_epoch=max(tree.controller_epoch, 1),
        found=len(tree.partitions),
        left_out=len(tree.partitions) - len(fit),
    )


def _unfit_topics(tree: ClusterTree) -> frozenset[str]:
    """Return the topics that are being deleted, and those that share an id with another topic."""
    used = Counter(topic.topic_id for topic in tree.topics.values() if topic.topic_id != NO_TOPIC_ID)
    sharing = (name for name, topic in tree.topics.items() if used[topic.topic_id] > 1)
    return frozenset((*tree.deletions, *sharing))


def _fits(partition: Partition, tree: ClusterTree, without: Collection[str]) -> bool:
    (topic, _), assignment, state = partition
    replicas = assignment.replicas
    if topic in without or not replicas or len(set(replicas)) < len(replicas):
        return False
    if state is None:
        return partition.name in tree.without_state
    leads = state.leader == NO_LEADER or state.leader in state.isr
    return bool(state.isr) and leads and set(state.isr) <= set(replicas) and state.controller_epoch <= MOST_EPOCH


def _sample(
    fit: list[Partition],
    tree: ClusterTree,
    minimum: Mapping[str, int],
    most: int,
    needed: Collection[TopicPartition],
) -> tuple[list[Partition], list[int]]:
    """Return the partitions to rehearse, in the tree's order, and how many each stands for."""
    if len(fit) <= most:
        return fit, [1] * len(fit)
    unclean = {name for name, own in tree.topic_configs.items() if is_true(own, UNCLEAN)}
    counts: Counter[object] = Counter()
    first: dict[object, int] = {}
    wanted = frozenset(needed)
    chosen = []
    for at, (name, assignment, state) in enumerate(fit):
        if name in wanted:
            chosen.append((at, 1))
            continue
        led = None if state is None else (state.leader, state.isr)
        shape = (assignment, led, minimum[name.topic], name.topic in unclean)
        counts[shape] += 1
        first.setdefault(shape, at)
    chosen += [(first[shape], count) for shape, count in counts.most_common(max(0, most - len(chosen)))]
    chosen.sort()
    return [fit[at] for at, _ in chosen], [count for _, count in chosen]


def _brokers_of(partition: Partition) -> Iterable[int]:
    return partition.assignment.replicas


def _renumbered(ids: Iterable[int], number: Mapping[int, int]) -> tuple[int, ...]:
    return tuple(number[broker] for broker in ids)


def _state(state: LeaderAndIsr | None, number: Mapping[int, int]) -> LeaderAndIsr | None:
    if state is None:
        return None
    leader = state.leader if state.leader == NO_LEADER else number[state.leader]
    isr = _renumbered(state.isr, number)
    return LeaderAndIsr(leader, state.leader_epoch, isr, state.controller_epoch, 0, state.recovery_state)


def _deciding(configs: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that decide elections; invalid values count as not set, as for ``check``."""
    return {name: value for name, value in configs.items() if name in (MIN_ISR, UNCLEAN) and is_valid(name, value)}
