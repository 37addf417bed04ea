"""ISRs of moving partitions are read and watched where leaders write them, and only there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aiocontroller.controller import moving_isrs
from aiocontroller.controller.moving_isrs import follow_isrs
from aiocontroller.core.ids import TopicPartition
from tests.unit.controller.pure_cluster import PureCluster, cluster, run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Watching:
    """What is watched, and a leader that writes its ISR just after the watch was set."""

    def __init__(self, it: PureCluster, monkeypatch: pytest.MonkeyPatch, *, alter_partition: bool) -> None:
        self.watched: list[TopicPartition] = []
        self._it = it
        monkeypatch.setattr(it.znodes, "client", None, raising=False)
        monkeypatch.setattr(moving_isrs, "watch_topic_partition_states", self._watch)
        policy: Any = type("Policy", (), {"alter_partition_supported": alter_partition})
        monkeypatch.setattr(it.shell, "policy", policy)

    async def _watch(self, client: object, topics: list[str], numbers: list[int]) -> None:
        self.watched += map(TopicPartition, topics, numbers)
        state = self._it.znodes.states[T0]
        self._it.znodes.states[T0] = msgspec.structs.replace(state, isr=(1,), partition_epoch=state.partition_epoch + 1)


@pytest.fixture
def it() -> PureCluster:
    return cluster(1, 2, t=[[1, 2], [2, 1]])


def test_a_state_is_watched_before_it_is_read(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written between the two is read; what is written later is reported."""
    watching = Watching(it, monkeypatch, alter_partition=False)
    run(follow_isrs(it.shell, [0, 1]))
    assert watching.watched == [T0, T1]
    assert (it.shell.context.table.isr(0), it.shell.context.table.isr(1)) == ((1,), (2, 1))


def test_leaders_that_ask_the_controller_need_no_watch(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Watching(it, monkeypatch, alter_partition=True)
    run(follow_isrs(it.shell, [0]))
    assert watching.watched == []
    assert it.shell.context.table.isr(0) == (1, 2)


def test_without_partitions_nothing_is_asked(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Watching(it, monkeypatch, alter_partition=False)
    run(follow_isrs(it.shell, []))
    assert watching.watched == []
