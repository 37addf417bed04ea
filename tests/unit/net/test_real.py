"""The operating system's network: which connections are let in or closed, and what happens without descriptors."""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from aiocontroller.net.real import RealNetwork, raise_descriptor_limit, return_memory

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main)

    return run


class Served(asyncio.Protocol):
    def __init__(self) -> None:
        self.made = self.lost = False
        self.data = b""
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.made, self.transport = True, transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


class Doorkeeper:
    """Lets as many in as it is told."""

    def __init__(self, places: int = 1000) -> None:
        self.places = places
        self.inside: list[Served] = []
        self.addresses: list[str] = []
        self.aborts: list[Callable[[], object]] = []

    def enter(self, address: str, abort: Callable[[], object]) -> Served | None:
        self.addresses.append(address)
        if len(self.inside) >= self.places:
            return None
        self.inside.append(Served())
        self.aborts.append(abort)
        return self.inside[-1]


async def until(condition: Callable[[], object], within_s: float = 10) -> None:
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(0.01)


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def refused(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def connected(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setblocking(False)
    return connection


def test_gate_lets_in_and_keeps_out(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def main() -> None:
        door = Doorkeeper(places=1)
        listener = await RealNetwork().serve_through(door, "127.0.0.1", 0)
        first, second = connected(listener.port), connected(listener.port)
        await until(lambda: closed(second))
        await until(lambda: door.inside[0].made)
        assert door.addresses == ["127.0.0.1"] * 2
        first.send(b"hello")
        await until(lambda: door.inside[0].data == b"hello")
        listener.close()
        await until(lambda: refused(listener.port))
        first.send(b" again")
        await until(lambda: door.inside[0].data == b"hello again")  # those inside stay
        first.close()
        second.close()
        await until(lambda: door.inside[0].lost)

    run(main())


def test_every_address_of_a_name_and_a_taken_port() -> None:
    async def main() -> None:
        listener = await RealNetwork().serve(Served, "localhost", 0)
        with pytest.raises(OSError, match=f"cannot listen on 127.0.0.1:{listener.port}"):
            await RealNetwork().serve(Served, "127.0.0.1", listener.port)
        listener.close()

    asyncio.run(main())


def test_name_without_an_address_is_named() -> None:
    async def main() -> None:
        with pytest.raises(OSError, match=r"cannot listen on nowhere\.invalid:9090: "):
            await RealNetwork().serve(Served, "nowhere.invalid", 9090)

    asyncio.run(main())


def test_tls_handshake_that_does_not_end_is_hung_up_on(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def main() -> None:
        door = Doorkeeper()
        listener = await RealNetwork().serve_through(
            door, "127.0.0.1", 0, ssl=lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), handshake_timeout_s=0.3
        )
        silent, evicted = connected(listener.port), connected(listener.port)
        await until(lambda: len(door.inside) == 2)
        door.aborts[1]()
        await until(lambda: closed(evicted))
        await until(lambda: closed(silent))
        await until(lambda: all(served.lost and not served.made for served in door.inside))
        listener.close()
        silent.close()
        evicted.close()

    run(main())


@pytest.mark.parametrize("loop", LOOPS)
def test_without_descriptors_the_loop_does_not_spin_and_connections_wait(loop: str) -> None:
    """In a process of its own: the limit holds for all threads of a process."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.unit.net.without_descriptors", loop],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.returncode == 0, child.stderr
    assert "No connection can be accepted" in child.stderr


def test_memory_is_returned_and_descriptors_are_counted() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(200, before[0]), before[1]))
        assert raise_descriptor_limit() == min(before[1], 1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    kept = [bytes(1000) for _ in range(1000)]
    return_memory()
    assert all(each == bytes(1000) for each in kept)


async def test_addresses_of_a_host_are_those_that_connections_come_from() -> None:
    assert "127.0.0.1" in await RealNetwork().addresses("localhost")
    assert await RealNetwork().addresses("127.0.0.1") == ["127.0.0.1"]
    with pytest.raises(OSError):
        await RealNetwork().addresses("no-such-host.invalid")


@pytest.mark.parametrize(
    "host, port", [("a..b", 9092), ("a" * 64, 9092), ("127.0.0.1", -1), ("127.0.0.1", 65536), ("a\0b", 9092)]
)
@pytest.mark.parametrize("tls", [False, True])
def test_an_address_that_is_none_is_an_error_as_any_other(
    run: Callable[[Coroutine[Any, Any, None]], None], host: str, port: int, tls: bool
) -> None:
    """Such as a broker may register; then nothing but connections to it may fail."""

    async def main() -> None:
        context = ssl.create_default_context() if tls else None
        with pytest.raises(OSError):
            await RealNetwork().connect(Served, host, port, timeout_s=5, ssl=context)
        if host != "127.0.0.1":
            with pytest.raises(OSError):
                await RealNetwork().addresses(host)

    run(main())
