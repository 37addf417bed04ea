"""The recording brokers of one cluster.  One session registers them all, so that several can come or go at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from aiocontroller.core.ids import Endpoint
from aiocontroller.lab.cluster.generations import NEWEST, Protocol, generation, protocol_of
from aiocontroller.lab.recording_brokers.recording_broker import SERVED, SURVEYED, Received, RecordingBroker
from aiocontroller.lab.scenarios.fleet import Version
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete, Op, SetData
from aiocontroller.zookeeper.znodes import BrokerInfo

MARK = "mark"
"""The topic whose state tells brokers that all before it has reached them (see ``observed_cluster``)."""
SECOND = "CLIENTS"
"""The name of the second listener."""

_REQUESTS = {ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA}


class Listener(RecordingBroker):
    """Tells marks from words, and keeps only words.  In a rack, and with an unused second listener.

    It is of a release and a protocol (``aiocontroller/lab/cluster/generations.py``) in what a controller can see: the
    versions that it offers, its registration, and by which request it asks for what.
    """

    host = "second"
    """Of the second listener."""
    marked = -1
    """The highest version of the mark's state that it received."""
    words = 0
    """How many requests were no mere marks."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.become(Version(NEWEST, ""))

    def become(self, version: Version) -> None:
        """From its next registration on."""
        self.generation = generation(version.release)
        self.protocol: Protocol = protocol_of(self.generation, version.protocol)
        self.served = {api: self.generation.offered[api] for api in SERVED}

    @property
    def alter_partition(self) -> int:
        """The version of its AlterPartition, where all topics have ids if any has; -1: it writes ISRs itself."""
        if not self.protocol.isr_by_alter_partition:
            return -1
        return min(self.generation.alter_partition, 3 if self.protocol.topic_ids else 1)

    @property
    def info(self) -> BrokerInfo:
        first = super().info
        second = Endpoint(SECOND, f"{self.host}-{self.id}", 9092)
        broker = msgspec.structs.replace(first.broker, endpoints=(*first.broker.endpoints, second))
        return msgspec.structs.replace(first, broker=broker, version=self.protocol.registration_version)

    def respond(self, api: ApiKey, version: int, request: Any) -> bytes:
        if api not in SURVEYED:
            states = getattr(request, "topic_states", ())  # a StopReplica of old versions has none
            marks = [topic for topic in states if topic.topic_name == MARK]
            if api is ApiKey.UPDATE_METADATA and marks:
                self.marked = max(self.marked, marks[0].partition_states[0].zk_version)
            if len(marks) == len(states) == 1 and api is ApiKey.UPDATE_METADATA:
                self.received.pop()
            else:
                self.words += 1
        return super().respond(api, version, request)


class Fleet:
    def __init__(
        self,
        world: World,
        client: ZooKeeperClient,
        zookeeper: str,
        ids: Iterable[int],
        settings: Mapping[str, str | None] | None = None,
    ) -> None:
        self.client = client
        self.all = {n: Listener(world, zookeeper, n, rack=f"rack {n % 2}", settings=dict(settings or {})) for n in ids}
        self.live: set[int] = set()
        self.ports: dict[int, int] = {}
        """broker -> port of its first listener, also of those that are down."""
        self.hung: set[int] = set()
        """Take requests and do not answer them: they hear of no mark."""

    @property
    def words(self) -> int:
        """How many requests that are no marks they have had."""
        return sum(broker.words for broker in self.all.values())

    def have_the_mark(self, version: int) -> bool:
        return all(self.all[n].marked >= version for n in self.live - self.hung)

    def take(self) -> dict[int, list[Received]]:
        """What each has heard since the last time; the dead forget."""
        taken = {n: broker.take() for n, broker in self.all.items()}
        return {n: received for n, received in taken.items() if n in self.live}

    async def start(self, *ids: int) -> None:
        """They listen, then they are registered, all in one transaction."""
        for n in ids:
            assert n not in self.live, f"broker {n} is up"
            await self.all[n].listen()
            self.ports[n] = self.all[n].port
        await self._register(ids, [])

    async def die(self, *ids: int) -> None:
        """Their registrations go in one transaction, as sessions that end in one tick of the server do."""
        assert self.live >= set(ids), f"{ids}: not all are up"
        await self._multi([Delete(paths.broker_id(n)) for n in ids])
        self.live -= set(ids)
        for n in ids:
            self.all[n].deafen()
            self.all[n].unanswered -= _REQUESTS
            self.hung.discard(n)

    def become(self, versions: Mapping[int, Version]) -> None:
        for broker, version in versions.items():
            self.all[broker].become(version)

    async def bounce(self, *ids: int) -> None:
        """New incarnations, before it can be seen that the old ones went."""
        assert self.live >= set(ids), f"{ids}: not all are up"
        await self._register(ids, [Delete(paths.broker_id(n)) for n in ids])

    def hang(self, broker: int) -> None:
        assert broker in self.live, f"broker {broker} is down"
        self.all[broker].unanswered |= _REQUESTS
        self.hung.add(broker)

    def wake(self, broker: int) -> None:
        """What it has not answered is sent again, on a new connection."""
        self.all[broker].unanswered -= _REQUESTS
        self.hung.discard(broker)
        self.all[broker].hang_up()

    async def modify(self, broker: int, **changes: str) -> None:
        """The same incarnation with another ``host`` of its second listener, or another ``rack``."""
        for name, value in changes.items():
            setattr(self.all[broker], name, value)
        await self._multi([SetData(paths.broker_id(broker), znodes.encode_broker(self.all[broker].info))])

    async def begin_anew(self) -> None:
        """As they are at the beginning of a scenario, all but for those that are down."""
        for broker in self.all.values():
            broker.errors.clear()
            broker.host, broker.rack = "second", f"rack {broker.id % 2}"
        for broker_id in sorted(self.hung):
            self.wake(broker_id)

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
