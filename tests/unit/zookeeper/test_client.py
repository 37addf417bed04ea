"""The client against the modelled ZooKeeper, on the network in memory."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiozk import exc

from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete
from aiocontroller.zookeeper.errors import ClientClosedError, Code
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.reads import Reads
from aiocontroller.zookeeper.registration import delete_broker_registration
from aiocontroller.zookeeper.znode_access import ZNodeAccess


@asynccontextmanager
async def connected(chroot: str = "") -> AsyncIterator[ZooKeeperClient]:
    world = simulated_world(SimulatedNetwork())
    server = ZooKeeperServer(world, ZooKeeperModel(tick_ms=500))
    await server.start()
    client = ZooKeeperClient(server.address + chroot, world=world, session_timeout_s=6)
    await client.start(10)
    try:
        yield client
    finally:
        await client.close()
        server.stop()


@virtual_time
async def test_the_clusters_id_is_proposed_once() -> None:
    async with connected() as client:
        zk = KafkaZkClient(client)
        assert await zk.get_cluster_id() is None
        await zk.create_top_level_paths()
        assert await zk.create_or_get_cluster_id("first") == "first"
        assert await zk.create_or_get_cluster_id("second") == "first"


@virtual_time
async def test_all_paths_are_those_below_the_chroot() -> None:
    async with connected("/kafka/one") as client:
        await client.create("/a", data=b"a")
        await client.set("/", b"root", -1)
        assert (await client.get_many(["/", "/a", "/kafka"])).data == [b"root", b"a", None]
        assert (await client.children_many(["/"])).names == [["a"]]
        found = await client.exists_many(["/a", "/kafka"])
        assert [Code(code) for code in found.code] == [Code.OK, Code.NO_NODE]
        results = await client.multi([Create("/b"), Delete("/a")])
        assert [(result.code, result.path) for result in results] == [(0, "/b"), (0, None)]
        assert (await client.children_many(["/"])).names == [["b"]]


@virtual_time
async def test_a_parent_that_the_same_batch_creates_is_missing_only_before() -> None:
    """Kafka's ``createRecursive``: the refused child is not taken for a sign that later ones are hopeless too."""
    async with connected() as client:
        written = await client.write_many([Create(path) for path in ("/a/1", "/a", "/a/2", "/b/1", "/a/3")], fence=None)
        assert [Code(code) for code in written.code] == [Code.NO_NODE, Code.OK, Code.OK, Code.NO_NODE, Code.OK]


@virtual_time
async def test_a_check_that_no_server_answers_with_results_is_no_version() -> None:
    async with connected() as client:
        await client.create("/a")
        assert await client.check("/a", 0)
        assert not await client.check("/a", 1)

        async def refused(bodies: Sequence[bytes], **how: Any) -> list[tuple[int, bytes]]:
            return [(Code.NO_AUTH, b"")]

        client.session.exchange = refused  # type: ignore[method-assign]
        with pytest.raises(exc.NoAuth):
            await client.check("/a", 0)


@virtual_time
async def test_a_closed_client_has_no_connection_and_serves_no_call() -> None:
    async with connected() as client:
        connection = client.session.conn
        assert connection is not None
        await client.close()
        assert not connection.alive
        assert client.session.conn is None
        with pytest.raises(ClientClosedError):
            await client.exists("/")


@virtual_time
async def test_a_client_without_a_session_tries_all_servers_in_their_order_and_closes_at_once() -> None:
    world = simulated_world(SimulatedNetwork())
    client = ZooKeeperClient("a:1,b:2,c:3", world=world, session_timeout_s=6)
    tried: list[str] = []

    async def refuse(_: object, host: str, port: int, **how: Any) -> Any:
        tried.append(host)
        raise ConnectionRefusedError

    world.network.connect = refuse  # type: ignore[method-assign]
    with pytest.raises(TimeoutError):
        await client.start(1)
    assert len(tried) > 6
    assert "".join(tried) in "abc" * len(tried)
    before_s = world.clock.monotonic()
    await client.close()
    assert world.clock.monotonic() == before_s


