"""One TCP (or TLS) connection to one ZooKeeper server, as an asyncio Protocol.

Rules
  * ZooKeeper replies in the order of requests, so pending requests are a deque; a reply whose xid is not the oldest
    pending one means a damaged stream, and the connection is closed.  Only the refusal of a type of request that the
    server does not know overtakes others; the server then hangs up.
  * Frames of one loop turn are sent in one write.
  * When the connection ends, for any reason, everything pending fails at once: requests never handed to the transport
    with NotSentError, all others with MaybeAppliedError.
  * Watch events are passed on as they are read, hence before any later reply's future wakes its waiter.
  * ``data_received`` never raises, whatever a server sends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct
from typing import cast

from aiocontroller.net.ports import Clock
from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.errors import Code, MaybeAppliedError, NotSentError, ZooKeeperError
from aiocontroller.zookeeper.from_aiozk import AUTH_XID, PING_XID, WATCH_XID, PingRequest

log = logging.getLogger(__name__)

MAX_REPLY_BYTES = 256 << 20
"""A longer frame is treated as damage."""
WRITE_BUFFER_BYTES = 1 << 20

_PING = codec.framed(PingRequest().serialize(PING_XID))
_FRAME_HEAD = Struct(">ii")
_REPLY_HEAD = Struct(">iqi")
_EVENT_HEAD = Struct(">iii")

ZooKeeperReply = tuple[int, bytes]
"""(error code, payload after the reply header)"""
Hook = Callable[[int], None]
"""Called with a reply's code as it is read, before any later frame is parsed."""


class SeenZxids:
    """The zxids that this session has seen; outlives connections.

    ``replied_zxid`` counts replies only: the events of one transaction may be cut off half way, so an event's zxid does
    not prove that others with the same zxid have arrived, and SetWatches must start before it.  ``seen_zxid`` counts
    events too: a server behind it must not serve this session, or the session would go back in time.
    """

    __slots__ = ("replied_zxid", "seen_zxid")

    def __init__(self) -> None:
        self.replied_zxid = 0
        self.seen_zxid = 0

    def saw(self, zxid: int) -> None:
        """Record the zxid of a valid frame: a wrong zxid here would lock this session out of every server."""
        if zxid > self.seen_zxid:
            self.seen_zxid = zxid


class Counters:
    """Running totals of a client, over all its connections."""

    __slots__ = ("bytes_received", "bytes_sent", "events", "replies", "requests", "writes_to_socket")

    def __init__(self) -> None:
        self.requests = self.replies = self.events = 0
        self.bytes_sent = self.bytes_received = self.writes_to_socket = 0


class Batch:
    """Requests sent together; the future gets all their replies, or the error that ended the connection."""

    __slots__ = ("future", "left", "replies")

    def __init__(self, future: asyncio.Future[list[ZooKeeperReply]], count: int) -> None:
        self.future = future
        self.left = count
        self.replies: list[ZooKeeperReply] = []


_Request = tuple[int, Batch | None, Hook | None, int]
"""(xid, its batch if anybody awaits the reply, hook, size)"""


