"""Ends and new lives of partitions by what brokers log, where a controller that deleted or created a topic has no log.

A *notice* is a broker's line that an UpdateMetadata request names a partition as deleted.  Kafka and this controller
send such a request when a deletion begins, before they take the leaders away.  Each retry and each new controller sends
it again.  So one life of a partition has many notices, from each broker, with changes of leadership between them.

A life ends at its first notice, or after its last change.  A change after a notice belongs to the next life

* if it shows the creation, or if an epoch is lower than before;
* if it comes later than ``SETTLED_US``, or a leader logs it later than ``LED_US``: then a controller without a log
  created the topic again.

The next life begins with its first leader, which logs that it leads in leader epoch 0 (``with_creations``).

Leaders name the topic's id after 3.0, and each life has its own.  So an end between two lines with the same id is
repeated, or logged late: it is of the life before (``in_their_lives``).  And another id proves that the life before has
ended, even where no log tells of it (``ended_by_ids``).
"""

from __future__ import annotations

from functools import reduce
from typing import Final

from aiocontroller.analytics.dataframes import DataFrame, F, Window

NOTICED: Final = "not in the log: when a broker was told of its deletion"
SETTLED_US: Final = 60_000_000
"""A controller takes the leaders away within this time after its request, and a live broker handles the request."""
LED_US: Final = 5_000_000
"""A leader is told to stop right after a notice."""
_TOPIC: Final = ("cluster", "topic")
_KEY: Final = (*_TOPIC, "partition")
_PARTITION: Final = "^(.*)-([0-9]+)$"
_CREATED: Final = """
    to_state = 'NewPartition' OR from_state IN ('NonExistentPartition', 'NewPartition')
    OR leader_epoch < last_leader_epoch OR partition_epoch < last_partition_epoch"""
_LATE: Final = f"coalesce(life > coalesce(life_before, -1) + 1 AND ts_us - created_us <= {SETTLED_US}, false)"
"""A broker without a notice in the life before handled the request late, after the topic was created again."""
_FIRST: Final = "kind = 'received' AND leader_epoch = 0 AND coalesce(partition_epoch, 0) = 0"
"""A partition's first state."""
_LED: Final = """
    kind = 'handled' AND coalesce(event, 'become-leader') = 'become-leader' AND leader_epoch = 0
    AND coalesce(partition_epoch, 0) = 0 AND topic IS NOT NULL"""
"""A broker leads in leader epoch 0.  Up to 2.5 only leaders write such a line, and it does not say so."""
_LOGGED: Final = "coalesce(kind = 'partition' AND from_state IN ('NonExistentPartition', 'NewPartition'), false)"
"""A controller logged the creation."""


def notices(lines: DataFrame) -> DataFrame:
    """Return a row for each partition of each line of the kind ``deleted``."""
    each = lines.withColumn("one", F.explode(F.expr("split(detail, ', ')")))
    named = {
        "topic": F.expr(f"regexp_extract(one, '{_PARTITION}', 1)"),
        "partition": F.expr(f"try_cast(regexp_extract(one, '{_PARTITION}', 2) AS INT)"),
        "detail": F.lit(None).cast("string"),
    }
    return each.withColumns(named).drop("one").where("partition IS NOT NULL")


def named_lives(states: DataFrame, handled: DataFrame, completed: DataFrame, noticed: DataFrame) -> DataFrame:
    """Return (cluster, topic, ``lives``): from when until when leaders named each of the topic's ids, in order.

    A life ``began_us`` when a controller created its partitions, if ``states`` have that since the life before and the
    last end, or when a leader first named it.  ``error_us`` is how wrong the clocks may be at its begin, ``before_us``
    when a leader last named the life before, and ``first`` the line that names it first.
    """
    named = handled.where("leader_epoch IS NOT NULL AND detail IS NOT NULL AND topic IS NOT NULL").withColumn(
        "topic_id", F.col("detail")
    )
    line = F.struct(*(name for name in handled.columns if name not in _TOPIC))
    of_topic = Window.partitionBy(*_TOPIC).orderBy("first_us", "topic_id")
    lives = named.groupBy(*_TOPIC, "topic_id").agg(
        F.min("ts_us").alias("first_us"), F.max("ts_us").alias("last_us"),
        F.min_by("ts_error_us", F.struct("ts_us", "ts_error_us")).alias("error_us"),
        F.min_by(line, F.struct("ts_us", "node", "seq")).alias("first"),
    ).withColumn("before_us", F.lag("last_us").over(of_topic))  # fmt: skip
    ends = (each.select(*_TOPIC, F.col("ts_us").alias("end_us")) for each in (completed, noticed))
    ended = reduce(DataFrame.unionByName, ends).join(lives, [*_TOPIC]).where("end_us <= first_us")
    since = ended.groupBy(*_TOPIC, "topic_id").agg(F.max("end_us").alias("since_us"))
    lives = lives.join(since, [*_TOPIC, "topic_id"], "left")
    created = states.where("from_state = 'NonExistentPartition'").select(*_KEY, "ts_us").join(lives, [*_TOPIC])
    of_life = created.where(
        "ts_us > coalesce(before_us, 0) AND ts_us > coalesce(since_us, 0) AND ts_us <= first_us + error_us"
    )
    last = of_life.groupBy(*_KEY, "topic_id").agg(F.max("ts_us").alias("created_us"))
    begun = last.groupBy(*_TOPIC, "topic_id").agg(F.min("created_us").alias("created_us"))
    every = lives.join(begun, [*_TOPIC, "topic_id"], "left").withColumn(
        "began_us", F.expr("least(first_us, coalesce(created_us, first_us))")
    )
    each = F.struct("began_us", "topic_id", "last_us", "error_us", "before_us", "first")
    return every.groupBy(*_TOPIC).agg(F.array_sort(F.collect_list(each)).alias("lives"))


