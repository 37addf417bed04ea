"""Serves the ZooKeeper model on a ``Network``: in memory for simulations, on loopback for any client."""

from __future__ import annotations

import asyncio
import struct

from aiocontroller.lab.zookeeper.zookeeper_model import MAX_FRAME_BYTES, Connection, Server, ZooKeeperModel
from aiocontroller.net.ports import Clock, Listener, Timer, World

_LENGTH = struct.Struct(">i")


class _ServerProtocol(asyncio.Protocol):
    def __init__(self, server: ZooKeeperServer) -> None:
        self._server = server
        self._received = bytearray()
        self._connection: Connection | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        model, served = self._server.model, self._server.served
        if model.refuses == "connections":
            transport.close()
            return
        self._connection = Connection(model, transport.write, transport.close, served)

    def data_received(self, data: bytes) -> None:
        if self._connection is None:
            return
        received = self._received
        received += data
        at = 0
        while len(received) - at >= 4 and self._connection.open:
            (length,) = _LENGTH.unpack_from(received, at)
            if not 0 <= length <= MAX_FRAME_BYTES:
                self._connection.end()
                break
            if len(received) - at - 4 < length:
                break
            self._connection.frame(bytes(received[at + 4 : at + 4 + length]), self._server.now_ms())
            at += 4 + length
        del received[:at]

    def connection_lost(self, exc: Exception | None) -> None:
        if self._connection is not None:
            self._connection.lost()


class ZooKeeperServer:
    """A server of the model.

    ``start`` makes it listen.  ``stop`` is its death: connections break, and the state stays for the next ``start``.
    """

    def __init__(
        self,
        world: World,
        model: ZooKeeperModel | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        follower: Server | None = None,
    ) -> None:
        """``follower``: the source of this server's reads; None: the leader, which also expires sessions."""
        self.model = ZooKeeperModel() if model is None else model
        self.served: Server = self.model if follower is None else follower
        self.host = host
        self.port = port
        self._world = world
        self._clock: Clock = world.clock
        self._listener: Listener | None = None
        self._timer: Timer | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def listening(self) -> bool:
        return self._listener is not None

    def now_ms(self) -> int:
        """Return the monotonic time, which dates sessions and stats."""
        return round(self._clock.monotonic() * 1000)

    async def start(self) -> ZooKeeperServer:
        self._listener = await self._world.network.serve(lambda: _ServerProtocol(self), self.host, self.port)
        self.port = self._listener.port
        if self.served is self.model:
            self._tick()
        return self

    def _tick(self) -> None:
        self.model.expire(self.now_ms())
        self._timer = self._clock.call_later(self.model.tick_ms / 1000, self._tick)

    def stop(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for session in self.model.sessions.values():
            if session.connection is not None:
                session.connection.end()
