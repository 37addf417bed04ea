"""A command's connection: it creates nothing, and it ends when ZooKeeper does."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiocontroller.cli import finding
from aiocontroller.cli.finding import connected
from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.cluster_tree import read_cluster_tree


@pytest.fixture
async def server(world: World) -> AsyncIterator[ZooKeeperServer]:
    server = await ZooKeeperServer(world, ZooKeeperModel()).start()
    yield server
    server.stop()


async def test_a_wrong_chroot_is_refused_and_not_created(server: ZooKeeperServer) -> None:
    before = set(server.model.tree.nodes)
    with pytest.raises(BadInputError, match="/kafak: ZooKeeper has no such chroot"):
        async with connected(f"{server.address}/kafak"):
            pass
    assert set(server.model.tree.nodes) == before


async def test_what_zookeeper_does_not_show_is_an_error_of_one_line(server: ZooKeeperServer) -> None:
    async with connected(server.address) as zk:
        await zk.client.ensure_path("/brokers/ids")
    server.model.tree.nodes["/brokers/ids"].acl = ((31, "digest", "kafka:nobody-knows"),)
    with pytest.raises(AioControllerError, match=r"/brokers/ids: ZooKeeper answered NO_AUTH \(-102\); AIOCONTROLLER_"):
        async with connected(server.address) as zk:
            await read_cluster_tree(zk)


async def test_a_command_ends_when_zookeeper_does(server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finding, "RECONNECT_TIMEOUT_S", 0.2)

    async def read_from_the_dead() -> None:
        async with connected(server.address) as zk:
            server.stop()
            await read_cluster_tree(zk)

    with pytest.raises(AioControllerError, match="does not answer any more"):
        await read_from_the_dead()


async def test_a_short_outage_does_not_end_it(server: ZooKeeperServer) -> None:
    async with connected(server.address) as zk:
        server.stop()
        await server.start()
        assert (await read_cluster_tree(zk)).topics == {}
