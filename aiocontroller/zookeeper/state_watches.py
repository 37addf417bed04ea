"""Watches on partitions' state znodes; only partitions being reassigned have one."""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient


async def watch_topic_partition_states(
    client: ZooKeeperClient, topics: Sequence[str], partitions: Sequence[int]
) -> None:
    """Report the next change of each as ``Change.PARTITION_STATE``; a read after this call misses no change."""
    await client.exists_many(list(map(paths.topic_partition_state, topics, partitions)), watch=True)
