"""A network and a clock in memory: the whole program runs on one loop, and time passes only while all tasks wait.

Rules.
 * Nothing here uses the operating system: every run is the same, event for event.
 * A connection keeps the order of its bytes; each piece arrives after the network's delay, never in the same step.
 * Time jumps to the next deadline as soon as nothing is left to do, so an idle day costs nothing.
"""

from __future__ import annotations

import asyncio
import random
import ssl as ssl_module
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar, cast

from aiocontroller.lab.virtual_loop import Deadline, VirtualLoop, running_loop
from aiocontroller.net.ports import BACKLOG, HANDSHAKE_TIMEOUT_S, Gate, Listener, Timer, TlsNow, World

P = TypeVar("P", bound=asyncio.BaseProtocol)

FIRST_FREE_PORT = 20_000
EPOCH_US = 1_700_000_000_000_000
"""Wall time at the beginning of every simulated run, in microseconds since 1970."""
WRITE_BUFFER_BYTES = 1 << 16
"""Unread bytes at which the writing end has to pause: asyncio's own high-water mark."""
MIN_DELAY_S = 1e-6
"""The shortest timer, so that a series of timers always advances the clock."""


class _HostTimer(Deadline):
    """A timer that waits while its host is paused."""

    __slots__ = ("_host",)

    def __init__(self, host: Host, callback: Callable[[], object]) -> None:
        super().__init__(callback)
        self._host = host

    def _run(self) -> None:
        if self._host.paused:
            self._host.held.append(self._run)
        elif not self._cancelled:
            self._callback()


