"""What hostile and careless clients cost the HTTP server, on both event loops."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop
from aiohttp import web

from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metrics import Metrics
from aiocontroller.net.real import real_world
from aiocontroller.server.http import Command, HttpServer, Limits, serve
from aiocontroller.server.http_connections import HttpGate
from aiocontroller.server.reader_check import TOKEN_HEADER

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
TOKEN = "secret"
LIMITS = Limits(max_connections=10, max_request_bytes=1000, timeout_s=0.4)


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    def run(main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(main)

    return run


async def command(body: bytes) -> Mapping[str, Any]:
    return {"bytes": len(body)}


@asynccontextmanager
async def serving(status: Mapping[str, Any] | None = None, command: Command = command) -> AsyncIterator[HttpServer]:
    server = await serve(
        real_world(),
        "127.0.0.1",
        0,
        metrics=Metrics(),
        ready=lambda: (True, "ok"),
        status=lambda: status or {},
        commands={"release": command},
        token=TOKEN,
        limits=LIMITS,
    )
    try:
        yield server
    finally:
        await server.close()


async def until_connections(server: HttpServer, number: int) -> None:
    async with asyncio.timeout(20):
        while len(server._runner.server.connections) != number:
            await asyncio.sleep(0.01)


async def gone(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    try:
        await writer.wait_closed()
    except OSError:
        pass


async def answer_to(port: int, data: bytes, within_s: float = 5) -> bytes:
    """All that comes until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    try:
        async with asyncio.timeout(within_s):
            return await reader.read()
    except OSError:
        return b""
    finally:
        await gone(writer)


