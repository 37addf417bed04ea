"""When each partition was unavailable, why, and by which records.

A window is one row from its start to its end, however many records lie between:

* ``dead_leader``: the leader died, and another one followed.
* ``no_leader``: no replica could lead: no live replica in the ISR, or a partition that is new or being deleted.
* ``under_replicated``: the ISR is smaller than the replicas.

The cause is the last event of the broker that left (``brokers.broker_events``), in the order of the controller's
records and not by clocks.  A death recorded in the same term starts the window: the partition's own record follows
after the controller's reaction time.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from typing import Final

from aiocontroller.analytics.dataframes import Column, DataFrame, F, Window
from aiocontroller.analytics.gold.leadership import KEY, ORDER, SINCE_PLACE

HIDDEN = """
    (since.hidden OR unavailable AND coalesce(turn.missed AND turn.event = 'died' AND turn.epoch = since.order.epoch,
                                              false))
    AND NOT coalesce(turn.epoch = since.order.epoch AND NOT turn.missed, false)
    AND NOT (gone AND coalesce(turn.event NOT IN ('died', 'left'), true))"""
"""Whether the window began while there was no controller.

It also did if the new controller changed the partition's ISR before it removed the dead leader.  It did not if its own
term recorded the broker's event, or if there is no such event and the topic was deleted.
"""
CAUSE = """
    CASE WHEN unavailable AND since.born THEN 'creation'
         WHEN unavailable AND unclean THEN 'unclean'
         WHEN hidden THEN 'controller_failover'
         WHEN turn.event = 'died' OR (turn.event = 'bounced' AND bounce_goes_on) THEN 'broker_death'
         WHEN turn.event IN ('shutdown', 'left') THEN 'controlled_shutdown'
         WHEN gone THEN 'deletion'
         WHEN NOT unavailable AND since.grown THEN 'reassignment'
         ELSE 'unknown' END"""
BOUNCE_GOES_ON = """
    coalesce(since.process = turn.process AND since.order.seq < turn.handled.seq, turn.handled IS NULL)"""
"""Whether the window belongs to a bounce: the effects of the death end with the BrokerChange that reported the
bounce."""
KIND = """
    CASE WHEN NOT unavailable THEN 'under_replicated'
         WHEN leaderless OR cause IN ('creation', 'deletion') THEN 'no_leader' ELSE 'dead_leader' END"""
FOUND_US = """
    least(since.ts_us, coalesce(array_min(transform(filter(terms, t -> t.epoch = since.order.epoch), t -> t.first_us)),
                                since.ts_us))"""
"""The time of the new controller's first record."""
START = f"""
    CASE WHEN hidden THEN {FOUND_US}
         WHEN unavailable AND by_death AND turn.epoch = since.order.epoch
              AND (turn.process = since.process OR NOT coalesce(turn.missed, false))
             THEN least(turn.ts_us, since.ts_us)
         ELSE since.ts_us END"""
UNSEEN_US = """
    if(hidden, greatest(start_us - coalesce(
           array_max(transform(filter(terms, t -> t.epoch < since.order.epoch), t -> t.decided_us)),
           since.before_us, start_us), 0), 0)"""
"""How much earlier a hidden window may have begun: since the last known act of the previous controller."""


BY_CONTROLLER = """
    source = 'journal' OR kind IN ('partition', 'replica', 'told', 'request', 'response', 'elected', 'failover',
                                   'loaded', 'active', 'resigned', 'topic_deleted')"""
"""Records that a controller writes about its own actions."""


IF_KNOWN: Final = "if(count_if(duration_us IS NULL) > 0, NULL, {}(duration_us))"
"""An aggregate of windows' durations; null if one of them is unknown."""


def still_open(last_rows: DataFrame) -> DataFrame:
    """Return the windows that have not ended, from each partition's last row; columns as in the fact ``windows``."""
    begun = "named_struct('unavailable', {0}, 'since', {1}, 'leaderless', {0} AND coalesce(leader, -1) < 0)"
    both = last_rows.where("phase = 'down' OR under").selectExpr(
        *KEY,
        "explode(filter(array("
        f"if(phase = 'down', {begun.format('true', 'down_since')}, NULL), "
        f"if(under, {begun.format('false', 'under_since')}, NULL)), w -> w IS NOT NULL)) AS w",
    )
    return both.selectExpr(*KEY, "w.*").where("since IS NOT NULL")


