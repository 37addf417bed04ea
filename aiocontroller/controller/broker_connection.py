"""One TCP connection to a broker, with one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from aiocontroller.wire.frames import FrameError, FrameReader

MAX_RESPONSE_BYTES = 100 * 1024 * 1024


class BrokerConnection(asyncio.Protocol):
    """Sends and receives frames.  At most one request waits for its response; losing the connection ends the wait."""

    def __init__(self) -> None:
        self._reader = FrameReader(MAX_RESPONSE_BYTES)
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[bytes] | None = None
        self.bytes_sent = 0
        self.on_lost: Callable[[], object] = lambda: None
        """Called when the connection has been closed by either side."""

    @property
    def open(self) -> bool:
        """False before the connection is made, and from its closing on."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def certificate(self) -> bytes | None:
        """The broker's certificate, DER; None without TLS."""
        tls = None if self._transport is None else self._transport.get_extra_info("ssl_object")
        return None if tls is None else tls.getpeercert(binary_form=True)

    @property
    def host(self) -> str:
        """The broker's IP address; empty when the connection is closed."""
        peer = None if self._transport is None else self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio's Protocol)."""
        transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass of it
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer the waiting request; close the connection on a frame that is too long or unrequested."""
        try:
            frames = self._reader.feed(data)
        except FrameError as error:
            self._fail(ConnectionError(str(error)))
            self.close()
            return
        for frame in frames:
            waiting, self._waiting = self._waiting, None
            if waiting is None:
                self.close()  # an unrequested frame: we have lost track of the stream
            elif not waiting.done():
                waiting.set_result(bytes(frame))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the waiting request with ConnectionResetError, and call ``on_lost``."""
        self._transport = None
        self._fail(ConnectionResetError(f"the broker closed the connection: {exc or 'end of stream'}"))
        self.on_lost()

    async def request(self, parts: list[bytes]) -> bytes:
        """Send one frame (prefixed with its length) and wait for the next one; OSError when the connection is lost."""
        if not self.open:
            raise ConnectionResetError("the connection is closed")
        assert self._waiting is None and self._transport is not None
        size = sum(map(len, parts))
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.writelines([size.to_bytes(4, "big"), *parts])
        self.bytes_sent += size + 4
        return await self._waiting

    def hand_over(self, protocol: asyncio.Protocol) -> asyncio.Transport:
        """Pass the connected (and authenticated) transport to another protocol; OSError when it is closed."""
        if not self.open:
            raise ConnectionResetError("the connection is closed")
        assert self._waiting is None and self._transport is not None
        transport, self._transport = self._transport, None
        transport.set_protocol(protocol)
        return transport

    def close(self) -> None:
        """Abort at once, unsent bytes included; idempotent."""
        if self._transport is not None:
            self._transport.abort()

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(error)
