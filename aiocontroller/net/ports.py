"""The interface to the outside: all use of sockets, time and chance goes through these ports.

In production they are uvloop and the operating system (``real.py``).  A simulation puts in-memory transports, a
virtual clock and a seeded generator in their place and runs the rest of the program unchanged.
"""

from __future__ import annotations

import asyncio
import ssl as ssl_module
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from aiocontroller.net.commands import RunCommand, run_command

P = TypeVar("P", bound=asyncio.BaseProtocol)

DEBUG_VARIABLE = "AIOCONTROLLER_DEBUG"
"""The environment variable that switches debug mode on, unless it is 0."""
HANDSHAKE_TIMEOUT_S = 60.0
"""Timeout of TLS handshakes by default."""
BACKLOG = 100
"""Connections that the operating system queues until we accept them."""


class Timer(Protocol):
    """A callback that is due later."""

    def cancel(self) -> None:
        """Drop the callback; does nothing if it has run."""


class Clock(Protocol):
    """Time and timers; production and simulation implement it."""

    def monotonic(self) -> float:
        """Seconds; never goes back; for deadlines and durations."""

    def wall_time_us(self) -> int:
        """Microseconds since 1970; for people and records only, never for decisions."""

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` after ``delay_s`` seconds, in the loop's thread."""

    async def sleep(self, delay_s: float) -> None:
        """Return after ``delay_s`` seconds."""


class Random(Protocol):
    """Chance, for jitter and placement only; ``random.Random`` fits."""

    def random(self) -> float:
        """A number from 0 to below 1."""

    def randrange(self, stop: int, /) -> int:
        """A whole number from 0 to below ``stop``."""


class Listener(Protocol):
    """A listening socket."""

    @property
    def port(self) -> int:
        """The port that it is bound to; the actual one if 0 was requested."""

    def close(self) -> None:
        """Stop accepting; existing connections continue."""


class Gate(Protocol):
    """Decides which connections to accept, before they cost anything."""

    def enter(self, address: str, abort: Callable[[], object]) -> asyncio.BaseProtocol | None:
        """The protocol for a connection from an IP address, or None to close it at once.

        ``abort`` closes the connection before there is a transport (``connection_made`` comes after the TLS handshake).
        ``connection_lost`` is called even if ``connection_made`` was not.
        """


TlsNow = Callable[[], ssl_module.SSLContext]
"""Returns the context of the next connection; certificates are renewed while a listener is open."""


class Network(Protocol):
    """TCP and TLS; production and simulation implement it."""

    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        timeout_s: float,
        ssl: ssl_module.SSLContext | None = None,
    ) -> tuple[asyncio.Transport, P]:
        """Connect by TCP; raises OSError (including TimeoutError) on failure."""

    async def serve(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
    ) -> Listener:
        """Listen and accept every connection; raises OSError if the address is not available."""

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
        """Listen and accept the connections that the gate admits."""

    async def addresses(self, host: str) -> Sequence[str]:
        """The IP addresses of a host, in the form passed to ``Gate.enter``; raises OSError if it has none."""


class World:
    """The ports together, so that one value travels through the constructors."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        chance: Random,
        *,
        run_command: RunCommand = run_command,
        debug: bool = False,
    ) -> None:
        self.network = network
        self.clock = clock
        self.random = chance
        self.run_command = run_command
        """Runs an operator's command, as ``commands.run_command``."""
        self.debug = debug
        """Whether to run costly checks for bugs (``core/ownership.py``)."""
