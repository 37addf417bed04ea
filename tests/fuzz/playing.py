"""An active controller over a modelled ZooKeeper and recording brokers, and one input played on it.

The listener, the queue, the handlers and the writes are the program's own; network, clock and chance are simulated, so
an input is played in the same way each time.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import aiocontroller
from aiocontroller.core.invariants import violations
from aiocontroller.lab import virtual_loop
from aiocontroller.lab.hostile.inputs import TOPIC_ID, Input, Message
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.service import Service
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import FrameReader
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.controller.harness import Cluster, journal_of

ANSWERED_WITHIN_S = 90.0
"""Virtual time; a Produce without acknowledgement has no answer."""
WORK_S = 5.0
"""Processor time that one input may cost, on any machine."""
Lines = set[tuple[str, int]]

_PACKAGE = Path(aiocontroller.__file__).parent
_ROOMS = tuple(f"{_PACKAGE / room}/" for room in ("server", "controller", "core", "wire", "zookeeper", "authorizer"))


class Client(asyncio.Protocol):
    def __init__(self) -> None:
        self.answers = 0
        self.closed = False
        self.transport: asyncio.Transport | None = None
        self._reader = FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.answers += len(self._reader.feed(data))

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True


class Errors(logging.Handler):
    """Log records that say that something is wrong with the program, not with its input."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None:
            self.found.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


def play(messages: Input, *, trace: bool = False) -> tuple[list[str], Lines]:
    """What is wrong after these messages, and with ``trace`` the program's lines that they reached."""
    return virtual_loop.run(_play(messages, trace))


async def _play(messages: Input, trace: bool) -> tuple[list[str], Lines]:
    world = simulated_world(SimulatedNetwork(), seed=1)
    server = ZooKeeperServer(world)
    await server.start()
    cluster = Cluster(world, server.address)
    await cluster.start()
    errors = Errors()
    unhandled: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(str(context)))
    logging.getLogger("aiocontroller").addHandler(errors)
    try:
        for broker in (1, 2, 3):
            await cluster.add_broker(broker)
        admin = AdminZkClient(cluster.zk)
        await admin.create_topic("orders", {0: (1, 2), 1: (2, 3)}, TOPIC_ID)
        await admin.create_topic("payments", {0: (3, 1, 2)})
        service = await cluster.add_controller()
        await cluster.until_leaders("payments", [3])
        began_s, lines = time.thread_time(), Lines()
        with _tracing(lines) if trace else _nothing():
            found = await _ask(cluster, service, messages)
        spent_s = time.thread_time() - began_s
        if spent_s > WORK_S and not trace:
            found.append(f"{spent_s:.1f} s of work")
        return [*found, *errors.found, *unhandled, *await _state_of(service)], lines
    finally:
        logging.getLogger("aiocontroller").removeHandler(errors)
        await cluster.close()
        server.stop()


async def _ask(cluster: Cluster, service: Service, messages: Input) -> list[str]:
    client = await _connect(cluster, service)
    for number, message in enumerate(messages):
        if client.closed:
            break
        assert client.transport is not None
        client.transport.write(message.frame(number))
        await asyncio.sleep(message.wait_s)
    waited_s = 0.0
    while not client.closed and client.answers < len(messages) and waited_s < ANSWERED_WITHIN_S:
        await asyncio.sleep(0.5)
        waited_s += 0.5
    found = []
    if not client.closed and client.transport is not None:
        client.transport.close()
        if client.answers < sum(message.api != ApiKey.PRODUCE for message in messages):
            found.append(f"{client.answers} answers within {ANSWERED_WITHIN_S:.0f} s")
    other = await _connect(cluster, service)
    assert other.transport is not None
    asked = cold.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout=1000, topics=None)
    body = cold.encode_request(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, asked)
    other.transport.write(Message(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, body).frame(1))
    await asyncio.sleep(5)
    other.transport.close()
    return found if other.answers == 1 else [*found, "another client is not answered any more"]


async def _connect(cluster: Cluster, service: Service) -> Client:
    client = Client()
    endpoint = service.endpoints[0]
    await cluster.world.network.connect(lambda: client, endpoint.host, endpoint.port, timeout_s=5.0)
    return client


async def _state_of(service: Service) -> list[str]:
    """The term has not ended, nothing was a fault, and the context is whole."""
    journal = journal_of(service)
    kinds = [record.kind for record in journal.records]
    found = [f"journal: {r.event}: {r.detail}" for r in journal.records if r.kind == "fault"]
    if kinds.count("elected") != 1 or "resigned" in kinds or not service.controller.election.active:
        found.append("the term has ended")
    return [*found, *violations(service.shell.context)]


@contextmanager
def _nothing() -> Iterator[None]:
    yield


@contextmanager
def _tracing(lines: Lines) -> Iterator[None]:
    """Notes the lines of the rooms that requests come through."""

    def local(frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            lines.add((frame.f_code.co_filename, frame.f_lineno))
        return local

    def called(frame: FrameType, event: str, arg: Any) -> Any:
        return local if frame.f_code.co_filename.startswith(_ROOMS) else None

    before = sys.gettrace()
    sys.settrace(called)
    try:
        yield
    finally:
        sys.settrace(before)


def chance_of(seed: int) -> random.Random:
    return random.Random(f"fuzz {seed}")
