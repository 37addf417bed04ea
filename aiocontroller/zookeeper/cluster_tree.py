"""Everything that ZooKeeper holds of a cluster, read once: without watches, writes or a controller.

The reads are not atomic, so what changes meanwhile may look inconsistent; callers that judge by it read twice.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from aiocontroller.core.ids import Broker, LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.cluster_znodes import MigrationZNode
from aiocontroller.zookeeper.debts import FoundDebts, Owed
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znode_access import answered, error_at, refused
from aiocontroller.zookeeper.znode_json import BadZNode, excerpt
from aiocontroller.zookeeper.znodes import ControllerZNode

T = TypeVar("T")
OnProgress = Callable[[str, int, int], None]
"""Called with what is being read, how many have been read, and how many there are."""


class Partition(NamedTuple):
    """One partition's assignment and state; ``state`` is None if there is no readable one."""

    name: TopicPartition
    assignment: ReplicaAssignment
    state: LeaderAndIsr | None


class ClusterTree(msgspec.Struct, frozen=True):
    """The znodes, decoded; what could not be decoded is in ``bad`` and nowhere else."""

    holder: ControllerZNode | None
    controller_epoch: int
    """0 if there has never been a controller, or if it cannot be read."""
    cluster_id: str | None
    """None before Kafka 0.10.1, or if it cannot be read."""
    brokers: dict[int, Broker]
    unreadable_brokers: frozenset[int]
    topics: dict[str, TopicAssignment]
    partitions: list[Partition]
    """By topic, as ``topics``, and number."""
    without_state: frozenset[TopicPartition]
    """Those whose state znode does not exist."""
    znodes_below: Mapping[str, Sequence[str]]
    """Topic -> the names below its ``partitions``."""
    deletions: list[str]
    reassignment: dict[TopicPartition, tuple[int, ...]] | None
    preferred_election: list[TopicPartition] | None
    isr_notifications: list[str]
    topic_configs: dict[str, dict[str, str]]
    """By entity below ``/config/topics``; its topic may not exist."""
    broker_configs: dict[str, dict[str, str]]
    known_controllers: frozenset[int]
    debts: list[Owed]
    migration: MigrationZNode | None
    bad: list[BadZNode]

    @property
    def live(self) -> frozenset[int]:
        """Brokers that are registered, readable or not."""
        return self.unreadable_brokers.union(self.brokers)


async def read_cluster_tree(zk: KafkaZkClient, progress: OnProgress | None = None) -> ClusterTree:
    """Read everything; ``progress`` is called after each slice of partitions' states.

    Raises AioControllerError if ZooKeeper does not answer, and ``exc.NoAuth`` if we may not read the controller, the
    brokers or the topics, without which the rest is useless.  Other znodes that we may not read are in ``bad``.
    """
    bad: list[BadZNode] = []

    def readable(found: T | BadZNode | None) -> T | None:
        if isinstance(found, BadZNode):
            bad.append(found)
            return None
        return found

    async def shown(path: str, reading: Awaitable[T], otherwise: T) -> T:
        try:
            return await reading
        except exc.NoAuth:
            bad.extend(filter(None, [refused(path, Code.NO_AUTH)]))
            return otherwise

    async def children(path: str) -> list[str]:
        found = await zk.client.children_many([path])
        if found.code[0] != Code.NO_NODE:
            bad.extend(filter(None, [refused(path, found.code[0])]))
        return found.names[0] or []

    holder = readable(await zk.get_controller(watch=False))
    epoch = readable(await _read_epoch(zk))
    brokers, bad_brokers = await zk.get_all_brokers_in_cluster(watch=False)
    names = await zk.get_all_topics_in_cluster(watch=False)
    found = await zk.get_topic_assignments(names, watch=False)
    topics = {assignment.topic: assignment for assignment in found.found}
    above = [paths.topic_partitions(name) for name in topics]
    below = await zk.client.children_many(above)
    bad += [
        r for path, code in zip(above, below.code, strict=True) if code != Code.NO_NODE and (r := refused(path, code))
    ]
    partitions, without = await _read_states(zk, list(topics.values()), bad, progress or (lambda *_: None))
    configs = await zk.get_topic_configs(await children(paths.config_entities("topics")))
    of_brokers = await zk.get_broker_configs(await children(paths.config_entities("brokers")))
    debts = await shown(paths.DEBTS, zk.debts.load(), FoundDebts(0, [], []))
    known, _ = await shown(paths.KNOWN_CONTROLLERS, zk.get_known_controllers(), (frozenset[int](), -1))
    bad += [*bad_brokers, *found.bad, *configs.bad, *of_brokers.bad, *debts.bad]
    return ClusterTree(
        holder=holder,
        controller_epoch=epoch or 0,
        cluster_id=readable(await shown(paths.CLUSTER_ID, zk.get_cluster_id(), None)),
        brokers={broker.id: broker for broker in brokers},
        unreadable_brokers=_ids(bad_brokers),
        topics=topics,
        partitions=partitions,
        without_state=without,
        znodes_below={name: own or () for name, own in zip(topics, below.names, strict=True)},
        deletions=await shown(paths.DELETE_TOPICS, zk.get_topic_deletions(watch=False), []),
        reassignment=readable(await shown(paths.REASSIGN_PARTITIONS, zk.get_partition_reassignment(watch=False), None)),
        preferred_election=readable(
            await shown(paths.PREFERRED_REPLICA_ELECTION, zk.get_preferred_replica_election(watch=False), None)
        ),
        isr_notifications=await shown(
            paths.ISR_CHANGE_NOTIFICATION, zk.get_all_isr_change_notifications(watch=False), []
        ),
        topic_configs=dict(configs),
        broker_configs=dict(of_brokers),
        known_controllers=readable(known) or frozenset(),
        debts=[owed for owed in debts.owed if owed.partitions],
        migration=readable(await shown(paths.MIGRATION, zk.get_migration(), None)),
        bad=bad,
    )


