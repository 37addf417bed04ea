"""The rest of a warm failover: step by step, until brokers have everything and all topics are watched."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from aiocontroller.controller import warm_failover_sending
from aiocontroller.controller.warm_failover_sending import FULL_METADATA, begin, go_on
from aiocontroller.core import events as ev
from aiocontroller.core import warm_failover_sending as plan
from aiocontroller.core.event_kinds import Event, Signal
from aiocontroller.core.ids import TopicPartition
from aiocontroller.journal.journal import MemoryJournal
from tests.unit.controller.pure_cluster import PureCluster, cluster, run

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


class Warm:
    """A term that has begun with a copy, and brokers whose caches are empty."""

    def __init__(self, it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.it = it
        self.watched: list[str] = []
        self.journal = MemoryJournal(1, it.shell.world.clock)
        monkeypatch.setattr(it.shell, "journal", self.journal)
        monkeypatch.setattr(it.znodes, "client", None, raising=False)
        monkeypatch.setattr(warm_failover_sending, "watch_topics", self._watch)
        it.shell.copy = self.copy = SimpleNamespace(recent={})  # type: ignore[assignment]
        for view in it.views.values():
            view.metadata.clear()

    async def _watch(self, client: object, names: Sequence[str]) -> None:
        self.watched += names

    def known(self) -> set[TopicPartition]:
        """What all brokers have been sent."""
        return set.intersection(*(set(view.metadata) for view in self.it.views.values()))

    def steps(self) -> int:
        """Take steps until none is left; their number."""
        taken = 0
        while self.it.shell.full_metadata is not None:
            run(go_on(self.it.shell))
            taken += 1
            assert taken < 20
        return taken


@pytest.fixture
def warm(monkeypatch: pytest.MonkeyPatch) -> Warm:
    return Warm(cluster(1, 2, t=[[1, 2], [2, 1]], u=[[1]]), monkeypatch)


def queued(warm: Warm) -> list[Event]:
    found = []
    while warm.it.queue:
        found.append(warm.it.queue.take().event)
    return found


def test_what_has_changed_last_is_sent_at_once(warm: Warm) -> None:
    recent: Any = warm.copy
    recent.recent = {1: None}
    run(begin(warm.it.shell))
    assert warm.known() == {T1}
    assert [e for e in queued(warm) if isinstance(e, Signal)] == [ev.TopicChange(), ev.FailoverStep(FULL_METADATA)]


def test_without_a_late_change_nothing_is_sent_at_once(warm: Warm) -> None:
    run(begin(warm.it.shell))
    assert warm.known() == set()


def test_a_row_of_a_topic_that_is_gone_is_left_out(warm: Warm) -> None:
    recent: Any = warm.copy
    recent.recent = {2: None}
    warm.it.shell.context.remove_topic(warm.it.shell.context.table.topic_by_name["u"])
    run(begin(warm.it.shell))
    assert warm.known() == set()


@pytest.mark.parametrize("at_once, steps", [(1, 3), (2, 2), (100, 1)])
def test_brokers_get_everything_in_steps(warm: Warm, monkeypatch: pytest.MonkeyPatch, at_once: int, steps: int) -> None:
    monkeypatch.setattr(plan, "ROWS", at_once)
    run(begin(warm.it.shell))
    assert warm.steps() == steps
    assert warm.known() == {T0, T1, U0}
    assert sorted(warm.watched) == ["t", "u"]
    assert warm.it.shell.copy is None, "the copy is not needed any longer"
    [record] = warm.journal.of_kind("failover")
    assert record.event == FULL_METADATA


def test_the_end_waits_for_watches_on_all_topics(warm: Warm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "TOPICS", 1)
    run(begin(warm.it.shell))
    run(go_on(warm.it.shell))
    assert warm.known() == {T0, T1, U0}
    assert (len(warm.watched), warm.it.shell.full_metadata is None) == (1, False)
    assert warm.steps() == 1
    assert sorted(warm.watched) == ["t", "u"]


def test_a_step_after_the_end_does_nothing(warm: Warm) -> None:
    run(begin(warm.it.shell))
    warm.steps()
    queued(warm)
    warm.it.views[1].metadata.clear()
    run(go_on(warm.it.shell))
    assert warm.it.views[1].metadata == {}
    assert queued(warm) == []
