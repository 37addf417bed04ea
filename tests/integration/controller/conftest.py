"""The cluster for most of these tests; a test file that needs another one has a fixture of the same name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiocontroller.net.ports import World
from tests.integration.controller.harness import Cluster, running


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    """Brokers 1 to 3 on a ZooKeeper; no controller yet."""
    async with running(world, zk_connect) as cluster:
        for broker in (1, 2, 3):
            await cluster.add_broker(broker)
        yield cluster
