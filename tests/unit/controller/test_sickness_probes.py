"""The connections by which sickness is judged: what brokers do on them becomes what the judge hears."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import anyio.abc

from aiocontroller.config import Config
from aiocontroller.controller.sickness_probes import ANSWER_WITHIN_S, CONNECTIONS, SicknessProbes, Target
from aiocontroller.core.ids import Endpoint, TopicPartition
from aiocontroller.core.sickness import CPU, DISK, SicknessLimits
from aiocontroller.core.staleness import Watched
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.scripted_peer import Peer, PeerConnection, Reaction
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metrics import Metrics
from aiocontroller.security import Security
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey, VersionRange

OFFERS = {ApiKey.LIST_OFFSETS: VersionRange(0, 9), ApiKey.API_VERSIONS: VersionRange(0, 4)}
OLD = {ApiKey.API_VERSIONS: VersionRange(0, 4)}
BROKERS = (1, 2, 3)


class Always(deque[Reaction]):
    """The same reaction to each request."""

    def popleft(self) -> Reaction:
        return self[0]


class Watch:
    """Three brokers that write to their logs; ``stuck`` ones copy nothing."""

    def __init__(self, tasks: anyio.abc.TaskGroup) -> None:
        self.world = simulated_world(SimulatedNetwork())
        self.journal = MemoryJournal(9, self.world.clock)
        self.changes = 0
        self.peers: dict[int, Peer] = {}
        self.targets: dict[int, Target] = {}
        self.stuck: dict[int, int] = {}
        self.error_code = 0
        self.metrics = Metrics()
        self.probes = SicknessProbes(
            self.world,
            tasks,
            SicknessLimits(),
            self._changed,
            acts=False,
            metrics=self.metrics,
            journal=self.journal,
            security=Security(Config()),
        )

    def _changed(self) -> None:
        self.changes += 1

    async def add(self, number: int, offers: dict[ApiKey, VersionRange]) -> None:
        peer = self.peers[number] = Peer(self.world, offers)
        self.targets[number] = Target(7, Endpoint("PLAINTEXT", "127.0.0.1", await peer.listen()))
        peer.reactions = Always([self._reaction(number)])

    def _reaction(self, number: int) -> Reaction:
        def answer(connection: PeerConnection, header: Any) -> None:
            end = self.stuck.get(number, int(self.world.clock.monotonic() * 100))
            rows = [
                {"partition_index": p, "error_code": self.error_code, "offset": end if p != number else self._end()}
                for p in BROKERS
            ]
            message = cold.response(ApiKey.LIST_OFFSETS, header.api_version, topics=[{"name": "t", "partitions": rows}])
            connection.answer(header, cold.encode_response(ApiKey.LIST_OFFSETS, header.api_version, message))

        return answer

    def _end(self) -> int:
        return int(self.world.clock.monotonic() * 100)

    def watch(self, *brokers: int) -> None:
        partitions = {
            TopicPartition("t", leader): Watched(leader, 0, tuple(b for b in BROKERS if b != leader), BROKERS)
            for leader in BROKERS
        }
        self.probes.watch({b: self.targets[b] for b in brokers or BROKERS}, (), partitions)

    async def sleep(self, seconds: float) -> None:
        await self.world.clock.sleep(seconds)

    def late(self, number: int, seconds: float) -> None:
        """Its answers on the connections that there are come late."""
        for connection in self.peers[number].connections:
            send = connection.send
            connection.send = lambda data, send=send: self.world.clock.call_later(seconds, lambda: send(data))  # type: ignore[method-assign, misc]

    @property
    def sick(self) -> tuple[int, str] | None:
        verdict = self.probes.judge.sick
        return None if verdict is None else (verdict.broker, verdict.kind)


@asynccontextmanager
async def watching(offers: dict[ApiKey, VersionRange] = OFFERS) -> AsyncIterator[Watch]:
    async with anyio.create_task_group() as tasks:
        it = Watch(tasks)
        for number in BROKERS:
            await it.add(number, offers)
        it.watch()
        await it.sleep(8.0)
        yield it
        it.probes.stop()
        tasks.cancel_scope.cancel()


@virtual_time
async def test_each_broker_has_several_connections_and_well_ones_stay_so() -> None:
    async with watching() as it:
        assert [len(peer.connections) for peer in it.peers.values()] == [CONNECTIONS] * 3
        await it.sleep(60)
        assert (it.sick, it.changes, it.journal.of_kind("sickness")) == (None, 0, [])


@virtual_time
async def test_a_broker_that_copies_nothing_is_sick_until_it_has_been_well_for_a_while() -> None:
    async with watching() as it:
        it.stuck[2] = it._end()
        await it.sleep(2.5)
        assert it.sick == (2, DISK)
        assert it.changes == 1
        del it.stuck[2]
        await it.sleep(20)
        assert (it.sick, it.changes) == (None, 2)
        records = [(r.event, r.broker, r.broker_epoch, r.state) for r in it.journal.of_kind("sickness")]
        assert records == [("sick", 2, 7, DISK), ("well again", 2, 7, DISK)]


@virtual_time
async def test_a_broker_that_answers_late_on_most_connections_is_sick() -> None:
    async with watching(OLD) as it:
        it.late(3, 0.4)
        await it.sleep(5)
        assert it.sick == (3, CPU)


@virtual_time
async def test_answers_with_errors_tell_nothing() -> None:
    async with watching() as it:
        it.error_code = 29  # TOPIC_AUTHORIZATION_FAILED
        it.stuck[2] = 0
        await it.sleep(20)
        assert it.sick is None


@virtual_time
async def test_brokers_that_are_held_are_recorded_once() -> None:
    async with watching() as it:
        judge: Any = it.probes.judge
        judge.judge = lambda now_s: False
        for held in ((), (1, 3), (1, 3), (), (2,)):
            judge.held = held
            await it.sleep(0.3)
        records = [(record.event, record.brokers) for record in it.journal.of_kind("sickness")]
        assert records == [("held", [1, 3]), ("held", [2])]


@virtual_time
async def test_lost_connections_are_made_again() -> None:
    async with watching() as it:
        it.peers[2].break_connections()
        await it.sleep(5)
        assert len(it.peers[2].connections) == 2 * CONNECTIONS
        assert it.sick is None
        it.stuck[2] = it._end()
        await it.sleep(3)
        assert it.sick == (2, DISK)


@virtual_time
async def test_a_broker_that_answers_nothing_is_asked_anew_and_not_judged() -> None:
    async with watching() as it:
        it.late(2, 10_000)
        await it.sleep(ANSWER_WITHIN_S + 3)
        assert len(it.peers[2].connections) > CONNECTIONS
        assert it.sick is None


@virtual_time
async def test_only_brokers_that_are_watched_are_asked() -> None:
    async with watching() as it:
        it.watch(1, 3)
        await it.sleep(1)
        before = it.peers[2].handshakes
        await it.sleep(10)
        assert it.peers[2].handshakes == before
        it.probes.begin()
        it.watch(1)
        it.targets[1] = Target(8, None)
        it.watch(1)
        await it.sleep(3)
        assert it.sick is None


@virtual_time
async def test_accusations_are_heard() -> None:
    async with watching() as it:
        it.stuck[2] = it._end()
        it.probes.accused(3, [2])
        await it.sleep(2.5)
        assert it.probes.judge.sick is not None
        assert it.probes.judge.sick.evidence.endswith("3 asked to remove it")
