"""The topics of the cluster that ``up`` runs: ``topic-0``, ``topic-1``, …"""

from __future__ import annotations

import asyncio
import secrets

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.replica_placement import assign_replicas_to_brokers
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

TOPICS_AT_ONCE = 50


async def create_missing_topics(
    zk: KafkaZkClient, topics: int, partitions: int, replication_factor: int, brokers: int
) -> int:
    """Create those of so many topics that are missing, on brokers with ids from 1; return how many."""
    admin = AdminZkClient(zk)
    placed_on = [(broker, None) for broker in range(1, brokers + 1)]
    existing = set(await admin.list_topics())
    missing = [n for n in range(topics) if f"topic-{n}" not in existing]

    async def create(number: int) -> None:
        assignment = assign_replicas_to_brokers(
            placed_on, partitions, replication_factor, start_index=number % len(placed_on)
        )
        await admin.create_topic(f"topic-{number}", assignment, secrets.token_bytes(16))

    for at in range(0, len(missing), TOPICS_AT_ONCE):
        await asyncio.gather(*(create(number) for number in missing[at : at + TOPICS_AT_ONCE]))
    return len(missing)


async def partitions_without_leader(zk: KafkaZkClient) -> int:
    """Return how many partitions, of all topics, have no live leader."""
    brokers, _ = await zk.get_all_brokers_in_cluster(watch=False)
    live = {broker.id for broker in brokers}
    topics = await zk.get_topic_assignments(await zk.get_all_topics_in_cluster(watch=False), watch=False)
    pairs = [(each.topic, partition) for each in topics.found for partition in each.partitions]
    states = await zk.get_topic_partition_states([p[0] for p in pairs], [p[1] for p in pairs])
    return sum(not (isinstance(state, LeaderAndIsr) and state.leader in live) for state in states)
