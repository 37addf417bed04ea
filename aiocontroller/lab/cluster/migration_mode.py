"""A broker in migration mode (KIP-866): besides its registration in ZooKeeper it has one with the KRaft controller.

After Kafka's ``BrokerLifecycleManager``; one message of our own stands for BrokerRegistration and BrokerHeartbeat.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.core.ids import Endpoint
from aiocontroller.lab.cluster.broker_links import CONNECT_TIMEOUT_S, HEARTBEAT_S, LISTENER, PRIVATE_HEADER, Signal
from aiocontroller.net.ports import World
from aiocontroller.wire.primitives import INT32

log = logging.getLogger(__name__)

QUORUM_HEARTBEAT = 30_004
"""API key, outside Kafka's range, of a ``Heartbeat`` in msgpack; the answer is whether the broker may shut down."""
RETRY_S = 0.2


class Heartbeat(msgspec.Struct, array_like=True):
    """The first one of an incarnation registers it."""

    broker: int
    epoch: int
    """That of its registration in ZooKeeper."""
    port: int
    leaves: bool
    """The broker wants to shut down: others shall lead in its place."""


class QuorumLink:
    """A broker's link to the KRaft controller; ``voters`` as in ``controller.quorum.voters``, with one voter.

    ``beat`` returns the next heartbeat; its argument is whether the broker leaves.
    """

    def __init__(self, world: World, voters: str, beat: Callable[[bool], Heartbeat]) -> None:
        node, _, address = voters.partition("@")
        host, _, port = address.rpartition(":")
        self.controller_id = int(node)
        self.endpoint = Endpoint(LISTENER, host, int(port))
        self._world = world
        self._beat = beat
        self._leaves = False
        self._may_go = asyncio.Event()
        self._wanted = Signal()

    async def run(self) -> None:
        """Report until the broker may shut down."""
        while not self._may_go.is_set():
            try:
                _, connection = await self._world.network.connect(
                    BrokerConnection, self.endpoint.host, self.endpoint.port, timeout_s=CONNECT_TIMEOUT_S
                )
                await self._report(connection)
            except OSError as error:
                log.debug("heartbeats to the KRaft controller: %s", error)
            await self._world.clock.sleep(RETRY_S)

    async def _report(self, connection: BrokerConnection) -> None:
        try:
            while not self._may_go.is_set():
                beat = msgspec.msgpack.encode(self._beat(self._leaves))
                answer = await connection.request([PRIVATE_HEADER.pack(QUORUM_HEARTBEAT, 0, 0), beat])
                if msgspec.msgpack.decode(answer[INT32.size :], type=bool):
                    self._may_go.set()
                await self._wanted.wait(HEARTBEAT_S)
        finally:
            connection.close()

    async def leave(self, within_s: float) -> bool:
        """Ask for a controlled shutdown; returns whether the KRaft controller has moved all leaders."""
        self._leaves = True
        self._wanted.set()
        try:
            async with asyncio.timeout(within_s):
                await self._may_go.wait()
        except TimeoutError:
            return False
        return True
