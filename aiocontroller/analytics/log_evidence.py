"""Adds rows for what logs show only indirectly.

* ``log_end``: the last line that a broker wrote before it started again, or the last of all; ``detail`` states whether
  it had shut down; otherwise the process was killed, or the log was cut.  ``count`` is the number of its lines until
  then, ``duration_us`` the longest time between two of them while it ran.
* ``peer_lost``: replica fetchers repeat such lines about every second; one row stands for a run of them, at its first
  line, with its ``duration_us``.
* ``term``: the controller ``broker`` of an epoch, according to a broker (``node``) that received its requests, from the
  first request on for ``duration_us``.
"""

from __future__ import annotations

from typing import Final

from aiocontroller.analytics.dataframes import Column, DataFrame, F, Window

RUN_GAP_US: Final = 5_000_000
"""Fetchers of a broker that is gone retry every second; a longer pause begins another run."""
STARTS: Final = "kind = 'broker' AND detail = 'starting'"
SHUT_DOWN, ENDED = "shut down", "without a shutdown"
_LAST_WORDS: Final = 20
"""The number of lines that a process may write after logging that it has shut down."""


def with_evidence(lines: DataFrame, gaps: DataFrame) -> DataFrame:
    """Return the lines and the added rows, ``gaps`` among them.

    The rows are few (one for each start, outage and term) and are computed here; otherwise everything they are made of
    would be planned and computed several times.
    """
    few = _log_ends(lines).unionByName(_peers_lost(lines)).unionByName(_terms(lines)).unionByName(gaps)
    return lines.where("kind <> 'peer_lost'").unionByName(few.localCheckpoint())


def _log_ends(lines: DataFrame) -> DataFrame:
    """Return a ``log_end`` for each life of each node; lines without a node are left out.

    Only the few columns that tell the lives apart are sorted; the last lines themselves are looked up afterwards.
    """
    in_order = Window.partitionBy("cluster", "node").orderBy("ts_us", "seq")
    pause_us = F.when(F.expr(STARTS), 0).otherwise(F.col("ts_us") - F.lag("ts_us").over(in_order))
    narrow = lines.where("node IS NOT NULL").select("cluster", "node", "file", "ts_us", "seq", "kind", "detail")
    placed = with_lives(narrow).withColumns({"place": F.row_number().over(in_order), "pause_us": pause_us})
    said = "kind = 'broker' AND detail = 'shut down'"
    by_life = placed.groupBy("cluster", "node", "life").agg(
        F.max("place").alias("written"), F.max(F.expr(f"if({said}, place, NULL)")).alias("said_at"),
        F.max("pause_us").alias("longest_us"), F.max_by(F.struct("file", "seq"), "place").alias("last"),
    )  # fmt: skip
    so_far = Window.partitionBy("cluster", "node").orderBy("life").rowsBetween(Window.unboundedPreceding, 0)
    ends = by_life.withColumn("longest_us", F.max("longest_us").over(so_far)).selectExpr(
        "cluster", "node", "written", "said_at", "longest_us", "last.file AS file", "last.seq AS seq"
    )
    made = {
        "kind": F.lit("log_end"),
        "broker": F.col("node"),
        "detail": F.expr(f"if(written - said_at <= {_LAST_WORDS}, '{SHUT_DOWN}', '{ENDED}')"),
        "count": F.col("written"),
        "duration_us": F.col("longest_us"),
    }
    return rows(lines.join(F.broadcast(ends), ["cluster", "node", "file", "seq"]), lines, made)


def _peers_lost(lines: DataFrame) -> DataFrame:
    """Return a ``peer_lost`` for each run, whose lines follow each other within ``RUN_GAP_US``."""
    lost = lines.where("kind = 'peer_lost' AND node <> broker")
    by_pair = Window.partitionBy("cluster", "node", "broker").orderBy("ts_us", "seq")
    since_last = F.col("ts_us") - F.lag("ts_us").over(by_pair)
    runs = lost.withColumn("begins", F.coalesce(since_last > RUN_GAP_US, F.lit(True)).cast("int")).withColumn(
        "run", F.sum("begins").over(by_pair)
    )
    by_run = runs.groupBy("cluster", "node", "broker", "run").agg(
        F.min_by(F.struct(*lost.columns), F.struct("ts_us", "seq")).alias("first"), F.max("ts_us").alias("last_us")
    )
    return rows(by_run.select("first.*", "last_us"), lines, {"duration_us": F.expr("last_us - ts_us")})


def _terms(lines: DataFrame) -> DataFrame:
    """Return a ``term`` for each (node, epoch, controller) in received requests and refusals of stale ones."""
    named = lines.where("kind IN ('received', 'stale')").withColumns(
        {
            "epoch": F.coalesce("epoch", "controller_epoch"),  # a partition's state may be of an earlier term
            "controller": F.expr("try_cast(detail AS INT)"),
        }
    )
    by_term = named.where("epoch IS NOT NULL AND controller IS NOT NULL").groupBy(
        "cluster", "node", "epoch", "controller"
    )
    found = by_term.agg(
        F.min_by(F.struct(*(name for name in lines.columns if name not in ("cluster", "node", "epoch"))),
                 F.struct("ts_us", "seq")).alias("first"),
        F.max("ts_us").alias("last_us"),
    ).select("cluster", "node", "epoch", "controller", "first.*", "last_us")  # fmt: skip
    made = {
        "kind": F.lit("term"),
        "epoch": F.col("epoch"),
        "broker": F.col("controller"),
        "duration_us": F.expr("last_us - ts_us"),
    }
    return rows(found, lines, made)


def with_lives(lines: DataFrame) -> DataFrame:
    """Add ``life``, which counts the starts of the node until the line.  All lines are sorted: give few columns."""
    in_order = Window.partitionBy("cluster", "node").orderBy("ts_us", "seq")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return lines.withColumn("life", F.sum(F.expr(f"int(coalesce({STARTS}, false))")).over(so_far))


_WHERE: Final = (
    "cluster", "source", "node", "process", "start_us", "seq", "ts", "ts_us", "ts_error_us", "kind", "event", "detail",
    "broker", "file", "reference", "duration_us", "joined",
)  # fmt: skip
"""The columns that a row takes from its line; the others are null."""


def rows(found: DataFrame, like: DataFrame, made: dict[str, Column]) -> DataFrame:
    """Return ``found`` with the columns of ``like``, taken from ``made``, else from the row's line (``_WHERE``), else
    null."""
    columns = []
    for field in like.schema:
        value = made.get(field.name, F.col(field.name) if field.name in _WHERE else F.lit(None))
        columns.append(value.cast(field.dataType).alias(field.name))
    return found.select(*columns)
