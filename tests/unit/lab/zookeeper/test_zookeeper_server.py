"""Our client and the modelled ZooKeeper on the simulated network: virtual time, broken links, expiries, determinism."""

from __future__ import annotations

import asyncio

import pytest

from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_loop import run
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.zookeeper.client import Create, SessionEvent, ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import ControllerZNode, KafkaZkClient, ZNodeChange


class Stage:
    """A simulated network with one modelled server."""

    def __init__(self) -> None:
        self.network = SimulatedNetwork()
        self.world = simulated_world(self.network)
        self.server = ZooKeeperServer(self.world, ZooKeeperModel(tick_ms=500))
        self.clients: list[ZooKeeperClient] = []

    async def connect(self, timeout_s: float = 6.0) -> KafkaZkClient:
        client = ZooKeeperClient(self.server.address, world=self.world, session_timeout_s=timeout_s)
        self.clients.append(client)
        await client.start(10.0)
        return KafkaZkClient(client)

    def now(self) -> float:
        return self.world.clock.monotonic()


def on_stage(play):
    async def main():
        stage = Stage()
        await stage.server.start()
        try:
            async with asyncio.timeout(1_000_000):
                return await play(stage)
        finally:
            for client in stage.clients:
                await client.close()
            stage.server.stop()

    return run(main())


def test_a_role_falls_vacant_when_its_session_is_silent() -> None:
    async def play(stage: Stage) -> None:
        first, second = await stage.connect(), await stage.connect()
        heard: list[tuple[ZNodeChange, str, float]] = []
        second.on_change = lambda change, name: heard.append((change, name, stage.now()))
        assert await first.register_controller_and_increment_controller_epoch(1, 0) == (1, 1)
        holder = await second.get_controller()
        assert isinstance(holder, ControllerZNode)
        session = stage.server.model.sessions[first.client.session_id]
        began = stage.now()
        # its packets no longer arrive, in either direction
        assert session.connection is not None
        session.connection.frame = lambda payload, now_ms: None  # type: ignore[method-assign]
        stage.server.model.handshake = _refuse(stage.server.model, session.id)  # type: ignore[method-assign]
        while not heard:
            await stage.world.clock.sleep(0.1)
        change, _, at = heard[0]
        assert change is ZNodeChange.CONTROLLER_DELETED
        assert 6.0 <= at - began <= 7.1
        assert await second.register_controller_and_increment_controller_epoch(1, 0) == (2, 2)
        with pytest.raises(ControllerMovedError):
            await KafkaZkClient(second.client).delete_controller(1)

    on_stage(play)


def _refuse(model: ZooKeeperModel, session_id: int):
    handshake = model.handshake

    def refuse(connection, body, now_ms):
        if body._payload[16:24] == session_id.to_bytes(8, "big"):
            connection.end()
        else:
            handshake(connection, body, now_ms)

    return refuse


def test_writes_and_watches_survive_broken_links() -> None:
    async def play(stage: Stage) -> None:
        zk, other = await stage.connect(), await stage.connect()
        await zk.create_top_level_paths()
        _, fence = await zk.register_controller_and_increment_controller_epoch(1, 0)
        await zk.client.write_many([Create("/brokers/topics/t", b"{}")], fence=fence)
        heard: list[tuple[ZNodeChange, str]] = []
        zk.on_change = lambda change, name: heard.append((change, name))
        await zk.get_all_topics_in_cluster()
        cutting = True

        async def cut() -> None:
            while cutting:
                await stage.world.clock.sleep(0.0013)
                stage.network.cut(stage.server.port)

        cutter = asyncio.create_task(cut())
        names, numbers = ["t"] * 3000, range(3000)
        states = [LeaderAndIsr(1, 0, (1, 2), 1, 0)] * 3000
        try:
            created = await zk.create_topic_partition_states(names, numbers, states, fence=fence)
            written = await zk.set_topic_partition_states(names, numbers, states, fence=fence)
        finally:
            cutting = False
            await cutter
        assert created.code == [0] * 3000
        assert (written.code, written.version) == ([0] * 3000, [1] * 3000)
        assert zk.client.statistics().expiries == 0
        assert heard == []
        await other.client.write_many([Create("/brokers/topics/u", b"{}")], fence=None)
        await zk.client.sync("/")
        assert heard == [(ZNodeChange.TOPICS, "")]

    on_stage(play)


