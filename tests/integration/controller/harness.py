"""A whole controller against a real ZooKeeper and recording brokers, and conditions to wait for."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from aiocontroller.config import Config
from aiocontroller.controller.event_handlers import HANDLERS
from aiocontroller.core.event_kinds import ControllerState
from aiocontroller.core.ids import Broker, LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.net.ports import World
from aiocontroller.server.controller_apis import PRELOADED
from aiocontroller.service import Service
from aiocontroller.wire import cold
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znodes import encode_broker, encode_topic

WITHIN_S = 60.0
OPENED_WITHIN_S = 120.0
"""The first controller of a test run reads its schemas, while ZooKeeper has just started."""


async def until(condition: Callable[[], Any], what: str = "", within_s: float = WITHIN_S) -> Any:
    """Wait for a condition (plain or a coroutine function) to hold; AssertionError when it does not in time."""
    deadline = asyncio.get_running_loop().time() + within_s
    while True:
        found = condition()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        assert asyncio.get_running_loop().time() < deadline, f"not within {within_s} s: {what or condition}"
        await asyncio.sleep(0.01)


def config(zk_connect: str, **changes: Any) -> Config:
    settings = {"zookeeper_connect": zk_connect, "zookeeper_session_timeout_ms": 6000}
    return msgspec.structs.replace(Config(), **(settings | changes))


class Cluster:
    """Brokers, topics and controllers on one chroot."""

    def __init__(self, world: World, zk_connect: str) -> None:
        self.world = world
        self.zk_connect = zk_connect
        self.client = ZooKeeperClient(zk_connect, world=world, session_timeout_s=10)
        self.zk = KafkaZkClient(self.client)
        self.brokers: dict[int, RecordingBroker] = {}
        self.services: list[Service] = []
        self._running: dict[Service, asyncio.Task[None]] = {}

    async def start(self) -> None:
        await self.client.start(10)
        await self.zk.create_top_level_paths()

    async def add_broker(self, broker_id: int, **kwargs: Any) -> RecordingBroker:
        broker = self.brokers[broker_id] = RecordingBroker(self.world, self.zk_connect, broker_id, **kwargs)
        await broker.start()
        return broker

    async def kill_broker(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    async def create_topic(self, name: str, assignment: dict[int, list[int]]) -> None:
        """Create a topic as Kafka's tools do: without a topic id."""
        data = msgspec.json.encode({"version": 1, "partitions": {str(p): r for p, r in assignment.items()}})
        await self.client.create(f"/brokers/topics/{name}", data=data)

    async def bounce_broker(self, broker_id: int) -> int:
        """Replace the broker by another incarnation, between two looks of the controller; return its epoch."""
        broker = self.brokers[broker_id]
        path, data = f"/brokers/ids/{broker_id}", encode_broker(broker.info)
        deleted, created = await broker.client.multi([Delete(path), Create(path, data, ephemeral=True)])
        assert (deleted.code, created.code) == (0, 0)
        found = await self.zk.get_broker(broker_id, watch=False)
        assert isinstance(found, Broker)
        broker.epoch = found.epoch
        return broker.epoch

    async def create_topic_with_id(self, name: str, assignment: dict[int, list[int]], topic_id: bytes) -> None:
        """Create a topic as brokers do."""
        partitions = {number: ReplicaAssignment(tuple(replicas)) for number, replicas in assignment.items()}
        data = encode_topic(TopicAssignment(name, topic_id, partitions))
        await self.client.create(f"/brokers/topics/{name}", data=data)

    async def add_controller(self, **changes: Any) -> Service:
        """Start a controller, whose journal is kept in memory: ``journal_of``."""
        service = Service(config(self.zk_connect, **changes), self.world)
        service.journal = service.shell.journal = MemoryJournal(service.shell.id, self.world.clock)
        service.journal.listener = service.controller.story.chronicle
        opened = asyncio.Event()
        self.services.append(service)
        self._running[service] = asyncio.create_task(service.run(lambda _: opened.set()))
        await asyncio.wait_for(opened.wait(), OPENED_WITHIN_S)
        return service

    async def stop_controller(self, service: Service) -> None:
        service.stop()
        await asyncio.wait_for(self._running.pop(service), WITHIN_S)

    def crash_controller(self, service: Service) -> None:
        """End a controller as SIGKILL would: its session is left to expire."""
        session = service.client.session

        async def disconnect(within_s: float = 0) -> None:
            session._drop_connection("the process was killed")

        session.close = disconnect  # type: ignore[method-assign]
        self._running.pop(service).cancel()

    async def giving_up(self, service: Service) -> BaseException:
        """Return the error with which the controller ends by itself."""
        with pytest.raises(ExceptionGroup) as caught:
            await asyncio.wait_for(self._running.pop(service), WITHIN_S)
        (error,) = caught.value.exceptions
        return error

    async def active(self) -> Service:
        found: Service = await until(lambda: next((s for s in self.services if s.controller.election.active), None))
        return found

    async def states(self, topic: str, partitions: int) -> list[LeaderAndIsr | None]:
        found = await self.zk.get_topic_partition_states([topic] * partitions, list(range(partitions)))
        assert all(s is None or isinstance(s, LeaderAndIsr) for s in found), found
        return found  # type: ignore[return-value]

    async def leaders(self, topic: str, partitions: int) -> list[int | None]:
        return [None if s is None else s.leader for s in await self.states(topic, partitions)]

    async def until_leaders(self, topic: str, leaders: list[int | None]) -> list[LeaderAndIsr]:
        async def reached() -> Any:
            return await self.leaders(topic, len(leaders)) == leaders

        await until(reached, f"leaders {leaders} of {topic}")
        return await self.states(topic, len(leaders))  # type: ignore[return-value]

    async def state(self, topic: str, partition: int = 0) -> LeaderAndIsr:
        (found,) = await self.zk.get_topic_partition_states([topic], [partition])
        assert isinstance(found, LeaderAndIsr), found
        return found

    async def until_state(self, topic: str, leader: int, isr: tuple[int, ...], partition: int = 0) -> LeaderAndIsr:
        async def reached() -> Any:
            (found,) = await self.zk.get_topic_partition_states([topic], [partition])
            return isinstance(found, LeaderAndIsr) and (found.leader, found.isr) == (leader, isr)

        await until(reached, f"{topic}-{partition} led by {leader} with ISR {isr}")
        return await self.state(topic, partition)

    async def write_state(self, topic: str, state: LeaderAndIsr, partition: int = 0) -> None:
        """Write a state as a broker does that writes ISRs itself; ``state.partition_epoch`` is the znode's version."""
        found = await self.zk.get_controller_epoch()
        assert found is not None
        writes = await self.zk.set_topic_partition_states([topic], [partition], [state], fence=found[1])
        assert list(writes.code) == [0]

    async def close(self) -> None:
        """End everything, including what has failed; raise the first error."""
        ends: list[Callable[[], Awaitable[None]]] = [
            *(functools.partial(self.stop_controller, service) for service in list(self._running)),
            *(broker.stop for broker in self.brokers.values()),
            self.client.close,
        ]
        errors = []
        for end in ends:
            try:
                await end()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]