@virtual_time
async def test_the_session_lasts_as_long_as_the_server_says() -> None:
    async with connected() as client:
        assert client.session.timeout_s == 6.0


@virtual_time
async def test_a_broker_that_is_registered_anew_is_left_alone() -> None:
    """By its czxid: not even the version of its znode may change, which its own updates expect."""
    async with connected() as client:
        zk = KafkaZkClient(client)
        await zk.create_top_level_paths()
        fence = await client.write_many([Create("/controller_epoch", b"1")], fence=None)
        assert not fence.code[0]
        assert await zk.get_broker(1) is None
        await client.create("/brokers/ids/1", data=b"{}")
        found = await client.get_many(["/brokers/ids/1"])
        assert not await delete_broker_registration(client, 1, found.czxid(0) - 1, 0)
        assert (await client.get_many(["/brokers/ids/1"])).version[0] == found.version[0]
        assert await delete_broker_registration(client, 1, found.czxid(0), 0)
        assert not await client.exists("/brokers/ids/1")


@virtual_time
async def test_a_broker_that_updates_its_registration_at_that_moment_is_left_alone() -> None:
    async with connected() as client:
        await KafkaZkClient(client).create_top_level_paths()
        await client.create("/controller_epoch", data=b"1")
        await client.create("/brokers/ids/1", data=b"{}")
        read = client.get_many

        async def then_updated(paths: Sequence[str], **how: Any) -> Reads:
            found = await read(paths, **how)
            await client.set("/brokers/ids/1", b"new", found.version[0])
            return found

        epoch = (await read(["/brokers/ids/1"])).czxid(0)
        client.get_many = then_updated  # type: ignore[method-assign, assignment]
        assert not await delete_broker_registration(client, 1, epoch, 0)
        assert (await read(["/brokers/ids/1"])).data[0] == b"new"


@virtual_time
async def test_parents_that_may_not_be_made_are_an_error_that_names_them() -> None:
    async with connected() as client:
        create = client.write_many

        async def refusing(ops: Sequence[Any], **how: Any) -> Any:
            written = await create(ops, **how)
            written.code[-1] = Code.NO_AUTH
            return written

        client.write_many = refusing  # type: ignore[method-assign, assignment]
        with pytest.raises(exc.NoAuth) as caught:
            await ZNodeAccess(client).create_paths(["/a/b"])
        assert "/a/b" in "".join([str(caught.value), *getattr(caught.value, "__notes__", ())])


def test_replies_of_single_reads_stand_beside_each_other() -> None:
    stat = struct.pack(">qqqqiiiqiiq", 7, 8, 0, 0, 5, 0, 0, 0, 1, 0, 7)
    reads = Reads()
    reads.add(Code.NO_NODE, b"")
    reads.add(Code.OK, codec.buffer(b"x") + stat)
    reads.add(Code.OK, codec.buffer(None) + stat)
    assert [list(column) for column in (reads.code, reads.data, reads.version)] == [
        [Code.NO_NODE, 0, 0],
        [None, b"x", None],
        [-1, 5, 5],
    ]
    assert [reads.czxid(1), reads.czxid(2)] == [7, 7]


@virtual_time
async def test_a_znode_that_may_not_be_read_is_not_taken_for_none() -> None:
    async with connected() as client:
        assert await ZNodeAccess(client).read("/none") is None
        read = client.get_many

        async def refusing(paths: Sequence[str], **how: Any) -> Reads:
            found = await read(paths, **how)
            found.code[0] = Code.NO_AUTH
            return found

        client.get_many = refusing  # type: ignore[method-assign, assignment]
        with pytest.raises(exc.NoAuth):
            await ZNodeAccess(client).read("/none")
