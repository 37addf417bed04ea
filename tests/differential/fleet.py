"""The recording brokers of one cluster.  One session registers them all, so that several can come or go at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete, Op
from tests.recording_broker import SURVEYED, Received, RecordingBroker

MARK = "mark"
"""The topic whose state tells brokers that all before it has reached them (see ``stage``)."""


class Listener(RecordingBroker):
    """Tells marks from words, and keeps only words."""

    marked = -1
    """The highest version of the mark's state that it was told."""
    words = 0
    """How many requests were no mere marks."""

    def respond(self, api: ApiKey, version: int, request: Any) -> bytes:
        if api not in SURVEYED:
            marks = [topic for topic in request.topic_states if topic.topic_name == MARK]
            if api is ApiKey.UPDATE_METADATA and marks:
                self.marked = max(self.marked, marks[0].partition_states[0].zk_version)
            if len(marks) == len(request.topic_states) == 1 and api is ApiKey.UPDATE_METADATA:
                self.received.pop()
            else:
                self.words += 1
        return super().respond(api, version, request)


class Fleet:
    def __init__(self, world: World, client: ZooKeeperClient, zookeeper: str, ids: Iterable[int]) -> None:
        self.client = client
        self.all = {n: Listener(world, zookeeper, n) for n in ids}
        self.live: set[int] = set()

    @property
    def words(self) -> int:
        """How many requests that are no marks they have had."""
        return sum(broker.words for broker in self.all.values())

    def have_the_mark(self, version: int) -> bool:
        return all(self.all[n].marked >= version for n in self.live)

    def take(self) -> dict[int, list[Received]]:
        """What each has heard since the last time; the dead forget."""
        taken = {n: broker.take() for n, broker in self.all.items()}
        return {n: received for n, received in taken.items() if n in self.live}

    async def start(self, *ids: int) -> None:
        """They listen, then they are registered, all in one transaction."""
        for n in ids:
            assert n not in self.live, f"broker {n} is up"
            await self.all[n].listen()
        await self._register(ids, [])

    async def die(self, *ids: int) -> None:
        """Their registrations go in one transaction, as sessions that end in one tick of the server do."""
        assert self.live >= set(ids), f"{ids}: not all are up"
        await self._multi([Delete(paths.broker_id(n)) for n in ids])
        self.live -= set(ids)
        for n in ids:
            self.all[n].deafen()

    async def bounce(self, *ids: int) -> None:
        """New incarnations, before anybody can see that the old ones went."""
        assert self.live >= set(ids), f"{ids}: not all are up"
        await self._register(ids, [Delete(paths.broker_id(n)) for n in ids])

    async def stop(self) -> None:
        for n in self.live:
            self.all[n].deafen()

    async def _register(self, ids: Iterable[int], first: list[Op]) -> None:
        ids = list(ids)
        info = {n: znodes.encode_broker(self.all[n].info) for n in ids}
        await self._multi([*first, *(Create(paths.broker_id(n), info[n], ephemeral=True) for n in ids)])
        found = await self.client.get_many([paths.broker_id(n) for n in ids])
        for i, n in enumerate(ids):
            self.all[n].epoch = found.czxid(i)
            self.live.add(n)

    async def _multi(self, ops: list[Op]) -> None:
        results = await self.client.multi(ops)
        assert not any(r.code for r in results), f"{ops}: {results}"