def journal_of(service: Service) -> MemoryJournal:
    assert isinstance(service.journal, MemoryJournal)
    return service.journal


async def idle(service: Service) -> None:
    """Wait until no event waits, none is being handled and no broker has yet to answer."""

    def quiet() -> bool:
        senders = service.shell.channels.statistics() if service.shell.channels is not None else []
        busy = any(s.queued or s.in_flight for s in senders)
        return not service.queue and service.controller.state is ControllerState.Idle and not busy

    await until(quiet, "the controller is idle")
    await asyncio.sleep(0.02)
    await until(quiet, "the controller is idle")


def held(monkeypatch: pytest.MonkeyPatch, event: type) -> tuple[asyncio.Event, asyncio.Event]:
    """Block the handler of these events; return (is set when one has begun, set this to let them go on)."""
    entered, release = asyncio.Event(), asyncio.Event()
    real = HANDLERS[event]

    async def slow(*args: Any) -> None:
        entered.set()
        await release.wait()
        await real(*args)

    monkeypatch.setitem(HANDLERS, event, slow)
    return entered, release


@asynccontextmanager
async def running(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    cold.preload(
        PRELOADED
    )  # takes seconds on a busy machine, during which this loop's sessions would get no heartbeats
    cluster = Cluster(world, zk_connect)
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.close()
