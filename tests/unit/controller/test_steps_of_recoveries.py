"""How much a recovery of many partitions does before other tasks may run, in calls of Python functions.

Calls are counted since processor time depends on what else runs.  What ZooKeeper and the brokers do in memory here does
not count.  A request to ZooKeeper lets other tasks run.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from aiocontroller.controller import leadership_writes
from aiocontroller.controller.log_gathering import gather
from aiocontroller.controller.unclean_recovery import status
from aiocontroller.core import events as ev
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.log_evidence import Evidence, LogEnd, Question
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.lab.cluster.logs import Log
from aiocontroller.lab.virtual_time import virtual_time
from tests.unit.controller.leaderless import Asking, change, die
from tests.unit.controller.log_brokers import LogBroker, asking_shell, log_of
from tests.unit.controller.pure_cluster import Channels, PureCluster, StillClock, Znodes, cluster
from tests.unit.controller.test_unclean_recovery import Operator

PARTITIONS = 4_000
NAMES = [TopicPartition("t", number) for number in range(PARTITIONS)]
MOST_CALLS = 110_000
"""Some 30 ms of processor time.  The most that is found is 96,000, for any number of partitions."""


class Work:
    """Counts calls; ``most`` is the highest number between two pauses."""

    def __init__(self) -> None:
        self.calls = self.most = 0
        self.counts = False

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.calls = self.most = 0
        sys.setprofile(self._called)
        self.counts = True
        try:
            yield
        finally:
            self.counts = False
            sys.setprofile(None)

    def _called(self, frame: object, event: str, _: object) -> None:
        if event == "call" and self.counts:
            self.calls += 1
            self.most = max(self.most, self.calls)

    @contextmanager
    def _uncounted(self) -> Iterator[None]:
        before, self.counts = self.counts, False
        try:
            yield
        finally:
            self.counts = before

    def pausing(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Does not count, and ends a step."""

        async def paused(*args: Any, **kwargs: Any) -> Any:
            with self._uncounted():
                result = await method(*args, **kwargs)
            self.calls = 0
            return result

        return paused

    def free(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """Does not count."""

        def uncounted(*args: Any, **kwargs: Any) -> Any:
            with self._uncounted():
                return method(*args, **kwargs)

        return uncounted


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Work:
    it = Work()
    for name, method in inspect.getmembers(Znodes, inspect.iscoroutinefunction):
        monkeypatch.setattr(Znodes, name, it.pausing(method))
    monkeypatch.setattr(StillClock, "sleep", it.pausing(StillClock.sleep))
    monkeypatch.setattr(Channels, "send", it.free(Channels.send))

    async def in_turn(items: Any, begin: Any, finish: Any) -> None:
        """``overlapped`` without a loop: it begins steps in tasks of their own, if there are several."""
        steps = list(items)
        for step in steps:
            begun = await begin(step)
            it.calls *= len(steps) == 1
            await finish(step, begun)

    monkeypatch.setattr(leadership_writes, "overlapped", in_turn)
    return it


def leaderless(strategy: str) -> tuple[PureCluster, Asking]:
    """All partitions have lost broker 1, alone in their ISRs; brokers 2 and 3 live."""
    it = cluster(1, t=[[1, 2, 3]] * PARTITIONS)
    it.shell.journal = MemoryJournal(0, StillClock())
    it.znodes.unclean_by_request = True
    it.shell.config = msgspec.structs.replace(it.shell.config, aiocontroller_unclean_recovery_strategy=strategy)
    for broker in (2, 3):
        it.register(broker)
    change(it)
    asking = Asking(it)
    die(it, 1)
    return it, asking


@pytest.mark.parametrize("strategy", ["None", "Balanced"])
def test_partitions_that_wait_are_looked_at_in_short_steps(work: Work, strategy: str) -> None:
    it, _ = leaderless(strategy)
    with work.counted():
        it.queue.append(ev.OfflinePartitionsSweep())
        it.step()
    assert 10_000 < work.most < MOST_CALLS
    with work.counted():
        assert status(it.shell)["waiting"] == PARTITIONS
    assert work.most < MOST_CALLS / 5
    with work.counted():
        it.failover()
    assert 10_000 < work.most < MOST_CALLS


@pytest.mark.parametrize("strategy", ["None", "Balanced"])
def test_an_operator_is_answered_in_short_steps(work: Work, strategy: str) -> None:
    it, asking = leaderless(strategy)
    with work.counted():
        operator = Operator(it, dry_run=True)
        asking.answer_all(dict.fromkeys(NAMES, Evidence({2: LogEnd(1, 500), 3: LogEnd(2, 400)}, diverging={2: 350})))
    assert operator.results == [("would elect", 3)] * PARTITIONS
    assert 10_000 < work.most < MOST_CALLS


@pytest.mark.parametrize("strategy", ["None", "Balanced"])
def test_the_best_logs_are_elected_in_short_steps(work: Work, strategy: str) -> None:
    it, asking = leaderless(strategy)
    with work.counted():
        it.register(1)
        change(it)
        found = Evidence({1: LogEnd(2, 300), 2: LogEnd(1, 500), 3: LogEnd(2, 400)}, diverging={2: 350})
        asking.answer_all(dict.fromkeys(NAMES, found))
    assert {state.leader for state in it.znodes.states.values()} == {3}
    assert 10_000 < work.most < MOST_CALLS


@virtual_time
async def test_brokers_are_asked_in_short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    work, shell = Work(), asking_shell()
    registered = {}
    for number in (1, 2, 3):
        logs: dict[tuple[str, int], Log] = dict.fromkeys(NAMES, log_of((0, 100), (number, 50)))
        broker = LogBroker(shell.world, number, logs)
        registered[number] = await broker.start()
        broker.peer.reactions.reaction = work.free(broker.peer.reactions.reaction)  # type: ignore[attr-defined]
    questions = [Question(tp, 4, (1, 2, 3)) for tp in NAMES]
    await gather(shell, registered, questions[:1], 10.0)  # imports what it needs
    run = asyncio.Handle._run

    def run_step(handle: Any) -> None:
        work.calls = 0
        run(handle)

    monkeypatch.setattr(asyncio.Handle, "_run", run_step)
    with work.counted():
        found = await gather(shell, registered, questions, 10.0)
    assert found[NAMES[-1]] == Evidence({n: LogEnd(n, 150) for n in (1, 2, 3)}, diverging={1: 100, 2: 100})
    assert 10_000 < work.most < MOST_CALLS
