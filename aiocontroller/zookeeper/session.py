"""A ZooKeeper session that survives its connections.

Theory
  * One task (``_run``), in its owner's task group, opens connections, one after the other, until the client is closed.
    It never waits for an operation's reply, so a connection cannot block it.
  * Only the server can end the session: by a handshake answered with id 0 (or a reply SESSION_EXPIRED, which the next
    handshake confirms).  A refused, cut or timed-out handshake proves nothing about the session.
  * The first frames of a resumed connection are the credentials and SetWatches for everything in the registry, relative
    to the zxid of the last reply.  Their replies are pending like any other, but are not awaited.
  * A server that is silent for a third of the timeout is pinged; after two thirds the connection is closed.  The last
    third is left to find another server before the session expires.
  * A call belongs to the session in which it began.  If that session expires, the call raises SessionExpiredError: a
    controller's write must not slip into the next session.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from ssl import SSLContext
from typing import Any

import anyio
import anyio.lowlevel

from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import World
from aiocontroller.net.tasks import LooseTasks, Tasks
from aiocontroller.zookeeper import codec
from aiocontroller.zookeeper.addresses import format_address
from aiocontroller.zookeeper.connection import Connection, Counters, Hook, SeenZxids, ZooKeeperReply
from aiocontroller.zookeeper.errors import (
    SESSION_GONE,
    AuthFailedError,
    ClientClosedError,
    Code,
    MaybeAppliedError,
    NotSentError,
    RequestTooLargeError,
    SessionExpiredError,
    ZooKeeperError,
    response_error,
)
from aiocontroller.zookeeper.from_aiozk import AuthRequest, CloseRequest, response_xref
from aiocontroller.zookeeper.heartbeat import Heartbeat
from aiocontroller.zookeeper.sasl import DigestMd5
from aiocontroller.zookeeper.session_events import SessionEvent, SessionHandler
from aiocontroller.zookeeper.session_metrics import SessionMetrics
from aiocontroller.zookeeper.watches import WatchRegistry

log = logging.getLogger(__name__)

MAX_REQUEST_BYTES = 1_048_575
"""``jute.maxbuffer``'s default; a server closes the connection on a longer request."""
MIN_BACKOFF_S, MAX_BACKOFF_S = 0.025, 1.0
MIN_ATTEMPT_TIMEOUT_S = 0.2
STABLE_AFTER_S = 1.0
"""A connection that lived this long, or served a request, resets the back-off."""
REFUSED_FOR_S = 1.0
"""How long to retry a refused login, as Kafka does: each attempt keeps the session alive, and with it the role."""
MAX_AUTH_ATTEMPTS = 10
CLOSE_WITHIN_S = 6.0
CLOSE_GRACE_S = 1.0
"""How long ``close`` waits for a session without a connection."""


