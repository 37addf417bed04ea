"""The writes that the state machines decide on, before ZooKeeper has accepted them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.partitions import PartitionTable


class Decisions(NamedTuple):
    """Parallel columns, one entry for each partition whose state znode is to change."""

    rows: list[int]
    leaderships: list[LeaderAndIsr]
    """The leadership to write; ``partition_epoch`` is the version that the znode must have (-1: it must not exist)."""
    recipients: list[tuple[int, ...]]
    """Brokers that get a LeaderAndIsr once it is written."""

    @staticmethod
    def none() -> Decisions:
        """No decisions, in three lists of their own."""
        return Decisions([], [], [])

    def select(self, positions: Sequence[int]) -> Decisions:
        """The decisions at these positions, in their order; itself if they are as many as all."""
        if len(positions) == len(self.rows):
            return self
        return Decisions(*([column[i] for i in positions] for column in self))  # type: ignore[arg-type]


def joined(decisions: Iterable[Decisions]) -> Decisions:
    """All of them, in order; the columns of a single one are not copied."""
    pieces = list(decisions)
    if len(pieces) == 1:
        return pieces[0]
    return Decisions(*(list(chain.from_iterable(column)) for column in zip(*pieces, strict=True)))


def commit(table: PartitionTable, decisions: Decisions, versions: Sequence[int]) -> None:
    """Apply decisions that were written to ZooKeeper to the table, each with its new znode version."""
    written = decisions.leaderships
    table.set_leaderships(
        decisions.rows,
        [w.leader for w in written],
        [w.leader_epoch for w in written],
        [table.isrs.id(w.isr) for w in written],
        [w.recovery_state for w in written],
        [w.controller_epoch for w in written],
        versions,
        {row: w.eligible for row, w in zip(decisions.rows, written, strict=True) if w.eligible is not None},
    )
