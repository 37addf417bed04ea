"""The seam to the world: everything that touches sockets, time or chance goes through these ports.

In production they are uvloop and the operating system (``real.py``).  A simulation puts in-memory transports, a
virtual clock and a seeded generator in their place and runs the rest of the program unchanged.
"""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from collections.abc import Callable
from typing import Protocol, TypeVar

P = TypeVar("P", bound=asyncio.BaseProtocol)

HANDSHAKE_TIMEOUT_S = 60.0
"""Of TLS, where nobody says otherwise."""
BACKLOG = 100
"""Connections that the operating system keeps until we take them."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds; never goes back; for deadlines and durations."""

    def wall_time_us(self) -> int:
        """Microseconds since 1970; for people and records only, never for decisions."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer: ...

    async def sleep(self, delay_s: float) -> None: ...


class Random(Protocol):
    """Chance, for jitter and placement only; ``random.Random`` fits."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...


class Listener(Protocol):
    @property
    def port(self) -> int:
        """The port that it is bound to; the real one where 0 was asked for."""

    def close(self) -> None:
        """Stop accepting; connections that exist go on."""


class Gate(Protocol):
    """Decides which connections are taken, before anything is spent on them."""

    def enter(self, address: str, abort: Callable[[], object]) -> asyncio.BaseProtocol | None:
        """Somebody connects from an IP address: its protocol, or None, and it is hung up on at once.

        ``abort`` hangs up while there is no transport yet (``connection_made`` comes after the TLS handshake).  The
        protocol hears ``connection_lost`` even if it has not heard ``connection_made``.
        """


class Network(Protocol):
    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        timeout_s: float,
        ssl: ssl_module.SSLContext | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect by TCP; OSError (TimeoutError included) when that fails."""

    async def serve(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
    ) -> Listener:
        """Listen, and take whoever comes; OSError when the address cannot be had."""

    async def serve_through(
        self,
        gate: Gate,
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
        handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
        backlog: int = BACKLOG,
    ) -> Listener:
        """Listen, and take those that the gate lets in."""


class World:
    """The ports together, so that one value travels through the constructors."""

    def __init__(self, network: Network, clock: Clock, chance: Random) -> None:
        self.network = network
        self.clock = clock
        self.random = chance
