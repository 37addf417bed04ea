"""Adds rows for what logs show only indirectly.

* ``log_end``: the last line that a broker wrote before it started again, or the last of all; ``detail`` states whether
  it had shut down.  Otherwise the process was killed, or the log was cut.  ``count`` is the number of its lines until
  then, ``duration_us`` the longest time between two of them while it ran.
* ``peer_lost``: replicas' fetchers repeat such lines about every second; one row stands for a run of them, at the first
  line, with its ``duration_us``.
* ``gap``: a record of one log shows that another one should have a line, and it has none; ``broker`` is the
  one whose log has the gap, ``detail`` says which log, and ``duration_us`` how long the records go on that show it.
* ``term``: the controller ``broker`` of an epoch, according to a broker (``node``) that received its requests; it lasts
  from the first request for ``duration_us``.
"""

from __future__ import annotations

from typing import Final

from aiocontroller.analytics.dataframes import Column, DataFrame, F, Window
from aiocontroller.analytics.schema import CONTROLLER_LOG, STATE_CHANGE_LOG

RUN_GAP_US: Final = 5_000_000
"""Fetchers of a broker that is gone retry every second; a longer pause begins another run."""
SHUT_DOWN, ENDED = "shut down", "without a shutdown"
UNHEARD: Final = "unheard"
"""The ``event`` of gaps in what a broker received, which says nothing of what it decided as a controller."""
RETRIED_FOR_US: Final = 120_000_000
"""A broker that hung may handle a request this long after it was sent; after a longer time its session has ended, and
with its new one come new requests."""
NEAR_US: Final = 60_000_000
"""More than clocks differ, and more than a controller takes from noticing a broker to its requests."""
BEAT_US: Final = 600_000_000
"""A controller that balances leaders writes a line every five minutes (``leader.imbalance.check.interval.seconds``)."""
BEATS: Final = 12
SILENT_US: Final = 3_600_000_000
_LAST_WORDS: Final = 20
"""The number of lines that a process may still write after it logged that it has shut down."""


def with_evidence(lines: DataFrame) -> DataFrame:
    """Return the lines and the added rows.

    The rows are few (one for each start, outage and term) and are computed here: as part of the plan, everything made
    of the lines would be planned and computed several times.
    """
    few = log_ends(lines).unionByName(peers_lost(lines)).unionByName(terms(lines))
    few = few.unionByName(unsent(lines)).unionByName(unheard(lines)).unionByName(silences(lines))
    return lines.where("kind <> 'peer_lost'").unionByName(few.localCheckpoint())


def log_ends(lines: DataFrame) -> DataFrame:
    narrow = lines.where("node IS NOT NULL")
    in_order = Window.partitionBy("cluster", "node").orderBy("ts_us", "seq")
    starts = F.expr("kind = 'broker' AND detail = 'starting'")
    said = F.expr("kind = 'broker' AND detail = 'shut down'")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    placed = narrow.withColumns(
        {
            "is_last": F.coalesce(F.lead(starts).over(in_order), F.lit(True)),
            "said": F.max(said).over(in_order.rowsBetween(-_LAST_WORDS, Window.currentRow)),
            "pause_us": F.when(starts, 0).otherwise(F.col("ts_us") - F.lag("ts_us").over(in_order)),
            "written": F.count("ts_us").over(so_far),
        }
    )
    last = placed.withColumn("longest_us", F.max("pause_us").over(so_far)).where("is_last")
    made = {
        "kind": F.lit("log_end"),
        "broker": F.col("node"),
        "detail": F.when(F.col("said"), SHUT_DOWN).otherwise(ENDED),
        "count": F.col("written"),
        "duration_us": F.col("longest_us"),
    }
    return _rows(last, lines, made)


def peers_lost(lines: DataFrame) -> DataFrame:
    lost = lines.where("kind = 'peer_lost' AND node <> broker")
    by_pair = Window.partitionBy("cluster", "node", "broker").orderBy("ts_us", "seq")
    since_last = F.col("ts_us") - F.lag("ts_us").over(by_pair)
    runs = lost.withColumn("begins", F.coalesce(since_last > RUN_GAP_US, F.lit(True)).cast("int")).withColumn(
        "run", F.sum("begins").over(by_pair)
    )
    by_run = runs.groupBy("cluster", "node", "broker", "run").agg(
        F.min_by(F.struct(*lost.columns), F.struct("ts_us", "seq")).alias("first"), F.max("ts_us").alias("last_us")
    )
    return _rows(by_run.select("first.*", "last_us"), lines, {"duration_us": F.expr("last_us - ts_us")})


