"""Persistent recursive watches: what they report, what ends them, and servers that have none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.lab.zookeeper.zookeeper_follower import Follower
from aiocontroller.lab.zookeeper.zookeeper_model import RecursiveWatches, ZooKeeperModel
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete, SetData
from aiocontroller.zookeeper.errors import RecursiveWatchUnsupportedError
from aiocontroller.zookeeper.watches import CHANGED, CHILD, CREATED, DELETED, WatchRegistry


class Stage:
    """A writer and a watcher, which has a recursive watch on ``/t``; ``heard``: the watcher's events."""

    def __init__(self, kind: RecursiveWatches = "3.9", *, follower: bool = False) -> None:
        self.network = SimulatedNetwork()
        self.world = simulated_world(self.network)
        self.model = ZooKeeperModel(recursive_watches=kind)
        self.server = ZooKeeperServer(self.world, self.model)
        at = self.server
        if follower:
            behind = Follower(self.model, self.world.clock, lambda: 0.5)
            at = self.watched = ZooKeeperServer(self.world, self.model, port=3181, follower=behind)
        self.servers = list(dict.fromkeys((self.server, at)))
        self._at = at
        self.heard: list[tuple[int, str]] = []

    async def start(self) -> None:
        for server in self.servers:
            await server.start()
        self.writer = ZooKeeperClient(self.server.address, world=self.world, session_timeout_s=4)
        self.watcher = ZooKeeperClient(self._at.address, world=self.world, session_timeout_s=4)
        for client in (self.writer, self.watcher):
            await client.start(10)
        self.watcher.on_watch = lambda kind, path: self.heard.append((kind, path))
        await self.writer.multi([Create("/t", b""), Create("/u", b"")])
        await self.sleep(1)

    async def sleep(self, seconds: float) -> None:
        await self.world.clock.sleep(seconds)

    async def news(self) -> list[tuple[int, str]]:
        await self.sleep(1)
        heard, self.heard[:] = list(self.heard), []
        return heard

    async def close(self) -> None:
        for client in (self.writer, self.watcher):
            await client.close()
        for server in self.servers:
            server.stop()


@asynccontextmanager
async def stage(kind: RecursiveWatches = "3.9", *, follower: bool = False) -> AsyncIterator[Stage]:
    made = Stage(kind, follower=follower)
    await made.start()
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize("follower", [False, True])
@virtual_time
async def test_every_change_below_is_reported_in_order(follower: bool) -> None:
    async with stage(follower=follower) as it:
        await it.watcher.add_recursive_watch("/t")
        await it.writer.multi(
            [Create("/t/a", b""), Create("/t/a/b", b""), SetData("/t/a", b"1", -1), SetData("/u", b"", -1)]
        )
        assert await it.news() == [(CREATED, "/t/a"), (CREATED, "/t/a/b"), (CHANGED, "/t/a")]
        await it.writer.multi([SetData("/t", b"1", -1), Delete("/t/a/b"), Create("/t/c", b""), Delete("/t/c")])
        assert await it.news() == [(CHANGED, "/t"), (DELETED, "/t/a/b"), (CREATED, "/t/c"), (DELETED, "/t/c")]
        await it.writer.multi([SetData("/t", b"2", -1), Create("/t/a", b"")])
        assert await it.news() == [], "nothing was applied"


@virtual_time
async def test_one_shot_watches_beside_it_make_no_second_event() -> None:
    async with stage() as it:
        await it.watcher.add_recursive_watch("/t")
        await it.watcher.get_many(["/t"], watch=True)
        await it.watcher.children_many(["/t"], watch=True)
        await it.writer.multi([SetData("/t", b"1", -1), Create("/t/a", b"")])
        assert await it.news() == [(CHANGED, "/t"), (CREATED, "/t/a"), (CHILD, "/t")]
        await it.writer.multi([SetData("/t", b"1", -1), Create("/t/b", b"")])
        assert await it.news() == [(CHANGED, "/t"), (CREATED, "/t/b")], "the one-shot ones are used up"


@virtual_time
async def test_new_connection_arms_it_again() -> None:
    async with stage() as it:
        await it.watcher.add_recursive_watch("/t")
        it.watcher.forget_watches()
        it.network.cut(it.server.port)
        await it.writer.sync("/")
        await it.sleep(2)
        await it.writer.multi([Create("/t/a", b"")])
        assert await it.news() == [(CREATED, "/t/a")]


@virtual_time
async def test_end_of_the_session_ends_it() -> None:
    async with stage() as it:
        await it.watcher.add_recursive_watch("/t")
        await expire_session(it.watcher)
        await it.sleep(5)
        assert it.watcher.connected
        await it.writer.multi([Create("/t/a", b"")])
        assert await it.news() == []


@virtual_time
async def test_it_can_be_removed() -> None:
    async with stage() as it:
        await it.watcher.remove_recursive_watch("/t")  # there is none
        await it.watcher.add_recursive_watch("/t")
        await it.watcher.remove_recursive_watch("/t")
        await it.writer.multi([Create("/t/a", b"")])
        it.network.cut(it.server.port)
        await it.sleep(2)
        await it.writer.multi([Create("/t/b", b"")])
        assert await it.news() == []


@virtual_time
async def test_servers_without_it_say_so() -> None:
    async with stage("no") as it:
        with pytest.raises(
            RecursiveWatchUnsupportedError, match="/t: ZooKeeper answers a recursive watch with code -6"
        ):
            await it.watcher.add_recursive_watch("/t")
        it.network.cut(it.server.port)
        await it.sleep(2)
        assert it.watcher.connected, "nothing is armed again"


@virtual_time
async def test_next_server_without_it_is_asked_once() -> None:
    """An ensemble is being upgraded: the next server is older than 3.6, and hangs up when it is asked."""
    async with stage() as it:
        await it.watcher.add_recursive_watch("/t")
        await it.watcher.get_many(["/u"], watch=True)
        it.model.watches.kind = "no"
        it.network.cut(it.server.port)
        await it.sleep(10)
        assert it.watcher.statistics().suspensions == 2
        await it.writer.multi([SetData("/u", b"1", -1)])
        assert await it.news() == [(CHANGED, "/u")]


@virtual_time
async def test_one_shot_watch_on_its_path_ends_it_before_3_9() -> None:
    async with stage("3.8") as it:
        await it.watcher.add_recursive_watch("/t")
        await it.watcher.children_many(["/t"], watch=True)  # harmless
        await it.writer.multi([Create("/t/a", b"")])
        assert await it.news() == [(CREATED, "/t/a"), (CHILD, "/t")]
        await it.watcher.get_many(["/t"], watch=True)
        await it.writer.multi([SetData("/t", b"1", -1), Create("/t/b", b"")])
        assert await it.news() == [(CHANGED, "/t")]


def test_registry_arms_recursive_watches_first_and_keeps_them_when_others_are_forgotten() -> None:
    registry = WatchRegistry()
    registry.recursive["/t"] = None
    registry.data["/u"] = None
    assert len(registry) == 1
    first, second = registry.frames(7)
    assert (first[:4], second[:4]) == ((105).to_bytes(4, "big"), (101).to_bytes(4, "big"))
    registry.forget()
    assert (len(registry), list(registry.recursive)) == (0, ["/t"])
    registry.clear()
    assert list(registry.frames(7)) == []
