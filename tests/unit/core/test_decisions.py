"""Decisions as columns: selecting, joining, and taking what was written into the table."""

from __future__ import annotations

from aiocontroller.core.decisions import Decisions, commit, joined
from tests.builders import ctx, leadership


def decisions(*rows: int) -> Decisions:
    return Decisions(list(rows), [leadership(2, (2,), leader_epoch=10 + row) for row in rows], [(row,) for row in rows])


def test_a_part_of_them_stays_parallel() -> None:
    several = decisions(4, 2, 7)
    assert several.select([0, 2]) == decisions(4, 7)
    assert several.select([0, 1, 2]) is several
    assert several.select([]) == Decisions.none()


def test_they_are_joined_in_order() -> None:
    one = decisions(1)
    assert joined([one]) is one
    assert joined([decisions(3, 1), Decisions.none(), decisions(2)]) == decisions(3, 1, 2)
    assert Decisions.none() is not Decisions.none(), "the columns are filled"


def test_what_was_written_is_in_the_table_with_its_version() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2], [1, 2], [1, 2]]})
    commit(context.table, decisions(0, 2), [5, 6])
    assert context.table.leadership(0) == leadership(2, (2,), leader_epoch=10, partition_epoch=5)
    assert context.table.leadership(1) == leadership(1, (1, 2))
    assert context.table.leadership(2) == leadership(2, (2,), leader_epoch=12, partition_epoch=6)
    assert context.table.preferred_replica_imbalance == 2
