"""Controllers, recording brokers and a modelled ZooKeeper on the network in memory: elections, and when they happen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from aiocontroller.config import Config
from aiocontroller.core.event_kinds import Reply, Request
from aiocontroller.core.events import TakeOver
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.lab.simulated_net import Host, SimulatedClock, SimulatedNetwork, simulated_world
from aiocontroller.lab.zookeeper.zookeeper_model import ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

SESSION_MS = 6_000
ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
AUTHORIZER = {"authorizer_class_name": ACL_AUTHORIZER, "super_users": ("User:ANONYMOUS",)}


class Stage:
    def __init__(self) -> None:
        self.network = SimulatedNetwork()
        self.world = simulated_world(self.network)
        self.zookeeper = ZooKeeperServer(self.world, ZooKeeperModel(tick_ms=500))
        self.brokers: dict[int, RecordingBroker] = {}
        self.hosts: dict[Service, Host] = {}
        self._running: dict[Service, asyncio.Task[None]] = {}

    async def start(self) -> None:
        await self.zookeeper.start()
        self.client = ZooKeeperClient(self.zookeeper.address, world=self.world, session_timeout_s=60)
        await self.client.start(10.0)
        self.zk = KafkaZkClient(self.client)
        await self.zk.create_top_level_paths()

    async def add_broker(self, broker_id: int, **settings: str | None) -> RecordingBroker:
        """``settings`` by Kafka's names with underscores for dots."""
        broker = self.brokers[broker_id] = RecordingBroker(self.world, self.zookeeper.address, broker_id)
        broker.settings |= {name.replace("_", "."): value for name, value in settings.items()}
        await broker.start()
        return broker

    async def kill_broker(self, broker_id: int) -> None:
        await self.brokers.pop(broker_id).stop()

    async def restart_broker(self, broker_id: int, **settings: str | None) -> RecordingBroker:
        await self.kill_broker(broker_id)
        return await self.add_broker(broker_id, **settings)

    async def add_controller(self, **changes: Any) -> Service:
        """It has looked at the cluster and asked its brokers before this returns."""
        settings = {"zookeeper_connect": self.zookeeper.address, "zookeeper_session_timeout_ms": SESSION_MS}
        config = msgspec.structs.replace(Config(), **(settings | changes))
        host = self.network.host(f"controller {len(self.hosts)}")
        world = World(host, SimulatedClock(host), self.world.random, debug=True)
        service = Service(config, world, journal=MemoryJournal(config.aiocontroller_id, world.clock), with_http=False)
        self.hosts[service] = host
        self._running[service] = asyncio.create_task(service.run())
        await self.until(lambda: service.controller.guard.looked)
        await self.sleep(1)
        return service

    def crash(self, service: Service) -> None:
        """As SIGKILL: its listener refuses, its session is left to expire."""
        self.network.crash(self.hosts[service])
        self._running.pop(service).cancel()

    async def make_broker_controller(self, session: ZooKeeperClient | None = None) -> None:
        await self.create("/controller", b'{"version":1,"brokerid":1,"timestamp":"0"}', ephemeral=session is not None)

    async def create(self, path: str, data: bytes = b"{}", *, ephemeral: bool = False) -> None:
        await self.client.create(path, data=data, ephemeral=ephemeral)

    async def delete(self, path: str) -> None:
        await self.client.delete(path, -1)

    async def sleep(self, seconds: float) -> None:
        await self.world.clock.sleep(seconds)

    async def until(self, condition: Callable[[], Any], within_s: float = 60.0) -> Any:
        deadline_s = self.world.clock.monotonic() + within_s
        while not (found := condition()):
            assert self.world.clock.monotonic() < deadline_s, f"not within {within_s} s of virtual time"
            await self.sleep(0.01)
        return found

    async def close(self) -> None:
        for service, task in self._running.items():
            service.stop()
            await task
        for broker in self.brokers.values():
            await broker.stop()
        await self.client.close()
        self.zookeeper.stop()


@asynccontextmanager
async def stage() -> AsyncIterator[Stage]:
    made = Stage()
    await made.start()
    try:
        yield made
    finally:
        await made.close()


async def take_over(service: Service, *, keep_ours: tuple[str, ...] = ()) -> list[str]:
    """The command; the reasons why not."""
    answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    service.queue.append(TakeOver(keep_ours=keep_ours, reply=Reply(answer.set_result)))
    return await answer


def is_active(service: Service) -> bool:
    return service.controller.election.active


def terms(service: Service) -> int:
    """How often it was elected."""
    assert isinstance(service.journal, MemoryJournal)
    return len(service.journal.of_kind("elected"))


async def begin(it: Stage, brokers: int, **settings: Any) -> Service:
    """Brokers 1 to ``brokers``, and an active controller."""
    for broker in range(1, brokers + 1):
        await it.add_broker(broker)
    service = await it.add_controller(auto_leader_rebalance_enable=False, **settings)
    await it.until(lambda: is_active(service))
    return service


async def with_topic(it: Stage, replicas: list[int], leader: int) -> None:
    """Topic ``t`` with one partition on these replicas, led by ``leader``."""
    await it.create("/brokers/topics/t", msgspec.json.encode({"version": 1, "partitions": {"0": replicas}}))
    await until_leader(it, leader)


async def state(it: Stage) -> LeaderAndIsr | None:
    """The state of t-0, if it can be read."""
    (found,) = await it.zk.get_topic_partition_states(["t"], [0])
    return found if isinstance(found, LeaderAndIsr) else None


async def until_leader(it: Stage, leader: int) -> LeaderAndIsr:
    """Wait until t-0 has this leader."""
    while (found := await state(it)) is None or found.leader != leader:
        await it.sleep(0.1)
    await it.sleep(1)
    return found


async def ask(service: Service, kind: type[Request], **fields: Any) -> Any:
    """The answer to a request that goes into the queue."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    service.queue.append(kind(reply=Reply(answer.set_result), **fields))
    return await asyncio.wait_for(answer, 30)


async def dynamic(it: Stage, entity: str, **configs: str) -> None:
    """As kafka-configs changes what brokers do while they run."""
    path = f"/config/brokers/{entity}"
    config = {name.replace("_", "."): value for name, value in configs.items()}
    data = json.dumps({"version": 1, "config": config}).encode()
    if await it.client.exists(path):
        await it.client.set_data(path, data, -1)
    else:
        await it.create(path, data)
    await it.zk.create_config_change_notification(f"brokers/{entity}")


async def offline_topic(it: Stage) -> None:
    """``t-0``, whose only in-sync replica is on broker 9, which is not there."""
    await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[9,1]}}')
    await it.create("/brokers/topics/t/partitions", b"")
    await it.create("/brokers/topics/t/partitions/0", b"")
    state = b'{"controller_epoch":0,"leader":9,"leader_epoch":3,"version":1,"isr":[9]}'
    await it.create("/brokers/topics/t/partitions/0/state", state)


async def add_silent_broker(it: Stage, broker_id: int, **settings: str) -> RecordingBroker:
    """It registers, and answers no question about itself."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    broker = RecordingBroker(it.world, it.zookeeper.address, broker_id, settings=given)
    broker.unanswered.update((ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CONFIGS))
    it.brokers[broker_id] = broker
    await broker.start()
    return broker