class SimulatedClock:
    """The virtual clock; with a ``host``, timers wait while the host is paused, but time goes on."""

    def __init__(self, host: Host | None = None) -> None:
        self._host = host

    @cached_property
    def _loop(self) -> VirtualLoop:
        return running_loop()

    def monotonic(self) -> float:
        now_s = self._loop._now_s
        return now_s if self._host is None else now_s * self._host.clock_rate

    def wall_time_us(self) -> int:
        jumped_s = 0.0 if self._host is None else self._host.wall_jump_s
        return EPOCH_US + round((self.monotonic() + jumped_s) * 1e6)

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        # The loop runs timers due within a nanosecond at once, without moving the clock.  A caller whose deadline is
        # still 1e-16 s away, because of rounding, would then set timers for ever.
        loop = self._loop
        timer = Deadline(callback) if self._host is None else _HostTimer(self._host, callback)
        rate = 1.0 if self._host is None else self._host.clock_rate
        loop.at(loop._now_s + max(delay_s / rate, MIN_DELAY_S), timer)
        return timer

    async def sleep(self, delay_s: float) -> None:
        if delay_s <= 0:
            await asyncio.sleep(0)
            return
        over = self._loop.create_future()
        timer = self.call_later(delay_s, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()


class SimulatedTransport(asyncio.Transport):
    """One end of a connection; it is ``Due`` once for each piece that is under way to it."""

    _cancelled = False

    def __init__(
        self, network: SimulatedNetwork, host: Host, protocol: asyncio.Protocol, address: tuple[str, int]
    ) -> None:
        super().__init__({"peername": address})
        self.host = host
        self._network = network
        self._protocol = protocol
        self.peer: SimulatedTransport | None = None
        """The other end."""
        self.in_flight: deque[bytes | None] = deque()
        self._closing = False
        self._paused = False
        self._held: deque[bytes | None] = deque()
        """Pieces that arrived while reading was paused; None is the end."""
        self._held_bytes = 0
        self._writes_too_much = False
        """The other end has more unread bytes than the limit."""
        self._high, self._low = WRITE_BUFFER_BYTES, WRITE_BUFFER_BYTES // 4
        self.lag_s = 0.0
        """Extra delay of each piece to this end."""
        self.last_due_s = 0.0

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast(asyncio.Protocol, protocol)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing and self.peer is not None and len(data):
            self._network.carry(self.host, self.peer, bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Close after delivering everything written; then the other end sees the end."""
        if self._closing:
            return
        self._closing = True
        asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)
        if self.peer is not None:
            self._network.carry(self.host, self.peer, None)

    def abort(self) -> None:
        self.close()

    def die(self) -> None:
        """End with the host, without notifying the protocol at this end."""
        self._closing = True

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        if self._paused:
            self._paused = False
            asyncio.get_running_loop().call_soon(self._deliver)

    def is_reading(self) -> bool:
        return not self._paused

    def can_write_eof(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        """Number of bytes that arrived at the other end and are unread."""
        return 0 if self.peer is None else self.peer._held_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = WRITE_BUFFER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def _run(self) -> None:
        """Deliver the next piece, which has arrived; a paused host receives it when it resumes."""
        if self.host.paused:
            self.host.held.append(self._run)
        else:
            self.arrive(self.in_flight.popleft())

    def arrive(self, data: bytes | None) -> None:
        """Take a piece, or the end, from the network."""
        if self._closing:
            return
        if self._paused or self._held:
            self._hold(data)
        else:
            self._network.deliver(self, data)

    def _hold(self, data: bytes | None) -> None:
        before = self._held_bytes
        self._held.append(data)
        self._held_bytes += len(data or b"")
        peer = self.peer
        if peer is not None and not peer._closing and before <= peer._high < self._held_bytes:
            peer._writes_too_much = True
            peer._protocol.pause_writing()

    def _deliver(self) -> None:
        held, peer = self._held, self.peer
        while held and not self._paused and not self._closing:
            data = held.popleft()
            self._held_bytes -= len(data or b"")
            self._network.deliver(self, data)
        if peer is not None and peer._writes_too_much and self._held_bytes <= peer._low and not peer._closing:
            peer._writes_too_much = False
            peer._protocol.resume_writing()


class SimulatedListener:
    """A port of a simulated host that accepts connections."""

    def __init__(self, network: SimulatedNetwork, port: int) -> None:
        self._network = network
        self._port = port

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        self._network.listeners.pop(self._port, None)


class Host:
    """One machine's view of the network (a ``Network``); it can crash, and links between hosts can be blocked."""

    def __init__(self, network: SimulatedNetwork, name: str) -> None:
        self.name = name
        self._network = network
        self.crashed = False
        self.paused = False
        self.clock_rate = 1.0
        """The host's clock rate, in its seconds per second of the world; set before anything runs on it."""
        self.wall_jump_s = 0.0
        """By how much its wall clock was set forward."""
        self.held: list[Callable[[], None]] = []
        """Timers and pieces that came due while it was paused, in order."""

    def pause(self) -> None:
        """Pause, as under SIGSTOP: no timer fires and nothing is received; data already sent still arrives."""
        self.paused = True

    def resume(self) -> None:
        """Continue after a pause, which the host can notice only by its clock."""
        self.paused = False
        held, self.held = self.held, []
        for due in held:
            asyncio.get_running_loop().call_soon(due)

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        timeout_s: float,
        ssl: ssl_module.SSLContext | None = None,
    ) -> tuple[asyncio.Transport, P]:
        return await self._network.connect_from(self, protocol_factory, host, port, timeout_s)

    async def addresses(self, host: str) -> list[str]:
        return await self._network.addresses(host)

    async def serve(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
    ) -> Listener:
        return self._network.serve_on(self, lambda address, abort: protocol_factory(), port)

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
        return self._network.serve_on(self, gate.enter, port)


Enter = Callable[[str, Callable[[], object]], asyncio.BaseProtocol | None]
"""``Gate.enter``; the host's name is its address."""


class SimulatedNetwork:
    """Hosts, the connections between them, and their faults.  Ports are unique over all hosts."""

    def __init__(self, delay_s: float = 0.0001, jitter_s: Callable[[], float] | None = None) -> None:
        """``delay_s`` is each piece's delay, to which ``jitter_s`` adds."""
        self.delay_s = delay_s
        self._jitter_s = jitter_s
        self.listeners: dict[int, tuple[Host, Enter]] = {}
        self.connections: list[tuple[int, SimulatedTransport, SimulatedTransport]] = []
        """(port, client's end, server's end) of every connection that is open."""
        self._next_port = FIRST_FREE_PORT
        self._blocked: dict[tuple[str, str], list[tuple[SimulatedTransport, bytes | None]]] = {}
        """(from, to) -> pieces that wait for the link to be healed, in order."""
        self._lags = False
        self.reordered = 0
        """Number of pieces that overtook an earlier one between the same hosts, over another connection."""
        self._latest_due_s: dict[tuple[str, str], float] = {}
        self._host = Host(self, "localhost")

    @cached_property
    def _loop(self) -> VirtualLoop:
        return running_loop()

    def host(self, name: str) -> Host:
        return Host(self, name)

    async def connect(self, protocol_factory: Callable[[], P], host: str, port: int, **options: Any) -> Any:
        """Connect from the default host, so that the network itself serves as a ``Network``."""
        return await self._host.connect(protocol_factory, host, port, **options)

    async def serve(
        self, protocol_factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, **options: Any
    ) -> Listener:
        return await self._host.serve(protocol_factory, host, port, **options)

    async def serve_through(self, gate: Gate, host: str, port: int, **options: Any) -> Listener:
        return await self._host.serve_through(gate, host, port, **options)

    async def addresses(self, host: str) -> list[str]:
        return [host]

    async def connect_from(
        self, host: Host, protocol_factory: Callable[[], P], address: str, port: int, timeout_s: float
    ) -> tuple[asyncio.Transport, P]:
        await asyncio.sleep(self._next_delay_s())
        found = self.listeners.get(port)
        if found is not None and (self._is_blocked(host, found[0]) or self._is_blocked(found[0], host)):
            await asyncio.sleep(timeout_s)
            raise TimeoutError(f"{address}:{port} does not answer")
        if found is None or host.crashed:
            raise ConnectionRefusedError(f"nothing listens on {address}:{port}")
        client, server = protocol_factory(), found[1](host.name, lambda: None)
        # aiohttp's and others' protocols are asyncio.Protocols in all but their declared class
        near = SimulatedTransport(self, host, cast(asyncio.Protocol, client), (address, port))
        if server is None:
            client.connection_made(near)
            near.close()
            return near, client
        far = SimulatedTransport(self, found[0], cast(asyncio.Protocol, server), (host.name, 0))
        near.peer, far.peer = far, near
        self.connections = [c for c in self.connections if not (c[1].is_closing() and c[2].is_closing())]
        self.connections.append((port, near, far))
        server.connection_made(far)
        client.connection_made(near)
        return near, client

    def serve_on(self, host: Host, enter: Enter, port: int) -> Listener:
        if port == 0:
            port = self._next_port
            self._next_port += 1
        if port in self.listeners:
            raise OSError(f"port {port} is in use")
        self.listeners[port] = (host, enter)
        return SimulatedListener(self, port)

    def _next_delay_s(self) -> float:
        return self.delay_s + (self._jitter_s() if self._jitter_s is not None else 0.0)

    def carry(self, sender: Host, to: SimulatedTransport, data: bytes | None) -> None:
        if sender.crashed:
            return
        held = self._blocked.get((sender.name, to.host.name))
        if held is not None:
            held.append((to, data))
            return
        # The connection's queue keeps the order of the pieces; their timers need not.
        self._send(sender.name, to, data)

    def _send(self, sender: str, to: SimulatedTransport, data: bytes | None) -> None:
        loop = self._loop
        to.in_flight.append(data)
        to.last_due_s = due_s = max(loop._now_s + self._next_delay_s() + to.lag_s, to.last_due_s)
        link = sender, to.host.name
        if data is None:
            pass  # connections end in the order in which a set of tasks is cancelled, which differs from run to run
        elif due_s < self._latest_due_s.get(link, 0.0):
            self.reordered += 1
        else:
            self._latest_due_s[link] = due_s
        loop.at(due_s, to)

    def deliver(self, to: SimulatedTransport, data: bytes | None) -> None:
        """Pass a piece, or the end, to the protocol of the host that reads it."""
        if data is not None:
            to._protocol.data_received(data)
        else:
            to._closing = True
            to._protocol.connection_lost(None)

    def cut(self, port: int) -> int:
        """Break every connection to a port, both ends at once; returns their number."""
        return self._break([c for c in self.connections if c[0] == port and not c[1].is_closing()])

    def cut_host(self, name: str) -> int:
        """Break every connection of a host."""
        return self._break(
            [c for c in self.connections if name in (c[1].host.name, c[2].host.name) and not c[1].is_closing()]
        )

    def hang_up(self, name: str, other: str) -> int:
        """Close a host's connections to another; data already sent still arrives, however late."""
        broken = [
            n for _, n, f in self.connections if (n.host.name, f.host.name) == (name, other) and not n.is_closing()
        ]
        for near in broken:
            near.close()
        return len(broken)

    def _break(self, broken: list[tuple[int, SimulatedTransport, SimulatedTransport]]) -> int:
        for _, near, far in broken:
            near.abort()
            far.abort()
        return len(broken)

    def crash(self, host: Host) -> None:
        """Crash the host at once: it sends and receives nothing more, and its peers see their end closed."""
        for _, near, far in self.connections:
            for end, peer in ((near, far), (far, near)):
                if end.host is host and not end.is_closing():
                    self.carry(host, peer, None)
                    end.die()
        host.crashed = True
        self.listeners = {port: found for port, found in self.listeners.items() if found[0] is not host}

    def block(self, sender: str, receiver: str) -> None:
        """Hold data from one host to another, in this direction only, until ``heal``; new connections time out."""
        self._blocked.setdefault((sender, receiver), [])

    def unblock(self, sender: str, receiver: str) -> None:
        """Deliver the held data, in order."""
        for to, data in self._blocked.pop((sender, receiver), ()):
            if not to.is_closing():
                self._send(sender, to, data)

    @property
    def impaired(self) -> bool:
        """Whether some link is blocked or slow."""
        return bool(self._blocked) or self._lags

    def lag(self, sender: str, receiver: str, extra_s: float) -> int:
        """Delay data from one host to another on the connections that are open now; returns their number."""
        slow = [
            end
            for _, near, far in self.connections
            for end, peer in ((near, far), (far, near))
            if end.host.name == receiver and peer.host.name == sender and not end.is_closing()
        ]
        for end in slow:
            end.lag_s = extra_s
            self._lags = True
        return len(slow)

    def heal(self) -> None:
        """Make all links work normally again; held data arrives, in order."""
        for _, near, far in self.connections:
            near.lag_s = far.lag_s = 0.0
        self._lags = False
        for sender, receiver in list(self._blocked):
            self.unblock(sender, receiver)

    def _is_blocked(self, sender: Host, receiver: Host) -> bool:
        return (sender.name, receiver.name) in self._blocked


def simulated_world(network: SimulatedNetwork | Host, seed: int = 0) -> World:
    return World(network, SimulatedClock(), random.Random(seed), debug=True)
