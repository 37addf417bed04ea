"""Measures the progress of a move, in partitions and bytes, and estimates how long it will take."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from typing import NamedTuple

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.moving import MovePhase, MovePlan

WINDOW_S = 30.0
"""The speed is measured over this time."""


class MoveProgress(NamedTuple):
    """What is shown of a move; bytes as far as brokers report them."""

    done: int
    moving: int
    waiting: int
    copied: int
    total: int
    bytes_per_s: float
    eta_s: float | None
    """None while nothing is copied."""
    rate: int
    """The throttle, in bytes a second for each broker; 0 without one."""
    held: tuple[str, ...]


class Meter:
    """Measures the bytes of the replicas that a plan makes."""

    def __init__(self, before: MovePlan, plan: MovePlan) -> None:
        self._new = {tp: [broker for broker in plan[tp] if broker not in before.get(tp, ())] for tp in plan}
        self._seen: deque[tuple[float, int]] = deque()
        self._sizes: dict[TopicPartition, int] = {}
        self.copied = 0
        self.total = 0

    @property
    def copying(self) -> list[TopicPartition]:
        """The partitions that the plan copies."""
        return [tp for tp, new in self._new.items() if new]

    def read(self, sizes: Mapping[int, Mapping[TopicPartition, int]], at_s: float) -> None:
        """Take in what brokers report: broker -> bytes of its replicas."""
        for own in sizes.values():
            for tp, size in own.items():
                self._sizes[tp] = max(size, self._sizes.get(tp, 0))
        self.total = sum(self._sizes.get(tp, 0) * len(new) for tp, new in self._new.items())
        self.copied = sum(sizes.get(broker, {}).get(tp, 0) for tp, new in self._new.items() for broker in new)
        self._seen.append((at_s, self.copied))
        while len(self._seen) > 2 and self._seen[1][0] <= at_s - WINDOW_S:
            self._seen.popleft()

    def progress(self, phases: Mapping[TopicPartition, MovePhase], rate: int, held: tuple[str, ...]) -> MoveProgress:
        """Return the present progress; ``rate`` in bytes a second."""
        count = Counter(phases.values())
        speed = 0.0
        if len(self._seen) > 1 and self._seen[-1][0] > self._seen[0][0]:
            speed = max(0.0, (self._seen[-1][1] - self._seen[0][1]) / (self._seen[-1][0] - self._seen[0][0]))
        left = max(0, self.total - self.copied)
        done, moving = (
            count[MovePhase.DONE] + count[MovePhase.GONE],
            count[MovePhase.MOVING] + count[MovePhase.OPPOSITE],
        )
        return MoveProgress(
            done,
            moving,
            len(phases) - done - moving,
            self.copied,
            self.total,
            speed,
            left / speed if speed else (0.0 if not left else None),
            rate,
            held,
        )
