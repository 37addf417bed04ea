"""A link is cut for one process, while others at the same address are served."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from aiocontroller.lab.kafka.links import OwnedProxy, Way, owner_of

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

CLIENT = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
for line in sys.stdin:
    connection.sendall(bytes.fromhex(line))
    sys.stdout.write(connection.recv(100).hex() + "\\n")
    sys.stdout.flush()
"""
REQUEST = b"\0\0\0\x0812345678"


@pytest.fixture
def other() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


@asynccontextmanager
async def proxied(received: list[bytes]) -> AsyncIterator[OwnedProxy]:
    """A server behind the proxy answers each request with itself."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readexactly(len(REQUEST)):
                received.append(request)
                writer.write(request)
        except (OSError, EOFError):
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = OwnedProxy(server.sockets[0].getsockname()[1])
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.close()
        server.close()


def ask(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write(REQUEST.hex() + "\n")
    process.stdin.flush()


async def answer(process: subprocess.Popen[str]) -> bytes:
    assert process.stdout is not None
    async with asyncio.timeout(20):
        return bytes.fromhex(await asyncio.to_thread(process.stdout.readline))


@pytest.mark.parametrize("way, arrive", [(Way.REQUESTS, 1), (Way.ANSWERS, 2)])
async def test_one_process_is_cut_off_and_another_is_not(
    way: Way, arrive: int, other: list[subprocess.Popen[str]]
) -> None:
    received: list[bytes] = []
    async with proxied(received) as proxy:
        process = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(proxy.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        other.append(process)
        ask(process)
        assert await answer(process) == REQUEST
        received.clear()
        proxy.cut_process(process.pid, way)
        ask(process)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(REQUEST)
        async with asyncio.timeout(20):
            assert await reader.readexactly(len(REQUEST)) == REQUEST
            while len(received) < arrive:
                await asyncio.sleep(0.01)
        assert len(received) == arrive
        proxy.heal()
        assert await answer(process) == REQUEST
        assert len(received) == 2
        writer.close()


async def test_connections_opened_during_the_cut_are_cut_too_and_given_up_ones_do_not_arrive_late() -> None:
    received: list[bytes] = []
    async with proxied(received) as proxy:
        proxy.cut_process(os.getpid(), Way.REQUESTS)
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(REQUEST)
        async with asyncio.timeout(20):
            while not proxy.links or proxy.links[0].thawed.is_set():
                await asyncio.sleep(0.01)
        port = writer.get_extra_info("sockname")[1]
        assert owner_of(port, proxy.port, (os.getpid(),)) == os.getpid()
        assert owner_of(port, proxy.port, (1,)) is None
        writer.close()
        await writer.wait_closed()
        proxy.heal()
        async with asyncio.timeout(20):
            while proxy.links:
                await asyncio.sleep(0.01)
        assert received == []