def terms(lines: DataFrame) -> DataFrame:
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
    return _rows(found, lines, made)


def unsent(lines: DataFrame) -> DataFrame:
    """Return the gaps in controllers' state changes: brokers handled its requests, or it noticed brokers itself, and no
    line near says that it sent anything.

    A controller without any such line is not judged here: its logs are missing, or it keeps a journal.  What it notices
    proves something only from 2.6 on, where it then always sends metadata.
    """
    sends = "kind IN ('request', 'told', 'partition', 'replica')"
    noticed = f"source = '{CONTROLLER_LOG}' AND kind = 'broker' AND detail IN ('dead', 'added', 'bounced')"
    named = lines.where(f"{sends} OR kind = 'received' OR ({noticed})").withColumns(
        {
            "controller": F.expr("if(kind = 'received', try_cast(detail AS INT), node)"),
            "sent_us": F.expr(f"if({sends}, ts_us, NULL)"),
        }
    )
    of_controller = Window.partitionBy("cluster", "controller")
    in_order = of_controller.orderBy("ts_us", "seq")
    placed = named.withColumns(
        {
            "before_us": F.max("sent_us").over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)),
            "after_us": F.min("sent_us").over(in_order.rowsBetween(Window.currentRow, Window.unboundedFollowing)),
            "of_requests": F.max(F.expr("kind = 'request'")).over(of_controller),
        }
    )
    far = (
        f"coalesce(ts_us - before_us > if(kind = 'received', {RETRIED_FOR_US}, {NEAR_US}), true)"
        f" AND coalesce(after_us - ts_us > {NEAR_US}, true) AND (before_us IS NOT NULL OR after_us IS NOT NULL)"
    )
    alone = placed.where(f"sent_us IS NULL AND {far} AND (kind = 'received' OR of_requests)")
    by_hole = alone.groupBy("cluster", "controller", "before_us", "after_us").agg(
        F.min_by(F.struct(*lines.columns), F.struct("ts_us", "seq")).alias("first"), F.max("ts_us").alias("last_us")
    )
    return _rows(by_hole.select("controller", "first.*", "last_us"), lines, _gap("controller", STATE_CHANGE_LOG))


def unheard(lines: DataFrame) -> DataFrame:
    """Return the gaps in what brokers received: controllers sent requests to a broker for longer than a session lasts,
    or it answered one, and the broker has no line about it near.

    Before its first line it proves nothing: old files are deleted.
    """
    named = (
        lines.where("kind IN ('request', 'response', 'received')")
        .withColumn(
            "receiver", F.explode(F.expr("if(kind = 'received', array(node), coalesce(brokers, array(broker)))"))
        )
        .where("receiver IS NOT NULL")
        .withColumn("heard_us", F.expr("if(kind = 'received', ts_us, NULL)"))
    )
    in_order = Window.partitionBy("cluster", "receiver").orderBy("ts_us", "seq")
    placed = named.withColumns(
        {
            "before_us": F.max("heard_us").over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)),
            "after_us": F.min("heard_us").over(in_order.rowsBetween(Window.currentRow, Window.unboundedFollowing)),
        }
    )
    alone = placed.where(
        f"heard_us IS NULL AND ts_us - before_us > {NEAR_US} AND coalesce(after_us - ts_us > {NEAR_US}, true)"
    )
    by_hole = (
        alone.groupBy("cluster", "receiver", "before_us", "after_us")
        .agg(
            F.min_by(F.struct(*lines.columns), F.struct("ts_us", "seq")).alias("first"),
            F.max("ts_us").alias("last_us"),
            F.max(F.expr("kind = 'response'")).alias("answered"),
        )
        .where(f"answered OR last_us - first.ts_us > {RETRIED_FOR_US}")
    )
    made = {**_gap("receiver", STATE_CHANGE_LOG), "event": F.lit(UNHEARD)}
    return _rows(by_hole.select("receiver", "first.*", "last_us"), lines, made)


