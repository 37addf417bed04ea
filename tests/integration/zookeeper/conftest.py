"""Clients that are closed after the test, and a proxy between them and the server."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.zookeeper.fault_proxy import FaultProxy
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from aiocontroller.net.real import RealClock, RealNetwork
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.integration.zookeeper.typed import Connect

MakeClient = Callable[..., Awaitable[ZooKeeperClient]]


@pytest.fixture
async def proxy(zookeeper: EmbeddedZooKeeper) -> AsyncIterator[FaultProxy]:
    proxy = await FaultProxy(zookeeper.port).start()
    yield proxy
    await proxy.close()


@pytest.fixture
async def make_client(zk_connect: str, proxy: FaultProxy) -> AsyncIterator[MakeClient]:
    """A started client through the proxy (or, with ``direct``, without it) in the test's chroot; closed at the end."""
    clients: list[ZooKeeperClient] = []
    chroot = zk_connect[zk_connect.index("/") :]
    direct_address = zk_connect[: zk_connect.index("/")]

    async def make(
        *, address: str | None = None, direct: bool = False, timeout_s: float = 2.0, start: bool = True, **options: Any
    ) -> ZooKeeperClient:
        world = World(RealNetwork(), RealClock(), random.Random(7))
        where = direct_address if direct else address or proxy.address
        client = ZooKeeperClient(where + chroot, world=world, session_timeout_s=timeout_s, **options)
        clients.append(client)
        if start:
            await client.start(10)
        return client

    yield make
    for client in clients:
        await client.close()


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.zookeeper), "model"])
async def address(request: pytest.FixtureRequest, world: World) -> AsyncIterator[str]:
    """The contract holds for the real ZooKeeper and for the one that simulations run on."""
    if request.param == "real":
        yield request.getfixturevalue("zk_connect")
        return
    server = await ZooKeeperServer(world).start()
    yield f"{server.address}/kafka"
    server.stop()


@pytest.fixture
async def connect(address: str, world: World) -> AsyncIterator[Connect]:
    clients: list[ZooKeeperClient] = []

    async def connect() -> KafkaZkClient:
        client = ZooKeeperClient(address, world=world, session_timeout_s=6.0)
        clients.append(client)
        await client.start(10.0)
        return KafkaZkClient(client)

    yield connect
    for client in clients:
        await client.close()


@pytest.fixture
async def zk(connect: Connect) -> KafkaZkClient:
    zk = await connect()
    await zk.create_top_level_paths()
    return zk


@pytest.fixture
async def fence(zk: KafkaZkClient) -> int:
    """The fence of a controller that ``zk`` is."""
    return (await zk.register_controller_and_increment_controller_epoch(1, 17))[1]
