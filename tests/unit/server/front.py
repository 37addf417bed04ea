"""The controller's listener with clients before it and brokers behind it, on the network in memory."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from aiocontroller.authorizer.authorizer import AllowAll
from aiocontroller.config import Config
from aiocontroller.controller.cluster_settings import ClusterSettings
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.refused_brokers import RefusedBrokers
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import Broker, Endpoint, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.mutation_quotas import UNBOUNDED, MutationQuota
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.metrics import Metrics
from aiocontroller.security import Security
from aiocontroller.server.socket_server import PLAIN_ENDPOINT, SocketServer
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import FrameReader, decode_response_header, request_frame
from aiocontroller.zookeeper.kafka_zk_client import EntityConfigs

TOPIC_ID = bytes(range(16))


class Client(asyncio.Protocol):
    """A broker or client: sends frames, keeps the answers."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.closed = False
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.frames += self._reader.feed(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        assert self._transport is not None
        self._transport.close()

    def request(self, api: ApiKey, version: int, body: bytes = b"") -> int:
        self._correlation_id += 1
        self.send(b"".join(request_frame(api, version, self._correlation_id, "me", body)))
        return self._correlation_id

    def correlation_ids(self) -> list[int]:
        return [int.from_bytes(frame[:4], "big") for frame in self.frames]

    def answer(self, api: ApiKey, version: int) -> bytes:
        """The body of the only answer that there is."""
        (frame,) = self.frames
        correlation_id, body = decode_response_header(api, version, frame)
        assert correlation_id == self._correlation_id
        return bytes(body)


class Upstream(asyncio.Protocol):
    """A broker to which no request should be relayed."""


class _NoBrokers:
    """A ZooKeeper that knows of no broker, and of one setting of all of them."""

    async def get_broker_configs(self, brokers: Sequence[str]) -> EntityConfigs:
        configs = EntityConfigs()
        configs.update({broker: {"log.retention.ms": "77"} for broker in brokers})
        return configs


class Quotas:
    """What ``MutationQuotas`` finds for every client."""

    def __init__(self) -> None:
        self.found: MutationQuota = UNBOUNDED
        self.asked: list[tuple[str, str | None, bool]] = []
        """(principal, client id, strict)."""

    async def quota_for(self, principal: str, client_id: str | None, *, strict: bool) -> MutationQuota:
        self.asked.append((principal, client_id, strict))
        return self.found

    def throttled(self) -> None:
        pass


class Front:
    """A listener on a shell that holds no more than the listener looks at."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.network = SimulatedNetwork()
        self.world = simulated_world(self.network)
        self.queue = EventQueue(self.world.clock)
        self.context = ControllerContext(3, 3)
        self.context.loaded = True
        self.quotas = Quotas()
        shell: Any = SimpleNamespace(
            id=1_000_001,
            world=self.world,
            queue=self.queue,
            context=self.context,
            channels=SimpleNamespace(),
            endpoint_of=lambda broker: broker.endpoints[0],
            config=Config(),
            policy=Config(),
            settings=ClusterSettings(Config(), Metrics()),
            metrics=Metrics(),
            security=Security(Config()),
            authorizer=AllowAll(),
            own_entry=self.own_entry,
            own_endpoints=lambda: (PLAIN_ENDPOINT,),
            refused_brokers=RefusedBrokers(self.world.clock, Metrics()),
            zk=_NoBrokers(),
            mutation_quotas=self.quotas,
        )
        shell.settings.heard({}, no_brokers=True)
        self.shell = shell
        self.listener = SocketServer(shell, tasks)
        self.upstreams: list[Upstream] = []
        self.port = 0

    def own_entry(self) -> Broker:
        return Broker(self.shell.id, 0, (Endpoint("PLAINTEXT", "controller", 9090),))

    def topic(self, name: str, *leaders: int, topic_id: bytes = TOPIC_ID) -> None:
        """A topic with a partition for each leader, which is its only replica."""
        table = self.context.table
        topic = table.add_topic(name, topic_id)
        for partition, leader in enumerate(leaders):
            row = table.add_partition(topic, partition, ReplicaAssignment((leader,)))
            table.set_leadership(row, LeaderAndIsr(leader, 5, (leader,), 3, 0))

    async def listen(self, at: Endpoint = PLAIN_ENDPOINT) -> None:
        self.port = (await self.network.serve_through(self.listener.gate(at), "127.0.0.1", 0)).port

    async def connect(self) -> Client:
        if not self.port:
            await self.listen()
        _, client = await self.network.connect(Client, "127.0.0.1", self.port, timeout_s=1)
        return client

    async def broker(self) -> None:
        """A live broker; ``upstreams`` are the connections to it."""

        def accept() -> Upstream:
            self.upstreams.append(Upstream())
            return self.upstreams[-1]

        port = (await self.network.serve(accept, "127.0.0.1", 0)).port
        self.context.add_brokers([Broker(1, 7, (Endpoint("PLAINTEXT", "127.0.0.1", port),))])

    async def event(self) -> Any:
        return (await self.queue.get()).event


@asynccontextmanager
async def front() -> AsyncIterator[Front]:
    async with anyio.create_task_group() as tasks:
        yield Front(tasks)
        tasks.cancel_scope.cancel()


async def settle() -> None:
    await asyncio.sleep(1)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + payload
