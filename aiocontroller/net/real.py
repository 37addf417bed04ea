"""The operating system's network and clock, through whichever event loop runs (uvloop in production)."""

from __future__ import annotations

import asyncio
import random
import ssl as ssl_module
import time
from collections.abc import Callable
from typing import TypeVar

from aiocontroller.net.ports import Listener, Timer, World

P = TypeVar("P", bound=asyncio.BaseProtocol)


class RealClock:
    def monotonic(self) -> float:
        return time.monotonic()

    def wall_time_us(self) -> int:
        return time.time_ns() // 1000

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(delay_s, callback)

    async def sleep(self, delay_s: float) -> None:
        await asyncio.sleep(delay_s)


class RealListener:
    def __init__(self, server: asyncio.Server) -> None:
        self._server = server

    @property
    def port(self) -> int:
        return int(self._server.sockets[0].getsockname()[1])

    def close(self) -> None:
        self._server.close()


class RealNetwork:
    async def connect(
        self,
        protocol_factory: Callable[[], P],
        host: str,
        port: int,
        *,
        timeout_s: float,
        ssl: ssl_module.SSLContext | None = None,
    ) -> tuple[asyncio.Transport, P]:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(timeout_s):
            return await loop.create_connection(protocol_factory, host, port, ssl=ssl)

    async def serve(
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        *,
        ssl: ssl_module.SSLContext | None = None,
    ) -> Listener:
        loop = asyncio.get_running_loop()
        return RealListener(await loop.create_server(protocol_factory, host, port, ssl=ssl))


def real_world() -> World:
    return World(RealNetwork(), RealClock(), random.SystemRandom())
