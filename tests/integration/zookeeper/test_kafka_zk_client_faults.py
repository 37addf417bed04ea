"""Every kind of write while the connection is cut under it, before the server has it or after: applied exactly once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from aiozk.protocol.acl import ACL

from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.lab.zookeeper.fault_proxy import Do, FaultProxy
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.client import Create, ZooKeeperClient
from aiocontroller.zookeeper.cluster_znodes import ProducerIdBlock
from aiocontroller.zookeeper.errors import MaybeAppliedError, SessionExpiredError
from aiocontroller.zookeeper.kafka_zk_client import BadZNode, BrokerInfo, KafkaZkClient

MULTI = 14
MakeClient = Callable[..., Awaitable[ZooKeeperClient]]
CUTS = pytest.mark.parametrize("cut", [Do.CUT, Do.CUT_AFTER], ids=["lost-request", "lost-reply"])


class Cutter:
    """Cuts the multis with the given numbers, counted from now."""

    def __init__(self, proxy: FaultProxy, do: Do, *which: int) -> None:
        self._proxy, self._do, self._which = proxy, do, set(which)
        self.seen = 0
        proxy.on_request = self._on_request

    def _on_request(self, _link: int, _xid: int, opcode: int, _frame: bytes) -> Do:
        if opcode != MULTI:
            return Do.PASS
        self.seen += 1
        return self._do if self.seen - 1 in self._which else Do.PASS

    @property
    def hit(self) -> bool:
        return self.seen > max(self._which)


@pytest.fixture
async def zk(make_client: MakeClient) -> KafkaZkClient:
    """Through the proxy."""
    zk = KafkaZkClient(await make_client(timeout_s=6.0))
    await zk.create_top_level_paths()
    return zk


@pytest.fixture
async def other(make_client: MakeClient) -> KafkaZkClient:
    """Past the proxy."""
    return KafkaZkClient(await make_client(direct=True))


@pytest.fixture
async def fence(zk: KafkaZkClient) -> int:
    return (await zk.register_controller_and_increment_controller_epoch(1, 1))[1]


def broker_info(broker_id: int) -> BrokerInfo:
    return BrokerInfo(Broker(broker_id, 0, (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)), 1)


@CUTS
@pytest.mark.parametrize("takeover", [False, True])
@pytest.mark.parametrize("which", [(0,), (0, 1), (1,)])
async def test_election(
    zk: KafkaZkClient, other: KafkaZkClient, proxy: FaultProxy, cut: Do, takeover: bool, which: tuple[int, ...]
) -> None:
    """The first multi creates the epoch's znode (when there was no controller before), the last one is the election."""
    epoch = 0
    if takeover:
        epoch, _ = await other.register_controller_and_increment_controller_epoch(1, 0)
    cutter = Cutter(proxy, cut, *which)
    won = await zk.register_controller_and_increment_controller_epoch(1, 0, takeover=takeover)
    assert cutter.hit or takeover
    assert won == (epoch + 1, epoch + 1)
    assert await other.get_controller_epoch() == won
    # and the fence that was handed out is the true one
    await zk.delete_topic_deletions(["nothing"], fence=won[1])
    if takeover:
        with pytest.raises(ControllerMovedError):
            await other.delete_controller(epoch)


@CUTS
async def test_a_lost_election_stays_lost(zk: KafkaZkClient, other: KafkaZkClient, proxy: FaultProxy, cut: Do) -> None:
    """Our multi arrives after the other's, and its answer (NodeExists) is lost."""
    await other.register_controller_and_increment_controller_epoch(1, 0)
    await other.delete_controller(1)
    cutter = Cutter(proxy, cut, 0)
    multi = zk.client.multi

    async def too_late(ops):
        zk.client.multi = multi
        await other.register_controller_and_increment_controller_epoch(1, 0)
        return await multi(ops)

    zk.client.multi = too_late
    with pytest.raises(ControllerMovedError):
        await zk.register_controller_and_increment_controller_epoch(1, 0)
    assert cutter.hit
    assert await other.get_controller_epoch() == (2, 2)


async def test_an_election_does_not_slip_into_the_next_session(zk: KafkaZkClient, other: KafkaZkClient) -> None:
    """Its caller is about to hear that the session is over, and would give up a role that the next one holds."""
    multi = zk.client.multi

    async def expired_in_between(ops):
        zk.client.multi = multi
        await expire_session(zk.client)
        while zk.client.session_epoch < 2:
            await asyncio.sleep(0.01)
        raise MaybeAppliedError("lost by the test")

    await zk.register_controller_and_increment_controller_epoch(1, 0)
    zk.client.multi = expired_in_between
    with pytest.raises(SessionExpiredError):
        await zk.register_controller_and_increment_controller_epoch(1, 0, takeover=True)
    assert await other.get_controller() is None
    assert await zk.register_controller_and_increment_controller_epoch(1, 0) == (2, 2)


@CUTS
async def test_broker_registration(zk: KafkaZkClient, other: KafkaZkClient, proxy: FaultProxy, cut: Do) -> None:
    cutter = Cutter(proxy, cut, 0)
    epoch = await zk.register_broker(broker_info(1))
    assert cutter.hit
    broker = await other.get_broker(1)
    assert isinstance(broker, Broker)
    assert broker.epoch == epoch


