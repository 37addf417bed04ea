"""A process that plays open pages: a number of readers of ``/events``, and a probe of how long ``/healthz`` takes.

    python -m benchmarks._page_clients http://127.0.0.1:9999 20

Prints a line once all are connected.  When its standard input ends, it prints what was received as JSON, and ends.
"""

from __future__ import annotations

import asyncio
import sys
import time

import aiohttp
import msgspec

EVERY_S = 0.02


class Heard(msgspec.Struct):
    """What the pages received, and how long the probe's answers took."""

    messages: int = 0
    bytes: int = 0
    answers_ms: list[float] = []


async def read(http: aiohttp.ClientSession, heard: Heard, connected: asyncio.Semaphore) -> None:
    async with http.get("/events") as answer:
        answer.raise_for_status()
        connected.release()
        async for chunk in answer.content.iter_any():
            heard.bytes += len(chunk)
            heard.messages += chunk.count(b"\n\n")


async def probe(http: aiohttp.ClientSession, heard: Heard) -> None:
    while True:
        began_s = time.perf_counter()
        async with http.get("/healthz") as answer:
            await answer.read()
        heard.answers_ms.append((time.perf_counter() - began_s) * 1000)
        await asyncio.sleep(EVERY_S)


async def main() -> None:
    address, pages = sys.argv[1], int(sys.argv[2])
    heard, connected = Heard(answers_ms=[]), asyncio.Semaphore(0)
    session = aiohttp.ClientSession(
        address, timeout=aiohttp.ClientTimeout(None), connector=aiohttp.TCPConnector(limit=0)
    )
    async with session as http, asyncio.TaskGroup() as tasks:
        running = [tasks.create_task(read(http, heard, connected)) for _ in range(pages)]
        for _ in range(pages):
            await connected.acquire()
        running.append(tasks.create_task(probe(http, heard)))
        print("connected", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for task in running:
            task.cancel()
    print(msgspec.json.encode(heard).decode(), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
