"""A TCP proxy in front of ZooKeeper that injects faults of networks and dying servers.

The proxy knows ZooKeeper's framing, so a fault can target one request ("forward this multi, swallow its answer,
reset").  Its faults affect real TCP connections (a reset is a real reset and not an exception that resembles one), so
it uses asyncio's streams and not the ``Network`` port.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import socket
import ssl as ssl_module
import struct
from collections.abc import Awaitable, Callable


class Do(enum.Enum):
    PASS = "pass it on"
    CUT = "reset both sides, without passing it on"
    CUT_AFTER = "pass it on, wait for its answer, swallow that and reset both sides"
    HOLD = "pass neither it nor anything after it on, in either direction"


class EndsHere(Exception):
    """Raised by ``on_reply``: send only these bytes of the reply, then end the connection."""

    def __init__(self, part: bytes) -> None:
        super().__init__(part)
        self.part = part


class Link:
    """One connection through the proxy."""

    def __init__(self, number: int, client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self.number = number
        self.client = client
        self.server = server
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.hears = asyncio.Event()
        """When cleared, the client's bytes are forwarded and the server's are not."""
        self.hears.set()
        self.swallow_from: int | None = None

    def cut(self, *, reset: bool) -> None:
        for writer in (self.client, self.server):
            if reset:
                with contextlib.suppress(OSError):
                    raw = writer.get_extra_info("socket")
                    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                writer.close()


class FaultProxy:
    """Clients connect to ``port``; the hooks may be set at any time.

    ``on_request(link number, xid, opcode, frame)`` decides about each request (the connect frame has opcode 0 and xid
    0).  ``on_reply(link number, xid, frame)`` returns the bytes to send in place of a reply (the frame includes its
    length), or raises ``EndsHere``.
    """

    def __init__(self, target_port: int, *, ssl: ssl_module.SSLContext | None = None) -> None:
        self.target_port = target_port
        """May be changed; it applies to later connections."""
        self._ssl = ssl
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.links: list[Link] = []
        self.accepted = 0
        self.hang = False
        """While set, accept connections but send and forward nothing."""
        self.on_request: Callable[[int, int, int, bytes], Do] | None = None
        self.on_reply: Callable[[int, int, bytes], bytes] | None = None
        self.before_reply: Callable[[int, bytes], Awaitable[None]] | None = None
        self.on_link: Callable[[Link], None] | None = None
        """Called with each new connection before anything passes through it."""
        self.delay_s = 0.0
        """Delay of each reply, without an effect on throughput."""
        self.connect_frames: list[bytes] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> FaultProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._ssl, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    @property
    def listening(self) -> bool:
        return self._server is not None

    async def refuse(self) -> None:
        """Stop listening; ``start`` opens the same port again."""
        if self._server is not None:
            self._server.close()
            self._server = None

    async def close(self) -> None:
        await self.refuse()
        self.cut_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_all(self, *, reset: bool = True) -> None:
        for link in self.links:
            link.cut(reset=reset)
        self.links.clear()

    def freeze(self) -> None:
        """Existing connections stop forwarding in both directions; new connections work."""
        for link in self.links:
            link.thawed.clear()

    def half_open(self) -> None:
        """Existing connections forward requests but no answers; new connections work."""
        for link in self.links:
            link.hears.clear()

    def thaw(self) -> None:
        """All connections work again and forward the data that they held."""
        self.hang = False
        self.delay_s = 0.0
        for link in self.links:
            link.thawed.set()
            link.hears.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        number = self.accepted
        if self.hang:
            while await reader.read(1 << 16):
                pass
            return
        upstream, server = await asyncio.open_connection("127.0.0.1", self.target_port, limit=1 << 24)
        link = Link(number, writer, server)
        self.links.append(link)
        if self.on_link is not None:
            self.on_link(link)
        delayed: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        pumps = [
            asyncio.create_task(self._pump_requests(link, reader)),
            asyncio.create_task(self._pump_replies(link, upstream, delayed)),
            asyncio.create_task(self._deliver(link, delayed)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            # when one side ends, end the other; ``cut`` has already ended both
            for side in (writer, server):
                if not side.is_closing():
                    side.close()
            if link in self.links:
                self.links.remove(link)

    async def _pump_requests(self, link: Link, reader: asyncio.StreamReader) -> None:
        first = True
        while True:
            head = await reader.readexactly(4)
            if head == b"srvr":
                link.server.write(head)
                first = False
                continue
            frame = head + await reader.readexactly(struct.unpack(">i", head)[0])
            xid, opcode = (0, 0) if first else struct.unpack_from(">ii", frame, 4)
            if first:
                self.connect_frames.append(frame)
            first = False
            await link.thawed.wait()
            action = self.on_request(link.number, xid, opcode, frame) if self.on_request is not None else Do.PASS
            if action is Do.CUT:
                link.cut(reset=True)
                return
            if action is Do.HOLD:
                link.thawed.clear()
                await link.thawed.wait()
            if action is Do.CUT_AFTER:
                link.swallow_from = xid
            link.server.write(frame)
            await link.server.drain()

    async def _deliver(self, link: Link, delayed: asyncio.Queue[tuple[float, bytes]]) -> None:
        """Deliver delayed replies in order, even if the delay shrinks."""
        loop = asyncio.get_running_loop()
        while True:
            due, frame = await delayed.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            link.client.write(frame)
            await link.client.drain()

    async def _pump_replies(
        self, link: Link, reader: asyncio.StreamReader, delayed: asyncio.Queue[tuple[float, bytes]]
    ) -> None:
        loop = asyncio.get_running_loop()
        late_until = 0.0
        first = True
        while True:
            head = b""
            try:
                head = await reader.readexactly(4)
                body = await reader.readexactly(struct.unpack(">i", head)[0])
            except asyncio.IncompleteReadError as end:
                link.client.write(head + end.partial)  # the answer to ``srvr`` has no frame
                return
            xid = 0 if first else struct.unpack_from(">i", body, 0)[0]
            first = False
            await link.thawed.wait()
            await link.hears.wait()
            if link.swallow_from is not None and xid == link.swallow_from:
                link.cut(reset=True)
                return
            frame = head + body
            if self.before_reply is not None:
                await self.before_reply(xid, frame)
            if self.on_reply is not None:
                try:
                    frame = self.on_reply(link.number, xid, frame)
                except EndsHere as end:
                    link.client.write(end.part)
                    return
            if self.delay_s or loop.time() < late_until:
                late_until = max(late_until, loop.time() + self.delay_s)
                delayed.put_nowait((late_until, frame))
                continue
            link.client.write(frame)
            await link.client.drain()
