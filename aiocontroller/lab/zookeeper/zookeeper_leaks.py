"""Measures whether the ZooKeeper client leaks anything over thousands of reconnects and expiries.

It counts, before and after: asyncio tasks and futures, watches that the client keeps, open file descriptors, Python's
objects and memory blocks, and the process's resident memory.  The first count follows a warm-up, since the first few
hundred connections fill caches and pools.  After each expiry it arms the watches again, as the owner of a client does.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import sys
import time
from collections.abc import Callable

import msgspec

from aiocontroller.lab.zookeeper.fault_proxy import FaultProxy
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.metrics import LATEST_OBSERVATIONS
from aiocontroller.net.ports import World
from aiocontroller.net.real import RealClock, RealNetwork
from aiocontroller.zookeeper.client import Create, SessionEvent, ZooKeeperClient

WATCHES = 100
SESSION_TIMEOUT_S = 10.0
SETTLE_BOUND_S = 30.0
STEP = 1000


class LeakRow(msgspec.Struct, frozen=True):
    """One figure; ``after`` may exceed ``before`` by ``allowed``."""

    what: str
    before: int
    after: int
    allowed: int
    ok: bool


class LeakReport(msgspec.Struct, frozen=True):
    reconnects: int
    expiries: int
    seconds: float
    rows: list[LeakRow]

    @property
    def ok(self) -> bool:
        return all(row.ok for row in self.rows)


ALLOWED = {
    "tasks": 0,
    "futures": 0,
    "watches": 0,
    "file descriptors": 0,
    "objects": 500,
    "memory blocks": 2000,
    "resident KiB": 4096,
}
"""For objects and memory, far less than one per reconnect; allocators and caches vary a little."""


async def measure_leaks(
    port: int, reconnects: int, expiries: int, *, seed: int = 1, progress: Callable[[str], None] = lambda _line: None
) -> LeakReport:
    """Measure on the server at ``port``; the client connects through a proxy that cuts its connections."""
    proxy = await FaultProxy(port).start()
    world = World(RealNetwork(), RealClock(), random.Random(f"leaks/{seed}"))
    name = f"/leaks-{random.Random().randrange(1 << 40):x}"
    client = ZooKeeperClient(proxy.address + name, world=world, session_timeout_s=SESSION_TIMEOUT_S)
    try:
        await client.start(10)
        paths = [f"/n{i}" for i in range(WATCHES)]
        await client.write_many([Create(path) for path in paths], fence=None)
        subject = _Subject(client, proxy, paths)
        await subject.warm_up()
        await subject.reconnect(max(50, reconnects // 20))
        await subject.expire(max(10, expiries // 20))
        progress("warmed up")
        before = await subject.counts()
        started = time.monotonic()
        for done in range(0, reconnects, STEP):
            await subject.reconnect(min(STEP, reconnects - done))
            progress(f"{min(done + STEP, reconnects):,} of {reconnects:,} reconnects")
        for done in range(0, expiries, STEP // 5):
            await subject.expire(min(STEP // 5, expiries - done))
            progress(f"{min(done + STEP // 5, expiries):,} of {expiries:,} expiries")
        seconds = time.monotonic() - started
        after = await subject.counts(at_most=before)
    finally:
        await client.close()
        await proxy.close()
    rows = [
        LeakRow(what, before[what], after[what], allowed, after[what] <= before[what] + allowed)
        for what, allowed in ALLOWED.items()
    ]
    return LeakReport(reconnects, expiries, round(seconds, 1), rows)


class _Subject:
    def __init__(self, client: ZooKeeperClient, proxy: FaultProxy, paths: list[str]) -> None:
        self._client = client
        self._proxy = proxy
        self._paths = paths
        self._new_session = asyncio.Event()
        client.on_session = self._on_session

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.NEW_SESSION:
            self._new_session.set()

    async def warm_up(self) -> None:
        """Fill the latest observations of the client's metrics: they are bounded, but not empty in a running client."""
        for _ in range(LATEST_OBSERVATIONS):
            await self._client.sync()

    async def reconnect(self, count: int) -> None:
        epoch = self._client.session_epoch
        await self._client.get_many(self._paths, watch=True)
        for _ in range(count):
            self._proxy.cut_all()
            self._proxy.connect_frames.clear()
            await self._client.sync()
        assert self._client.session_epoch == epoch, "the session did not survive its reconnects"

    async def expire(self, count: int) -> None:
        for _ in range(count):
            self._new_session.clear()
            await expire_session(self._client)
            await self._new_session.wait()
            self._proxy.connect_frames.clear()
            await self._client.get_many(self._paths, watch=True)

    async def counts(self, at_most: dict[str, int] | None = None) -> dict[str, int]:
        """Return the current counts.

        With ``at_most``, wait until tasks and descriptors are back at those counts, for SETTLE_BOUND_S at most.
        """
        deadline = time.monotonic() + SETTLE_BOUND_S
        while True:
            await asyncio.sleep(0.1)
            gc.collect()
            found = self._count()
            over = at_most is not None and any(found[what] > at_most[what] for what in ("tasks", "file descriptors"))
            if time.monotonic() > deadline or not over:
                return found

    def _count(self) -> dict[str, int]:
        objects = gc.get_objects()
        return {
            "tasks": len(asyncio.all_tasks()),
            "futures": sum(isinstance(o, asyncio.Future) and not isinstance(o, asyncio.Task) for o in objects),
            "watches": self._client.statistics().watches,
            "file descriptors": len(os.listdir("/proc/self/fd")),
            "objects": len(objects),
            "memory blocks": sys.getallocatedblocks(),
            "resident KiB": _resident_kib(),
        }


def _resident_kib() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
