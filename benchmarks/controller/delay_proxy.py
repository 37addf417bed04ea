"""A TCP proxy that adds latency without limiting throughput: bytes leave in order, ``rtt_ms / 2`` after their arrival.

    python -m benchmarks.controller.delay_proxy HOST:PORT RTT_MS

Prints the address that it listens on.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class _Side(asyncio.Protocol):
    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._early: list[bytes] = []
        self.other: _Side | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def join(self, other: _Side) -> None:
        self.other, other.other = other, self
        for data in self._early:
            self.data_received(data)

    def data_received(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
            return
        asyncio.get_running_loop().call_later(self._delay_s, self.other.write, data)

    def write(self, data: bytes) -> None:
        if self.transport is not None:
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def serve(host: str, port: int, delay_s: float) -> None:
    loop = asyncio.get_running_loop()
    tasks = set()

    async def connect(client: _Side) -> None:
        try:
            _, server = await loop.create_connection(lambda: _Side(delay_s), host, port)
        except OSError:
            if client.transport is not None:
                client.transport.abort()
            return
        client.join(server)

    def accepted() -> _Side:
        client = _Side(delay_s)
        task = loop.create_task(connect(client))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return client

    server = await loop.create_server(accepted, "127.0.0.1", 0)
    print(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


def main() -> None:
    address, rtt_ms = sys.argv[1:]
    host, port = address.split(",")[0].rsplit(":", 1)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(host, int(port), float(rtt_ms) / 2000))


if __name__ == "__main__":
    main()