async def healthy(port: int) -> bool:
    answer = await answer_to(port, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return answer.startswith(b"HTTP/1.1 200")


def post(body: bytes, announced: int | None = None, token: str = TOKEN) -> bytes:
    length = len(body) if announced is None else announced
    return (
        f"POST /release HTTP/1.1\r\nHost: localhost\r\n{TOKEN_HEADER}: {token}\r\nConnection: close\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode() + body


def test_slow_header_is_hung_up_on(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def main() -> None:
        async with serving() as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            began_s = time.monotonic()
            try:
                for byte in b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 1000:
                    writer.write(bytes((byte,)))
                    await writer.drain()
                    await asyncio.sleep(0.05)
                    assert time.monotonic() - began_s < 5
            except OSError:
                pass
            try:
                assert await reader.read() == b""
            except OSError:
                pass
            await gone(writer)

    run(main())


def test_bodies_are_small_and_come_in_time_and_are_read_with_the_token_only(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    async def main() -> None:
        async with serving() as server:
            assert b'{"bytes":2}' in await answer_to(server.port, post(b"{}"))
            assert (await answer_to(server.port, post(b"x" * 1001))).startswith(b"HTTP/1.1 413")
            assert (await answer_to(server.port, post(b"x", announced=500))).startswith(b"HTTP/1.1 408")
            unauthorized = await answer_to(server.port, post(b"", announced=10**9, token="wrong"))
            assert unauthorized.startswith(b"HTTP/1.1 403")

    run(main())


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /status HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /status HTTP/1.1\r\n" + b"X: y\r\n" * 1000 + b"\r\n",
        b"POST /release HTTP/1.1\r\nHost: localhost\r\nX-Aiocontroller-Token: secret\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
    ],
    ids=["version", "TLS", "long header", "many headers", "chunks"],
)
def test_malformed_requests_are_answered_without_a_traceback(
    data: bytes, run: Callable[[Coroutine[Any, Any, None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with serving() as server:
            for _ in range(3):
                assert b" 400 Bad Request" in (await answer_to(server.port, data)).splitlines()[0]
            assert await healthy(server.port)

    with caplog.at_level(logging.DEBUG):
        run(main())
    assert [record for record in caplog.records if record.exc_info] == []
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 1


@pytest.mark.parametrize(
    "header,body",
    [
        (TOKEN_HEADER.encode() + b": \xff\xfe\r\nContent-Length: 0", b""),
        (b"Content-Encoding: gzip\r\nContent-Length: 10", b"0123456789"),
        (b"Transfer-Encoding: chunked", b"nonsense\r\n"),
    ],
    ids=["token", "gzip", "chunks"],
)
def test_what_is_refused_for_its_token_leaves_no_traceback(
    header: bytes, body: bytes, run: Callable[[Coroutine[Any, Any, None]], None], caplog: pytest.LogCaptureFixture
) -> None:
    """The body comes when the answer has left."""

    async def refused(port: int) -> bool:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /release HTTP/1.1\r\nHost: localhost\r\n" + header + b"\r\n\r\n")
        async with asyncio.timeout(5):
            line = await reader.readline()
            writer.write(body + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            await reader.read()
        await gone(writer)
        return b" 403 " in line

    async def main() -> None:
        async with serving() as server:
            for _ in range(3):
                assert await refused(server.port)
            assert await healthy(server.port)

    with caplog.at_level(logging.DEBUG):
        run(main())
    assert [record for record in caplog.records if record.exc_info] == []
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) <= 1


def test_silent_connections_keep_no_client_out(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def main() -> None:
        async with serving() as server:
            silent = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(40)]
            assert await healthy(server.port)
            for reader, writer in silent:
                async with asyncio.timeout(5):
                    try:
                        assert await reader.read() == b""
                    except OSError:
                        pass
                await gone(writer)

    run(main())


def test_connections_that_were_answered_make_room_before_one_that_waits_for_its_answer(
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    """Clients that pool connections keep them open for a next request."""

    async def main() -> None:
        begun, released = asyncio.Event(), asyncio.Event()

        async def takes_long(body: bytes) -> Mapping[str, Any]:
            begun.set()
            await released.wait()
            return {"released": True}

        async with serving(command=takes_long) as server:
            asked = asyncio.create_task(answer_to(server.port, post(b"{}"), within_s=30))
            await begun.wait()
            kept = []
            for _ in range(LIMITS.max_connections):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
                kept.append(writer)
            released.set()
            assert b'{"released":true}' in await asked
            for writer in kept:
                await gone(writer)

    run(main())


def test_answers_that_are_not_read_are_given_up(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def main() -> None:
        async with serving({"much": "x" * 20_000_000}) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await until_connections(server, 1)
            await until_connections(server, 0)
            reader._transport.resume_reading()  # type: ignore[attr-defined]
            async with asyncio.timeout(20):
                try:
                    assert len(await reader.read()) < 20_000_000
                except OSError:
                    pass
            await gone(writer)

    run(main())


def test_pipelined_requests_leave_time_for_others(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    async def main() -> None:
        async with serving({str(i): i for i in range(30_000)}) as server:
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
            rounds = 0

            async def go_round() -> None:
                nonlocal rounds
                while True:
                    await asyncio.sleep(0)
                    rounds += 1

            turning = asyncio.create_task(go_round())
            assert await healthy(server.port)
            turning.cancel()
            assert rounds > 2
            await gone(writer)

    run(main())


@virtual_time
async def test_only_a_client_that_stops_reading_is_hung_up_on() -> None:
    """One that reads slowly has the whole time again whenever it has read."""
    world = simulated_world(SimulatedNetwork())

    async def page(request: web.BaseRequest) -> web.Response:
        return web.Response()

    gate = HttpGate(web.Server(page), world.clock, Metrics(), places=1, timeout_s=10)
    ended: list[float] = []
    connection = gate.enter("10.0.0.1", lambda: ended.append(world.clock.monotonic()))
    assert connection is not None
    for _ in range(3):
        connection.pause_writing()
        await world.clock.sleep(9)
        connection.resume_writing()
        await world.clock.sleep(2)
    assert ended == []
    stopped_s = world.clock.monotonic()
    connection.pause_writing()
    await world.clock.sleep(60)
    assert ended == [stopped_s + 10]