def spans(tallies: DataFrame) -> DataFrame:
    """Return (cluster, from_us, to_us, terms): the time that the records cover, and the controllers' terms."""
    terms = tallies.groupBy("cluster", "epoch").agg(
        F.min("first_us").alias("first_us"),
        F.max("last_us").alias("last_us"),
        F.max(F.expr(f"if({BY_CONTROLLER}, last_us, NULL)")).alias("decided_us"),
    )
    return terms.groupBy("cluster").agg(
        F.min("first_us").alias("from_us"),
        F.max("last_us").alias("to_us"),
        F.collect_list(F.struct("epoch", "first_us", "last_us", "decided_us")).alias("terms"),
    )


def _with_turns(windows: DataFrame, events: DataFrame) -> DataFrame:
    """Add ``turn``, the last event of the ``suspect`` up to ``at``.

    This sorts both by broker once; a join would compare each window with every event of its broker.
    """
    turn = F.struct(F.struct(*ORDER).alias("order"), "epoch", "process", "ts_us", "event", "place", "handled", "missed")
    turns = events.where("broker IS NOT NULL").select("cluster", F.col("broker").alias("suspect"), turn.alias("turn"))
    both = windows.withColumn("of_window", F.lit(True)).unionByName(
        turns.withColumns({"at": F.expr("turn.order"), "of_window": F.lit(False)}), allowMissingColumns=True
    )
    # Of several events at the same place, the last one counts; an event comes before a window at the same place.
    life = Window.partitionBy("cluster", "suspect").orderBy(*(f"at.{name}" for name in ORDER), "of_window", "turn")
    so_far = life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return both.withColumn("turn", F.last("turn", ignorenulls=True).over(so_far)).where("of_window")


def _lasts_across(skipped: Sequence[tuple[str, int]]) -> Column:
    """Return whether a window lasts across one of these moments (cluster, time)."""
    each = (
        (F.col("cluster") == cluster) & (F.col("start_us") < us) & (F.coalesce("end_us", "to_us") >= us)
        for cluster, us in skipped
    )
    return reduce(or_, each, F.lit(False))


def attributed(
    closed: DataFrame, opened: DataFrame, events: DataFrame, span: DataFrame, skipped: Sequence[tuple[str, int]] = ()
) -> DataFrame:
    """Return the table ``windows`` with three more columns.

    These are ``unavailable``, ``culprit`` (the place of the event that caused the window) and ``decided_us`` (the time
    of the record that shows it).  How long a window lasts across an hour in ``skipped`` (``lost_hours``) is unknown.
    """
    every = closed.drop("n").unionByName(opened, allowMissingColumns=True)
    known = (
        _with_turns(every.withColumns({"suspect": F.expr("since.suspect"), "at": F.expr("since.order")}), events)
        .join(F.broadcast(span), "cluster")
        .withColumns(
            {
                "gone": F.expr("coalesce(gone, false)"),
                "unclean": F.expr("coalesce(unclean, false)"),
            }
        )
        .withColumn("hidden", F.expr(HIDDEN))
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
        .withColumn("lasts_across", _lasts_across(skipped))
    )
    by_broker = "cause IN ('broker_death', 'controlled_shutdown', 'controller_failover', 'unclean', 'unknown')"
    blamed = "if(by_death OR cause IN ('controlled_shutdown', 'controller_failover'), turn.place, NULL)"
    return known.withColumn("culprit", F.expr(blamed)).selectExpr(
        *KEY,
        "start_us",
        "end_us",
        "if(lasts_across, NULL, greatest(coalesce(end_us, to_us) - start_us, 0)) AS duration_us",
        f"{KIND} AS kind",
        "cause",
        f"if({by_broker}, suspect, NULL) AS broker",
        "since.leader AS leader_before",
        "leader_after",
        f"greatest(coalesce(since.error_us, 0), coalesce(end_error_us, 0)) + {UNSEEN_US} AS error_us",
        f"array_except(array(culprit, {SINCE_PLACE}, end_place), array(CAST(NULL AS STRING))) AS evidence",
        "unavailable",
        "culprit",
        "since.ts_us AS decided_us",
    )
