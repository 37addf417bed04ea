"""The operating system's network and clock, through the running event loop (uvloop in production)."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import random
import resource
import socket
import ssl as ssl_module
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from aiocontroller.net.complaints import Complaints
from aiocontroller.net.ports import BACKLOG, DEBUG_VARIABLE, HANDSHAKE_TIMEOUT_S, Gate, Listener, Timer, TlsNow, World
from aiocontroller.net.taken_ports import taken

log = logging.getLogger(__name__)

P = TypeVar("P", bound=asyncio.BaseProtocol)

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
MOST_DESCRIPTORS = 1 << 20
"""Used if the operating system has no limit; no more than Linux allows by default."""
ACCEPTED_PER_TURN = 8
"""Connections accepted per turn of the loop.  With one, each of a crowd of connections would delay a new one by a turn;
with many, a crowd would displace connections that have not sent anything yet."""
ACCEPT_AGAIN_S = 0.1
"""How long to stop accepting after descriptors ran out."""


class RealClock:
    """The operating system's clock and the event loop's timers."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary moment (CLOCK_MONOTONIC: not while the machine is suspended)."""
        return time.monotonic()

    def wall_time_us(self) -> int:
        """Microseconds since 1970; goes back when the system's clock is set back."""
        return time.time_ns() // 1000

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call once after ``delay_s`` seconds, in the running loop; RuntimeError without one."""
        return asyncio.get_running_loop().call_later(delay_s, callback)

    async def sleep(self, delay_s: float) -> None:
        """Return after at least ``delay_s`` seconds."""
        await asyncio.sleep(delay_s)


class OpenGate:
    """Accepts every connection."""

    def __init__(self, protocol_factory: Callable[[], asyncio.BaseProtocol]) -> None:
        self._protocol_factory = protocol_factory

    def enter(self, address: str, abort: Callable[[], object]) -> asyncio.BaseProtocol | None:
        """A new protocol for every address; never None."""
        return self._protocol_factory()


class Tls(NamedTuple):
    """How a listener does TLS handshakes."""

    context: TlsNow
    handshake_timeout_s: float


class RealListener:
    """Accepts a few connections per turn of the loop, and none while descriptors are used up: connections then wait in
    the operating system's queue, and the loop does not spin."""

    def __init__(self, sockets: Sequence[socket.socket], gate: Gate, tls: Tls | None) -> None:
        self._sockets = sockets
        self._port = int(sockets[0].getsockname()[1])
        self._gate = gate
        self._tls = tls
        self._complaints = Complaints(log, RealClock())
        self._loop = asyncio.get_running_loop()
        self._opening: dict[asyncio.Task[None], None] = {}
        """Connections whose protocol has no transport yet."""
        for each in sockets:
            self._loop.add_reader(each, self._accept, each)

    @property
    def port(self) -> int:
        """The actual port; stays known after ``close``."""
        return self._port

    def close(self) -> None:
        """Stop accepting, and abandon connections that have no transport yet (TLS handshakes); idempotent."""
        for each in self._sockets:
            if each.fileno() >= 0:
                self._loop.remove_reader(each)
            each.close()
        for task in list(self._opening):
            task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        """Called by the loop once per turn while a connection waits."""
        for _ in range(ACCEPTED_PER_TURN):
            try:
                connected, peer = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return  # none is waiting, or it was closed meanwhile
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                self._complaints.warn("connections that wait", "No connection can be accepted: %s", error)
                self._loop.remove_reader(listening)
                self._loop.call_later(ACCEPT_AGAIN_S, self._accept_again, listening)
                return
            self._enter(connected, str(peer[0]))

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0:
            self._loop.add_reader(listening, self._accept, listening)

    def _enter(self, connected: socket.socket, address: str) -> None:
        task: asyncio.Task[None] | None = None

        def abort() -> None:
            if task is not None:
                task.cancel()

        protocol = self._gate.enter(address, abort)
        if protocol is None:
            connected.close()
            return
        task = self._loop.create_task(self._open(connected, protocol))
        self._opening[task] = None
        task.add_done_callback(lambda done: self._opened(done, connected, protocol))

    def _opened(self, task: asyncio.Task[None], connected: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        self._opening.pop(task, None)
        if task.cancelled():  # before its first step
            connected.close()
            protocol.connection_lost(None)

    async def _open(self, connected: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        """Run until the protocol has its transport."""
        loop = asyncio.get_running_loop()
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                await loop.connect_accepted_socket(lambda: protocol, connected)
            else:
                await loop.connect_accepted_socket(
                    lambda: protocol,
                    connected,
                    ssl=self._tls.context(),
                    ssl_handshake_timeout=self._tls.handshake_timeout_s,
                )
        except (OSError, asyncio.CancelledError) as error:
            connected.close()
            protocol.connection_lost(error if isinstance(error, OSError) else None)


class RealNetwork:
    """The operating system's network."""

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        timeout_s: float,
        ssl: ssl_module.SSLContext | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect within ``timeout_s`` seconds, name lookup and TLS included; OSError (TimeoutError) otherwise.

        OSError also for an invalid address: anyone may register a broker with a label of 64 characters, or port -1.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                return await loop.create_connection(protocol_factory, host, port, ssl=ssl)
        except OSError:
            raise
        except (ValueError, OverflowError) as error:
            raise OSError(f"found the address {host}:{port}, expected one that can be connected to: {error}") from error

    async def serve(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
    ) -> Listener:
        """Listen on all addresses of ``host``, and accept every connection; OSError if one is taken."""
        return await self.serve_through(
            OpenGate(protocol_factory), host, port, ssl=None if ssl is None else lambda: ssl
        )

    async def serve_through(
        self,
        gate: Gate,
        host: str,
        port: int,
        *,
        ssl: TlsNow | None = None,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        backlog: int = BACKLOG,
    ) -> Listener:
        """Listen on all addresses of ``host``; ``backlog`` counts connections for each; OSError if one is taken."""
        tls = None if ssl is None else Tls(ssl, handshake_timeout_s)
        return RealListener(await _listen(host, port, backlog), gate, tls)

    async def addresses(self, host: str) -> Sequence[str]:
        """The host's IP addresses, each once, in the resolver's order; OSError if there are none."""
        try:
            found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except ValueError as error:
            raise OSError(f"found the host {host}, expected one with addresses: {error}") from error
        return list(dict.fromkeys(str(address[0]) for *_, address in found))


async def _listen(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Sockets for every address of the host; an empty host is every interface."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise taken(error, host, port) from None
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            listening = socket.socket(family, socket.SOCK_STREAM)
            sockets.append(listening)
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                listening.bind(address)
            except OSError as error:
                raise taken(error, host, port) from None
            listening.listen(backlog)
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return sockets


def raise_descriptor_limit() -> int:
    """Raise the limit of open files and sockets to the maximum allowed; returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError) as error:
            log.warning("The limit of open files stays at %d: %s", soft, error)
        else:
            log.info("The limit of open files is %d, was %d", wanted, soft)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def return_memory() -> None:
    """Return free memory that the C library keeps to the operating system (glibc only)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def real_world() -> World:
    """The real world; in debug mode if ``AIOCONTROLLER_DEBUG`` is set and not 0."""
    debug = os.environ.get(DEBUG_VARIABLE, "0") != "0"
    return World(RealNetwork(), RealClock(), random.SystemRandom(), debug=debug)
