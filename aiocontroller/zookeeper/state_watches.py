"""Watches that are armed without reading: on the states of partitions being reassigned, and on topics."""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient


async def watch_topic_partition_states(
    client: ZooKeeperClient, topics: Sequence[str], partitions: Sequence[int]
) -> None:
    """Report the next change of each as ``ZNodeChange.PARTITION_STATE``; a read after this call misses no change."""
    await client.exists_many(list(map(paths.topic_partition_state, topics, partitions)), watch=True)


async def watch_topics(client: ZooKeeperClient, topics: Sequence[str]) -> None:
    """Report the next change of each as ``ZNodeChange.TOPIC`` or ``ZNodeChange.TOPIC_DELETED``."""
    await client.exists_many(list(map(paths.topic, topics)), watch=True)