def silences(lines: DataFrame) -> DataFrame:
    """Return the gaps in controller.log of active controllers.

    Such a controller wrote every few minutes, before and after, wrote nothing for an hour, and was neither elected nor
    deposed around it.

    A log that is quiet by nature is never regular for so long, so it has no gaps here.
    """
    narrow = lines.where(f"source = '{CONTROLLER_LOG}' AND node IS NOT NULL")
    in_order = Window.partitionBy("cluster", "node").orderBy("ts_us", "seq")
    with_pauses = narrow.withColumn("pause_us", F.col("ts_us") - F.lag("ts_us").over(in_order)).withColumn(
        "turned", F.expr("int(kind IN ('elected', 'failover', 'loaded', 'resigned'))")
    )
    before, after = in_order.rowsBetween(-BEATS, -1), in_order.rowsBetween(1, BEATS)
    placed = with_pauses.withColumns(
        {
            "longest": F.greatest(F.max("pause_us").over(before), F.max("pause_us").over(after)),
            "lasted": F.least(F.sum("pause_us").over(before), F.sum("pause_us").over(after)),
            "turns": F.sum("turned").over(in_order.rowsBetween(-BEATS, BEATS)),
        }
    )
    silent = placed.where(
        f"pause_us > {SILENT_US} AND turns = 0 AND longest <= {BEAT_US} AND lasted >= {SILENT_US} DIV 2"
    )
    found = silent.withColumn("last_us", F.col("ts_us")).withColumn("ts_us", F.col("ts_us") - F.col("pause_us"))
    return _rows(found, lines, _gap("node", CONTROLLER_LOG))


def skipped(histories: DataFrame, reassigning: DataFrame) -> DataFrame:
    """Return the gaps that partitions' histories show, one for each term.

    They are a leader epoch that grew by more than one, and a partition that came out of OfflinePartition and was never
    seen to go there.  A reassignment raises the leader epoch in lines that are no part of the histories.
    """
    so_far = (
        Window.partitionBy("cluster", "topic", "partition")
        .orderBy("epoch", "ts_us", "seq")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    numbered = F.when(F.col("leader_epoch").isNotNull(), F.struct("epoch", "leader_epoch", "ts_us", "node"))
    up = "leader >= 0 AND coalesce(to_state, 'OnlinePartition') = 'OnlinePartition'"
    led = F.expr(f"named_struct('epoch', epoch, 'up', {up}, 'ts_us', ts_us)")
    placed = (
        histories.withColumn("led", led)
        .withColumns(
            {
                "numbered": F.last(numbered, ignorenulls=True).over(so_far),
                "was": F.last("led").over(so_far),
            }
        )
        .where("kind = 'partition' AND source <> 'journal' AND detail IS DISTINCT FROM 'from a request'")
    )
    jumped = (
        "coalesce(numbered.epoch >= epoch - 1 AND leader_epoch > numbered.leader_epoch + 1"
        " AND coalesce(from_state NOT IN ('NonExistentPartition', 'NewPartition'), true), false)"
    )
    surprised = (
        "coalesce(was.epoch = epoch AND was.up AND from_state = 'OfflinePartition' AND to_state = 'OnlinePartition', "
        "false)"
    )
    found = (
        placed.withColumn("jumped", F.expr(jumped))
        .where(f"jumped OR {surprised}")
        .join(F.broadcast(reassigning.select("cluster", "topic").distinct()), ["cluster", "topic"], "left_anti")
        .withColumn("since_us", F.expr("if(jumped, numbered.ts_us, was.ts_us)"))
        .withColumn("whose", F.expr("if(jumped, numbered.node, node)"))
    )
    by_term = found.groupBy("cluster", "node", "epoch").agg(
        F.min_by(F.struct(*(name for name in histories.columns if name not in ("cluster", "node", "epoch"))),
                 F.struct("ts_us", "seq")).alias("first"),
        F.min_by("whose", F.struct("ts_us", "seq")).alias("whose"),
        F.min("since_us").alias("since_us"), F.max("ts_us").alias("last_us"),
    ).select("cluster", "node", "epoch", "first.*", "whose", "since_us", "last_us")  # fmt: skip
    whole = by_term.withColumn("ts_us", F.col("since_us"))
    return _rows(whole, histories, {**_gap("whose", STATE_CHANGE_LOG), "epoch": F.col("epoch")})


def _gap(whose: str, log: str) -> dict[str, Column]:
    return {
        "kind": F.lit("gap"),
        "broker": F.col(whose),
        "detail": F.lit(log),
        "duration_us": F.expr("last_us - ts_us"),
    }


_WHERE: Final = (
    "cluster", "source", "node", "process", "start_us", "seq", "ts", "ts_us", "ts_error_us", "kind", "event", "detail",
    "broker", "file", "reference", "duration_us", "joined",
)  # fmt: skip
"""The columns that a row takes over from its line; the others are null."""


def _rows(found: DataFrame, like: DataFrame, made: dict[str, Column]) -> DataFrame:
    columns = []
    for field in like.schema:
        value = made.get(field.name, F.col(field.name) if field.name in _WHERE else F.lit(None))
        columns.append(value.cast(field.dataType).alias(field.name))
    return found.select(*columns)
