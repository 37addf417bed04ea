"""Commands are checked by another ZooKeeper client than their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient


@pytest.fixture
def kazoo(zk_connect: str) -> Iterator[KazooClient]:
    client = KazooClient(zk_connect)
    client.start(timeout=20)
    yield client
    client.stop()
    client.close()