def in_their_lives(ends: DataFrame, lives: DataFrame) -> DataFrame:
    """Return ``ends`` (completed deletions, or notices), moved before a life of ``named_lives`` that they cannot end.

    That is one whose id a leader names again after the end, or that began before it by less than the clocks may be
    wrong.
    """
    began_us = """array_min(transform(
        filter(lives, l -> ts_us > l.began_us AND ts_us < greatest(l.last_us, l.began_us + l.error_us + ts_error_us)),
        l -> l.began_us))"""
    placed = ends.join(F.broadcast(lives), [*_TOPIC], "left").withColumn("began_us", F.expr(began_us))
    return placed.withColumn("ts_us", F.expr("coalesce(began_us - 1, ts_us)")).select(*ends.columns)


def ended_by_ids(lives: DataFrame, completed: DataFrame) -> DataFrame:
    """Return, as ``completed`` has them, the deletions that another topic id proves: just before the next life."""
    each = lives.where("size(lives) > 1").withColumn("life", F.explode("lives")).where("life.before_us IS NOT NULL")
    kept = ("source", "process", "start_us", "file", "reference", "node", "seq", "ts", "ts_error_us", "epoch", "joined")
    made = {name: F.col(f"life.first.{name}") for name in kept} | {name: F.col(name) for name in _TOPIC}
    made |= {"ts_us": F.expr("life.began_us - 1"), "kind": F.lit("topic_deleted")}
    types = {field.name: field.dataType for field in completed.schema}
    return each.select(*(made.get(name, F.lit(None)).cast(types[name]).alias(name) for name in completed.columns))


