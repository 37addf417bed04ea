"""Ends of partitions by what brokers log when an UpdateMetadata request names partitions as deleted.

They are needed where the controller that completes a topic's deletion has no log.  Kafka and this controller send such
a request when a deletion begins, before they take the leaders away.  Each retry and each new controller sends it again.
So one life of a partition has many such lines, from each broker, with changes of leadership between them.

A life ends at its first such line, or after its last change.  A change after such a line belongs to the next life

* if it shows the creation, or if an epoch is lower than before;
* if it comes later than ``SETTLED_US``, or a leader logs it later than ``LED_US``: then a controller without a log
  created the topic again.
"""

from __future__ import annotations

from typing import Final

from aiocontroller.analytics.dataframes import DataFrame, F, Window

TOLD: Final = "not in the log: when a broker was told of its deletion"
SETTLED_US: Final = 60_000_000
"""A controller takes the leaders away within this time after its request, and a live broker handles the request."""
LED_US: Final = 5_000_000
"""A leader is told to stop right after such a line."""
_KEY: Final = ("cluster", "topic", "partition")
_PARTITION: Final = "^(.*)-([0-9]+)$"
_CREATED: Final = """
    to_state = 'NewPartition' OR from_state IN ('NonExistentPartition', 'NewPartition')
    OR leader_epoch < last_leader_epoch OR partition_epoch < last_partition_epoch"""
_LATE: Final = f"coalesce(life > coalesce(life_before, -1) + 1 AND ts_us - created_us <= {SETTLED_US}, false)"
"""A broker that was told nothing in the life before handled the request late, after the topic was created again."""


def told_of(lines: DataFrame) -> DataFrame:
    """Return a row for each partition of each line of the kind ``deleted``."""
    each = lines.withColumn("one", F.explode(F.expr("split(detail, ', ')")))
    named = {
        "topic": F.expr(f"regexp_extract(one, '{_PARTITION}', 1)"),
        "partition": F.expr(f"try_cast(regexp_extract(one, '{_PARTITION}', 2) AS INT)"),
        "detail": F.lit(None).cast("string"),
    }
    return each.withColumns(named).drop("one").where("partition IS NOT NULL")


def with_creations(lines: DataFrame, told: DataFrame) -> DataFrame:
    """Mark requests that create a partition again: the first state that a broker receives after it was ``told``.

    They go from NewPartition to OnlinePartition.
    """
    both = lines.withColumn("is_told", F.lit(False)).unionByName(told.withColumn("is_told", F.lit(True)))
    first = "kind = 'received' AND leader_epoch = 0 AND partition_epoch = 0"
    by_broker = Window.partitionBy(*_KEY, "node").orderBy("ts_us", "seq")
    before = F.last(F.expr(f"if(is_told OR {first}, is_told, NULL)"), ignorenulls=True).over(
        by_broker.rowsBetween(Window.unboundedPreceding, -1)
    )
    marked = both.withColumn("again", before).where("NOT is_told")
    states = {"from_state": "NewPartition", "to_state": "OnlinePartition"}
    made = {name: F.expr(f"if({first} AND again, '{state}', {name})") for name, state in states.items()}
    return marked.withColumns(made).select(*lines.columns)


def ended_by_brokers(histories: DataFrame, told: DataFrame) -> DataFrame:
    """Return the end of each life that brokers were ``told`` is over, if no row of ``histories`` has it."""
    placed = _lives(histories, told)
    first = placed.where(f"is_told AND NOT {_LATE}").groupBy(*_KEY, "life").agg(
        F.min_by(F.struct(*(name for name in histories.columns if name not in _KEY)),
                 F.struct("ts_us", "node", "seq")).alias("told"),
    )  # fmt: skip
    last = placed.where("NOT is_told").groupBy(*_KEY, "life").agg(
        F.max_by(F.struct("epoch", "ts_us", "to_state"), F.struct("epoch", "ts_us", "seq")).alias("last")
    )  # fmt: skip
    ended = first.join(last, [*_KEY, "life"]).where("last.to_state IS DISTINCT FROM 'NonExistentPartition'")
    made = {name: F.col(f"told.{name}") for name in histories.columns if name not in _KEY}
    made |= {name: F.col(name) for name in _KEY}
    made |= {
        "ts_us": F.expr("greatest(told.ts_us, last.ts_us + 1)"),
        "epoch": F.expr("greatest(told.epoch, last.epoch)"),
        "kind": F.lit("partition"),
        "from_state": F.lit("OfflinePartition"),
        "to_state": F.lit("NonExistentPartition"),
        "count": F.lit(None),
        "detail": F.lit(TOLD),
    }
    types = {field.name: field.dataType for field in histories.schema}
    return ended.select(*(made[name].cast(types[name]).alias(name) for name in histories.columns))


def _lives(histories: DataFrame, told: DataFrame) -> DataFrame:
    """Return ``told`` and the rows of its partitions, numbered by ``life``.

    A told row has ``life_before``, the one of which its broker was told last; ``created_us`` is null if a life's
    creation is not known.
    """
    changed = histories.join(told.select(*_KEY).distinct(), [*_KEY], "left_semi").withColumn("is_told", F.lit(False))
    both = changed.unionByName(told.withColumn("is_told", F.lit(True)))
    in_order = Window.partitionBy(*_KEY).orderBy("ts_us", "is_told", "seq")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    after = both.withColumns(
        {
            "times_told": F.sum(F.expr("int(is_told)")).over(so_far),
            "last_told_us": F.max(F.expr("if(is_told, ts_us, NULL)")).over(earlier),
            "last_leader_epoch": F.last("leader_epoch", ignorenulls=True).over(earlier),
            "last_partition_epoch": F.last("partition_epoch", ignorenulls=True).over(earlier),
        }
    ).withColumn("created", F.expr(f"NOT is_told AND coalesce({_CREATED}, false)"))
    settled_us = f"if(kind = 'isr', {LED_US}, {SETTLED_US})"
    anew = f"times_told > 0 AND NOT is_told AND (created OR ts_us - last_told_us > {settled_us})"
    marked = after.withColumn("anew", F.expr(anew)).withColumn(
        "told_then", F.max(F.expr("if(anew, times_told, NULL)")).over(earlier)
    )
    begun = marked.withColumn("begins", F.expr("anew AND coalesce(told_then < times_told, true)")).withColumn(
        "life", F.sum(F.expr("int(begins)")).over(so_far)
    )
    by_broker = Window.partitionBy(*_KEY, "node").orderBy("ts_us", "is_told", "seq")
    return begun.withColumns(
        {
            "created_us": F.max(F.expr("if(begins AND created, ts_us, NULL)")).over(Window.partitionBy(*_KEY, "life")),
            "life_before": F.max(F.expr("if(is_told, life, NULL)")).over(
                by_broker.rowsBetween(Window.unboundedPreceding, -1)
            ),
        }
    )
