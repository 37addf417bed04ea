"""Which partitions the judge of sickness watches: a few of each pair of a leader and a follower, the busy ones first.

Asking for the ends of all logs would cost brokers too much.  Partitions that are not written to tell nothing, so they
give way to others, until those that are written to have been found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.staleness import Watched

PER_PAIR = 3
PER_BROKER = 60
"""Watched replicas on one broker."""
LOOKED_AT = 2_000
"""Partitions that are considered at a time."""


class Sample(NamedTuple):
    """The partitions to watch, and the row where to go on looking next time."""

    partitions: dict[TopicPartition, Watched]
    next_row: int


def choose_partitions(context: ControllerContext, busy: Iterable[TopicPartition], start: int) -> Sample:
    """Keep the ``busy`` partitions, and add others from row ``start`` on."""
    chosen = _Chosen(context)
    table = context.table
    for partition in busy:
        row = table.row(partition.topic, partition.partition)
        if row >= 0:
            chosen.consider(row)
    rows = table.rows()
    if not rows:
        return Sample(chosen.partitions, 0)
    at = start % len(rows)
    for row in _around(rows, at, LOOKED_AT):
        chosen.consider(row)
    return Sample(chosen.partitions, (at + LOOKED_AT) % len(rows))


def _around(rows: Sequence[int], start: int, most: int) -> Iterable[int]:
    return (rows[(start + i) % len(rows)] for i in range(min(most, len(rows))))


class _Chosen:
    def __init__(self, context: ControllerContext) -> None:
        self.partitions: dict[TopicPartition, Watched] = {}
        self._context = context
        self._pairs: Counter[tuple[int, int]] = Counter()
        self._brokers: Counter[int] = Counter()

    def consider(self, row: int) -> None:
        """Take the partition if a pair lacks partitions, and none of its brokers has too many."""
        context, table = self._context, self._context.table
        leader = table.leader[row]
        if table.isr_of[row] == NO_ISR or leader not in context.brokers or row in context.partitions_being_reassigned:
            return
        followers = tuple(r for r in table.replicas(row) if r != leader and r in context.brokers)
        pairs = [(leader, follower) for follower in followers]
        brokers = (leader, *followers)
        if all(self._pairs[pair] >= PER_PAIR for pair in pairs) or any(
            self._brokers[broker] >= PER_BROKER for broker in brokers
        ):
            return
        if table.topic(row).deleting or any(row in context.offline_dirs.get(b, ()) for b in brokers):
            return
        partition = table.topic_partition(row)
        if partition not in self.partitions:
            self._pairs.update(pairs)
            self._brokers.update(brokers)
            self.partitions[partition] = Watched(leader, table.leader_epoch[row], followers, table.isr(row))
