"""Measures the effect of one event of a rehearsal on partitions, every ``EVERY_S`` of the simulation's time.

A partition counts as led if its leader's process runs and has become the leader in the current leader epoch: that
ZooKeeper names a leader is not enough for clients.  An in-sync replica counts while its process runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.cluster.replication import ALL
from aiocontroller.lab.rehearsal.stage import Staged

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.simulation import Simulation

EVERY_S = 0.02
Partition = tuple[str, int]


class Went(msgspec.Struct, frozen=True):
    """The effect of an event.  Counts are of the tree's partitions; seconds are the longest total of any partition."""

    leaders_moved: int
    leaderless: int
    leaderless_s: float
    under_min_isr: int
    under_min_isr_s: float
    last_copy: int
    """Partitions of several replicas that had only one live in-sync replica."""
    last_copy_s: float
    acknowledged: int
    """Records acknowledged to clients as committed (acks=all)."""
    at_risk: int
    """Those of them that only one live replica had when they were acknowledged."""


class _Condition:
    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}
        """Index of the partition -> how long it was in this condition."""

    def add(self, row: int, elapsed_s: float) -> None:
        self._seconds[row] = self._seconds.get(row, 0.0) + elapsed_s

    def count(self, partitions: Sequence[Staged]) -> int:
        return sum(partitions[row].stands_for for row in self._seconds)

    @property
    def longest_s(self) -> float:
        return round(max(self._seconds.values(), default=0.0), 2)


class Meter:
    """``begin`` and ``end`` enclose an event."""

    def __init__(self, simulation: Simulation, partitions: Sequence[Staged]) -> None:
        self._simulation = simulation
        self._partitions = partitions
        self._keys: list[Partition] = [(each.name.topic, each.name.partition) for each in partitions]
        self._on = False
        self._leaders: list[int] = []
        self._seen: list[tuple[LeaderAndIsr | None, object] | None] = [None] * len(partitions)
        """For each partition that was in order at the last measurement, the state and the processes of that time."""
        self._reset()

    def _reset(self) -> None:
        self._moved = self._acknowledged = self._at_risk = 0
        self._leaderless, self._under, self._last = _Condition(), _Condition(), _Condition()
        self._heard = 0 if self._simulation.data is None else len(self._simulation.data.acknowledged)

    def start(self) -> None:
        """Measure every ``EVERY_S`` from now on, during events."""
        self._simulation.clock.call_later(EVERY_S, self.start)
        if self._on:
            self._look(EVERY_S)

    def begin(self) -> None:
        """Begin to measure an event."""
        self._reset()
        self._leaders = [self._leader(key) for key in self._keys]
        self._on = True

    def end(self) -> Went:
        """End the event, and return its effect."""
        self._look(0.0)
        self._on = False
        return Went(
            leaders_moved=self._moved,
            leaderless=self._leaderless.count(self._partitions),
            leaderless_s=self._leaderless.longest_s,
            under_min_isr=self._under.count(self._partitions),
            under_min_isr_s=self._under.longest_s,
            last_copy=self._last.count(self._partitions),
            last_copy_s=self._last.longest_s,
            acknowledged=self._acknowledged,
            at_risk=self._at_risk,
        )

    def running(self) -> dict[int, object]:
        """Map each running broker to its process."""
        return {n: p for n, (_, p) in self._simulation.brokers.items() if not p.task.done() and not p.host.crashed}

    def calm(self) -> bool:
        """Whether every partition that can be led is led, with all its live replicas in sync."""
        running = self.running()
        assigned = self._simulation.history.assigned
        for key in self._keys:
            state, replicas = self._simulation.history.states.get(key), assigned.get(key, frozenset())
            if state is None:
                if not replicas.isdisjoint(running):
                    return False
            elif self._is_led(key, state, running):
                if any(broker in running and broker not in state.isr for broker in replicas):
                    return False
            elif any(broker in running for broker in state.isr):
                return False
        return True

    # -- one measurement -------------------------------------------------------------------------------------------

    def _leader(self, key: Partition) -> int:
        state = self._simulation.history.states.get(key)
        return -1 if state is None else state.leader

    def _is_led(self, key: Partition, state: LeaderAndIsr, running: dict[int, object]) -> bool:
        if state.leader not in running:
            return False
        replica = self._simulation.brokers[state.leader][0].replicas.partition(*key)
        return replica is not None and replica.is_leader and replica.leader_epoch >= state.leader_epoch

    def _look(self, elapsed_s: float) -> None:
        running, states = self.running(), self._simulation.history.states
        processes = tuple(running.values())
        for row, key in enumerate(self._keys):
            state = states.get(key)
            if self._seen[row] == (state, processes):
                continue
            self._seen[row] = None if self._judge(row, state, running, elapsed_s) else (state, processes)
        self._count_records()

    def _judge(self, row: int, state: LeaderAndIsr | None, running: dict[int, object], elapsed_s: float) -> bool:
        """Count a partition's condition; returns whether something is wrong with it."""
        staged = self._partitions[row]
        leader = -1 if state is None else state.leader
        if leader >= 0 and leader != self._leaders[row]:
            self._moved += staged.stands_for
            self._leaders[row] = leader
        if state is None or not self._is_led(self._keys[row], state, running):
            self._leaderless.add(row, elapsed_s)
            return True
        alive = sum(broker in running for broker in state.isr)
        under, last = alive < staged.least, alive == 1 < len(staged.assignment.target)
        if under:
            self._under.add(row, elapsed_s)
        if last:
            self._last.add(row, elapsed_s)
        return under or last

    def _count_records(self) -> None:
        data = self._simulation.data
        if data is None:
            return
        running, states = self.running(), self._simulation.history.states
        for batch in data.acknowledged[self._heard :]:
            if batch.acks != ALL:
                continue
            state = states.get(batch.partition)
            self._acknowledged += batch.number
            if state is not None and len(state.isr) > 0 and sum(broker in running for broker in state.isr) == 1:
                self._at_risk += batch.number
        self._heard = len(data.acknowledged)
