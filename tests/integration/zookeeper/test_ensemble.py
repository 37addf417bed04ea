"""Three servers, of which the one that matters dies while we write."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from aiocontroller.java import JavaMissingError, find_java, zookeeper_class_path
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper, ZooKeeperEnsemble
from aiocontroller.net.ports import World
from aiocontroller.net.real import RealClock, RealNetwork
from aiocontroller.zookeeper.client import Create, SessionEvent, ZooKeeperClient

pytestmark = [pytest.mark.zookeeper, pytest.mark.slow]

COUNT = 6000


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    try:
        find_java()
        zookeeper_class_path()
    except JavaMissingError as error:
        pytest.skip(str(error))
    ensemble = ZooKeeperEnsemble(tmp_path_factory.mktemp("ensemble"))
    try:
        ensemble.start()
        yield ensemble
    finally:
        ensemble.stop()


@pytest.fixture
async def client(ensemble: ZooKeeperEnsemble) -> AsyncIterator[ZooKeeperClient]:
    world = World(RealNetwork(), RealClock(), random.Random(3))
    name = f"/t{random.Random().randrange(1 << 40)}"
    client = ZooKeeperClient(ensemble.address + name, world=world, session_timeout_s=6)
    await client.start(20)
    yield client
    await client.close()


def connected_server(ensemble: ZooKeeperEnsemble, client: ZooKeeperClient) -> EmbeddedZooKeeper:
    _, port = client.session.connected_to
    return next(server for server in ensemble.servers if server.port == port)


@pytest.mark.parametrize("victim", ["leader killed", "own server suspended"])
async def test_no_write_is_lost_or_doubled_and_the_session_lives(
    ensemble: ZooKeeperEnsemble, client: ZooKeeperClient, victim: str
) -> None:
    paths = [f"/n{i:05}" for i in range(COUNT)]
    await client.create("/controller_epoch", b"1")
    await client.create("/mine", b"", ephemeral=True)
    assert (await client.write_many([Create(p, b"0") for p in paths], fence=0)).ok
    events: list[SessionEvent] = []
    client.on_session = lambda event: events.append(event)
    fired: list[tuple[int, str]] = []
    watched = [f"/watched{i}" for i in range(50)]
    await client.write_many([Create(p) for p in watched], fence=0)
    await client.get_many(watched, watch=True)
    client.on_watch = lambda kind, path: fired.append((kind, path))

    server = (
        await asyncio.to_thread(ensemble.leader) if victim == "leader killed" else connected_server(ensemble, client)
    )
    assert server is not None

    async def disturb() -> None:
        while client.statistics().znodes_written < 2 * COUNT:
            await asyncio.sleep(0.001)
        (server.kill if victim == "leader killed" else server.suspend)()

    disturbing = asyncio.create_task(disturb())
    try:
        rounds = 0
        while rounds < 4 or not disturbing.done() or SessionEvent.RECONNECTED not in events:
            datas = [b"%d" % (rounds + 1)] * COUNT
            async with asyncio.timeout(20):
                writes = await client.set_many(paths, datas, [rounds] * COUNT, fence=0)
            assert writes.ok
            rounds += 1
        reads = await client.get_many(paths)
        assert set(reads.version) == {rounds}
        assert set(reads.data) == {b"%d" % rounds}
        assert await client.ephemerals() == ["/mine"]
        assert client.session_epoch == 1
        assert SessionEvent.EXPIRED not in events
        assert fired == []
        await client.set_many(watched, [b"x"] * 50, [0] * 50, fence=0)
        await client.sync()
        assert sorted(fired) == sorted((3, p) for p in watched)
    finally:
        await disturbing
        if victim == "leader killed":
            await server.start_async()
        else:
            server.resume()
