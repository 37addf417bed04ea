"""Dry runs of an operator's actions: to elect preferred leaders, of a topic or of the cluster, and to release the role.
``core.move_dry_runs`` has those that move replicas.  Pure.

A dry run also holds what the action will then be asked for, so that what was shown is what is done.  The number of its
lines is bounded: a few partitions are listed one by one, many are grouped by what becomes of them, with some names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from heapq import nsmallest
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Strategy, elect
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.leader_balance import Imbalances
from aiocontroller.core.partitions import Topic
from aiocontroller.core.steps import Breathe, Steps
from aiocontroller.core.text import plural

LINES_SHOWN = 30
NAMES_SHOWN = 3
PARTITIONS_AT_ONCE = 1_000
"""Partitions considered before other tasks may run."""
LONGEST_NAME = 250


class DryRun(NamedTuple):
    """``lines`` say what would change; the fields after them, what the action is asked for."""

    title: str
    lines: tuple[str, ...]
    elections: tuple[TopicPartition, ...] = ()
    """Partitions that get their preferred leaders."""
    targets: Mapping[TopicPartition, tuple[int, ...] | None] = {}
    """Replicas that partitions get; None takes a reassignment back."""
    digest: bytes = b""
    """Of all elections, with their leaders before and after."""

    def essence(self) -> DryRun:
        """The part that is kept, and by which two dry runs of the same action are compared; its size is bounded."""
        return self._replace(elections=())


def elect_preferred(context: ControllerContext, name: str | None) -> Steps[DryRun]:
    """Elect the preferred leaders of the topic of this name, or of all topics.

    BadInputError if there is no such topic, or nothing would change.
    """
    whose = "the cluster" if name is None else name
    count, found = Imbalances(context), _Elections()
    slices = context.table.slices(PARTITIONS_AT_ONCE) if name is None else _slices(context, _topic(context, name))
    for rows in slices:
        found.add(context, count.add(rows))
        yield Breathe()
    if not found.partitions:
        why = "the preferred replica leads already"
        if found.staying:
            why = f"the preferred replica is not live and in sync ({_sample(found.staying_names, found.staying)})"
        raise BadInputError(f"no leader of {whose} would change: {why}")
    title = f"Elect the preferred leaders of {whose}"
    return DryRun(title, found.lines(), tuple(found.partitions), digest=found.digest.digest())


class _Elections:
    """What would become of the partitions that are not led by their preferred replicas."""

    def __init__(self) -> None:
        self.partitions: list[TopicPartition] = []
        self.pairs: dict[tuple[int, int], list[int]] = {}
        """(leader, the next one) -> how many partitions, and the numbers of the first of them."""
        self.first: list[tuple[int, int]] = []
        """The first pairs, one for each partition."""
        self.staying = 0
        self.staying_names: list[str] = []
        self.digest = hashlib.blake2b(digest_size=16)

    def add(self, context: ControllerContext, rows: Sequence[int]) -> None:
        table = context.table
        found = elect(context, rows, Strategy.PREFERRED)
        for row, outcome in zip(found.rows, found.outcomes, strict=True):
            pair, tp = (table.leader[row], outcome.leader), table.topic_partition(row)
            known = self.pairs.setdefault(pair, [0])
            known[0] += 1
            if len(known) <= NAMES_SHOWN:
                known.append(len(self.partitions))
            if len(self.first) <= LINES_SHOWN:
                self.first.append(pair)
            self.partitions.append(tp)
            self.digest.update(f"{tp} {pair}".encode())
        self.staying += len(found.failed)
        few = found.failed[: NAMES_SHOWN - len(self.staying_names)]
        self.staying_names += [str(table.topic_partition(row)) for row in few]

    def lines(self) -> tuple[str, ...]:
        stay = [
            f"{plural(self.staying, 'partition')} not led by the preferred replica, which is not live and in sync: "
            f"nothing changes ({_sample(self.staying_names, self.staying)})"
        ] * bool(self.staying)
        return (*self._changes(), *stay)

    def _changes(self) -> tuple[str, ...]:
        names = self.partitions
        if len(names) <= LINES_SHOWN:
            pairs = zip(names, self.first, strict=True)
            return tuple(f"{tp}: leader {was} → {becomes}" for tp, (was, becomes) in pairs)
        most = nsmallest(LINES_SHOWN, self.pairs.items(), key=lambda each: (-each[1][0], each[0]))
        lines = [
            f"leader {was} → {becomes}: {plural(count, 'partition')} ({_sample([str(names[n]) for n in first], count)})"
            for (was, becomes), (count, *first) in most
        ]
        more = len(self.pairs) - len(lines)
        rest = [f"… and between {more:,} more pairs of brokers"] if more else []
        return (f"{plural(len(names), 'leader')} would change", *lines, *rest)


def _topic(context: ControllerContext, name: str) -> Topic:
    known = context.table.topic_by_name.get(name)
    if known is None:
        raise BadInputError(f"topic: found {name[:LONGEST_NAME]!r}, expected one of the cluster")
    if known.deleting:
        raise BadInputError(f"topic: found {name}, which is being deleted, expected one that stays")
    return known


def _slices(context: ControllerContext, topic: Topic) -> Iterator[Sequence[int]]:
    """The rows of a topic, as long as it exists."""
    for start in range(0, len(topic.rows), PARTITIONS_AT_ONCE):
        if context.table.topic_by_name.get(topic.name) is not topic:
            return
        yield [row for row in topic.rows[start : start + PARTITIONS_AT_ONCE] if row >= 0]


def release_role(context: ControllerContext, controller: int) -> DryRun:
    """What the release of the role by this controller means."""
    own = context.table.replicas_of.get(controller, 0)
    lines = [
        f"controller {controller} gives the role back after epoch {context.epoch}, to whichever broker registers first",
        "standbys of this program leave this vacancy to the brokers",
        "this process goes on, and takes the role again only when 'aiocontroller takeover' asks for it",
    ]
    if own:
        lines.append(f"{own:,} replicas that name controller {controller} are moved to brokers first")
    return DryRun(f"Release the role of controller {controller}", tuple(lines))


def bounded(lines: Sequence[str]) -> tuple[str, ...]:
    """The first ``LINES_SHOWN`` of them, and how many more there are."""
    more = len(lines) - LINES_SHOWN
    return (*lines[:LINES_SHOWN], *([f"… and {more:,} more"] if more > 0 else []))


def _sample(names: Sequence[str], count: int) -> str:
    return ", ".join(names) + (", …" if count > len(names) else "")
