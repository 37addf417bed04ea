"""What becomes of requests that a link held, when it is healed."""

from __future__ import annotations

import asyncio

import pytest

from aiocontroller.lab.processes.link_proxy import LinkProxy


@pytest.mark.parametrize("late", [True, False])
async def test_what_was_held_arrives_late_or_never(late: bool) -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await received.put(await reader.read())
        except ConnectionResetError:
            await received.put(b"")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    proxy = await LinkProxy(server.sockets[0].getsockname()[1], late=late).start()
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        while not proxy.links:
            await asyncio.sleep(0.01)
        proxy.freeze()
        request = b"\0\0\0\x08notfirst"
        writer.write(request)
        await writer.drain()
        writer.close()  # its sender has given up waiting
        await asyncio.sleep(0.05)
        assert received.empty()
        proxy.thaw()
        async with asyncio.timeout(5):
            assert await received.get() == (request if late else b"")
    finally:
        await proxy.close()
        server.close()
