"""When brokers died, came back, bounced and shut down, from records of these events and from what a new controller
found.

A broker that is gone soon after a controlled shutdown has ``left`` and not died.  A death while there is no controller
has no record of its own: the next ``loaded`` record (``active`` for Kafka's own controllers) no longer names the
broker.  That record stands for the death, which happened earlier by at most the time without a controller.  Such an
event is ``missed``.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.analytics.dataframes import DataFrame, F, Window
from aiocontroller.analytics.gold.leadership import ORDER
from aiocontroller.analytics.gold.windows import IF_KNOWN

_WHAT = """
    CASE detail WHEN 'dead' THEN 'died' WHEN 'added' THEN 'came' WHEN 'bounced' THEN 'bounced'
                WHEN 'controlled shutdown' THEN 'shutdown' END"""


def broker_events(milestones: DataFrame) -> DataFrame:
    """Return the events of brokers' lives, with their place in the order, ``broker`` and ``event``.

    ``handled`` (seq, processing_us) is the BrokerChange event in which the controller handled it.
    """
    where = ("cluster", "node", "process", *ORDER, "ts_us", "ts_error_us", "place")
    following = Window.partitionBy("cluster", "process", "epoch").orderBy("seq")
    change = "if(kind = 'event' AND event = 'BrokerChange', struct(seq, processing_us), NULL)"
    changes = (
        milestones.withColumn(
            "handled",
            F.first(F.expr(change), ignorenulls=True).over(
                following.rowsBetween(Window.currentRow, Window.unboundedFollowing)
            ),
        )
        .where("kind = 'broker' AND broker IS NOT NULL")
        .selectExpr(
            *where, "broker", f"{_WHAT} AS what", "if(detail = 'controlled shutdown', NULL, handled) AS handled"
        )
    )
    loaded = milestones.where("kind IN ('loaded', 'active') AND brokers IS NOT NULL").drop("broker")
    named = changes.select("cluster", "broker").union(loaded.select("cluster", F.explode("brokers").alias("broker")))
    found = loaded.join(named.distinct(), "cluster").selectExpr(
        *where, "broker", "if(array_contains(brokers, broker), 'here', 'away') AS what"
    )
    life = Window.partitionBy("cluster", "broker").orderBy(*ORDER)
    alive = F.expr(
        "CASE WHEN what IN ('died', 'away') THEN false WHEN what IN ('came', 'here', 'bounced') THEN true END"
    )
    before = life.rowsBetween(Window.unboundedPreceding, -1)
    turns = (
        changes.where("what IS NOT NULL")
        .unionByName(found, allowMissingColumns=True)
        .withColumn("alive", alive)
        .withColumn("was_alive", F.last("alive", ignorenulls=True).over(before))
        .withColumn("leaving", F.expr("CASE WHEN what IN ('shutdown', 'came', 'bounced') THEN what = 'shutdown' END"))
        .withColumn("was_leaving", F.last("leaving", ignorenulls=True).over(before))
    )
    event = """
        CASE WHEN was_leaving AND (what = 'died' OR what = 'away' AND was_alive) THEN 'left'
             WHEN what IN ('shutdown', 'bounced', 'died') THEN what
             WHEN what = 'away' AND was_alive THEN 'died'
             WHEN what IN ('came', 'here') AND was_alive = false THEN 'came_back'
             WHEN what = 'came' AND was_alive IS NULL THEN 'came' END"""
    missed = F.expr("what IN ('here', 'away')")
    return turns.withColumns({"event": F.expr(event), "missed": missed}).where("event IS NOT NULL").drop(
        "what", "alive", "was_alive", "leaving", "was_leaving"
    )  # fmt: skip


def brokers(events: DataFrame, tallies: DataFrame, windows: DataFrame, unknown: Sequence[str]) -> DataFrame:
    """The table ``brokers``: the effect of each event.

    ``windows`` are those of ``windows.attributed``; an outage belongs to the event that its evidence names first.  In
    clusters in ``unknown`` (see ``completeness``) others may be missing, so ``partitions_led`` is null.
    """
    own = ["cluster", "process", "epoch"]
    outages = (
        windows.where("unavailable AND culprit IS NOT NULL")
        .groupBy("cluster", "broker", F.col("culprit").alias("place"))
        .agg(F.count("*").alias("windows"), F.expr(IF_KNOWN.format("max")).alias("longest_window_us"))
    )
    asked = tallies.where("kind = 'request'").selectExpr(
        *own, "broker", "broker_epoch AS incarnation", "first_seq", "last_seq"
    )
    # Requests show the incarnation: the last request before its end, or the first one after its return.
    incarnation = """
        if(event IN ('came', 'came_back'), min(if(last_seq > seq, incarnation, NULL)),
           max(if(first_seq < seq, incarnation, NULL)))"""
    numbered = (
        events.join(asked, [*own, "broker"], "left")
        .groupBy(*events.columns)
        .agg(F.expr(incarnation).alias("broker_epoch"))
    )
    changes = numbered.join(outages, ["cluster", "broker", "place"], "left").withColumn(
        "known", ~F.col("cluster").isin(*unknown)
    )
    return changes.selectExpr(
        "cluster", "broker", "broker_epoch", "event", "ts_us",
        "if(known AND event IN ('died', 'bounced', 'left'), coalesce(windows, 0L), NULL) AS partitions_led",
        "handled.processing_us AS processing_us",
        "coalesce(windows, 0L) AS windows", "longest_window_us",
    )  # fmt: skip