def test_a_restarted_server_keeps_sessions_and_data() -> None:
    async def play(stage: Stage) -> None:
        zk = await stage.connect()
        await zk.register_controller_and_increment_controller_epoch(1, 0)
        session = zk.client.session_id
        stage.server.stop()
        await stage.world.clock.sleep(2.0)
        await stage.server.start()
        holder = await zk.get_controller()
        assert isinstance(holder, ControllerZNode)
        assert holder.owner_session == session == zk.client.session_id

    on_stage(play)


def test_idle_hours_cost_next_to_nothing() -> None:
    async def play(stage: Stage) -> None:
        zk = await stage.connect(timeout_s=10.0)
        await zk.register_controller_and_increment_controller_epoch(1, 0)
        await stage.world.clock.sleep(6 * 3600.0)
        assert zk.client.statistics().expiries == 0
        assert zk.client.session_epoch == 1
        assert await zk.get_controller() is not None

    on_stage(play)


def test_expiry_is_delivered_in_order() -> None:
    async def play(stage: Stage) -> None:
        zk = await stage.connect()
        events: list[SessionEvent] = []
        zk.client.on_session = events.append
        model = stage.server.model
        model.end_session(model.sessions[zk.client.session_id], stage.server.now_ms())
        stage.network.cut(stage.server.port)
        while zk.client.session_epoch < 2:
            await stage.world.clock.sleep(0.01)
        await stage.world.clock.sleep(0.1)
        assert events == [SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.NEW_SESSION]

    on_stage(play)


def test_two_runs_are_the_same_byte_for_byte() -> None:
    def recorded() -> list[tuple[object, ...]]:
        record: list[tuple[object, ...]] = []

        async def play(stage: Stage) -> None:
            carry = stage.network.carry

            def listen(*arguments):
                record.append((stage.now(), *(a for a in arguments if isinstance(a, bytes))))
                carry(*arguments)

            stage.network.carry = listen  # type: ignore[method-assign]
            clients = [await stage.connect() for _ in range(3)]
            await clients[0].create_top_level_paths()
            for _ in range(3):
                outcomes = await asyncio.gather(
                    *(zk.register_controller_and_increment_controller_epoch(1, 0) for zk in clients),
                    return_exceptions=True,
                )
                [winner] = [i for i, o in enumerate(outcomes) if isinstance(o, tuple)]
                stage.network.cut(stage.server.port)
                await clients[winner].delete_controller(outcomes[winner][1])

        on_stage(play)
        return record

    first = recorded()
    assert len(first) > 100
    assert first == recorded()


def test_another_leader_gives_every_session_its_whole_time_and_counts_anew() -> None:
    async def play(stage: Stage) -> None:
        zk = await stage.connect()
        session = stage.server.model.sessions[zk.client.session_id]
        for _ in range(3):  # each time away for less than the session lasts, together for longer
            before = stage.server.model.zxid
            stage.server.stop()
            await stage.world.clock.sleep(5.0)
            stage.server.model.new_leader(stage.server.now_ms())
            await stage.server.start()
            await stage.world.clock.sleep(2.0)
            assert stage.server.model.sessions[session.id] is session
            assert await zk.client.create(f"/after-{before}", b"")
            czxid = stage.server.model.tree.nodes[f"/after-{before}"].czxid
            assert czxid >> 32 == (before >> 32) + 1
        assert zk.client.session_id == session.id

    on_stage(play)
