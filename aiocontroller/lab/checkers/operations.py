"""Judges clients' successful operations on topics as Jepsen judges a history.

Each operation that succeeded took effect at one moment between its request and its answer, and two that succeeded have
two effects.  ZooKeeper's writes show the effects and their order.  An operation without an answer, or with any other
answer, may or may not have taken effect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.lab.checkers.timeline import Timeline

Effect = tuple[str, int]
"""(topic, 0): the topic was created; (topic, n): it grew to n partitions."""
CREATED = 0


class Operations:
    """``complain`` takes an invariant, its subject and what is wrong."""

    def __init__(self, now_s: Callable[[], float], complain: Callable[[str, Any, str], None]) -> None:
        self._now_s = now_s
        self._complain = complain
        self._counts: dict[str, int] = {}
        self._free: defaultdict[Effect, list[float]] = defaultdict(list)
        """The times of each effect that no operation has been given yet, in order."""
        self._targets: defaultdict[TopicPartition, Timeline[tuple[int, ...]]] = defaultdict(lambda: Timeline(()))

    def topic(self, topic: str, partitions: Mapping[int, ReplicaAssignment]) -> None:
        """Take in a topic's znode; without partitions, it is gone."""
        before, count = self._counts.get(topic, 0), len(partitions)
        self._counts[topic] = count
        if count > before:
            self._free[topic, count if before else CREATED].append(self._now_s())
        for number, assignment in partitions.items():
            self._targets[TopicPartition(topic, number)].put(self._now_s(), assignment.target)

    def created(self, asked_s: float, topic: str) -> None:
        self._own((topic, CREATED), asked_s, "created")

    def grown(self, asked_s: float, topic: str, count: int) -> None:
        self._own((topic, count), asked_s, f"given {count} partitions")

    def moved(self, asked_s: float, partition: TopicPartition, target: tuple[int, ...]) -> None:
        """A reassignment to this target was begun; one to the present replicas has no effect."""
        if target not in self._targets[partition].since(asked_s):
            self._complain("operations", partition, f"is said to be moved to {target}, and was not")

    def _own(self, effect: Effect, asked_s: float, what: str) -> None:
        """Give the operation the first effect since its request, and leave the later ones to later operations.

        Operations come in the order of their answers, so this finds an effect for each if that is possible at all.
        """
        free = self._free[effect]
        mine = next((at_s for at_s in free if at_s >= asked_s), None)
        if mine is None:
            self._complain("operations", effect[0], f"is said to be {what}, and no such change is left for it")
        else:
            free.remove(mine)
