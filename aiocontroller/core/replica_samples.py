"""Chooses the partitions that the sickness judge watches: a few of each pair of a leader and a follower, busy ones
first.

Asking for the ends of all logs would cost brokers too much.  Partitions that are not written to show nothing, so others
replace them until the busy ones have been found.  The rest of the places of a leader go to *scouts*: partitions whose
leader alone is asked, to find out whether they are written to.
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
"""Watched replicas on one broker, with scouts."""
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
            chosen.consider(row, scout=False)
    rows = table.rows()
    if not rows:
        return Sample(chosen.partitions, 0)
    at = start % len(rows)
    turn = chosen.take_turns([rows[(at + i) % len(rows)] for i in range(min(LOOKED_AT, len(rows)))])
    return Sample(chosen.partitions, (at + turn) % len(rows))


class _Chosen:
    def __init__(self, context: ControllerContext) -> None:
        self.partitions: dict[TopicPartition, Watched] = {}
        self._context = context
        self._pairs: Counter[tuple[int, int]] = Counter()
        self._brokers: Counter[int] = Counter()

    def take_turns(self, rows: Sequence[int]) -> int:
        """Consider all rows; returns how many precede the first that must wait because others of its leader had their
        turn."""
        leader = self._context.table.leader
        full = frozenset(broker for broker, watched in self._brokers.items() if watched >= PER_BROKER)
        turn = len(rows)
        for i, row in enumerate(rows):
            had_room = self._brokers[leader[row]] < PER_BROKER
            if not self.consider(row) and not had_room and leader[row] not in full:
                turn = min(turn, i)
        return turn

    def consider(self, row: int, *, scout: bool = True) -> bool:
        """Take the partition if a pair lacks partitions, or else perhaps as a scout, and no broker has too many."""
        context, table = self._context, self._context.table
        leader = table.leader[row]
        if table.isr_of[row] == NO_ISR or leader not in context.brokers or row in context.partitions_being_reassigned:
            return False
        followers = tuple(r for r in table.replicas(row) if r != leader and r in context.brokers)
        if not followers or table.topic(row).deleting:
            return False
        if any(row in context.offline_dirs.get(b, ()) for b in (leader, *followers)):
            return False
        if any(self._brokers[b] >= PER_BROKER for b in followers) or all(
            self._pairs[leader, f] >= PER_PAIR for f in followers
        ):
            if not scout:
                return False
            followers = ()
        partition = table.topic_partition(row)
        if self._brokers[leader] >= PER_BROKER or partition in self.partitions:
            return False
        self._pairs.update((leader, follower) for follower in followers)
        self._brokers.update((leader, *followers))
        self.partitions[partition] = Watched(leader, table.leader_epoch[row], followers, table.isr(row))
        return True
