"""Passes what the controller does not serve itself to a live broker, unchanged.

Why: brokers find the controller only as one of the live brokers, so clients see it among them too and may ask it
anything.  A request is passed on as the bytes that came, since its correlation id is the client's own; a broker answers
one connection's requests in order, so answers need no look either.  One upstream connection for each client connection;
when it ends, the client's ends as well, as it would with the broker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import cast

from aiocontroller.config import ConfigError
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.core.ids import Endpoint
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.wire.frames import FrameError, FrameReader

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 10.0


class Relay(asyncio.Protocol):
    """The upstream half of one client connection."""

    def __init__(
        self, world: World, security: Security, on_answer: Callable[[bytes], None], on_end: Callable[[], None]
    ) -> None:
        self._world = world
        self._security = security
        self._on_answer = on_answer
        self._on_end = on_end
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._ended = False

    async def connect(self, endpoint: Endpoint) -> None:
        try:
            connection = await connect_to_broker(self._world, self._security, endpoint, timeout_s=CONNECT_TIMEOUT_S)
            self.connection_made(connection.hand_over(self))
        except (OSError, ConfigError) as error:
            log.warning("Cannot relay to %s:%d: %s", endpoint.host, endpoint.port, error)
            self._end()

    def forward(self, frame: bytes) -> None:
        """Send one request upstream; kept while the connection is being made."""
        pieces = [len(frame).to_bytes(4, "big"), frame]
        if self._transport is None:
            self._waiting += pieces
        else:
            self._transport.writelines(pieces)

    def close(self) -> None:
        """The client is gone."""
        self._ended = True
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._transport = transport
        if self._ended:
            transport.abort()
            return
        waiting, self._waiting = self._waiting, []
        transport.writelines(waiting)

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._on_answer(frame)
        except FrameError as error:
            log.warning("Broker behind the relay: %s", error)
            self._end()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._on_end()
        if self._transport is not None:
            self._transport.abort()
