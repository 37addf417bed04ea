"""Finds journal records that were read before, by counting.

A process numbers its records from 1 without gaps.  So a count, a sum and an xor of the numbers show whether the records
are exactly the numbers from ``first`` to ``last``, each once.  This costs one pass, which is needed anyway
(``facts.tallies``).  Only the records of processes that fail the test, or that overlap with earlier records, are
compared one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from aiocontroller.analytics.dataframes import DataFrame, F, Window
from aiocontroller.analytics.schema import JOURNAL_SOURCE

Range = tuple[int, int]


class Seen:
    """The record numbers read so far: ``{cluster: {process: [[first, last], …]}}``, sorted and disjoint."""

    def __init__(self, ranges: dict[str, dict[str, list[list[int]]]]) -> None:
        self.ranges = ranges

    def of(self, cluster: str, process: str) -> list[list[int]]:
        """Return the ranges read of a process, ascending; empty if none was."""
        return self.ranges.get(cluster, {}).get(process, [])

    def overlaps(self, cluster: str, process: str, first: int, last: int) -> bool:
        """Return whether any number from ``first`` to ``last`` (both inclusive) was read before."""
        return any(first <= known_last and last >= known_first for known_first, known_last in self.of(cluster, process))

    def plus(self, added: Iterable[tuple[str, str, int, int]]) -> Seen:
        """Return these and the added (cluster, process, first, last); overlapping ranges are joined."""
        ranges = {cluster: dict(processes) for cluster, processes in self.ranges.items()}
        for cluster, process, first, last in added:
            processes = ranges.setdefault(cluster, {})
            processes[process] = _joined([*processes.get(process, []), [first, last]])
        return Seen(ranges)


def _joined(ranges: list[list[int]]) -> list[list[int]]:
    """Merge adjacent and overlapping ranges."""
    joined: list[list[int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = [joined[-1][0], max(last, joined[-1][1])]
        else:
            joined.append([first, last])
    return joined


def without_repeated(events: DataFrame, tallies: DataFrame, seen: Seen) -> tuple[DataFrame, Seen, DataFrame | None]:
    """Return (events without repeated ones, the numbers read so far, (file, duplicates) or None without duplicates)."""
    counted = (
        tallies.where(f"source = '{JOURNAL_SOURCE}'")
        .groupBy("cluster", "process")
        .agg(
            F.expr("sum(n) AS n"), F.expr("min(first_seq) AS first"), F.expr("max(last_seq) AS last"),
            F.expr("sum(seq_sum) AS seq_sum"), F.expr("bit_xor(seq_xor) AS seq_xor"),
        )
        .collect()
    )  # fmt: skip
    doubtful = [
        row
        for row in counted
        if not _each_once(row) or seen.overlaps(row.cluster, row.process, row["first"], row["last"])
    ]
    names = {(row.cluster, row.process) for row in doubtful}
    whole = [
        (row.cluster, row.process, row["first"], row["last"])
        for row in counted
        if (row.cluster, row.process) not in names
    ]
    if not doubtful:
        return events, seen.plus(whole), None
    spark = events.sparkSession
    suspects = F.broadcast(spark.createDataFrame(sorted(names), "cluster string, process string"))
    known = spark.createDataFrame(
        [(c, p, a, b) for c, p in sorted(names) for a, b in seen.of(c, p)],
        "cluster string, process string, known_first long, known_last long",
    )
    among = events.where(f"source = '{JOURNAL_SOURCE}'").join(suspects, ["cluster", "process"], "left_semi")
    first_copy = Window.partitionBy("cluster", "process", "seq").orderBy("file", "kind", "ts_us")
    once = among.withColumn("copy", F.row_number().over(first_copy)).where("copy = 1").drop("copy")
    e, k = once.alias("e"), F.broadcast(known).alias("k")
    unseen = e.join(
        k,
        F.expr("e.cluster = k.cluster AND e.process = k.process AND e.seq BETWEEN k.known_first AND k.known_last"),
        "left_anti",
    ).persist()
    others = events.join(suspects, ["cluster", "process"], "left_anti").unionByName(
        events.where(f"source <> '{JOURNAL_SOURCE}'").join(suspects, ["cluster", "process"], "left_semi")
    )
    read, kept = among.groupBy("file").count(), unseen.groupBy("file").agg(F.count("*").alias("kept"))
    repeated = read.join(kept, "file", "left").selectExpr("file", "count - coalesce(kept, 0L) AS duplicates")
    island = Window.partitionBy("cluster", "process").orderBy("seq")
    runs = unseen.withColumn("run", F.expr("seq") - F.row_number().over(island)).groupBy("cluster", "process", "run")
    found = runs.agg(F.min("seq").alias("first"), F.max("seq").alias("last")).collect()
    return (
        others.unionByName(unseen.select(*others.columns)),
        seen.plus([*whole, *((row.cluster, row.process, row["first"], row["last"]) for row in found)]),
        repeated.where("duplicates > 0"),
    )


def _each_once(row: Any) -> bool:
    first, last = row["first"], row["last"]
    return bool(
        row.n == last - first + 1
        and row.seq_sum == (first + last) * row.n // 2
        and row.seq_xor == _xor_to(last) ^ _xor_to(first - 1)
    )


def _xor_to(n: int) -> int:
    """Return 0 ^ 1 ^ … ^ n."""
    return (n, 1, n + 1, 0)[n % 4] if n >= 0 else 0
