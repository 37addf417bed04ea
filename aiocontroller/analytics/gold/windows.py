"""When which partition was not available, why, and by which records.

A window is one row from its beginning to its end, however many records lie between:

* ``dead_leader``: the leader died, and the next one followed at once.
* ``no_leader``: nobody could lead: no live replica in the ISR, a new partition, one that is being deleted.
* ``under_replicated``: the ISR is smaller than the replicas.

The cause is the last turn in the life of the broker that left (``brokers.broker_events``), by the controller's order of
records and not by clocks.  A death that the same term recorded begins the window: the partition's own record follows
it by the time that the controller needed.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from aiocontroller.analytics.gold.leadership import KEY, ORDER, SINCE_PLACE

CAUSE = """
    CASE WHEN unavailable AND since.born THEN 'creation'
         WHEN unavailable AND unclean THEN 'unclean'
         WHEN since.hidden THEN 'controller_failover'
         WHEN turn.event = 'died' OR (turn.event = 'bounced' AND bounce_goes_on) THEN 'broker_death'
         WHEN turn.event IN ('shutdown', 'left') THEN 'controlled_shutdown'
         WHEN gone THEN 'deletion'
         WHEN NOT unavailable AND since.grown THEN 'reassignment'
         ELSE 'unknown' END"""
BOUNCE_GOES_ON = """
    coalesce(since.process = turn.process AND since.order.seq < turn.handled.seq, turn.handled IS NULL)"""
"""A broker that bounced is alive; what its death did was done by the end of the BrokerChange that told of it."""
KIND = """
    CASE WHEN NOT unavailable THEN 'under_replicated'
         WHEN leaderless OR cause IN ('creation', 'deletion') THEN 'no_leader' ELSE 'dead_leader' END"""
START = """
    CASE WHEN since.hidden THEN least(since.ts_us, coalesce(
             array_max(transform(filter(terms, t -> t.epoch < since.order.epoch), t -> t.last_us)), since.before_us,
             array_min(transform(filter(terms, t -> t.epoch = since.order.epoch), t -> t.first_us)), since.ts_us))
         WHEN unavailable AND by_death AND turn.process = since.process AND turn.epoch = since.order.epoch
             THEN least(turn.ts_us, since.ts_us)
         ELSE since.ts_us END"""


def still_open(last_rows: DataFrame) -> DataFrame:
    """Of each partition's last row, the windows that have not ended; columns as of the fact ``windows``."""
    begun = "named_struct('unavailable', {0}, 'since', {1}, 'leaderless', {0} AND coalesce(leader, -1) < 0)"
    both = last_rows.where("phase = 'down' OR under").selectExpr(
        *KEY,
        "explode(filter(array("
        f"if(phase = 'down', {begun.format('true', 'down_since')}, NULL), "
        f"if(under, {begun.format('false', 'under_since')}, NULL)), w -> w IS NOT NULL)) AS w",
    )
    return both.selectExpr(*KEY, "w.*").where("since IS NOT NULL")


def spans(tallies: DataFrame) -> DataFrame:
    """(cluster, from_us, to_us, terms): how long each cluster was watched, and by which controllers."""
    terms = tallies.groupBy("cluster", "epoch").agg(
        F.min("first_us").alias("first_us"), F.max("last_us").alias("last_us")
    )
    return terms.groupBy("cluster").agg(
        F.min("first_us").alias("from_us"),
        F.max("last_us").alias("to_us"),
        F.collect_list(F.struct("epoch", "first_us", "last_us")).alias("terms"),
    )


def attributed(closed: DataFrame, opened: DataFrame, events: DataFrame, span: DataFrame) -> DataFrame:
    """The table ``windows``, and ``unavailable``, ``culprit`` (the place of the turn that caused it) besides."""
    turn = F.struct(F.struct(*ORDER).alias("order"), "epoch", "process", "ts_us", "event", "place", "handled")
    life = Window.partitionBy("cluster", "suspect").orderBy("turn")
    turns = events.select("cluster", F.col("broker").alias("suspect"), turn.alias("turn")).withColumn(
        "until", F.lead("turn.order").over(life)
    )
    every = (
        closed.drop("n").unionByName(opened, allowMissingColumns=True).withColumn("suspect", F.expr("since.suspect"))
    )
    latest = """
        w.cluster = t.cluster AND w.suspect = t.suspect
        AND t.turn.order <= w.since.order AND (t.until IS NULL OR t.until > w.since.order)"""
    known = (
        every.alias("w")
        .join(F.broadcast(turns).alias("t"), F.expr(latest), "left")
        .select("w.*", "t.turn")
        .join(F.broadcast(span), "cluster")
        .withColumns(
            {
                "gone": F.expr("coalesce(gone, false)"),
                "unclean": F.expr("coalesce(unclean, false)"),
            }
        )
        .withColumn("bounce_goes_on", F.expr(BOUNCE_GOES_ON))
        .withColumn("cause", F.expr(CAUSE))
        .withColumn(
            "by_death",
            F.expr(
                "cause IN ('broker_death', 'unclean') AND coalesce(turn.event IN ('died', 'bounced'), false) "
                "OR cause = 'controlled_shutdown' AND coalesce(turn.event = 'left', false)"
            ),
        )
        .withColumn("start_us", F.expr(START))
    )
    by_broker = "cause IN ('broker_death', 'controlled_shutdown', 'controller_failover', 'unclean', 'unknown')"
    blamed = "if(by_death OR cause IN ('controlled_shutdown', 'controller_failover'), turn.place, NULL)"
    return known.withColumn("culprit", F.expr(blamed)).selectExpr(
        *KEY,
        "start_us",
        "end_us",
        "greatest(coalesce(end_us, to_us) - start_us, 0) AS duration_us",
        f"{KIND} AS kind",
        "cause",
        f"if({by_broker}, suspect, NULL) AS broker",
        "since.leader AS leader_before",
        "leader_after",
        "greatest(coalesce(since.error_us, 0), coalesce(end_error_us, 0)) "
        "+ if(since.hidden, since.ts_us - start_us, 0) AS error_us",
        f"array_except(array(culprit, {SINCE_PLACE}, end_place), array(CAST(NULL AS STRING))) AS evidence",
        "unavailable",
        "culprit",
    )
