"""Invariants that were broken, each with the records that prove it.

| | what a journal can prove | what proves it |
| --- | --- | --- |
| I1 | a controller wrote a partition's state after a later one had | two rows of the partition |
| I2 | an epoch or a version went back | two rows; two elections |
| I3 | a leader outside the ISR; an ISR that is empty, too wide, or grew unasked; two leaders in one epoch | its rows |
| I4 | a leader from outside the ISR in an election that was not unclean | two rows |
| leaderless | at the end no leader for a minute, although a member of the ISR lives | the partition's last row |
| I6 | two active processes in one epoch | a record of each |
| I7 | a request to an older incarnation of a broker than the one before | two requests |
| transition | a step that the partition state machine does not allow | one or two rows |
| waiting | an event waited for more than a minute | the event |
| handler | a handler failed, or held the loop for more than a minute | the event |
| size | a write larger than ZooKeeper takes by default | the write, if it has ``bytes`` |
| I12 | acts of a controller that is not active; elected without having resigned | the act, and the end of its term |

Those with a number are of the list in ``docs/chaos.md``.
"""

from __future__ import annotations

from functools import reduce

from aiocontroller.analytics.dataframes import DataFrame, F, Window
from aiocontroller.analytics.gold.facts import LARGEST_ZNODE_BYTES, SLOW_US
from aiocontroller.analytics.gold.leadership import PLACE
from aiocontroller.analytics.schema import JOURNAL_SOURCE

ACTS = ("request", "partition", "isr", "write", "loaded", "reassigned", "topic_deleted")
"""Kinds of records that only an active controller makes."""
SETTLED_AFTER_US = 60_000_000

_ACTS = ", ".join(f"'{kind}'" for kind in ACTS)
_COLUMNS = ("cluster", "invariant", "topic", "partition", "node", "epoch", "ts_us", "words", "evidence")


def violations(
    found: DataFrame,
    milestones: DataFrame,
    tallies: DataFrame,
    last_rows: DataFrame,
    events: DataFrame,
    span: DataFrame,
) -> DataFrame:
    """Return ``_COLUMNS``: one row for each breach, with its ``evidence``; empty if every invariant was kept."""
    own = tallies.where("source = 'journal'")
    return reduce(
        DataFrame.union,
        (
            _of_partitions(found, own),
            _of_terms(milestones),
            _acts_out_of_office(own, milestones),
            _two_active(own),
            _old_incarnations(own),
            _of_the_loop(milestones),
            _left_leaderless(last_rows, events, span),
        ),
    )


def complete_processes(tallies: DataFrame) -> DataFrame:
    """Return (cluster, process) of the processes without missing records."""
    counted = tallies.groupBy("cluster", "process").agg(F.expr("sum(n) AS n"), F.expr("max(last_seq) AS last_seq"))
    return counted.where("n = last_seq").select("cluster", "process")


def _of_partitions(found: DataFrame, tallies: DataFrame) -> DataFrame:
    complete = complete_processes(tallies).withColumn("complete", F.lit(True))
    checked = found.join(complete, ["cluster", "process"], "left").where("NOT if_complete OR complete")
    return checked.select(*_COLUMNS)


def _of_terms(milestones: DataFrame) -> DataFrame:
    """Return violations by elections of one process: the epoch must grow, and each term must end before the next
    begins."""
    terms = milestones.where("kind IN ('elected', 'resigned')")
    process = Window.partitionBy("cluster", "process").orderBy("seq")
    in_order = terms.withColumns(
        {
            "before": F.lag(F.struct("kind", "place")).over(process),
            "highest": F.max(F.expr("if(kind = 'elected', controller_epoch, NULL)")).over(
                process.rowsBetween(Window.unboundedPreceding, -1)
            ),
        }
    ).where("kind = 'elected'")
    back = in_order.where("controller_epoch <= highest").withColumns(
        {
            "invariant": F.lit("I2"),
            "words": F.expr("concat('elected for epoch ', controller_epoch, ' after ', highest)"),
        }
    )
    # A log continues after a crash in the same file; a journal belongs to one process.
    twice = in_order.where(f"before.kind = 'elected' AND source = '{JOURNAL_SOURCE}'").withColumns(
        {
            "invariant": F.lit("I12"),
            "words": F.expr("concat('elected for epoch ', controller_epoch, ' without having resigned')"),
        }
    )
    return back.unionByName(twice).selectExpr(
        "cluster", "invariant", "NULL", "NULL", "node", "epoch", "ts_us", "words",
        "filter(array(before.place, place), p -> p IS NOT NULL)",
    )  # fmt: skip


