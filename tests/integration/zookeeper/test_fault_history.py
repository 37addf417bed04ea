"""A history of conditional writes and watches under random faults, drawn from a seed.

The writer raises counters, znode by znode, by conditional bulk writes; the watcher re-reads (and so watches again) what
an event names.  Both go through proxies that cut, repeat, spoil, freeze and refuse.  In the end:

  * each counter's version is the number of writes that were reported as applied: none lost, none doubled;
  * once the faults stop, the watcher comes to know every counter's last value without another write: no watch lost;
  * both sessions are the ones they began with.

Not among the faults: bytes changed within a frame, which TCP's and TLS's checksums are for.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from aiocontroller.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.zookeeper.client import Create, ZooKeeperClient
from tests.faults import Do, FaultProxy
from tests.integration.zookeeper.conftest import MakeClient

COUNTERS = 400
ROUNDS = 40


def misbehave(proxy: FaultProxy, chance: random.Random) -> list[str]:
    """Install the faults; returns the list of those that happened."""
    happened: list[str] = []

    def on_request(_link: int, _xid: int, opcode: int, _frame: bytes) -> Do:
        if chance.random() > (0.3 if opcode == 0 else 0.06):
            return Do.PASS
        action = chance.choice([Do.CUT, Do.CUT_AFTER]) if opcode else Do.CUT
        happened.append(action.name)
        return action

    def on_reply(_link: int, xid: int, frame: bytes) -> bytes:
        if xid <= 0 or chance.random() > 0.02:
            return frame
        how = chance.choice(["twice", "junk", "truncated"])
        happened.append(how)
        if how == "truncated":
            asyncio.get_running_loop().call_soon(proxy.cut_all)
            return frame[: chance.randrange(len(frame))]
        return frame * 2 if how == "twice" else frame + b"\xff" + chance.randbytes(20)

    proxy.on_request, proxy.on_reply = on_request, on_reply
    return happened


class Watcher:
    """Knows the version of each counter, by watches alone."""

    def __init__(self, client: ZooKeeperClient, paths: list[str]) -> None:
        self.client = client
        self.versions: dict[str, int] = {}
        self._dirty = dict.fromkeys(paths)
        self._wake = asyncio.Event()
        client.on_watch = self._on_watch

    def _on_watch(self, _kind: int, path: str) -> None:
        self._dirty[path] = None
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            paths, self._dirty = list(self._dirty), {}
            reads = await self.client.get_many(paths, watch=True)
            for path, version in zip(paths, reads.version, strict=True):
                assert version >= self.versions.get(path, 0), "the session went back in time"
                self.versions[path] = version
            if not self._dirty:
                await self._wake.wait()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("seed", range(2))
async def test_nothing_is_lost_doubled_or_given_up(
    zookeeper: EmbeddedZooKeeper, make_client: MakeClient, proxy: FaultProxy, seed: int
) -> None:
    chance = random.Random(seed)
    second = await FaultProxy(zookeeper.port).start()
    try:
        writer = await make_client(timeout_s=3)
        reader = await make_client(timeout_s=3, address=second.address)
        paths = [f"/c{i:03}" for i in range(COUNTERS)]
        await writer.create("/controller_epoch", b"")
        await writer.write_many([Create(path) for path in paths], fence=0)
        watcher = Watcher(reader, paths)
        watching = asyncio.create_task(watcher.run())
        happened = misbehave(proxy, chance) + misbehave(second, chance)
        versions = [0] * COUNTERS
        for number in range(ROUNDS):
            if number in (10, 20):
                (proxy if number == 10 else second).freeze()
            if number == 30:
                await proxy.refuse()
                proxy.cut_all()
                asyncio.get_running_loop().call_later(0.05, lambda: asyncio.ensure_future(proxy.start()))
            chosen = sorted(chance.sample(range(COUNTERS), chance.randrange(1, COUNTERS)))
            wrong = {i for i in chosen if chance.random() < 0.02}
            writes = await writer.set_many(
                [paths[i] for i in chosen],
                [b"%d.%d" % (i, versions[i] + 1) for i in chosen],
                [versions[i] + (5 if i in wrong else 0) for i in chosen],
                fence=0,
            )
            for i, code, version in zip(chosen, writes.code, writes.version, strict=True):
                assert code == (-103 if i in wrong else 0)
                if i not in wrong:
                    versions[i] += 1
                    assert version == versions[i]
        for side in (proxy, second):
            side.on_request = side.on_reply = None
        reads = await writer.get_many(paths)
        assert reads.version == versions
        assert reads.data == [b"%d.%d" % (i, v) if v else b"" for i, v in enumerate(versions)]
        await until(lambda: [watcher.versions.get(path) for path in paths] == versions)
        assert (writer.session_epoch, reader.session_epoch) == (1, 1)
        assert writer.statistics().suspensions + reader.statistics().suspensions > 5, happened
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    finally:
        await second.close()
