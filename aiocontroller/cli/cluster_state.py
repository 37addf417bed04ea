"""A summary of the cluster's state in ZooKeeper, for ``status`` and the live view.

It is read without watches and without the controller, so it is correct even when no controller is alive.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from aiocontroller.core.ids import LeaderAndIsr, TopicAssignment
from aiocontroller.zookeeper.znodes import BadZNode, ControllerZNode

if TYPE_CHECKING:
    from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient


class ControllerState(msgspec.Struct, frozen=True):
    """The holder of ``/controller``; ``id`` is None when there is none.  ``since_ms`` is milliseconds since 1970."""

    id: int | None
    epoch: int | None
    since_ms: int | None


class BrokerState(msgspec.Struct, frozen=True):
    """``live`` is False for a broker that has replicas and is not registered."""

    id: int
    live: bool
    leaders: int
    replicas: int


class PartitionState(msgspec.Struct, frozen=True):
    """One partition's assignment and state, as ZooKeeper had them when they were read."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    leadership: LeaderAndIsr | None
    """None when there is no readable state znode."""

    def offline(self, live: frozenset[int]) -> bool:
        """Whether the partition has no live leader."""
        return self.leadership is None or self.leadership.leader not in live

    @property
    def under_replicated(self) -> bool:
        """Whether the ISR has fewer members than the assignment; True if the state is unreadable."""
        return self.leadership is None or len(self.leadership.isr) < len(self.replicas)

    @property
    def not_preferred(self) -> bool:
        """Whether another replica than the first leads, or none; True if the state is unreadable."""
        return self.leadership is None or self.leadership.leader != self.replicas[0]


class ClusterState(msgspec.Struct, frozen=True):
    """The cluster as several reads found it, not at one instant; brokers ascending, partitions by number."""

    controller: ControllerState
    brokers: list[BrokerState]
    partitions: list[PartitionState]
    unreadable: list[tuple[str, str, str]]
    """(path, found, expected) of each unreadable znode; the others are counted anyway."""

    @property
    def live(self) -> frozenset[int]:
        """Ids of the brokers that are registered now."""
        return frozenset(b.id for b in self.brokers if b.live)

    def counts(self) -> dict[str, int]:
        """Numbers of partitions by condition; one partition may count in several."""
        live = self.live
        return {
            "total": len(self.partitions),
            "offline": sum(p.offline(live) for p in self.partitions),
            "under_replicated": sum(p.under_replicated for p in self.partitions),
            "not_preferred": sum(p.not_preferred for p in self.partitions),
        }


async def read_partitions(
    zk: KafkaZkClient, topics: list[TopicAssignment]
) -> tuple[list[PartitionState], list[BadZNode]]:
    """The partitions of ``topics``, in the given order and by number; and the unreadable state znodes."""
    keys = [(t.topic, p, t.partitions[p].replicas) for t in topics for p in sorted(t.partitions)]
    found = await zk.get_topic_partition_states([k[0] for k in keys], [k[1] for k in keys])
    partitions = [
        PartitionState(topic, partition, replicas, state if isinstance(state, LeaderAndIsr) else None)
        for (topic, partition, replicas), state in zip(keys, found, strict=True)
    ]
    return partitions, [state for state in found if isinstance(state, BadZNode)]


async def read_cluster_state(zk: KafkaZkClient) -> ClusterState:
    """Read the whole state, in five rounds of bulk reads."""
    controller = await zk.get_controller(watch=False)
    epoch = await zk.get_controller_epoch()
    registered, bad = await zk.get_all_brokers_in_cluster(watch=False)
    topics = await zk.get_topic_assignments(await zk.get_all_topics_in_cluster(watch=False), watch=False)
    partitions, bad_states = await read_partitions(zk, topics.found)
    unreadable = [*bad, *topics.bad, *bad_states]
    if isinstance(controller, BadZNode):
        unreadable.append(controller)
    holder = controller if isinstance(controller, ControllerZNode) else None
    leaders = Counter(p.leadership.leader for p in partitions if p.leadership is not None)
    replicas = Counter(replica for p in partitions for replica in p.replicas)
    live = {b.id for b in registered}
    return ClusterState(
        controller=ControllerState(
            holder.controller_id if holder else None, epoch[0] if epoch else None, holder.created_ms if holder else None
        ),
        brokers=[BrokerState(b, b in live, leaders[b], replicas[b]) for b in sorted(live | set(replicas))],
        partitions=partitions,
        unreadable=[(b.path, b.found, b.expected) for b in unreadable],
    )
