"""A cluster as the judge of sickness sees it: brokers that lead, follow and answer, each in some condition.

Time goes in steps of 0.2 s.  Each broker leads one partition, which all others follow and to which ten records are
written at each step, unless it is idle.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.sickness import SicknessJudge, SicknessLimits
from aiocontroller.core.staleness import Watched

STEP_S = 0.2
CONNECTIONS = 4
WELL, DISK, MUTE, FAR, SLOW, FROZEN, STUCK = "well", "disk", "mute", "far", "slow", "frozen", "stuck"
"""DISK: it copies nothing.  MUTE: nobody can copy from it.  FAR: it copies nothing and answers late.  SLOW: it answers
late.  FROZEN: it does nothing.  STUCK: it copies nothing, and answers all at once, now and then."""
LATE_S = 0.4
STUCK_S = 2.2


class SickCluster:
    """``condition`` may be changed between steps; ``judge`` is fed and asked at each."""

    def __init__(self, brokers: Iterable[int] = (1, 2, 3), limits: SicknessLimits | None = None) -> None:
        self.judge = SicknessJudge(SicknessLimits() if limits is None else limits)
        self.now_s = 1000.0
        self.epochs = {broker: 70 + broker for broker in brokers}
        self.condition = dict.fromkeys(self.epochs, WELL)
        self.leaving: set[int] = set()
        self.idle = False
        self.mute_about_logs: set[int] = set()
        self.isr_excluded: set[int] = set()
        self.leaders = set(self.epochs)
        self.leader_epoch = 1
        self.ends: dict[TopicPartition, dict[int, int]] = {
            TopicPartition("t", leader): dict.fromkeys(self.epochs, 0) for leader in self.epochs
        }
        self._open: dict[tuple[int, int], float] = {}
        """(broker, connection) -> when the answer is due."""
        self._verdicts: list[int | None] = []

    @property
    def sick(self) -> int | None:
        return None if self.judge.sick is None else self.judge.sick.broker

    def watched(self) -> dict[TopicPartition, Watched]:
        found = {}
        for partition in self.ends:
            leader = partition.partition
            if leader in self.leaders:
                others = tuple(b for b in self.epochs if b != leader)
                isr = tuple(b for b in self.epochs if b not in self.isr_excluded)
                found[partition] = Watched(leader, self.leader_epoch, others, isr)
        return found

    def restart(self, broker: int) -> None:
        """It registers anew, and has everything at once."""
        self.epochs[broker] += 100
        for connection in range(CONNECTIONS):
            self._open.pop((broker, connection), None)
            self.judge.lost(broker, connection)

    def sleep(self, seconds: float) -> None:
        """Our own process stands still; the cluster goes on."""
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            self._work()

    def run(self, seconds: float) -> list[int | None]:
        """Who is sick after each change of it."""
        changes = []
        for _ in range(round(seconds / STEP_S)):
            if self.step():
                changes.append(self.sick)
        return changes

    def step(self) -> bool:
        self.now_s += STEP_S
        self._work()
        judge = self.judge
        judge.watch(self.epochs, self.leaving, self.now_s)
        judge.watch_partitions(self.watched(), self.now_s)
        for (broker, connection), due_s in list(self._open.items()):
            if due_s <= self.now_s and self.condition[broker] != FROZEN:
                del self._open[broker, connection]
                ends = self._log_ends(broker) if connection == 0 else None
                judge.answered(broker, connection, self.now_s, ends)
        for broker in self.epochs:
            for connection in range(CONNECTIONS):
                if (broker, connection) not in self._open:
                    judge.asked(broker, connection, self.now_s)
                    self._ask(broker, connection)
        before = judge.sick
        changed = judge.judge(self.now_s)
        assert changed == (before != judge.sick)
        return changed

    def _ask(self, broker: int, connection: int) -> None:
        condition = self.condition[broker]
        if condition in (SLOW, FAR):
            self._open[broker, connection] = self.now_s + LATE_S - 1e-6
        elif condition == STUCK:
            self._open[broker, connection] = (self.now_s // STUCK_S + 1) * STUCK_S
        elif condition == FROZEN:
            self._open[broker, connection] = self.now_s
        else:
            ends = self._log_ends(broker) if connection == 0 else None
            self.judge.answered(broker, connection, self.now_s + 0.002, ends)

    def _log_ends(self, broker: int) -> dict[TopicPartition, int]:
        return {} if broker in self.mute_about_logs else {p: known[broker] for p, known in self.ends.items()}

    def _work(self) -> None:
        for partition, ends in self.ends.items():
            leader = partition.partition
            if self.condition[leader] == FROZEN:
                continue
            ends[leader] += 0 if self.idle else 10
            for follower in self.epochs:
                if self.condition[follower] in (DISK, FAR, FROZEN, STUCK) or self.condition[leader] == MUTE:
                    continue
                ends[follower] = ends[leader]