def with_creations(states: DataFrame, handled: DataFrame, noticed: DataFrame, completed: DataFrame) -> DataFrame:
    """Return ``states`` and the first leaders of partitions that were created again by a controller without a log.

    The first state that a broker receives, or leads in, after it ``noticed`` the deletion, or after a controller logged
    that it was ``completed``, goes from NewPartition to OnlinePartition.  Of several brokers, the first one counts.
    A broker that is restarted, too, may lead in leader epoch 0, but has not noticed a deletion.
    """
    led = {"kind": F.lit("received"), "leader": F.col("node")}
    both = states.withColumn("is_led", F.lit(False)).unionByName(
        handled.where(_LED).withColumns(led).withColumn("is_led", F.lit(True))
    )
    of_topics = both.where(_FIRST).select(*_KEY, "node").distinct().join(
        completed.drop("partition", "node"), ["cluster", "topic"]
    )  # fmt: skip
    ends = noticed.unionByName(of_topics)
    deleted = ends.select(*_KEY).distinct()
    every = both.join(deleted, [*_KEY], "left_semi").withColumn("is_end", F.lit(False)).unionByName(
        ends.withColumns({"is_led": F.lit(False), "is_end": F.lit(True)})
    )  # fmt: skip
    by_broker = Window.partitionBy(*_KEY, "node").orderBy("ts_us", "seq")
    in_order = Window.partitionBy(*_KEY).orderBy("ts_us", "seq")
    between = Window.partitionBy(*_KEY, "ends")
    before = F.last(F.expr(f"if(is_end OR {_FIRST}, is_end, NULL)"), ignorenulls=True).over(
        by_broker.rowsBetween(Window.unboundedPreceding, -1)
    )
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    placed = every.withColumns({"is_after": before, "ends": F.sum(F.expr("int(is_end)")).over(so_far)}).withColumn(
        "creates", F.expr(f"NOT is_end AND {_FIRST} AND coalesce(is_after, false)")
    )
    found = placed.withColumns(
        {
            "is_logged": F.max(F.expr(f"int(NOT is_end AND {_LOGGED})")).over(between),
            "nth": F.sum(F.expr("int(creates)")).over(
                between.orderBy("ts_us", "seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
            ),
        }
    ).withColumn("creates", F.expr("creates AND is_logged = 0 AND nth = 1"))
    states_of = {"from_state": "NewPartition", "to_state": "OnlinePartition"}
    made = {name: F.expr(f"if(creates, '{state}', {name})") for name, state in states_of.items()}
    marked = found.where("NOT is_end AND (creates OR NOT is_led)").withColumns(made)
    return states.join(deleted, [*_KEY], "left_anti").unionByName(marked.select(*states.columns))


def ended_by_brokers(histories: DataFrame, noticed: DataFrame) -> DataFrame:
    """Return the end of each life that brokers ``noticed`` is over, if no row of ``histories`` has it."""
    placed = _lives(histories, noticed)
    first = placed.where(f"is_notice AND NOT {_LATE}").groupBy(*_KEY, "life").agg(
        F.min_by(F.struct(*(name for name in histories.columns if name not in _KEY)),
                 F.struct("ts_us", "node", "seq")).alias("notice"),
    )  # fmt: skip
    last = placed.where("NOT is_notice").groupBy(*_KEY, "life").agg(
        F.max_by(F.struct("epoch", "ts_us", "to_state"), F.struct("epoch", "ts_us", "seq")).alias("last")
    )  # fmt: skip
    ended = first.join(last, [*_KEY, "life"]).where("last.to_state IS DISTINCT FROM 'NonExistentPartition'")
    made = {name: F.col(f"notice.{name}") for name in histories.columns if name not in _KEY}
    made |= {name: F.col(name) for name in _KEY}
    made |= {
        "ts_us": F.expr("greatest(notice.ts_us, last.ts_us + 1)"),
        "epoch": F.expr("greatest(notice.epoch, last.epoch)"),
        "kind": F.lit("partition"),
        "from_state": F.lit("OfflinePartition"),
        "to_state": F.lit("NonExistentPartition"),
        "count": F.lit(None),
        "detail": F.lit(NOTICED),
    }
    types = {field.name: field.dataType for field in histories.schema}
    return ended.select(*(made[name].cast(types[name]).alias(name) for name in histories.columns))


def _lives(histories: DataFrame, noticed: DataFrame) -> DataFrame:
    """Return ``noticed`` and the rows of its partitions, numbered by ``life``.

    A notice has ``life_before``, that of its broker's notice before; ``created_us`` is null if a life's creation is not
    known.
    """
    of_deleted = histories.join(noticed.select(*_KEY).distinct(), [*_KEY], "left_semi")
    changed = of_deleted.withColumn("is_notice", F.lit(False))
    both = changed.unionByName(noticed.withColumn("is_notice", F.lit(True)))
    in_order = Window.partitionBy(*_KEY).orderBy("ts_us", "is_notice", "seq")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    after = both.withColumns(
        {
            "notices": F.sum(F.expr("int(is_notice)")).over(so_far),
            "last_notice_us": F.max(F.expr("if(is_notice, ts_us, NULL)")).over(earlier),
            "last_leader_epoch": F.last("leader_epoch", ignorenulls=True).over(earlier),
            "last_partition_epoch": F.last("partition_epoch", ignorenulls=True).over(earlier),
        }
    ).withColumn("created", F.expr(f"NOT is_notice AND coalesce({_CREATED}, false)"))
    settled_us = f"if(kind = 'isr', {LED_US}, {SETTLED_US})"
    anew = f"notices > 0 AND NOT is_notice AND (created OR ts_us - last_notice_us > {settled_us})"
    marked = after.withColumn("anew", F.expr(anew)).withColumn(
        "notices_when_anew", F.max(F.expr("if(anew, notices, NULL)")).over(earlier)
    )
    begins = F.expr("anew AND coalesce(notices_when_anew < notices, true)")
    begun = marked.withColumn("begins", begins).withColumn("life", F.sum(F.expr("int(begins)")).over(so_far))
    by_broker = Window.partitionBy(*_KEY, "node").orderBy("ts_us", "is_notice", "seq")
    return begun.withColumns(
        {
            "created_us": F.max(F.expr("if(begins AND created, ts_us, NULL)")).over(Window.partitionBy(*_KEY, "life")),
            "life_before": F.max(F.expr("if(is_notice, life, NULL)")).over(
                by_broker.rowsBetween(Window.unboundedPreceding, -1)
            ),
        }
    )
