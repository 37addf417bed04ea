"""The typed client on a real and on the modelled ZooKeeper: elections, fences, registrations, columns, watches."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from aiocontroller.chaos.zookeeper_server import ZooKeeperServer
from aiocontroller.core.errors import BadInputError, ControllerMovedError
from aiocontroller.core.ids import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.client import Create, Delete, SetData, ZooKeeperClient
from aiocontroller.zookeeper.cluster_znodes import FeatureZNode, ProducerIdBlock
from aiocontroller.zookeeper.errors import Code, MaybeAppliedError, NotSentError
from aiocontroller.zookeeper.kafka_zk_client import BadZNode, BrokerInfo, Change, ControllerZNode, KafkaZkClient
from aiocontroller.zookeeper.registration import BrokerIdInUseError
from aiocontroller.zookeeper.znodes import encode_partition_states

NO_NODE, BAD_VERSION, NODE_EXISTS = int(Code.NO_NODE), int(Code.BAD_VERSION), int(Code.NODE_EXISTS)
TP = TopicPartition

Connect = Callable[[], Awaitable[KafkaZkClient]]


class Changes:
    """What ``on_change`` told, in order; ``next()`` waits with a bound."""

    def __init__(self, zk: KafkaZkClient) -> None:
        self._queue: asyncio.Queue[tuple[Change, str]] = asyncio.Queue()
        zk.on_change = lambda change, name: self._queue.put_nowait((change, name))

    async def next(self) -> tuple[Change, str]:
        async with asyncio.timeout(5):
            return await self._queue.get()

    def empty(self) -> bool:
        return self._queue.empty()


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


async def put(zk: KafkaZkClient, path: str, data: bytes = b"") -> None:
    """As somebody else would write it."""
    writes = await zk.client.write_many([Create(path, data)], fence=None)
    assert writes.code == [0], path


async def data_of(zk: KafkaZkClient, path: str) -> bytes | None:
    reads = await zk.client.get_many([path])
    assert reads.code == [0], path
    return reads.data[0]


async def exists(zk: KafkaZkClient, path: str) -> bool:
    return (await zk.client.exists_many([path])).code == [0]


def topic(name: str, *replicas: tuple[int, ...]) -> TopicAssignment:
    return TopicAssignment(name, bytes(range(16)), {i: ReplicaAssignment(r) for i, r in enumerate(replicas)})


async def put_topic(zk: KafkaZkClient, assignment: TopicAssignment) -> None:
    from aiocontroller.zookeeper.znodes import encode_topic

    await put(zk, f"/brokers/topics/{assignment.topic}", encode_topic(assignment))


def broker_info(broker_id: int) -> BrokerInfo:
    return BrokerInfo(Broker(broker_id, 0, (Endpoint("PLAINTEXT", "127.0.0.1", 9092 + broker_id),), "r1"), 17)


class Lossy:
    """Stands for ``client.multi`` once: carries the multi out, or not, and loses the reply."""

    def __init__(self, zk: KafkaZkClient, *, applied: bool, error: type[Exception] = MaybeAppliedError) -> None:
        self._multi = zk.client.multi
        self._client = zk.client
        self._applied = applied
        self._error = error
        zk.client.multi = self  # type: ignore[method-assign]

    async def __call__(self, ops):
        self._client.multi = self._multi
        if self._applied:
            await self._multi(ops)
        raise self._error("lost by the test")


class TestElection:
    async def test_first_epoch_is_1_at_version_1(self, zk: KafkaZkClient) -> None:
        assert await zk.get_controller_epoch() is None
        assert await zk.register_controller_and_increment_controller_epoch(7, 1234) == (1, 1)
        assert await zk.get_controller_epoch() == (1, 1)
        assert await zk.get_controller() == ControllerZNode(7, zk.client.session_id, 1234, 0, -1, "aiocontroller")

    async def test_second_is_refused_and_nothing_is_written(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        await zk.register_controller_and_increment_controller_epoch(7, 0)
        with pytest.raises(ControllerMovedError, match="held by session 0x"):
            await other.register_controller_and_increment_controller_epoch(7, 0)
        assert await other.get_controller_epoch() == (1, 1)

    async def test_races_have_one_winner_and_epochs_rise_by_one(self, connect: Connect) -> None:
        clients = [await connect() for _ in range(6)]
        for round_ in range(1, 9):
            outcomes = await asyncio.gather(
                *(zk.register_controller_and_increment_controller_epoch(5, round_) for zk in clients),
                return_exceptions=True,
            )
            won = [o for o in outcomes if isinstance(o, tuple)]
            assert len(won) == 1, outcomes
            assert all(isinstance(o, tuple | ControllerMovedError) for o in outcomes), outcomes
            epoch, fence = won[0]
            assert (epoch, fence) == (round_, round_)
            await clients[outcomes.index(won[0])].delete_controller(fence)

    async def test_takeovers_race_without_losing_an_epoch(self, connect: Connect) -> None:
        clients = [await connect() for _ in range(4)]
        outcomes = await asyncio.gather(
            *(zk.register_controller_and_increment_controller_epoch(5, 0, takeover=True) for zk in clients)
        )
        assert sorted(epoch for epoch, _ in outcomes) == [1, 2, 3, 4]
        last = clients[[epoch for epoch, _ in outcomes].index(4)]
        holder = await last.get_controller()
        assert isinstance(holder, ControllerZNode)
        assert holder.owner_session == last.client.session_id

    async def test_takeover_shows_observers_one_event(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        changes = Changes(zk)
        await zk.register_controller_and_increment_controller_epoch(7, 0)
        await zk.get_controller()
        assert await other.register_controller_and_increment_controller_epoch(8, 0, takeover=True) == (2, 2)
        assert await changes.next() == (Change.CONTROLLER_DELETED, "")
        holder = await zk.get_controller()
        assert isinstance(holder, ControllerZNode)
        assert holder.controller_id == 8
        assert changes.empty()
        # the deposed controller cannot give away what it does not hold
        with pytest.raises(ControllerMovedError):
            await zk.delete_controller(1)

    async def test_takeover_from_a_damaged_znode(self, zk: KafkaZkClient) -> None:
        await put(zk, "/controller", b"junk")
        assert isinstance(await zk.get_controller(), BadZNode)
        with pytest.raises(ControllerMovedError):
            await zk.register_controller_and_increment_controller_epoch(8, 0)
        assert await zk.register_controller_and_increment_controller_epoch(8, 0, takeover=True) == (1, 1)

    async def test_a_kraft_controller_is_left_alone(self, zk: KafkaZkClient) -> None:
        await put(zk, "/controller", b'{"version":2,"brokerid":3000,"timestamp":"1","kraftControllerEpoch":4}')
        with pytest.raises(ControllerMovedError, match="migrated"):
            await zk.register_controller_and_increment_controller_epoch(8, 0, takeover=True)
        assert await exists(zk, "/controller")

    async def test_our_own_leftover_is_replaced(self, zk: KafkaZkClient) -> None:
        await zk.register_controller_and_increment_controller_epoch(8, 0)
        assert await zk.register_controller_and_increment_controller_epoch(8, 0) == (2, 2)

    @pytest.mark.parametrize("takeover", [False, True])
    async def test_lost_reply_to_a_won_election(self, zk: KafkaZkClient, connect: Connect, takeover: bool) -> None:
        if takeover:
            other = await connect()
            await other.register_controller_and_increment_controller_epoch(7, 0)
        before = 1 if takeover else 0
        await zk.client.ensure_path("/brokers")
        if not takeover:
            await put(zk, "/controller_epoch", b"0")
        Lossy(zk, applied=True)
        won = await zk.register_controller_and_increment_controller_epoch(8, 0, takeover=takeover)
        assert won == (before + 1, before + 1)
        assert await zk.get_controller_epoch() == won

    async def test_lost_request_is_tried_again(self, zk: KafkaZkClient) -> None:
        await put(zk, "/controller_epoch", b"41")
        Lossy(zk, applied=False)
        assert await zk.register_controller_and_increment_controller_epoch(8, 0) == (42, 1)
        await zk.delete_controller(1)
        Lossy(zk, applied=False, error=NotSentError)
        assert await zk.register_controller_and_increment_controller_epoch(8, 0) == (43, 2)

    async def test_lost_reply_while_another_wins(self, zk: KafkaZkClient, connect: Connect) -> None:
        """The same id, as two controllers outside the brokers have: only the owner tells them apart."""
        other = await connect()
        await put(zk, "/controller_epoch", b"0")
        multi = zk.client.multi

        async def lost_to_the_other(ops):
            zk.client.multi = multi
            await other.register_controller_and_increment_controller_epoch(8, 0)
            raise MaybeAppliedError("lost by the test")

        zk.client.multi = lost_to_the_other
        with pytest.raises(ControllerMovedError):
            await zk.register_controller_and_increment_controller_epoch(8, 0)
        assert await zk.get_controller_epoch() == (1, 1)

    async def test_damaged_epoch_is_an_error_that_names_it(self, zk: KafkaZkClient) -> None:
        await put(zk, "/controller_epoch", b"seven")
        with pytest.raises(BadInputError, match="/controller_epoch is unreadable: found seven"):
            await zk.register_controller_and_increment_controller_epoch(8, 0)

    async def test_giving_the_role_back(self, zk: KafkaZkClient, fence: int) -> None:
        await zk.delete_controller(fence)
        await zk.delete_controller(fence)  # gone already is fine
        assert await zk.get_controller() is None


class TestFence:
    async def test_a_stale_fence_applies_nothing(self, zk: KafkaZkClient, connect: Connect, fence: int) -> None:
        assignment = topic("t", (1, 2))
        await put_topic(zk, assignment)
        await put(zk, "/admin/delete_topics/t")
        await put(zk, "/config/topics/t")
        await put(zk, "/isr_change_notification/isr_change_0000000000")
        await put(zk, "/log_dir_event_notification/log_dir_event_0000000000")
        await put(zk, "/admin/preferred_replica_election")
        await put(zk, "/admin/reassign_partitions")
        state = LeaderAndIsr(1, 0, (1, 2), 1, 0)
        assert (await zk.create_topic_partition_states(["t"], [0], [state], fence=fence)).ok
        before = await zk.client.all_children_number("/")
        await (await connect()).register_controller_and_increment_controller_epoch(9, 0, takeover=True)
        writes: list[Awaitable[object]] = [
            zk.set_topic_assignments([assignment], fence=fence),
            zk.create_topic_partition_states(["t"], [1], [state], fence=fence),
            zk.set_topic_partition_states(["t"], [0], [state], fence=fence),
            zk.delete_isr_change_notifications(["isr_change_0000000000"], fence=fence),
            zk.delete_log_dir_event_notifications(["log_dir_event_0000000000"], fence=fence),
            zk.delete_topic_deletions(["t"], fence=fence),
            zk.delete_topic_znodes(["t"], fence=fence),
            zk.delete_topic_configs(["t"], fence=fence),
            zk.set_or_create_partition_reassignment({TP("t", 0): (1,)}, fence=fence),
            zk.delete_partition_reassignment(fence=fence),
            zk.delete_preferred_replica_election(fence=fence),
            zk.delete_controller(fence),
            zk.set_latest_producer_id_block(ProducerIdBlock(1, 0, 999), 0, fence=fence),
            zk.set_feature(FeatureZNode(2, 1, {}), -1, fence=fence),
        ]
        for write in writes:
            with pytest.raises(ControllerMovedError):
                await write
        assert await zk.client.all_children_number("/") == before
        assert await data_of(zk, "/admin/reassign_partitions") == b""
        [found] = await zk.get_topic_partition_states(["t"], [0])
        assert found == state
        assert [t.version for t in (await zk.get_topic_assignments(["t"])).found] == [0]


class TestBrokers:
    async def test_register_and_read(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        epochs = [await zk.register_broker(broker_info(10)), await other.register_broker(broker_info(9))]
        assert epochs[0] < epochs[1]
        brokers, bad = await zk.get_all_brokers_in_cluster()
        assert bad == []
        assert [(b.id, b.epoch, b.rack) for b in brokers] == [(9, epochs[1], "r1"), (10, epochs[0], "r1")]
        assert await zk.get_broker(9) == brokers[0]
        assert await zk.get_broker(8) is None

    async def test_registering_twice_keeps_the_epoch(self, zk: KafkaZkClient) -> None:
        assert await zk.register_broker(broker_info(1)) == await zk.register_broker(broker_info(1))

    async def test_an_id_in_use(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        await zk.register_broker(broker_info(1))
        with pytest.raises(BrokerIdInUseError, match="broker id 1 is registered by session 0x"):
            await other.register_broker(broker_info(1))

    @pytest.mark.parametrize("applied", [True, False])
    async def test_lost_reply(self, zk: KafkaZkClient, applied: bool) -> None:
        Lossy(zk, applied=applied)
        epoch = await zk.register_broker(broker_info(1))
        broker = await zk.get_broker(1)
        assert isinstance(broker, Broker)
        assert broker.epoch == epoch

    async def test_leftover_of_our_expired_session_is_replaced(self, zk: KafkaZkClient, connect: Connect) -> None:
        """KAFKA-7165: the server forgot to remove the ephemeral of our previous session."""
        other = await connect()  # plays the previous session
        stale = await other.register_broker(broker_info(1))
        zk._broker_session = other.client.session_id
        assert await zk.register_broker(broker_info(1)) > stale

    async def test_bad_ones_cost_only_themselves(self, zk: KafkaZkClient) -> None:
        await put(zk, "/brokers/ids/2", b'{"version":5}')
        await put(zk, "/brokers/ids/x", b"{}")
        await zk.register_broker(broker_info(1))
        brokers, bad = await zk.get_all_brokers_in_cluster()
        assert [b.id for b in brokers] == [1]
        assert sorted(b.path for b in bad) == ["/brokers/ids/2", "/brokers/ids/x"]
        assert isinstance(await zk.get_broker(2), BadZNode)


class TestTopics:
    async def test_read(self, zk: KafkaZkClient) -> None:
        good = topic("a", (1, 2), (2, 1))
        await put_topic(zk, good)
        await put(zk, "/brokers/topics/bad", b'{"partitions":{"-5":[1]}}')
        await put(zk, "/brokers/topics/worse", b'{"partitions":{"0":[1,1]}}')
        assert await zk.get_all_topics_in_cluster() == ["a", "bad", "worse"]
        found = await zk.get_topic_assignments(["worse", "gone", "a", "bad"])
        assert found.found == [good]
        assert found.missing == ["gone"]
        assert [b.path for b in found.bad] == ["/brokers/topics/worse", "/brokers/topics/bad"]

    async def test_rewrite_expects_the_version(self, zk: KafkaZkClient, fence: int) -> None:
        await put_topic(zk, topic("a", (1,)))
        await put_topic(zk, topic("b", (1,)))
        moved = TopicAssignment("a", bytes(16), {0: ReplicaAssignment((1, 2), (2,), (1,))}, 0)
        stale = TopicAssignment("b", bytes(16), {0: ReplicaAssignment((2,))}, 3)
        writes = await zk.set_topic_assignments([moved, stale], fence=fence)
        assert writes.code == [0, BAD_VERSION]
        assert writes.version[0] == 1
        found = (await zk.get_topic_assignments(["a", "b"])).found
        assert found[0].partitions == moved.partitions
        assert found[1] == topic("b", (1,))

    async def test_deletion_takes_everything_below(self, zk: KafkaZkClient, fence: int) -> None:
        await put_topic(zk, topic("a", (1,)))
        await put_topic(zk, topic("ab", (1,)))
        states = [LeaderAndIsr(1, 0, (1,), 1, 0)] * 40
        assert (await zk.create_topic_partition_states(["a"] * 40, range(40), states, fence=fence)).ok
        await put(zk, "/config/topics/a", b'{"version":1,"config":{}}')
        await put(zk, "/admin/delete_topics/a")
        await zk.delete_topic_znodes(["a"], fence=fence)
        await zk.delete_topic_configs(["a", "never"], fence=fence)
        await zk.delete_topic_deletions(["a", "never"], fence=fence)
        await zk.delete_topic_znodes(["a"], fence=fence)  # again: gone is fine
        assert await zk.get_all_topics_in_cluster() == ["ab"]
        assert await zk.get_topic_deletions() == []
        assert not await exists(zk, "/config/topics/a")

    async def test_configs(self, zk: KafkaZkClient) -> None:
        await put(zk, "/config/topics/a", b'{"version":1,"config":{"unclean.leader.election.enable":"true"}}')
        await put(zk, "/config/topics/bad", b'{"config":5}')
        configs = await zk.get_topic_configs(["a", "none", "bad"])
        assert configs == {"a": {"unclean.leader.election.enable": "true"}, "none": {}}
        assert [b.path for b in configs.bad] == ["/config/topics/bad"]


class TestPartitionStates:
    async def test_create_read_set(self, zk: KafkaZkClient, fence: int) -> None:
        for name in ("a", "b"):
            await put_topic(zk, topic(name, (1, 2)))
        topics, partitions = ["a", "a", "b"], [0, 1, 0]
        states = [LeaderAndIsr(1, 0, (1, 2), 1, 0), LeaderAndIsr(2, 0, (2,), 1, 0, 1), LeaderAndIsr(-1, 0, (1,), 1, 0)]
        created = await zk.create_topic_partition_states(topics, partitions, states, fence=fence)
        assert (created.code, created.version) == ([0, 0, 0], [0, 0, 0])
        assert await zk.get_topic_partition_states([*topics, "b"], [*partitions, 9]) == [*states, None]
        next_states = [LeaderAndIsr(2, 1, (2,), 1, 0), LeaderAndIsr(1, 1, (1,), 1, 7), LeaderAndIsr(1, 1, (1,), 1, 0)]
        written = await zk.set_topic_partition_states(["a", "a", "c"], partitions, next_states, fence=fence)
        assert written.code == [0, BAD_VERSION, NO_NODE]
        assert written.version[0] == 1
        assert written.largest > sum(len(data) for data in encode_partition_states(next_states))
        first, second = await zk.get_topic_partition_states(["a", "a"], [0, 1])
        assert first == LeaderAndIsr(2, 1, (2,), 1, 1)
        assert second == states[1]

    async def test_create_meets_what_exists_and_what_is_gone(self, zk: KafkaZkClient, fence: int) -> None:
        for name in ("a", "b", "d"):
            await put_topic(zk, topic(name, (1,)))
        await put(zk, "/brokers/topics/b/partitions")
        await put(zk, "/brokers/topics/b/partitions/1")  # a parent without a state
        state = LeaderAndIsr(1, 0, (1,), 1, 0)
        assert (await zk.create_topic_partition_states(["a"], [0], [state], fence=fence)).ok
        other = LeaderAndIsr(2, 5, (2,), 1, 0)
        created = await zk.create_topic_partition_states(
            ["a", "a", "gone", "b", "b", "d"], [0, 1, 0, 0, 1, 0], [other] * 6, fence=fence
        )
        assert created.code == [NODE_EXISTS, 0, NO_NODE, 0, 0, 0]
        assert created.version == [-1, 0, -1, 0, 0, 0]
        assert await zk.get_topic_partition_states(["a"], [0]) == [state]

    async def test_many_with_conflicts_everywhere(self, zk: KafkaZkClient, fence: int) -> None:
        """Batches torn by parents that are there already must not lose their neighbours."""
        count = 900
        await put_topic(zk, topic("t", (1,)))
        await put(zk, "/brokers/topics/t/partitions")
        ops = [Create(f"/brokers/topics/t/partitions/{i}") for i in range(0, count, 7)]
        assert (await zk.client.write_many(ops, fence=None)).ok
        states = [LeaderAndIsr(i % 5, 0, (i % 5, 9), 1, 0) for i in range(count)]
        created = await zk.create_topic_partition_states(["t"] * count, range(count), states, fence=fence)
        assert created.code == [0] * count
        assert await zk.get_topic_partition_states(["t"] * count, range(count)) == states
        chance = random.Random(5)
        stale = [chance.random() < 0.1 for _ in range(count)]
        wanted = [LeaderAndIsr(3, 1, (3,), 1, 4 if old else 0) for old in stale]
        written = await zk.set_topic_partition_states(["t"] * count, range(count), wanted, fence=fence)
        assert written.code == [BAD_VERSION if old else 0 for old in stale]

    async def test_slices(self, zk: KafkaZkClient, fence: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("aiocontroller.zookeeper.kafka_zk_client.SLICE", 7)
        await put_topic(zk, topic("t", (1,)))
        states = [LeaderAndIsr(i, 0, (i,), 1, 0) for i in range(30)]
        assert (await zk.create_topic_partition_states(["t"] * 30, range(30), states, fence=fence)).ok
        assert await zk.get_topic_partition_states(["t"] * 30, range(30)) == states
        written = await zk.set_topic_partition_states(["t"] * 30, range(30), states, fence=fence)
        assert written.version == [1] * 30

    async def test_damage_in_its_place(self, zk: KafkaZkClient, fence: int) -> None:
        await put_topic(zk, topic("t", (1,)))
        state = LeaderAndIsr(1, 0, (1,), 1, 0)
        assert (await zk.create_topic_partition_states(["t"] * 3, range(3), [state] * 3, fence=fence)).ok
        await zk.client.write_many([SetData("/brokers/topics/t/partitions/1/state", b"\xff\x00", 0)], fence=None)
        await zk.client.write_many([Delete("/brokers/topics/t/partitions/2/state")], fence=None)
        found = await zk.get_topic_partition_states(["t"] * 3, range(3))
        assert found[0] == state
        assert isinstance(found[1], BadZNode)
        assert found[1].path == "/brokers/topics/t/partitions/1/state"
        assert found[2] is None


class TestNotifications:
    async def test_isr_changes(self, zk: KafkaZkClient, fence: int) -> None:
        changes = Changes(zk)
        assert await zk.get_all_isr_change_notifications() == []
        await zk.propagate_isr_changes([TP("t", 1), TP("t", 0)])
        assert await changes.next() == (Change.ISR_CHANGE, "")
        await zk.propagate_isr_changes([TP("u", 0), TP("t", 1)])
        await put(zk, "/isr_change_notification/isr_change_9999999999", b"junk")
        names = await zk.get_all_isr_change_notifications()
        assert len(names) == 3
        partitions, bad = await zk.get_partitions_from_isr_change_notifications([*names, "isr_change_gone"])
        assert partitions == [TP("t", 1), TP("t", 0), TP("u", 0)]
        assert [b.path for b in bad] == ["/isr_change_notification/isr_change_9999999999"]
        await zk.delete_isr_change_notifications([*names, "isr_change_gone"], fence=fence)
        assert await zk.get_all_isr_change_notifications(watch=False) == []

    async def test_log_dir_events(self, zk: KafkaZkClient, fence: int) -> None:
        changes = Changes(zk)
        assert await zk.get_all_log_dir_event_notifications() == []
        for broker in (3, 1, 3):
            await zk.propagate_log_dir_event(broker)
        assert await changes.next() == (Change.LOG_DIR_EVENT, "")
        await put(zk, "/log_dir_event_notification/log_dir_event_9999999999", b"{}")
        names = await zk.get_all_log_dir_event_notifications()
        brokers, bad = await zk.get_brokers_from_log_dir_event_notifications(names)
        assert brokers == [3, 1]
        assert len(bad) == 1
        await zk.delete_log_dir_event_notifications(names, fence=fence)
        assert await zk.get_all_log_dir_event_notifications(watch=False) == []

    async def test_config_changes(self, zk: KafkaZkClient) -> None:
        changes = Changes(zk)
        assert await zk.get_all_config_changes() == []
        await zk.create_config_change_notification("topics/t")
        assert await changes.next() == (Change.CONFIG_CHANGES, "")
        await put(
            zk, "/config/changes/config_change_5", b'{"version":1,"entity_type":"clients","entity_name":"<default>"}'
        )
        await put(zk, "/config/changes/config_change_6", b"[]")
        names = await zk.get_all_config_changes()
        entities, bad = await zk.get_entities_from_config_changes(names)
        assert entities == ["topics/t", "clients/<default>"]
        assert len(bad) == 1

    async def test_notification_whose_reply_is_lost_is_sent_again(self, connect: Connect) -> None:
        zk = await connect()  # without top-level paths: they are made on the way
        Lossy(zk, applied=False)
        await zk.propagate_log_dir_event(3)
        assert len(await zk.get_all_log_dir_event_notifications()) == 1


class TestAdminRequests:
    async def test_reassignment(self, zk: KafkaZkClient, fence: int) -> None:
        assert await zk.get_partition_reassignment() is None
        await zk.set_or_create_partition_reassignment({TP("t", 0): (1, 2), TP("u", 1): (3,)}, fence=fence)
        assert await zk.get_partition_reassignment() == {TP("t", 0): (1, 2), TP("u", 1): (3,)}
        await zk.set_or_create_partition_reassignment({TP("u", 1): (3,)}, fence=fence)
        assert await zk.get_partition_reassignment() == {TP("u", 1): (3,)}
        await zk.delete_partition_reassignment(fence=fence)
        await zk.delete_partition_reassignment(fence=fence)
        assert await zk.get_partition_reassignment() is None
        await put(zk, "/admin/reassign_partitions", b"{}")
        assert isinstance(await zk.get_partition_reassignment(), BadZNode)

    async def test_preferred_election(self, zk: KafkaZkClient, fence: int) -> None:
        assert await zk.get_preferred_replica_election() is None
        await put(zk, "/admin/preferred_replica_election", b'{"partitions":[{"topic":"t","partition":3}]}')
        assert await zk.get_preferred_replica_election() == [TP("t", 3)]
        await zk.delete_preferred_replica_election(fence=fence)
        await put(zk, "/admin/preferred_replica_election", b'{"partitions":{}}')
        assert isinstance(await zk.get_preferred_replica_election(), BadZNode)


class TestCluster:
    async def test_cluster_id_is_the_first_proposed(self, connect: Connect) -> None:
        clients = [await connect() for _ in range(3)]
        assert await clients[0].get_cluster_id() is None
        found = await asyncio.gather(*(zk.create_or_get_cluster_id(f"id-{i}") for i, zk in enumerate(clients)))
        assert len(set(found)) == 1
        assert await clients[0].get_cluster_id() == found[0]

    async def test_top_level_paths_by_several_at_once(self, connect: Connect) -> None:
        clients = [await connect() for _ in range(3)]
        await asyncio.gather(*(zk.create_top_level_paths() for zk in clients))
        assert await clients[0].client.all_children_number("/") == 17

    async def test_producer_id_blocks_are_compare_and_set(self, zk: KafkaZkClient, fence: int) -> None:
        assert await zk.get_latest_producer_id_block() == (None, 0)
        first = ProducerIdBlock(1, 0, 999)
        assert await zk.set_latest_producer_id_block(first, 0, fence=fence)
        assert not await zk.set_latest_producer_id_block(ProducerIdBlock(2, 0, 999), 0, fence=fence)
        assert await zk.get_latest_producer_id_block() == (first, 1)

    async def test_features(self, zk: KafkaZkClient) -> None:
        assert await zk.get_feature() == (None, -1)
        assert await zk.set_feature(FeatureZNode(2, 1, {}), -1)
        assert not await zk.set_feature(FeatureZNode(2, 0, {}), -1)
        assert await zk.get_feature() == (FeatureZNode(2, 1, {}), 0)
        assert await zk.set_feature(FeatureZNode(1, 0, {"f": 2}), 0)
        assert await zk.get_feature() == (FeatureZNode(1, 0, {"f": 2}), 1)

    async def test_migration(self, zk: KafkaZkClient) -> None:
        assert await zk.get_migration() is None
        await put(zk, "/migration", b"{}")
        assert isinstance(await zk.get_migration(), BadZNode)


class TestWatches:
    async def test_each_kind_is_told_once_and_armed_again_by_reading(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        await put_topic(other, topic("t", (1,)))
        await other.register_broker(broker_info(1))
        steps: list[tuple[Callable[[], Awaitable[object]], Awaitable[object], tuple[Change, str]]] = [
            (zk.get_controller, put(other, "/controller", b"{}"), (Change.CONTROLLER_CHANGED, "")),
            (
                zk.get_controller,
                other.client.write_many([SetData("/controller", b"{1}")], fence=None),
                (Change.CONTROLLER_CHANGED, ""),
            ),
            (
                zk.get_controller,
                other.client.write_many([Delete("/controller")], fence=None),
                (Change.CONTROLLER_DELETED, ""),
            ),
            (
                zk.get_all_brokers_in_cluster,
                other.client.write_many([SetData("/brokers/ids/1", b"{}")], fence=None),
                (Change.BROKER, "1"),
            ),
            (
                lambda: zk.get_broker(1),
                other.client.write_many([SetData("/brokers/ids/1", b"")], fence=None),
                (Change.BROKER, "1"),
            ),
            (zk.get_all_brokers_in_cluster, other.register_broker(broker_info(2)), (Change.BROKER_IDS, "")),
            (
                zk.get_all_brokers_in_cluster,
                other.client.write_many([Delete("/brokers/ids/1")], fence=None),
                (Change.BROKER_IDS, ""),
            ),
            (zk.get_all_topics_in_cluster, put_topic(other, topic("u", (1,))), (Change.TOPICS, "")),
            (
                lambda: zk.get_topic_assignments(["t"]),
                other.client.write_many([SetData("/brokers/topics/t", b"{}")], fence=None),
                (Change.TOPIC, "t"),
            ),
            (zk.get_topic_deletions, put(other, "/admin/delete_topics/t"), (Change.TOPIC_DELETIONS, "")),
            (
                zk.get_all_isr_change_notifications,
                other.propagate_isr_changes([TP("t", 0)]),
                (Change.ISR_CHANGE, ""),
            ),
            (zk.get_all_log_dir_event_notifications, other.propagate_log_dir_event(1), (Change.LOG_DIR_EVENT, "")),
            (
                zk.get_partition_reassignment,
                put(other, "/admin/reassign_partitions", b"{}"),
                (Change.REASSIGN_PARTITIONS, ""),
            ),
            (
                zk.get_preferred_replica_election,
                put(other, "/admin/preferred_replica_election", b"{}"),
                (Change.PREFERRED_ELECTION, ""),
            ),
            (
                zk.get_preferred_replica_election,
                other.client.write_many([Delete("/admin/preferred_replica_election")], fence=None),
                (Change.PREFERRED_ELECTION, ""),
            ),
            (
                zk.get_all_config_changes,
                other.create_config_change_notification("topics/t"),
                (Change.CONFIG_CHANGES, ""),
            ),
        ]
        changes = Changes(zk)
        for arm, happen, expected in steps:
            await arm()
            await happen
            assert await changes.next() == expected
            await zk.client.sync("/")
            # broker 1's own data watch ends with it, and says nothing of its own
            assert changes.empty(), expected

    async def test_reading_without_watch_arms_nothing(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        changes = Changes(zk)
        await zk.get_controller(watch=False)
        await zk.get_all_topics_in_cluster(watch=False)
        await zk.get_all_brokers_in_cluster(watch=False)
        await put(other, "/controller", b"{}")
        await put_topic(other, topic("t", (1,)))
        await other.register_broker(broker_info(1))
        await zk.client.sync("/")
        assert changes.empty()

    async def test_a_controller_that_starts_first_hears_of_the_parents(self, connect: Connect) -> None:
        zk, other = await connect(), await connect()
        changes = Changes(zk)
        assert await zk.get_all_brokers_in_cluster() == ([], [])
        assert await zk.get_all_topics_in_cluster() == []
        await other.create_top_level_paths()
        assert {await changes.next(), await changes.next()} == {(Change.BROKER_IDS, ""), (Change.TOPICS, "")}
        assert await zk.get_all_topics_in_cluster() == []
        await put_topic(other, topic("t", (1,)))
        assert await changes.next() == (Change.TOPICS, "")

    async def test_forgotten_watches(self, zk: KafkaZkClient) -> None:
        await zk.get_all_topics_in_cluster()
        zk.forget_watches()
        assert zk.client.statistics().watches == 0

    async def test_who_has_resigned_still_hears_of_the_controller(self, zk: KafkaZkClient, connect: Connect) -> None:
        """Also over a lost connection, after which only what is remembered is armed again."""
        other = await connect()
        changes = Changes(zk)
        await zk.get_all_topics_in_cluster()
        await zk.get_controller()
        zk.forget_watches()
        assert zk.client.session.conn is not None
        zk.client.session.conn.abort("cut by the test")
        await zk.client.sync("/")
        await put_topic(other, topic("t", (1,)))
        await put(other, "/controller", b"{}")
        assert await changes.next() == (Change.CONTROLLER_CHANGED, "")
        assert changes.empty()

    async def test_a_session_end_takes_the_role_along(self, zk: KafkaZkClient, connect: Connect) -> None:
        other = await connect()
        changes = Changes(other)
        await zk.register_controller_and_increment_controller_epoch(7, 0)
        await zk.register_broker(broker_info(7))
        assert await other.get_controller() is not None
        await zk.client.expire_session_for_test()
        assert await changes.next() == (Change.CONTROLLER_DELETED, "")
        assert await other.register_controller_and_increment_controller_epoch(8, 0) == (2, 2)
        async with asyncio.timeout(10):
            with contextlib.suppress(Exception):
                await zk.client.sync("/")
            while zk.client.session_epoch < 2:
                await asyncio.sleep(0.01)
        # the same client, in its next session, registers as a new incarnation
        first = await other.get_broker(7)
        assert first is None
        assert await zk.register_broker(broker_info(7)) > 0
        with pytest.raises(ControllerMovedError):
            await zk.register_controller_and_increment_controller_epoch(7, 0)