def _acts_out_of_office(tallies: DataFrame, milestones: DataFrame) -> DataFrame:
    key = ["cluster", "process", "epoch"]
    acts = (
        tallies.where(f"kind IN ({_ACTS})")
        .groupBy(*key, "node", "kind")
        .agg(
            F.expr("min(first_seq) AS first_seq"), F.expr("max(last_seq) AS last_seq"), F.expr("max(last_us) AS ts_us")
        )
    )
    terms = milestones.groupBy(*key).agg(
        F.expr("min(if(kind = 'elected', seq, NULL)) AS elected"),
        F.expr("max(if(kind = 'resigned', seq, NULL)) AS resigned"),
    )
    complete = complete_processes(tallies).withColumn("complete", F.lit(True))
    known = acts.join(terms, key, "left").join(complete, ["cluster", "process"], "left")
    early = known.where("first_seq < elected OR (elected IS NULL AND complete)").selectExpr(
        *key, "node", "kind", "ts_us", "first_seq AS seq", "elected AS term_seq", "'before it was elected' AS why"
    )
    late = known.where("last_seq > resigned").selectExpr(
        *key, "node", "kind", "ts_us", "last_seq AS seq", "resigned AS term_seq", "'after it had resigned' AS why"
    )
    return early.unionByName(late).selectExpr(
        "cluster", "'I12'", "NULL", "NULL", "node", "epoch", "ts_us", "concat(kind, ' ', why)",
        "transform(filter(array(seq, term_seq), s -> s IS NOT NULL), s -> concat(process, ':', s))",
    )  # fmt: skip


def _two_active(tallies: DataFrame) -> DataFrame:
    office = (
        tallies.where(f"epoch > 0 AND kind IN ('elected', {_ACTS})")
        .groupBy("cluster", "epoch", "process")
        .agg(F.expr("max(node) AS node"), F.expr("min(first_seq) AS seq"), F.expr("min(first_us) AS ts_us"))
    )
    each = office.groupBy("cluster", "epoch").agg(
        F.array_sort(F.collect_list(F.struct("process", "seq", "node", "ts_us"))).alias("who")
    )
    return each.where("size(who) > 1").selectExpr(
        "cluster", "'I6'", "NULL", "NULL", "who[1].node", "epoch", "array_max(transform(who, w -> w.ts_us))",
        "concat(size(who), ' active processes in epoch ', epoch, ': ', "
        "array_join(transform(who, w -> w.process), ', '))",
        "transform(who, w -> concat(w.process, ':', w.seq))",
    )  # fmt: skip


def _old_incarnations(tallies: DataFrame) -> DataFrame:
    key = ["cluster", "process", "epoch", "broker"]
    sent = (
        tallies.where("kind = 'request' AND broker_epoch IS NOT NULL")
        .groupBy(*key, "node", "broker_epoch")
        .agg(
            F.expr("min(first_seq) AS first_seq"),
            F.expr("max(last_seq) AS last_seq"),
            F.expr("max(last_us) AS last_us"),
        )
    )
    earlier = Window.partitionBy(*key).orderBy("broker_epoch").rowsBetween(Window.unboundedPreceding, -1)
    overlap = sent.withColumn("old_seq", F.max("last_seq").over(earlier)).where("old_seq > first_seq")
    return overlap.selectExpr(
        "cluster", "'I7'", "NULL", "NULL", "node", "epoch", "last_us",
        "concat('a request to an incarnation of broker ', broker, ' before ', broker_epoch, ', which was over')",
        "array(concat(process, ':', first_seq), concat(process, ':', old_seq))",
    )  # fmt: skip


def _of_the_loop(milestones: DataFrame) -> DataFrame:
    breaches = f"""
        filter(array(
          if(kind = 'fault',
             struct('handler' AS i, concat(coalesce(event, 'a handler'), ' failed: ', coalesce(detail, '')) AS w),
             NULL),
          if(kind = 'event' AND queue_us > {SLOW_US},
             struct('waiting' AS i, concat(event, ' waited for ', round(queue_us / 1e6, 1), ' s') AS w), NULL),
          if(kind = 'event' AND processing_us > {SLOW_US},
             struct('handler' AS i, concat(event, ' held the loop for ', round(processing_us / 1e6, 1), ' s') AS w),
             NULL),
          if(kind = 'write' AND bytes > {LARGEST_ZNODE_BYTES},
             struct('size' AS i, concat('a write of ', bytes, ' bytes') AS w), NULL)), f -> f IS NOT NULL)"""
    each = milestones.selectExpr("*", f"explode({breaches}) AS f")
    return each.selectExpr("cluster", "f.i", "topic", "NULL", "node", "epoch", "ts_us", "f.w", "array(place)")


def _left_leaderless(last_rows: DataFrame, events: DataFrame, span: DataFrame) -> DataFrame:
    away = events.groupBy("cluster", "broker").agg(
        F.expr("max_by(event, struct(epoch, start_us, writer, at_us, seq)) AS event")
    )
    gone = away.where("event IN ('died', 'left')").groupBy("cluster").agg(F.collect_set("broker").alias("dead"))
    waiting = last_rows.where("phase = 'down' AND size(isr) > 0").join(F.broadcast(span), "cluster")
    could = waiting.join(F.broadcast(gone), "cluster", "left").withColumn(
        "able", F.expr("array_except(isr, coalesce(dead, CAST(array() AS ARRAY<INT>)))")
    )
    return could.where(f"to_us - ts_us > {SETTLED_AFTER_US} AND size(able) > 0").selectExpr(
        "cluster", "'leaderless'", "topic", "partition", "node", "epoch", "ts_us",
        "concat('it has no leader, although ', array_join(able, ','), ' of its ISR could lead')", f"array({PLACE})",
    )  # fmt: skip
