"""Broken partitions by name, with reason and time, as the page, the terminal and programs show them.  Pure.

The cost of an answer grows with its length only: callers bound the rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import nlargest
from itertools import islice

import msgspec

from aiocontroller.core import broken_reasons
from aiocontroller.core.broken_partitions import BrokenKind
from aiocontroller.core.broken_reasons import Clause
from aiocontroller.core.context import ControllerContext


class BrokenPartition(msgspec.Struct, frozen=True):
    """A partition of one kind; ``since_us`` is in microseconds since 1970, None if it is not known."""

    topic: str
    partition: int
    since_us: int | None
    at_least: bool
    """It may be older: it was found when the cluster was read, or its beginning was not observed."""
    reason: Sequence[Clause]
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


def counts(context: ControllerContext) -> dict[str, int]:
    """How many partitions are of each kind; one may be of several."""
    return {kind.value: len(context.table.broken.of_kind(kind)) for kind in BrokenKind}


def broken_partition(context: ControllerContext, kind: BrokenKind, row: int) -> BrokenPartition:
    """The partition of this row, which is of this kind."""
    table = context.table
    broken = table.broken
    since_us = broken.of_kind(kind)[row]
    name, assignment = table.topic_partition(row), table.assignment(row)
    return BrokenPartition(
        name.topic,
        name.partition,
        since_us or None,
        broken.found_so(since_us),
        broken_reasons.reason(context, kind, row),
        table.leader[row],
        assignment.replicas,
        table.isr(row),
        assignment.adding,
        assignment.removing,
    )


def broken_partitions(context: ControllerContext, kind: BrokenKind, start: int, at_most: int) -> list[BrokenPartition]:
    """Those of a kind, from number ``start`` on, in the order in which they broke."""
    rows = islice(context.table.broken.of_kind(kind), start, start + at_most)
    return [broken_partition(context, kind, row) for row in rows]


def kinds_of(context: ControllerContext, row: int) -> list[BrokenKind]:
    """What is broken about a partition."""
    return [kind for kind in BrokenKind if row in context.table.broken.of_kind(kind)]


def among(context: ControllerContext, kind: BrokenKind, rows: Iterable[int]) -> Iterator[int]:
    """Those of the rows that are of this kind."""
    return filter(context.table.broken.of_kind(kind).__contains__, rows)


def offline_by_topic(context: ControllerContext, at_most: int) -> list[tuple[str, int]]:
    """The topics with the most offline partitions, and how many each has; by that number, then by name."""
    table = context.table
    known = ((count, number) for number, count in table.broken.offline_of_topic.items())
    named = [(topic.name, count) for count, number in nlargest(at_most, known) if (topic := table.topics[number])]
    return sorted(named, key=lambda each: (-each[1], each[0]))
