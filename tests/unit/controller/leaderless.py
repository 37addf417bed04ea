"""Partitions without an in-sync replica, and a test's word on what the brokers tell about their logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from aiocontroller.controller.log_questions import ANSWER_WITHIN_S, ANSWER_WITHIN_S_EACH
from aiocontroller.core import events as ev
from aiocontroller.core.ids import Broker, TopicPartition
from aiocontroller.core.log_evidence import Evidence, LogEnd, Question
from aiocontroller.journal.journal import MemoryJournal
from tests.unit.controller.pure_cluster import PureCluster, StillClock, cluster, run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BETTER_ON_3 = Evidence({2: LogEnd(1, 500), 3: LogEnd(2, 400)}, diverging={2: 350})


class Asking:
    """Takes questions, and answers them when the test says so."""

    def __init__(self, it: PureCluster) -> None:
        self.it = it
        self.rounds: list[dict[TopicPartition, Question]] = []
        self.brokers: Mapping[int, Broker] = {}
        self.evidence: dict[TopicPartition, Evidence] = {}
        self.error: Exception | None = None
        self._begun: list[Any] = []
        it.shell.log_questions.start(self, self.gather)

    def start_soon(self, func: Any, *args: Any, name: object = None) -> None:
        self._begun.append(func)

    async def gather(
        self, brokers: Mapping[int, Broker], questions: Sequence[Question], within_s: float
    ) -> dict[TopicPartition, Evidence]:
        assert within_s >= ANSWER_WITHIN_S + len(questions) * ANSWER_WITHIN_S_EACH
        self.brokers = brokers
        self.rounds.append({question.partition: question for question in questions})
        if self.error is not None:
            raise self.error
        return {
            q.partition: self.evidence.get(q.partition, Evidence({}, dict.fromkeys(q.brokers, "silent")))
            for q in questions
        }

    def answer(self, **reported: Evidence) -> None:
        """``t0=…``: the evidence about t-0.  All rounds that have begun end, and what follows is handled."""
        self.answer_all({TopicPartition(name[:-1], int(name[-1])): evidence for name, evidence in reported.items()})

    def answer_all(self, reported: dict[TopicPartition, Evidence]) -> None:
        """As ``answer``."""
        self.evidence = reported
        while self._begun:
            run(self._begun.pop(0)())
            self.it.step()

    @property
    def waits(self) -> bool:
        return bool(self._begun)


def offline(*partitions: list[int], allowed: bool = True) -> PureCluster:
    """Topic t, whose partitions had broker 1 alone in their ISR; it died, and brokers 2 and 3 live."""
    it = cluster(1, t=list(partitions or ([1, 2, 3],)))
    it.shell.journal = MemoryJournal(0, StillClock())
    for broker in (2, 3):
        it.register(broker)
    change(it)
    if allowed:
        it.znodes.configs["t"] = {"unclean.leader.election.enable": "true"}
    return it


def change(it: PureCluster) -> None:
    it.queue.append(ev.BrokerChange())
    it.step()


def die(it: PureCluster, broker: int) -> None:
    it.unregister(broker)
    change(it)


def stop(it: PureCluster, broker: int) -> None:
    """The broker ends cleanly."""
    it.ask(ev.ControlledShutdown, broker=broker, broker_epoch=it.znodes.brokers[broker].epoch)
    die(it, broker)


def leader(it: PureCluster, tp: TopicPartition = T0) -> int:
    return it.znodes.states[tp].leader


def records(it: PureCluster) -> list[tuple[Any, ...]]:
    assert isinstance(it.shell.journal, MemoryJournal)
    found = it.shell.journal.of_kind("recovery")
    return [(r.event, r.topic, r.partition, r.leader, r.count, r.brokers) for r in found]
