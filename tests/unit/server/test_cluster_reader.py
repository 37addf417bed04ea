"""On a standby: what clients are answered comes from ZooKeeper, within bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server import cluster_reader
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.kafka_zk_client import TopicAssignments
from aiocontroller.zookeeper.znode_json import BadZNode
from aiocontroller.zookeeper.znodes import SOFTWARE, ControllerZNode
from tests.unit.server.front import TOPIC_ID, settle
from tests.unit.server.one_more_broker import (
    UNKNOWN,
    US,
    ask,
    front,
    metadata,
    topic_errors,
)


class Znodes:
    """What a controller out of office reads: broker 1, topic orders."""

    def __init__(self, partitions: int = 2) -> None:
        self.reads = 0
        self.partitions = partitions

    async def get_cluster_id(self) -> str:
        return "abc"

    async def get_all_brokers_in_cluster(self, *, watch: bool) -> Any:
        assert not watch
        self.reads += 1
        return [Broker(1, 7, (Endpoint("PLAINTEXT", "b1", 9092),))], []

    async def get_controller(self, *, watch: bool) -> Any:
        return ControllerZNode(controller_id=1, owner_session=1, created_ms=0, version=1)

    async def get_all_topics_in_cluster(self, *, watch: bool) -> list[str]:
        return ["orders"]

    async def get_topic_assignments(self, topics: list[str], *, watch: bool) -> TopicAssignments:
        found = TopicAssignments()
        if "orders" in topics:
            partitions = dict.fromkeys(range(self.partitions), ReplicaAssignment((1,)))
            found.found.append(TopicAssignment("orders", TOPIC_ID, partitions))
        return found

    async def get_topic_partition_states(self, topics: list[str], partitions: list[int]) -> list[Any]:
        return [LeaderAndIsr(1, 3, (1,), 2, 0) for _ in topics]


@pytest.mark.parametrize("why", ["out of office", "loading"])
@virtual_time
async def test_a_standby_tells_clients_what_zookeeper_says_and_sends_them_elsewhere(why: str) -> None:
    """A controller that has just won knows no topics yet: they are not unknown for that, and it is one of the nodes.

    Brokers have named it to clients; one that did not name itself would be dropped by them (librdkafka: "Broker
    handle destroyed without termination"), with what they had asked.
    """
    ours = [(1_000_001, "controller")] if why == "loading" else []
    async with front() as it:
        zk = it.shell.zk = Znodes()
        it.shell.context = ControllerContext(4, 4)
        if why == "out of office":
            it.shell.channels = None
        for version in range(13):
            for topics in ((), ("orders", "absent")):
                answer = await metadata(it, version, *topics)
                assert [(b.node_id, b.host) for b in answer.brokers] == [(1, "b1"), *ours]
                controller = 1_000_001 if ours else 1
                assert getattr(answer, "controller_id", controller) == controller
                assert topic_errors(answer) == {"orders": 0} | ({"absent": UNKNOWN} if topics else {})
                assert [p.leader_id for p in answer.topics[0].partitions] == [1, 1]
        assert not it.queue
        assert zk.reads > 1


@pytest.mark.parametrize("listener", ["PLAINTEXT", "OTHER"])
@virtual_time
async def test_standing_by_clients_are_sent_to_the_other_aiocontroller(listener: str) -> None:
    """It was answered as -1, so that administrators' tools found no controller.

    Under a listener that its address is not of, a live broker stands for it, as in UpdateMetadata.
    """
    at = Endpoint("OTHER", "other1", 9099)

    class ActiveZnodes(Znodes):
        async def get_all_brokers_in_cluster(self, *, watch: bool) -> Any:
            return [Broker(1, 7, (Endpoint("PLAINTEXT", "b1", 9092), at))], []

        async def get_controller(self, *, watch: bool) -> Any:
            return ControllerZNode(US + 1, 1, 0, 1, software=SOFTWARE, address="PLAINTEXT://second:9090")

    async with front() as it:
        it.shell.zk = ActiveZnodes()
        it.shell.channels = None
        if listener == "OTHER":
            it.port = (await it.network.serve(lambda: it.listener.connection(at), "127.0.0.1", 0)).port
        host = "other1" if listener == "OTHER" else "second"
        for version in range(1, 13):
            answer = await metadata(it, version)
            assert (answer.brokers[-1].node_id, answer.brokers[-1].host) == (US + 1, host)
            assert answer.controller_id == US + 1
        cluster = await ask(it, ApiKey.DESCRIBE_CLUSTER, 0)
        assert cluster.controller_id == US + 1


@pytest.mark.parametrize("address", ["", "nonsense", "PLAINTEXT://a:1,OTHER://b:2"])
@virtual_time
async def test_standing_by_a_controller_without_an_address_is_no_node(address: str) -> None:
    class ActiveZnodes(Znodes):
        async def get_controller(self, *, watch: bool) -> Any:
            return ControllerZNode(US + 1, 1, 0, 1, software=SOFTWARE, address=address)

    async with front() as it:
        it.shell.zk = ActiveZnodes()
        it.shell.channels = None
        answer = await metadata(it, 9)
        assert (answer.controller_id, [b.node_id for b in answer.brokers]) == (-1, [1])


@pytest.mark.parametrize("holder", [None, BadZNode("/controller", "{", "JSON"), ControllerZNode(US, 1, 0, 1)])
@virtual_time
async def test_a_standby_names_no_controller_where_zookeeper_names_none_or_ourselves(holder: Any) -> None:
    class Vacant(Znodes):
        async def get_controller(self, *, watch: bool) -> Any:
            return holder

    async with front() as it:
        it.shell.zk = Vacant()
        it.shell.channels = None
        answer = await metadata(it, 9)
        assert (answer.controller_id, [b.node_id for b in answer.brokers]) == (-1, [1])


@virtual_time
async def test_a_standby_does_not_read_zookeeper_for_each_request() -> None:
    async with front() as it:
        zk = it.shell.zk = Znodes()
        it.shell.channels = None
        clients = [await it.connect() for _ in range(20)]
        body = cold.encode_request(3, 9, cold.request(ApiKey.METADATA, 9, topics=None))
        for client in clients:
            client.request(ApiKey.METADATA, 9, body)
        await settle()
        assert all(client.frames for client in clients)
        assert zk.reads == 1


@virtual_time
async def test_a_standby_does_not_read_a_large_cluster_for_a_client() -> None:
    async with front() as it:
        it.shell.zk = Znodes(cluster_reader.MAX_PARTITIONS + 1)
        it.shell.channels = None
        client = await it.connect()
        client.request(ApiKey.METADATA, 9, cold.encode_request(3, 9, cold.request(ApiKey.METADATA, 9, topics=None)))
        await settle()
        assert client.closed


@virtual_time
async def test_a_standby_closes_the_connection_when_zookeeper_is_silent() -> None:
    class Silent(Znodes):
        async def get_all_brokers_in_cluster(self, *, watch: bool) -> Any:
            await asyncio.get_running_loop().create_future()

    async with front() as it:
        it.shell.zk = Silent()
        it.shell.channels = None
        client = await it.connect()
        client.request(ApiKey.METADATA, 9, cold.encode_request(3, 9, cold.request(ApiKey.METADATA, 9, topics=None)))
        await asyncio.sleep(cluster_reader.WITHIN_S + 1)
        assert client.closed
