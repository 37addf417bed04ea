"""Merges batches, so that a folder that has grown for months opens as quickly as on its first day.

Each batch of a run adds a folder to each table, and ``publish`` reads all of them.  So batches are merged by levels,
like the digits of a counter: the last ``MERGED_AT_ONCE`` batches of one level become one batch of the next level.  Of n
batches about log(n) remain, and each record is written again about log(n) times.

A merged batch is a batch like the others: its facts are the sum of the merged facts, its histories hold the merged
rows, and its last rows are where the next batch continues.  Merging loses nothing: retracted rows and their retractions
cancel out.

Crash safety:

1.  Everything is written below the new batch's own ``batch=N``.  It is not read before step 2.  The next attempt
    deletes it first, and so does a batch of new records that gets the same number.
2.  One commit replaces the merged batches with the new one.  Its ``id`` stays the same, since gold would be the same.
3.  ``Store.publish`` deletes the merged batches when the snapshots that use them are gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from aiocontroller.analytics import bronze, schema, stream
from aiocontroller.analytics.dataframes import DataFrame, F
from aiocontroller.analytics.gold import facts as of
from aiocontroller.analytics.store import Store

log = logging.getLogger(__name__)

MERGED_AT_ONCE: Final = 8
"""With this number, a day with a batch every five seconds (17,280) leaves at most 35 batches."""


def compact(store: Store, step: Callable[[str], None] = log.info) -> None:
    """Merge the last batches, if there are enough of them."""
    commit = store.last_commit()
    assert commit is not None, "nothing was ever added"
    number, level = due(commit["parts"])
    if number:
        step(f"merging {number} batches")
        _merge(store, commit, number, level)


def due(parts: Sequence[Sequence[int]]) -> tuple[int, int]:
    """Return how many of the last parts (number, level) should be merged, and the level of the result."""
    taken, level = 0, 0
    while True:
        same = 0
        while taken + same < len(parts) and parts[-1 - taken - same][1] == level:
            same += 1
        if same + (1 if taken else 0) < MERGED_AT_ONCE:  # the batches merged so far count as one
            return taken, level
        taken, level = taken + same, level + 1


def _merge(store: Store, commit: dict[str, Any], number: int, level: int) -> None:
    batch, kept, merged = commit["batch"] + 1, commit["parts"][:-number], commit["parts"][-number:]
    batches = [part for part, _ in merged]
    for table in stream.TABLES:
        store.forget(table, batch)
    there = [table for table in stream.TABLES if store.having(table, batches)]
    if stream.EVENTS in there:
        events = store.read(stream.EVENTS, batches, schema.EVENTS_BRONZE)
        store.append(stream.EVENTS, batch, events.selectExpr("*", f"{bronze.DAY} AS day"), "day")
    others = [table for table in there if table not in (stream.EVENTS, stream.TIMELINE)]
    made = {table: _MERGES.get(table, _facts(table))(store.read(table, batches)) for table in others}
    stream.write_all(store, batch, made | {stream.TIMELINE: _histories(store, batches)})
    store.commit({**commit, "batch": batch, "parts": [*kept, [batch, level]]})


def _histories(store: Store, batches: Sequence[int]) -> DataFrame:
    """Return the batches' rows, each once, and each partition's last row, ``carried`` as if from an earlier batch."""
    last = store.read(stream.TIMELINE, batches[-1:]).where("is_last")
    rows = store.read(stream.TIMELINE, batches).where("NOT carried")
    # The start of a window is kept only at its end and in last rows, and these rows are no longer last.
    plain = {
        "is_last": F.lit(False),
        "down_since": F.expr("if(down_ends, down_since, NULL)"),
        "under_since": F.expr("if(under_ends, under_since, NULL)"),
    }
    merged = rows.withColumns(plain)
    if not rows.where("n < 0").isEmpty():
        columns = [name for name in merged.columns if name != "n"]
        merged = merged.groupBy(*columns).agg(F.sum("n").alias("n")).where("n <> 0").select(*rows.columns)
    return merged.unionByName(last.withColumn("carried", F.lit(True)))


def _facts(table: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: of.merge(table.rpartition("/")[2], rows)


def _same(rows: DataFrame) -> DataFrame:
    return rows


_MERGES: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    stream.SILVER: _same,
    stream.CLOCKS: _same,
    stream.QUARANTINE: bronze.merged_quarantine,
    f"{stream.FACTS}/{stream.REPEATED}": lambda rows: rows.groupBy("file").agg(F.sum("duplicates").alias("duplicates")),
    f"{stream.FACTS}/{stream.READ}": lambda rows: rows.groupBy("file").agg(F.sum("read").alias("read")),
}