@CUTS
async def test_the_life_of_partitions(
    zk: KafkaZkClient, other: KafkaZkClient, proxy: FaultProxy, cut: Do, fence: int
) -> None:
    count = 1100
    names = ["t"] * count
    admin = AdminZkClient(zk, fence=fence)
    Cutter(proxy, cut, 1)
    await admin.create_topic("t", dict.fromkeys(range(count), (1, 2)))
    Cutter(proxy, cut, 0)
    await admin.alter_topic_configs("t", {"flush.ms": "1"})
    assert await zk.get_topic_configs(["t"]) == {"t": {"flush.ms": "1"}}

    cutter = Cutter(proxy, cut, 1, 3)
    states = [LeaderAndIsr(1, 0, (1, 2), 1, 0)] * count
    created = await zk.create_topic_partition_states(names, range(count), states, fence=fence)
    assert cutter.hit
    assert created.code == [0] * count
    assert await other.get_topic_partition_states(names, range(count)) == states

    cutter = Cutter(proxy, cut, 0, 2)
    wanted = [LeaderAndIsr(2, 1, (2,), 1, 0)] * count
    written = await zk.set_topic_partition_states(names, range(count), wanted, fence=fence)
    assert cutter.hit
    assert (written.code, written.version) == ([0] * count, [1] * count)
    assert await other.get_topic_partition_states(names, range(count)) == [LeaderAndIsr(2, 1, (2,), 1, 1)] * count

    cutter = Cutter(proxy, cut, 0)
    moved = TopicAssignment("t", bytes(16), {n: ReplicaAssignment((2, 1)) for n in range(count)}, 0)
    assert (await zk.set_topic_assignments([moved], fence=fence)).version == [1]
    assert cutter.hit

    cutter = Cutter(proxy, cut, 0, 3)
    await zk.delete_topic_znodes(["t"], fence=fence)
    assert cutter.hit
    assert await other.get_all_topics_in_cluster() == []


@CUTS
async def test_requests_and_notifications(
    zk: KafkaZkClient, other: KafkaZkClient, proxy: FaultProxy, cut: Do, fence: int
) -> None:
    tp = TopicPartition("t", 0)
    Cutter(proxy, cut, 0)
    await zk.set_or_create_partition_reassignment({tp: (1,)}, fence=fence)
    Cutter(proxy, cut, 0)
    await zk.set_or_create_partition_reassignment({tp: (2,)}, fence=fence)
    assert await other.get_partition_reassignment() == {tp: (2,)}
    Cutter(proxy, cut, 0)
    await zk.delete_partition_reassignment(fence=fence)
    assert await other.get_partition_reassignment() is None
    Cutter(proxy, cut, 0)
    assert await zk.set_latest_producer_id_block(ProducerIdBlock(1, 0, 999), 0, fence=fence)
    assert await other.get_latest_producer_id_block() == (ProducerIdBlock(1, 0, 999), 1)
    Cutter(proxy, cut, 0)
    await zk.propagate_isr_changes([tp])
    names = await other.get_all_isr_change_notifications()
    assert len(names) == (1 if cut is Do.CUT else 2)  # a lost reply may tell it twice, never not at all
    assert await other.get_partitions_from_isr_change_notifications(names) == ([tp], [])
    Cutter(proxy, cut, 0)
    await zk.delete_isr_change_notifications(names, fence=fence)
    assert await other.get_all_isr_change_notifications() == []
    Cutter(proxy, cut, 0)
    await zk.delete_controller(fence)
    assert await other.get_controller() is None


async def test_elections_while_links_break(make_client: MakeClient, proxy: FaultProxy) -> None:
    """Three candidates, every tenth multi cut one way or the other: each epoch is won exactly once."""
    chance = random.Random(11)

    def sometimes(_link: int, _xid: int, opcode: int, _frame: bytes) -> Do:
        if opcode != MULTI or chance.random() > 0.25:
            return Do.PASS
        return Do.CUT if chance.random() < 0.5 else Do.CUT_AFTER

    candidates = [KafkaZkClient(await make_client(timeout_s=10.0)) for _ in range(3)]
    proxy.on_request = sometimes
    won: list[int] = []

    async def campaign(zk: KafkaZkClient) -> None:
        while len(won) < 25:
            try:
                epoch, fence = await zk.register_controller_and_increment_controller_epoch(1, 0)
            except ControllerMovedError:
                await asyncio.sleep(0)
                continue
            won.append(epoch)
            assert fence == epoch
            await zk.delete_controller(fence)

    async with asyncio.timeout(30):
        await asyncio.gather(*map(campaign, candidates))
    proxy.on_request = None
    assert len(set(won)) == len(won)
    # an epoch without a winner is one whose candidate's reply was lost and whose role was taken back as a leftover
    assert await candidates[0].get_controller_epoch() == (max(won), max(won))
    assert sorted(won) == won


async def test_what_the_server_refuses_to_show_is_bad_by_itself(zk: KafkaZkClient, fence: int) -> None:
    unreadable = [ACL.make("digest", "x:y", read=True)]
    for path in ("/brokers/topics/secret", "/brokers/ids/7", "/config/topics/secret"):
        assert (await zk.client.write_many([Create(path, b"{}", acl=unreadable)], fence=None)).ok
    [bad] = (await zk.get_topic_assignments(["secret"], watch=False)).bad
    assert (bad.path, bad.expected) == ("/brokers/topics/secret", "a znode that we may read")
    assert "NO_AUTH (-102)" in bad.found
    assert [b.path for b in (await zk.get_all_brokers_in_cluster(watch=False))[1]] == ["/brokers/ids/7"]
    assert [b.path for b in (await zk.get_topic_configs(["secret"])).bad] == ["/config/topics/secret"]
    assert isinstance(await zk.get_broker(7, watch=False), BadZNode)
