"""What instances tell of themselves in ZooKeeper, and what others may put there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.from_aiozk import ACL, exc
from aiocontroller.zookeeper.instances import MOST, MOST_BYTES, Instance, read_instances, write_instance

ONE = Instance(1001, "a", "http://127.0.0.1:1", 5, "active")
OTHER = Instance(1002, "b", "http://127.0.0.1:2", 6, "standing by", "", "warm", 3)


@pytest.fixture
async def server(world: World) -> AsyncIterator[ZooKeeperServer]:
    server = await ZooKeeperServer(world, ZooKeeperModel()).start()
    yield server
    server.stop()


@pytest.fixture
async def clients(world: World, server: ZooKeeperServer) -> AsyncIterator[list[ZooKeeperClient]]:
    made = [ZooKeeperClient(f"127.0.0.1:{server.port}", world=world, session_timeout_s=10) for _ in range(2)]
    for client in made:
        await client.start(5)
    yield made
    for client in made:
        await client.close()


async def test_each_tells_of_itself_and_all_read_it(clients: list[ZooKeeperClient]) -> None:
    one, other = clients
    assert await read_instances(one) == {}
    await write_instance(one, ONE)
    await write_instance(other, ONE)
    await write_instance(other, OTHER)
    assert await read_instances(one) == {one.session_id: ONE, other.session_id: OTHER}
    await other.close()
    assert await read_instances(one) == {one.session_id: ONE}


async def test_what_nobody_of_ours_has_written_is_left_out(clients: list[ZooKeeperClient]) -> None:
    one, other = clients
    await write_instance(one, ONE)
    good = json.dumps({"id": 1, "host": "h", "http": "http://x", "started_ms": 1, "state": "active"}).encode()
    await other.create("/aiocontroller_instances/persistent", good)
    await other.create("/aiocontroller_instances/foreign", good, ephemeral=True)
    path = f"/aiocontroller_instances/{other.session_id & (2**64 - 1):x}"
    await other.create(path, b"", ephemeral=True)
    for data in (
        b"",
        b"{",
        b"[" * 3000,
        b"\xff",
        good.replace(b'"h"', b'"\xff"'),
        good.replace(b'"h"', b'"' + b"h" * 301 + b'"'),
        good.replace(b'"id": 1', b'"id": -1'),
        good[:-1] + b" " * MOST_BYTES + b"}",
    ):
        await other.set_data(path, data)
        assert await read_instances(one) == {one.session_id: ONE}, data[:40]
    await other.set_data(path, good)
    assert len(await read_instances(one)) == 2


async def test_a_crowd_is_not_read(clients: list[ZooKeeperClient]) -> None:
    one, _ = clients
    await write_instance(one, ONE)
    for n in range(2 * MOST):
        await one.create(f"/aiocontroller_instances/{n}", b"")
    assert len(await read_instances(one)) <= 1


async def test_a_refusal_names_the_path(clients: list[ZooKeeperClient]) -> None:
    one, other = clients
    await one.create(
        "/aiocontroller_instances",
        b"",
        acl=[ACL.make("digest", "kafka:nobody-knows", read=True, write=True, create=True)],
    )
    with pytest.raises(exc.NoAuth) as refused:
        await write_instance(other, OTHER)
    assert "/aiocontroller_instances" in refused.value.__notes__[0]
    with pytest.raises(exc.NoAuth):
        await read_instances(other)