async def _read_states(
    zk: KafkaZkClient, topics: Sequence[TopicAssignment], bad: list[BadZNode], progress: OnProgress
) -> tuple[list[Partition], frozenset[TopicPartition]]:
    partitions: list[Partition] = []
    without: list[TopicPartition] = []
    total = sum(len(topic.partitions) for topic in topics)
    for some in _slices(topics):
        keys = [(topic.topic, number) for topic in some for number in sorted(topic.partitions)]
        found = await zk.get_topic_partition_states([name for name, _ in keys], [number for _, number in keys])
        assignments = {topic.topic: topic.partitions for topic in some}
        for (name, number), state in zip(keys, found, strict=True):
            partition = TopicPartition(name, number)
            if state is None:
                without.append(partition)
            elif isinstance(state, BadZNode):
                bad.append(state)
            leadership = state if isinstance(state, LeaderAndIsr) else None
            partitions.append(Partition(partition, assignments[name][number], leadership))
        progress("partitions", len(partitions), total)
    return partitions, frozenset(without)


PARTITIONS_AT_ONCE = 20_000


def _slices(topics: Sequence[TopicAssignment]) -> Iterator[list[TopicAssignment]]:
    some: list[TopicAssignment] = []
    count = 0
    for topic in topics:
        some.append(topic)
        count += len(topic.partitions)
        if count >= PARTITIONS_AT_ONCE:
            yield some
            some, count = [], 0
    if some:
        yield some


async def _read_epoch(zk: KafkaZkClient) -> int | BadZNode | None:
    reads = await zk.client.get_many([paths.CONTROLLER_EPOCH])
    if reads.code[0] == Code.NO_NODE:
        return None
    if reads.code[0]:
        raise error_at(paths.CONTROLLER_EPOCH, reads.code[0])
    return znodes.decode_controller_epoch(reads.data[0])


def _ids(bad_brokers: Sequence[BadZNode]) -> frozenset[int]:
    """The broker ids among the names of these znodes."""
    ids = (znodes.decode_broker_id(bad.path.rpartition("/")[2]) for bad in bad_brokers)
    return frozenset(found for found in ids if isinstance(found, int))


class Evidence(NamedTuple):
    """What a znode holds: ``zxid`` is that of its last change, 0 without a znode; ``value`` a printable excerpt."""

    path: str
    zxid: int
    value: str


async def read_evidence(zk: KafkaZkClient, wanted: Sequence[str]) -> list[Evidence]:
    """What the znodes at these paths hold now, in their order."""
    reads = await zk.client.get_many(wanted)
    return [
        Evidence(path, reads.mzxid(at), _value(path, reads.code[at], reads.data[at])) for at, path in enumerate(wanted)
    ]


def _value(path: str, code: int, data: bytes | None) -> str:
    if code == Code.NO_NODE:
        return "no such znode"
    return answered(path, code) if code else excerpt(data)
