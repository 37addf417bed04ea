"""Heartbeats: what a peer's listener does becomes what the failure detector hears."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from aiocontroller.config import Config
from aiocontroller.controller.heartbeats import ANSWER_WITHIN_S, CLIENT_ID, Heartbeats
from aiocontroller.core.failure_detector import DetectionLimits, FailureDetector
from aiocontroller.core.ids import Endpoint
from aiocontroller.core.witness import hearing_of
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.scripted_peer import Peer
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metrics import Metrics
from aiocontroller.security import Security

INTERVAL_S = 0.25
FULL, REFUSED = DetectionLimits(silence_s=1.0), DetectionLimits()


class Watch:
    """Heartbeats to three peers, so that one may be suspected."""

    def __init__(self, tasks: anyio.abc.TaskGroup, limits: DetectionLimits) -> None:
        self.world = simulated_world(SimulatedNetwork())
        self.journal = MemoryJournal(9, self.world.clock)
        self.changes = 0
        self.peers: dict[int, Peer] = {}
        self.ports: dict[int, int] = {}
        self.heartbeats = Heartbeats(
            self.world,
            tasks,
            FailureDetector(limits),
            self._changed,
            kind="broker",
            interval_s=INTERVAL_S,
            metrics=Metrics(),
            journal=self.journal,
            security=Security(Config()),
        )

    def _changed(self) -> None:
        self.changes += 1

    async def add(self, number: int) -> None:
        peer = self.peers[number] = Peer(self.world)
        self.ports[number] = await peer.listen()
        self.watch(number)

    def watch(self, number: int, epoch: int = 7) -> None:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", self.ports[number])
        self.heartbeats.watch(number, epoch, lambda: endpoint)

    def die(self, number: int) -> None:
        self.peers[number].refuse()
        self.peers[number].break_connections()

    def keep_silent(self, number: int) -> None:
        """It takes connections and answers nothing on those that there are."""
        for connection in self.peers[number].connections:
            connection.answer = lambda header, body: None  # type: ignore[method-assign]

    async def sleep(self, seconds: float) -> None:
        await self.world.clock.sleep(seconds)

    @property
    def suspects(self) -> dict[int, str]:
        return {peer: suspicion.reason for peer, suspicion in self.heartbeats.suspects().items()}


@asynccontextmanager
async def watching(limits: DetectionLimits) -> AsyncIterator[Watch]:
    async with anyio.create_task_group() as tasks:
        it = Watch(tasks, limits)
        for number in (1, 2, 3):
            await it.add(number)
        await it.sleep(1.0)
        yield it
        it.heartbeats.stop()
        tasks.cancel_scope.cancel()


@virtual_time
async def test_with_a_limit_for_silence_each_peer_gets_a_heartbeat_per_interval() -> None:
    async with watching(FULL) as it:
        before = it.peers[1].handshakes
        await it.sleep(10 * INTERVAL_S)
        assert it.peers[1].handshakes - before == pytest.approx(10, abs=1)
        assert len(it.peers[1].connections) == 1
        assert (it.suspects, it.changes) == ({}, 0)


@virtual_time
async def test_without_one_a_peer_is_asked_once_and_its_connection_watched() -> None:
    async with watching(REFUSED) as it:
        await it.sleep(60)
        assert [peer.handshakes for peer in it.peers.values()] == [1, 1, 1]
        it.die(2)
        await it.sleep(0.2)
        assert it.suspects == {2: "refused"}


@virtual_time
async def test_a_peer_whose_process_is_gone_is_suspected_at_once() -> None:
    async with watching(FULL) as it:
        it.die(2)
        await it.sleep(0.1)
        assert it.suspects == {2: "refused"}
        assert it.changes == 1
        [record] = it.journal.of_kind("suspicion")
        assert (record.event, record.broker, record.broker_epoch, record.detail) == ("suspected", 2, 7, "refused")
        assert it.heartbeats.refusing_s(2) > 0 == it.heartbeats.refusing_s(1)
        assert not it.heartbeats.suspects_own_network
        it.die(1)
        await it.sleep(0.1)
        assert it.heartbeats.suspects_own_network


@virtual_time
async def test_a_silent_peer_is_suspected_after_the_limit() -> None:
    async with watching(FULL) as it:
        it.keep_silent(3)
        await it.sleep(0.7)
        assert it.suspects == {}
        await it.sleep(0.8)
        assert it.suspects == {3: "silent"}


@virtual_time
async def test_a_silent_connection_is_given_up_for_another() -> None:
    async with watching(FULL) as it:
        it.keep_silent(3)
        await it.sleep(ANSWER_WITHIN_S + 2)
        assert len(it.peers[3].connections) == 2
        await it.sleep(3)
        assert it.suspects == {}, "it answers on the new one"


@virtual_time
async def test_a_peer_that_listens_again_is_trusted_again() -> None:
    async with watching(REFUSED) as it:
        it.die(2)
        await it.sleep(1)
        await it.peers[2].listen(it.ports[2])
        await it.sleep(5)
        assert (it.suspects, it.changes) == ({}, 2)


@virtual_time
async def test_a_connection_that_ends_is_made_again_and_is_no_evidence() -> None:
    async with watching(FULL) as it:
        it.peers[1].break_connections()
        await it.sleep(0.5)
        assert (len(it.peers[1].connections), it.suspects) == (2, {})


@virtual_time
async def test_a_forgotten_peer_is_left_alone() -> None:
    async with watching(FULL) as it:
        it.die(2)
        await it.sleep(0.5)
        it.heartbeats.forget(2)
        assert (it.suspects, it.changes) == ({}, 2)
        await it.peers[2].listen(it.ports[2])
        before = len(it.peers[2].connections)
        await it.sleep(5)
        assert len(it.peers[2].connections) == before


@virtual_time
async def test_what_an_earlier_probe_sees_late_says_nothing_of_the_next_incarnation() -> None:
    async with watching(FULL) as it:
        it.heartbeats.forget(2)
        it.watch(2, epoch=8)
        it.peers[2].break_connections()
        await it.sleep(2)
        assert it.suspects == {}
        assert it.heartbeats.detector.peers[2].epoch == 8


@virtual_time
async def test_a_peer_whose_answers_another_controller_gets_is_not_suspected() -> None:
    async with watching(FULL) as it:
        for number in (1, 2):
            it.keep_silent(number)
        for _ in range(10):
            it.heartbeats.vouched({1: 7, 2: 6, 99: 1})  # the second: another incarnation
            await it.sleep(0.2)
        assert it.suspects == {2: "silent"}
        assert sorted(dict(it.heartbeats.hears())) == [3]
        await it.sleep(0.6)
        assert it.suspects == {2: "silent"}, "two at a time are too many of three"
        it.heartbeats.forget(2)
        await it.sleep(0.3)
        assert it.suspects == {1: "silent"}


@pytest.mark.parametrize("kind, says", [("controller", {1: 70, 2: 71}), ("broker", {})])
@virtual_time
async def test_heartbeats_to_controllers_say_what_we_hear(kind: str, says: dict[int, int]) -> None:
    async with watching(FULL) as it:
        client_ids: list[str | None] = []
        it.heartbeats.kind = kind
        it.heartbeats.speaks_for = lambda: [(1, 70), (2, 71)]
        for connection in it.peers[1].connections:
            connection.answer = lambda header, body: client_ids.append(header.client_id)  # type: ignore[method-assign]
        await it.sleep(0.3)
        (client_id,) = client_ids
        assert client_id is not None
        assert hearing_of(client_id) == says
        assert client_id.startswith(CLIENT_ID)


@virtual_time
async def test_without_peers_no_timer_runs() -> None:
    async with watching(FULL) as it:
        it.heartbeats.stop()
        handshakes = [peer.handshakes for peer in it.peers.values()]
        await it.sleep(10)
        assert [peer.handshakes for peer in it.peers.values()] == handshakes


@virtual_time
async def test_evidence_against_most_peers_is_held_back_and_recorded_once() -> None:
    """Then our own network is in doubt."""
    async with watching(FULL) as it:
        for number in (1, 2, 3):
            it.keep_silent(number)
        await it.sleep(2.5)
        assert it.suspects == {}
        assert [record.event for record in it.journal.of_kind("suspicion")] == ["held"]
