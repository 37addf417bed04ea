"""A controller's senders and what they report, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from aiocontroller.controller.broker_requests import BrokerRequestSender
from aiocontroller.controller.channel_manager import Body, BrokerResponse, ControllerChannelManager
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.scripted_peer import Peer
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.metrics import Metrics
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, VersionRange
from tests.builders import add_topics

REQUEST_TIMEOUT_S = 30.0


def at_first_listener(broker: Broker) -> Endpoint | None:
    return next(iter(broker.endpoints), None)


class Channels:
    """A channel manager and what it reports."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.network = SimulatedNetwork()
        self.world = simulated_world(self.network)
        self.metrics = Metrics()
        self.journal = MemoryJournal(9, self.world.clock)
        self.responses: list[BrokerResponse] = []
        self.done: list[str] = []
        self.manager = ControllerChannelManager(
            self.world,
            tasks,
            self.responses.append,
            endpoint_of=at_first_listener,
            protocol=lambda: (3, 9, 0),
            connect_timeout_s=10,
            request_timeout_s=REQUEST_TIMEOUT_S,
            metrics=self.metrics,
            journal=self.journal,
        )

    async def peer(self, broker: int = 1, *, offers: dict[ApiKey, VersionRange] | None = None) -> Peer:
        peer = Peer(self.world, offers)
        self.manager.add_brokers([self.broker(broker, await peer.listen())])
        return peer

    @staticmethod
    def broker(broker: int, port: int, epoch: int = 7) -> Broker:
        return Broker(broker, epoch, (Endpoint("PLAINTEXT", "127.0.0.1", port),))

    def send(self, text: str, broker: int = 1, api: ApiKey = ApiKey.LEADER_AND_ISR) -> None:
        """A request whose body says what it was called with."""

        def encode(version: int, epoch: int) -> list[Body]:
            return [(f"{text} v{version} e{epoch}".encode(),)]

        self.manager.send(broker, api, encode, (), lambda: self.done.append(text))


@asynccontextmanager
async def channels() -> AsyncIterator[Channels]:
    async with anyio.create_task_group() as tasks:
        yield Channels(tasks)
        tasks.cancel_scope.cancel()


async def seconds(number: float) -> None:
    await asyncio.sleep(number)


def cluster(channels: Channels, ports: dict[int, int]) -> tuple[ControllerContext, BrokerRequestSender]:
    context = ControllerContext(5, 5)
    context.add_brokers(channels.broker(b, port, epoch=100 + b) for b, port in ports.items())
    add_topics(context.table, {"t": [[1, 2], [2, 1]], "u": [[1]]}, online=True)
    sender = BrokerRequestSender(context, channels.manager, channels.world.clock, 9, lambda: None, at_first_listener)
    return context, sender


def decoded(peer: Peer) -> list[tuple[ApiKey, object]]:
    return [
        (ApiKey(a.header.api_key), cold.decode_request(a.header.api_key, a.header.api_version, a.body))
        for a in peer.arrived
    ]