class Connection(asyncio.Protocol):
    """Requests in order, replies by their futures; bytes in flight are counted, not bounded, here."""

    def __init__(
        self,
        clock: Clock,
        progress: SeenZxids,
        counters: Counters,
        on_event: Callable[[int, int, str], None],
        on_room: Callable[[], None],
    ) -> None:
        """``on_event`` gets (type, keeper state, full path); ``on_room`` is called after each batch of replies read."""
        self._clock = clock
        self._progress = progress
        self._counters = counters
        self._on_event = on_event
        self._on_room = on_room
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: deque[_Request] = deque()
        self._out: list[bytes] = []
        self._unsent = 0
        self._flushing = False
        self._paused = False
        self._tail: list[bytes] = []
        self._needed = 0
        self._handshake: asyncio.Future[bytes] | None = None
        self._auth: deque[asyncio.Future[int] | None] = deque()
        self._xid = 0
        self.bytes_in_flight = 0
        self.served = 0
        self.refused = False
        """The server requires a login."""
        self.refused_unknown = False
        """The server did not know a type of request, after which ZooKeeper hangs up."""
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self.last_received = self.last_sent = clock.monotonic()

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Number of requests waiting for replies."""
        return len(self._pending)

    @property
    def alive(self) -> bool:
        """Whether requests can still be sent."""
        return not self.lost.done()

    # -- sending -------------------------------------------------------------------------------------------------------

    def shake_hands(self, frame: bytes) -> asyncio.Future[bytes]:
        """Write the connect frame; the future gets the answer's payload."""
        self._handshake = self._loop.create_future()
        if not self.alive:
            self._handshake.set_exception(NotSentError(self.lost.result()))
            return self._handshake
        self._queue(frame)
        return self._handshake

    def submit(
        self, bodies: Sequence[bytes], hooks: Sequence[Hook | None] | None = None
    ) -> asyncio.Future[list[ZooKeeperReply]]:
        """Send requests in order; the future gets (code, payload) of each."""
        batch = Batch(self._loop.create_future(), len(bodies))
        if not self.alive:
            batch.future.set_exception(NotSentError(self.lost.result()))
            return batch.future
        for i, body in enumerate(bodies):
            self._enqueue(body, batch, hooks[i] if hooks is not None else None)
        return batch.future

    def post(self, body: bytes, hook: Hook | None = None) -> None:
        """Send a request without awaiting its reply."""
        if self.alive:
            self._enqueue(body, None, hook)

    def ping(self) -> None:
        """Send a ping; its reply counts as a sign of life."""
        self._queue(_PING)

    def authenticate(self, body: bytes, *, wait: bool) -> asyncio.Future[int] | None:
        """Send an auth request; its reply (a code) may overtake others."""
        future: asyncio.Future[int] | None = self._loop.create_future() if wait else None
        self._auth.append(future)
        self._queue(_FRAME_HEAD.pack(len(body) + 4, AUTH_XID) + body)
        return future

    def _enqueue(self, body: bytes, batch: Batch | None, hook: Hook | None) -> None:
        self._xid = xid = self._xid % 0x7FFFFFFF + 1
        size = len(body) + 8
        self._pending.append((xid, batch, hook, size))
        self._unsent += 1
        self.bytes_in_flight += size
        self._counters.requests += 1
        self._queue(_FRAME_HEAD.pack(size - 4, xid) + body)

    def _queue(self, frame: bytes) -> None:
        self._out.append(frame)
        if not self._flushing and not self._paused:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._paused or not self._out or self._transport is None or not self.alive:
            return
        data = b"".join(self._out)
        self._out.clear()
        self._unsent = 0
        self._counters.bytes_sent += len(data)
        self._counters.writes_to_socket += 1
        self.last_sent = self._clock.monotonic()
        self._transport.write(data)

    # -- asyncio's side ------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport and limit its write buffer; sends nothing."""
        # uvloop's transports are not asyncio.Transport by class
        self._transport = out = cast(asyncio.Transport, transport)
        out.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self.last_received = self._clock.monotonic()

    def pause_writing(self) -> None:
        """Keep frames until the socket takes more."""
        self._paused = True

    def resume_writing(self) -> None:
        """Send the frames that were kept."""
        self._paused = False
        self._flush()

    def eof_received(self) -> None:
        """Fail all pending requests; the transport then closes itself."""
        self._lose("the server closed the connection")

    def connection_lost(self, error: Exception | None) -> None:
        """Fail all pending requests, with the reason; no effect if they have failed already."""
        self._lose(f"the connection was lost: {error}" if error else "the connection was closed")

    def abort(self, reason: str) -> None:
        """End the connection now; pending requests fail before this returns."""
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        if self.lost.done():
            return
        self.lost.set_result(reason)
        if self._transport is not None:
            self._transport.abort()
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_exception(MaybeAppliedError(reason))
        for auth in self._auth:
            if auth is not None and not auth.done():
                auth.set_exception(MaybeAppliedError(reason))
        sent = len(self._pending) - self._unsent
        pending, self._pending = self._pending, deque()
        self._out.clear()
        self._auth.clear()
        self.bytes_in_flight = 0
        for i, (_, batch, _, _) in enumerate(pending):
            if batch is not None and not batch.future.done():
                error = MaybeAppliedError if i < sent else NotSentError
                batch.future.set_exception(error(reason))

    # -- receiving -----------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Complete the requests that complete frames answer; damage to the stream closes the connection."""
        self.last_received = self._clock.monotonic()
        self._counters.bytes_received += len(data)
        if self._needed > 0:
            self._tail.append(data)
            self._needed -= len(data)
            if self._needed > 0:
                return
            data = b"".join(self._tail)
            self._tail.clear()
        try:
            self._frames(data)
        except Exception as error:
            if not isinstance(error, ZooKeeperError):
                log.exception("Could not read what ZooKeeper sent")
            self._lose(f"the stream from the server is damaged: {error}")
        if self.alive:
            self._on_room()

    def _frames(self, data: bytes) -> None:
        at, end = 0, len(data)
        while self.alive:
            if end - at < 4:
                self._keep(data, at, 4)
                return
            size = codec.unpack_int(data, at)[0]
            if not 0 <= size <= MAX_REPLY_BYTES:
                raise ZooKeeperError(f"a frame claims {size} bytes, expected 0 to {MAX_REPLY_BYTES}")
            stop = at + 4 + size
            if stop > end:
                self._keep(data, at, 4 + size)
                return
            self._frame(data, at + 4, stop)
            at = stop

    def _keep(self, data: bytes, at: int, needed: int) -> None:
        """Keep the beginning of an incomplete frame; ``needed`` is its total size."""
        if at < len(data):
            self._tail.append(data[at:])
            self._needed = needed - (len(data) - at)

    def _frame(self, data: bytes, at: int, stop: int) -> None:
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_result(data[at:stop])
            return
        if stop - at < 16:
            raise ZooKeeperError(f"a reply has {stop - at} bytes, expected at least 16")
        xid, zxid, code = _REPLY_HEAD.unpack_from(data, at)
        if code == Code.SESSION_CLOSED_REQUIRE_SASL_AUTH:  # it hangs up without applying unanswered requests
            self.refused = True
            self._lose("the server requires a login by SASL")
        elif xid >= 0:
            self._reply(xid, zxid, code, data[at + 16 : stop])
        elif xid == WATCH_XID:
            kind, state, length = _EVENT_HEAD.unpack_from(data, at + 16)
            path = codec.text(data[at + 28 : at + 28 + max(length, 0)])
            self._counters.events += 1
            self._progress.saw(zxid)
            self._on_event(kind, state, path)
        elif xid == AUTH_XID:
            waiter = self._auth.popleft() if self._auth else None
            if waiter is not None and not waiter.done():
                waiter.set_result(code)
            elif code != codec.OK:
                log.error("ZooKeeper refused credentials that it had accepted before (code %d)", code)
        elif xid != PING_XID:
            raise ZooKeeperError(f"a reply has the xid {xid}, which no request had")

    def _reply(self, xid: int, zxid: int, code: int, payload: bytes) -> None:
        expected = self._pending[0][0] if self._pending else None
        if xid == expected:
            _, batch, hook, size = self._pending.popleft()
        else:
            _, batch, hook, size = self._overtaking(xid, code, expected)
        self.refused_unknown |= code == Code.UNIMPLEMENTED
        self.bytes_in_flight -= size
        self._counters.replies += 1
        self._progress.saw(zxid)
        if zxid > self._progress.replied_zxid:
            self._progress.replied_zxid = zxid
        if hook is not None:
            hook(code)
        if batch is None:
            return
        self.served += 1
        batch.replies.append((code, payload))
        batch.left -= 1
        if not batch.left and not batch.future.done():
            batch.future.set_result(batch.replies)

    def _overtaking(self, xid: int, code: int, expected: int | None) -> _Request:
        """Remove and return the request that is refused before its turn.  Raises ZooKeeperError for other replies."""
        for request in self._pending if code == Code.UNIMPLEMENTED else ():
            batch = request[1]
            if request[0] == xid and (batch is None or (batch.left == 1 and not batch.replies)):
                self._pending.remove(request)
                return request
        raise ZooKeeperError(f"a reply has the xid {xid}, expected {expected}")