class ZooKeeperSession:
    """The session, its connections, and the window of requests in flight."""

    def __init__(
        self,
        hosts: Sequence[tuple[str, int]],
        timeout_s: float,
        world: World,
        *,
        ssl: SSLContext | None = None,
        sasl_digest: tuple[str, str] | None = None,
        metrics: Metrics | None = None,
        max_in_flight: int = 1000,
        max_bytes_in_flight: int = 4 << 20,
    ) -> None:
        self.hosts = list(hosts)
        self.conn: Connection | None = None
        self.session_id = 0
        self.password = bytes(16)
        self.timeout_s = timeout_s
        """The negotiated timeout while there is a session; else the requested one."""
        self.epoch = 0
        self.progress = SeenZxids()
        self.counters = Counters()
        self.registry = WatchRegistry()
        self.credentials: list[bytes] = []
        self._early_credentials: list[tuple[str, bytes]] = []
        self.on_watch: Callable[[int, str], None] | None = None
        self.on_session: SessionHandler | None = None
        self.failed_attempts = 0
        self.metrics = SessionMetrics(metrics)
        self._register_gauges()
        self.last_failure = "no attempt was made yet"
        self._world = world
        self._clock = world.clock
        self.ssl = ssl
        """The TLS context of new connections; None: no TLS."""
        self._sasl_digest = sasl_digest
        self._requested_timeout_s = timeout_s
        self._max_in_flight = max_in_flight
        self._max_bytes_in_flight = max_bytes_in_flight
        self._generation = 0
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._opening: Connection | None = None
        self._running: anyio.CancelScope | None = None
        """Cancels the session's task; None before the start."""
        self._ended = anyio.Event()
        self._closed = False
        self._heartbeat: Heartbeat | None = None
        self._next_host = 0
        self._refused_s: float | None = None  # since when logins have been refused
        self.connected_to: tuple[str, int] | None = None
        self.was_refused = False
        """The previous connection ended because its server did not know a type of request."""

    def _register_gauges(self) -> None:
        watch = self.metrics.watch
        watch("InFlight", lambda: self.conn.in_flight if self.conn is not None else 0)
        watch("BytesInFlight", lambda: self.conn.bytes_in_flight if self.conn is not None else 0)
        watch("BytesSent", lambda: self.counters.bytes_sent)
        watch("BytesReceived", lambda: self.counters.bytes_received)
        watch("FailedAttempts", lambda: self.failed_attempts)
        watch("Waiting", lambda: len(self._waiters))
        watch("Watches", lambda: len(self.registry))

    # -- life ----------------------------------------------------------------------------------------------------------

    async def start(self, timeout_s: float | None = None, tasks: Tasks | None = None) -> None:
        """Open the first session.  Raises TimeoutError, naming the last failure, and ClientClosedError after ``close``.

        The session's task runs in ``tasks``, and ends with ``close``.
        """
        if self._closed:
            raise ClientClosedError("this ZooKeeper client was closed; make a new one")
        if self._running is None:
            self._next_host = self._world.random.randrange(len(self.hosts))
            self._running = anyio.CancelScope()
            (tasks or LooseTasks()).start_soon(self._run, self._running, name="zookeeper-session")
        with anyio.CancelScope() as waiting:
            timer = None if timeout_s is None else self._clock.call_later(timeout_s, waiting.cancel)
            try:
                await self._await_first_session()
                await asyncio.sleep(0)  # resume one turn later: the journals of recorded seeds depend on it
            finally:
                if timer is not None:
                    timer.cancel()
        if waiting.cancelled_caught:
            names = ", ".join(format_address(*host) for host in self.hosts)
            raise TimeoutError(
                f"no session with ZooKeeper at {names} within {timeout_s} s; last failure: {self.last_failure}"
            )
        while self._early_credentials:
            await self.add_auth(*self._early_credentials[0])
            del self._early_credentials[0]

    async def close(self, within_s: float = CLOSE_WITHIN_S) -> None:
        """Close the session, if a server can be reached within ``within_s``; always returns."""
        if self._closed:
            return
        self._closed = True
        by_s = self._clock.monotonic() + within_s
        conn = await self._connection_for_close(min(CLOSE_GRACE_S, self.timeout_s / 3, within_s / 2))
        if conn is not None:
            await self._close_session(conn, min(self.timeout_s / 3, by_s - self._clock.monotonic()))
        if self._running is not None:
            self._running.cancel()
            await self._ended.wait()
        self._drop_connection("the client was closed")
        if self._opening is not None:
            self._opening.abort("the client was closed")
        self.registry.clear()
        self._wake_all()

    async def _connection_for_close(self, within_s: float) -> Connection | None:
        """The live connection.  Waits a little for a suspended session: closing it deletes its ephemerals at once."""
        if self.conn is None and self.session_id and not self._ended.is_set():
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(future)
            await self._wait_at_most(future, within_s)
        return self.conn if self.conn is not None and self.conn.alive else None

    async def _close_session(self, conn: Connection, within_s: float) -> None:
        future = conn.submit([CloseRequest().serialize()])
        await self._wait_at_most(future, within_s)
        if future.done() and not future.cancelled():
            future.exception()  # an EOF instead of the answer is fine

    async def _wait_at_most(self, future: asyncio.Future[Any], timeout_s: float) -> None:
        """Wait for a future for a limited time, without consuming its result."""
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def opened(_: object = None) -> None:
            if not gate.done():
                gate.set_result(None)

        future.add_done_callback(opened)
        timer = self._clock.call_later(timeout_s, opened)
        try:
            await gate
        finally:
            timer.cancel()
            future.remove_done_callback(opened)

    # -- the one task --------------------------------------------------------------------------------------------------

    async def _run(self, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                await self._stay_connected()
        except Exception:  # a bug: the owner ends with it, and calls must not wait for ever
            self._closed = True
            self._drop_connection("the session's task has died")
            self._wake_all()
            raise
        finally:
            self._ended.set()

    async def _stay_connected(self) -> None:
        failures = 0
        while True:
            try:
                conn = await self._open_round()
            except Exception:
                log.exception("Opening a ZooKeeper session failed unexpectedly; trying again")
                conn = None
            if conn is None:
                await self._clock.sleep(self._backoff_s(failures))
                failures += 1
                continue
            since = self._clock.monotonic()
            reason = await asyncio.shield(conn.lost)
            await anyio.lowlevel.checkpoint_if_cancelled()  # ``close`` may have come in the same turn
            self._suspend(conn, reason)
            self._note_login(refused=conn.refused)
            if conn.served or self._clock.monotonic() - since >= STABLE_AFTER_S:
                failures = 0
            elif failures:
                await self._clock.sleep(self._backoff_s(failures))
                failures += 1
            else:
                failures = 1

    def _backoff_s(self, failures: int) -> float:
        return float(
            min(MAX_BACKOFF_S, MIN_BACKOFF_S * 2 ** min(failures, 10)) * (0.5 + self._world.random.random() / 2)
        )

    async def _open_round(self) -> Connection | None:
        """Try each server once; None if none accepted us."""
        for _ in self.hosts:
            host, port = self.hosts[self._next_host]
            self._next_host = (self._next_host + 1) % len(self.hosts)
            try:
                conn = await self._open(host, port)
            except (OSError, ValueError, ZooKeeperError) as error:
                self.failed_attempts += 1
                self.last_failure = f"{format_address(host, port)}: {error or type(error).__name__}"
                log.info("No session through ZooKeeper server %s", self.last_failure)
                if isinstance(error, AuthFailedError):
                    self._note_login(refused=True)
                continue
            return conn
        return None

    def _note_login(self, *, refused: bool) -> None:
        now_s = self._clock.monotonic()
        if not refused or self._refused_s is None:
            self._refused_s = now_s if refused else None
        elif self.session_id and now_s - self._refused_s >= REFUSED_FOR_S:
            log.warning("ZooKeeper has refused the login for %.1f s: giving the session up", now_s - self._refused_s)
            self._expire()

    def _attempt_timeout_s(self) -> float:
        return float(max(self.timeout_s / 3 / len(self.hosts), MIN_ATTEMPT_TIMEOUT_S))

    async def _open(self, host: str, port: int) -> Connection:
        """Connect and shake hands; if the server says that the session has expired, do so again for a new one."""
        conn = await self._attempt(host, port) or await self._attempt(host, port)
        if conn is None:
            raise ZooKeeperError("the server says that a session has expired that was never opened")
        return conn

    async def _attempt(self, host: str, port: int) -> Connection | None:
        """Connect and shake hands; None after the session has expired."""
        await anyio.lowlevel.checkpoint_if_cancelled()  # as after a loss
        timeout_s = self._attempt_timeout_s()
        _, conn = await self._world.network.connect(
            lambda: Connection(self._clock, self.progress, self.counters, self._on_event, self._on_room),
            host,
            port,
            timeout_s=timeout_s,
            ssl=self.ssl,
        )
        self._opening = conn
        try:
            frame = codec.connect_frame(
                self.progress.seen_zxid, round(self._requested_timeout_s * 1000), self.session_id, self.password
            )
            answer = conn.shake_hands(frame)
            timer = self._clock.call_later(
                timeout_s, lambda: conn.abort(f"no answer to the handshake within {timeout_s:.3f} s")
            )
            try:
                timeout_ms, session_id, password = codec.decode_connect_reply(await answer)
                if session_id and self._sasl_digest is not None:
                    await self._authenticate_by_sasl(conn, *self._sasl_digest)
            finally:
                timer.cancel()
            if not session_id:
                conn.abort("the server says that the session has expired")
                self._expire()
                return None
            self.connected_to = (host, port)
            self._establish(conn, timeout_ms, session_id, password)
            return conn
        except BaseException:
            conn.abort("the handshake failed")
            raise
        finally:
            self._opening = None

    async def _authenticate_by_sasl(self, conn: Connection, username: str, password: str) -> None:
        """Authenticate a new connection, before anything else is sent on it.  Raises AuthFailedError."""
        exchange = DigestMd5(username, password, f"{self._world.random.randrange(1 << 128):032x}")
        try:
            challenge = await self._sasl_step(conn, b"")
            exchange.verify(await self._sasl_step(conn, exchange.respond(challenge)))
        except (AuthFailedError, MaybeAppliedError) as error:
            self.metrics.auth_failures.mark()
            raise AuthFailedError(f"SASL authentication of {username!r} failed: {error}") from error
        self.metrics.sasl_authentications.mark()

    async def _sasl_step(self, conn: Connection, token: bytes) -> bytes:
        [(code, payload)] = await conn.submit([codec.pack_int(codec.SASL) + codec.buffer(token)])
        if code != codec.OK:
            raise AuthFailedError(f"the server answered with code {code}")
        return payload[4:]

    def _establish(self, conn: Connection, timeout_ms: int, session_id: int, password: bytes) -> None:
        if self.session_id and session_id != self.session_id:
            self._expire()
        resumed = session_id == self.session_id
        self.session_id, self.password, self.timeout_s = session_id, password, timeout_ms / 1000
        for body in self.credentials:
            conn.authenticate(body, wait=False)
        if resumed:
            for body in self.registry.frames(self.progress.replied_zxid):
                conn.post(body, self.registry.rearmed)
            event = SessionEvent.RECONNECTED
        else:
            self.epoch += 1
            event = SessionEvent.CONNECTED if self.epoch == 1 else SessionEvent.NEW_SESSION
        self.metrics.connects.mark()
        self.conn = conn
        self._heartbeat = Heartbeat(self._clock, conn, self.timeout_s)
        log.info("ZooKeeper session 0x%x %s, timeout %d ms", session_id, event.value, timeout_ms)
        self._report(event)
        self._wake_next()

    def _suspend(self, conn: Connection, reason: str) -> None:
        if self.conn is conn:
            self.conn = None
        self.was_refused = conn.refused_unknown
        self._stop_heartbeat()
        self.metrics.disconnects.mark()
        log.info("ZooKeeper session 0x%x suspended: %s", self.session_id, reason)
        self._report(SessionEvent.SUSPENDED)

    def _stop_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()
            self._heartbeat = None

    def _expire(self) -> None:
        log.warning("ZooKeeper session 0x%x has expired", self.session_id)
        self.metrics.expires.mark()
        self._generation += 1
        self.session_id, self.password = 0, bytes(16)
        self.timeout_s = self._requested_timeout_s
        self.registry.clear()
        self._wake_all()
        self._report(SessionEvent.EXPIRED)

    def _report(self, event: SessionEvent) -> None:
        """Notify the owner; EXPIRED before the next session is opened."""
        if self.on_session is None:
            return
        try:
            self.on_session(event)
        except Exception:
            log.exception("The handler of ZooKeeper session events failed on %s", event.name)

    # -- events --------------------------------------------------------------------------------------------------------

    def _on_event(self, kind: int, state: int, path: str) -> None:
        if kind <= 0:
            log.info("ZooKeeper session event, state %d", state)
            return
        self.registry.fired(kind, path)
        if self.on_watch is not None:
            try:
                self.on_watch(kind, path)
            except Exception:
                log.exception("The handler of watch events failed on %s", path)

    # -- requests ------------------------------------------------------------------------------------------------------

    async def exchange(
        self,
        bodies: Sequence[bytes],
        *,
        retry: bool,
        hooks: Sequence[Hook | None] | None = None,
        generation: int | None = None,
    ) -> list[ZooKeeperReply]:
        """Send requests together and return (code, payload) of each.

        With ``retry``, for reads, all requests are repeated until a connection lasts; without it, a lost connection
        raises NotSentError or MaybeAppliedError.  ``generation`` (see the property) binds the call to an earlier
        session.  Also raises SessionExpiredError, ClientClosedError and RequestTooLargeError.
        """
        if generation is None:
            generation = self._generation
        size = 0
        for body in bodies:
            if len(body) + 4 > MAX_REQUEST_BYTES:
                raise RequestTooLargeError(
                    f"a request has {len(body) + 4} bytes, the server accepts {MAX_REQUEST_BYTES}"
                )
            size += len(body) + 8
        while True:
            conn = await self._await_connection(len(bodies), size, generation)
            since = self._clock.monotonic()
            try:
                replies = await conn.submit(bodies, hooks)
            except (NotSentError, MaybeAppliedError):
                if retry:
                    continue
                raise
            self.metrics.request_latency_ms.observe((self._clock.monotonic() - since) * 1000)
            if not self._refused(conn, replies):
                return replies
            if not retry:
                raise NotSentError("the server refused the request: the session is attached to another connection")

    def _refused(self, conn: Connection, replies: Iterable[ZooKeeperReply]) -> bool:
        """Whether the server refused to serve this session on this connection; then nothing was applied."""
        for code, _ in replies:
            if code in SESSION_GONE:
                conn.abort("the server says that the session has expired")
                raise SessionExpiredError(f"ZooKeeper session 0x{self.session_id:x} has expired")
            if code in (Code.SESSION_MOVED, Code.CONNECTION_LOSS):
                conn.abort(f"the server refused a request with code {code}")
                return True
        return False

    @property
    def waiting(self) -> int:
        """Number of calls waiting for a connection or for room in its window."""
        return len(self._waiters)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    @property
    def state(self) -> str:
        """``connected``, ``suspended`` (the session may live on) or ``lost``."""
        if self._closed or not self.session_id:
            return "lost"
        return "connected" if self.conn is not None else "suspended"

    @property
    def generation(self) -> int:
        """The number of sessions lost so far; a call belongs to one generation."""
        return self._generation

    async def _await_first_session(self) -> None:
        """Wait for the first session; if it ends at once, for the next."""
        while True:
            try:
                await self._await_connection(0, 0, self._generation)
            except SessionExpiredError:
                continue
            return

    async def _await_connection(self, frames: int, size: int, generation: int) -> Connection:
        """Wait, first come first served, for a connection whose window has room for the request."""
        woken = False
        while True:
            if generation != self._generation:
                self._wake_next()
                raise SessionExpiredError("the ZooKeeper session in which this call began has expired")
            if self._closed or self._running is None:
                self._wake_next()
                raise ClientClosedError("the ZooKeeper client is closed or was not started")
            conn = self.conn
            if conn is not None and conn.alive and (woken or not self._waiters) and self._has_room(conn, frames, size):
                if woken:
                    self._wake_next()
                return conn
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            (self._waiters.appendleft if woken else self._waiters.append)(future)
            try:
                await future
                woken = True
            except asyncio.CancelledError:
                if future.done() and not future.cancelled():
                    self._wake_next()
                elif future in self._waiters:
                    self._waiters.remove(future)
                raise

    def _has_room(self, conn: Connection, frames: int, size: int) -> bool:
        if not conn.in_flight or not frames:
            return True
        return (
            conn.in_flight + frames <= self._max_in_flight and conn.bytes_in_flight + size <= self._max_bytes_in_flight
        )

    def _on_room(self) -> None:
        if self._waiters:
            self._wake_next()

    def _wake_next(self) -> None:
        while self._waiters:
            future = self._waiters.popleft()
            if not future.done():
                future.set_result(None)
                return

    def _wake_all(self) -> None:
        # an expiry or a close must wake every waiter; otherwise each waiter wakes the next
        waiters, self._waiters = self._waiters, deque()
        for future in waiters:
            if not future.done():
                future.set_result(None)

    def _drop_connection(self, reason: str) -> None:
        self._stop_heartbeat()
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.abort(reason)

    def add_early_credentials(self, scheme: str, credential: bytes) -> None:
        """Add credentials to use when the session starts, before ``start`` returns."""
        self._early_credentials.append((scheme, credential))

    async def add_auth(self, scheme: str, credential: bytes) -> None:
        """Authenticate this session, now (or at the start) and on every later connection.

        Raises AuthFailedError if the server refuses; the server then closes the connection.
        """
        if self._running is None and not self._closed:
            self.add_early_credentials(scheme, credential)
            return
        body = AuthRequest(type=0, scheme=scheme, auth=credential).serialize()
        for _ in range(MAX_AUTH_ATTEMPTS):
            conn = await self._await_connection(1, len(body), self._generation)
            future = conn.authenticate(body, wait=True)
            assert future is not None
            try:
                code = await future
            except MaybeAppliedError:
                continue
            if code != codec.OK:
                self.metrics.auth_failures.mark()
                raise AuthFailedError(f"ZooKeeper refused the credentials of scheme {scheme!r} (code {code})")
            if body not in self.credentials:
                self.credentials.append(body)
            return
        raise AuthFailedError(f"ZooKeeper hung up {MAX_AUTH_ATTEMPTS} times on credentials of scheme {scheme!r}")

    # -- single operations, by aiozk's messages ------------------------------------------------------------------------

    async def send(self, request: Any) -> Any:
        """Send an aiozk request object and return its response; raises aiozk's exception for the server's code.

        Reads are repeated over lost connections, writes are not (NotSentError, MaybeAppliedError).
        """
        opcode = request.opcode
        hook: Hook | None = None
        if getattr(request, "watch", False):
            hook = functools.partial(self.registry.armed, opcode, request.path)
        [(code, payload)] = await self.exchange([request.serialize()], retry=opcode in codec.READ_OPCODES, hooks=[hook])
        if code != codec.OK:
            raise response_error(code)
        return response_xref[opcode].deserialize(payload)
