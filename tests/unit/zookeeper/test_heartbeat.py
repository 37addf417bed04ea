"""The heartbeat on a clock that a test turns by hand."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import pytest

from aiocontroller.zookeeper.heartbeat import Heartbeat


class HandClock:
    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[tuple[float, int, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.now

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> HandClock:
        heapq.heappush(self.timers, (self.now + delay_s, len(self.timers), callback))
        return self

    def cancel(self) -> None:
        self.timers.clear()

    def run_until(self, end: float, *, blocked_until: float = 0.0) -> None:
        while self.timers and self.timers[0][0] <= end:
            due, _, callback = heapq.heappop(self.timers)
            self.now = max(due, blocked_until, self.now)
            callback()
        self.now = end


class Peer:
    """A connection whose server answers pings while ``answers`` holds."""

    def __init__(self, clock: HandClock) -> None:
        self.clock = clock
        self.alive, self.answers = True, True
        self.last_received = self.last_sent = 0.0
        self.pings: list[float] = []
        self.aborted_at: float | None = None

    def ping(self) -> None:
        self.pings.append(self.clock.now)
        self.last_sent = self.clock.now
        if self.answers:
            self.last_received = self.clock.now

    def abort(self, reason: str) -> None:
        assert "silent" in reason
        self.alive, self.aborted_at = False, self.clock.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def peer(clock: HandClock) -> Peer:
    return Peer(clock)


def test_an_idle_connection_is_pinged_each_third(clock: HandClock, peer: Peer) -> None:
    Heartbeat(clock, peer, 9.0)  # type: ignore[arg-type]
    clock.run_until(30)
    assert peer.pings == [pytest.approx(3 * i) for i in range(1, 11)]
    assert peer.alive


def test_a_silent_server_is_given_up_after_two_thirds(clock: HandClock, peer: Peer) -> None:
    peer.answers = False
    Heartbeat(clock, peer, 9.0)  # type: ignore[arg-type]
    clock.now = peer.last_received = peer.last_sent = 1.0
    clock.run_until(20)
    assert peer.aborted_at == pytest.approx(7.0)
    assert peer.pings[0] == pytest.approx(4.0)


def test_a_busy_connection_is_not_pinged(clock: HandClock, peer: Peer) -> None:
    Heartbeat(clock, peer, 9.0)  # type: ignore[arg-type]
    for second in range(1, 20):
        clock.run_until(second)
        peer.last_received = peer.last_sent = clock.now
    assert peer.pings == []


def test_a_peer_that_only_listens_still_shows_that_it_lives(clock: HandClock, peer: Peer) -> None:
    """A long reply arrives byte by byte; the server has to hear from us meanwhile."""
    Heartbeat(clock, peer, 9.0)  # type: ignore[arg-type]
    for second in range(1, 20):
        clock.run_until(second)
        peer.last_received = clock.now
    assert len(peer.pings) >= 5


def test_our_own_long_sleep_is_not_held_against_the_server(clock: HandClock, peer: Peer) -> None:
    Heartbeat(clock, peer, 9.0)  # type: ignore[arg-type]
    clock.run_until(3.0, blocked_until=20.0)
    assert peer.alive, "the socket could not be read yet"
    clock.now = peer.last_received = 20.0
    clock.run_until(22)
    assert peer.alive


def test_stopped_means_stopped(clock: HandClock, peer: Peer) -> None:
    heartbeat = Heartbeat(clock, peer, 9.0)  # type: ignore[arg-type]
    heartbeat.stop()
    clock.run_until(30)
    assert peer.pings == []
    assert peer.alive


def test_a_connection_that_has_ended_is_not_pinged(clock: HandClock, peer: Peer) -> None:
    Heartbeat(clock, peer, 9.0)  # type: ignore[arg-type]
    peer.alive = False
    clock.run_until(30)
    assert peer.pings == []
