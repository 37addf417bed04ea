"""Early detection at work: what is moved away from a suspected broker, and what it gets when it is trusted again."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.core import events as ev
from aiocontroller.core.failure_detector import Suspicion
from aiocontroller.core.ids import TopicPartition
from aiocontroller.journal.journal import MemoryJournal
from tests.unit.controller.pure_cluster import PureCluster, cluster

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Suspecting:
    """A failure detector whose suspects the test chooses."""

    def __init__(self, it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self._it = it
        self._suspects: dict[int, Suspicion] = {}
        self.journal = MemoryJournal(1, it.shell.world.clock)
        monkeypatch.setattr(it.shell, "journal", self.journal)
        channels: Any = it.shell.channels
        monkeypatch.setattr(channels, "suspects", lambda: self._suspects, raising=False)
        self.overtaken: set[int] = set()
        """Suspects that another controller hears."""
        monkeypatch.setattr(channels, "confirm", lambda broker: broker not in self.overtaken)

    def suspect(self, *brokers: int) -> None:
        known = self._it.shell.context.brokers
        self._suspects = {b: Suspicion(b, known[b].epoch, "silent", 10.0, 0.75) for b in brokers}
        self._it.queue.append(ev.SuspectsChange())
        self._it.step()

    def events(self) -> list[tuple[str | None, int | None]]:
        return [(record.event, record.broker) for record in self.journal.of_kind("suspicion")]


@pytest.fixture
def it() -> PureCluster:
    return cluster(1, 2, 3, t=[[1, 2], [2, 1]])


@pytest.fixture
def detector(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> Suspecting:
    return Suspecting(it, monkeypatch)


def test_leaders_and_isrs_move_away_from_a_suspect(it: PureCluster, detector: Suspecting) -> None:
    detector.suspect(1)
    states = it.znodes.states
    assert [(states[tp].leader, states[tp].isr) for tp in (T0, T1)] == [(2, (2,)), (2, (2,))]
    assert 1 in it.shell.context.brokers, "it is registered still"
    assert (it.shell.context.suspected.keys(), it.shell.context.live) == ({1}, {2, 3})
    assert detector.events() == [("alarm", 1)]
    [alarm] = detector.journal.of_kind("suspicion")
    assert (alarm.partitions, alarm.duration_us, alarm.detail) == (2, 750_000, "silent")


def test_a_suspicion_that_a_standbys_word_has_overtaken_moves_nothing(it: PureCluster, detector: Suspecting) -> None:
    before = dict(it.znodes.states)
    detector.overtaken = {1}
    detector.suspect(1)
    assert (it.znodes.states, detector.events(), it.shell.context.live) == (before, [], {1, 2, 3})
    detector.overtaken = set()
    detector.suspect(1)
    assert detector.events() == [("alarm", 1)]
    detector.overtaken = {1}
    detector.suspect(1)
    assert detector.events() == [("alarm", 1)], "leaders have moved: it is not taken back"
    assert it.shell.context.suspected.keys() == {1}


def test_a_suspect_is_not_stopped(it: PureCluster, detector: Suspecting) -> None:
    """If it lives, it would obey much later, and then ignore the LeaderAndIsr of the same epoch."""
    detector.suspect(1)
    assert set(it.views[1].hosted) == {T0, T1}


def test_the_last_replica_in_sync_keeps_its_partition(it: PureCluster, detector: Suspecting) -> None:
    detector.suspect(1, 2)
    assert it.znodes.states[T0].isr != ()
    assert {it.znodes.states[T0].leader, it.znodes.states[T1].leader} <= {1, 2}


def test_the_same_suspects_again_are_no_alarm(it: PureCluster, detector: Suspecting) -> None:
    detector.suspect(1)
    before = dict(it.znodes.states)
    detector.suspect(1)
    assert it.znodes.states == before
    assert detector.events() == [("alarm", 1)]


def test_a_broker_that_answers_again_is_handled_like_one_that_starts(it: PureCluster, detector: Suspecting) -> None:
    detector.suspect(1)
    it.views[1].metadata.clear()
    detector.suspect()
    assert detector.events() == [("alarm", 1), ("false alarm", 1)]
    assert it.shell.context.live == {1, 2, 3}
    assert set(it.views[1].metadata) == {T0, T1}, "it gets everything anew"
    assert it.znodes.states[T0].isr == (2,), "its leader takes it back once it has caught up"
