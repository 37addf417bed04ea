"""What one Kafka log shows to be missing from another: rows of the kind ``gap``.

``broker`` is the one whose log has the gap, ``detail`` names the log, and ``duration_us`` is the time that the records
showing the gap span.
"""

from __future__ import annotations

from typing import Final

from aiocontroller.analytics.dataframes import Column, DataFrame, F, Window
from aiocontroller.analytics.log_evidence import STARTS, rows, with_lives
from aiocontroller.analytics.schema import CONTROLLER_LOG, SERVER_LOG, STATE_CHANGE_LOG

UNHEARD: Final = "unheard"
"""The ``event`` of gaps in what a broker wrote about itself, which do not affect its decisions as a controller."""
RETRIED_FOR_US: Final = 120_000_000
"""A broker that hung may handle a request this long after it was sent; after a longer time its session has expired, and
its new session brings new requests."""
NEAR_US: Final = 60_000_000
"""More than clocks differ, and more than a controller takes from noticing a broker to sending requests."""
AT_ONCE_US: Final = 1_000_000
"""A controller sends what it has decided within this time, unless its process dies."""
SOON_US: Final = 30_000_000
"""A broker that registers writes lines, and the controller notices it within this time."""
BEAT_US: Final = 600_000_000
"""A controller that balances leaders writes a line every five minutes (``leader.imbalance.check.interval.seconds``)."""
BEATS: Final = 12
SILENT_US: Final = 3_600_000_000
_SENT: Final = "kind = 'request' AND api IN ('UPDATE_METADATA', 'LEADER_AND_ISR')"
_TO_ALL: Final = "kind = 'request' AND api = 'UPDATE_METADATA' AND size(brokers) > 0"


def gaps(lines: DataFrame) -> DataFrame:
    """Return the gaps that lines alone show; ``unregistered`` and ``skipped`` need more than lines."""
    found = unsent(lines)
    for more in (unheard, silences, unnoticed, unresigned):
        found = found.unionByName(more(lines))
    return found


def unsent(lines: DataFrame) -> DataFrame:
    """Return the gaps in a controller's state-change.log: brokers handled its requests, or it noticed brokers itself,
    but no line near that time shows that it sent anything.

    A controller without a state-change.log is not checked here: the file is missing, or the controller keeps a journal.
    What it notices proves a gap only from 2.6 on, where it always sends metadata afterwards.
    """
    sends = "kind IN ('request', 'told', 'partition', 'replica')"
    noticed = f"source = '{CONTROLLER_LOG}' AND kind = 'broker' AND detail IN ('dead', 'added', 'bounced')"
    narrow = lines.select("cluster", "node", "ts_us", "seq", "kind", "detail", "source")
    lived = (
        with_lives(narrow)
        .groupBy("cluster", "node", "life")
        .agg(F.max("ts_us").alias("lived_until_us"), F.max(F.expr(f"source = '{STATE_CHANGE_LOG}'")).alias("states"))
    )
    wrote = F.max("states").over(Window.partitionBy("cluster", "node"))
    chosen = f"{sends} OR kind = 'received' OR ({noticed})"
    named = (
        with_lives(lines.where(f"{chosen} OR ({STARTS})"))
        .where(chosen)
        .join(F.broadcast(lived.withColumn("wrote", wrote).drop("states")), ["cluster", "node", "life"], "left")
        .withColumns(
            {
                "controller": F.expr("if(kind = 'received', try_cast(detail AS INT), node)"),
                "sent_us": F.expr(f"if({sends}, ts_us, NULL)"),
            }
        )
    )
    of_controller = Window.partitionBy("cluster", "controller")
    in_order = of_controller.orderBy("ts_us", "seq")
    placed = named.withColumns(
        {
            "before_us": F.max("sent_us").over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)),
            "after_us": F.min("sent_us").over(in_order.rowsBetween(Window.currentRow, Window.unboundedFollowing)),
            "of_requests": F.max(F.expr("kind = 'request'")).over(Window.partitionBy("cluster")),
        }
    )
    # Brokers' clocks differ, and a request may be handled late; but a controller acts at once on what it noticed
    # itself.
    handled = f"kind = 'received' AND coalesce(ts_us - before_us > {RETRIED_FOR_US}, true)"
    handled += " AND (before_us IS NOT NULL OR after_us IS NOT NULL)"
    saw = f"kind <> 'received' AND of_requests AND wrote AND lived_until_us - ts_us > {AT_ONCE_US}"
    alone = placed.where(
        f"sent_us IS NULL AND (({handled}) OR ({saw})) AND coalesce(after_us - ts_us > {NEAR_US}, true)"
    )
    by_hole = alone.groupBy("cluster", "controller", "before_us", "after_us").agg(
        F.min_by(F.struct(*lines.columns), F.struct("ts_us", "seq")).alias("first"), F.max("ts_us").alias("last_us")
    )
    return rows(by_hole.select("controller", "first.*", "last_us"), lines, _gap("controller", STATE_CHANGE_LOG))


def unheard(lines: DataFrame) -> DataFrame:
    """Return the gaps in what brokers received: controllers sent a broker requests for longer than a session lasts, or
    it answered one, but the broker logged none near that time.

    The time before its first line proves nothing, since old files are deleted.
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
    return rows(by_hole.select("receiver", "first.*", "last_us"), lines, made)


def silences(lines: DataFrame) -> DataFrame:
    """Return the gaps in controller.log of active controllers.

    Such a controller wrote every few minutes before and after, but nothing for an hour, and was neither elected nor
    deposed around that time.  A log that is quiet by nature is never that regular, so it has no gaps here.
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
    return rows(found, lines, _gap("node", CONTROLLER_LOG))


def unnoticed(lines: DataFrame) -> DataFrame:
    """Return the gaps in controller.log that the controller's own requests show.

    They were sent before the log begins, or in a term whose election or first list of brokers is missing; or went to a
    broker that is dead according to the log, or not to one that is alive; or the log shows a broker added, or dead,
    twice in a row.  A broker without a controller.log is not checked here.
    """
    by_peer = Window.partitionBy("cluster", "node", "begun", "peer").orderBy("ts_us", "seq")
    before = by_peer.rowsBetween(Window.unboundedPreceding, -1)
    following = F.lead(F.expr(f"to_all - int(coalesce({_TO_ALL}, false))")).over(by_peer)
    placed = (
        _by_peer(lines)
        .withColumns(
            {
                "was": F.last(F.expr("if(is_sent, NULL, coalesce(detail, 'listed'))"), ignorenulls=True).over(before),
                "before_us": F.coalesce(F.lag("ts_us").over(by_peer), F.expr("begun.ts_us"), "ts_us"),
                "after_us": F.lead("ts_us").over(by_peer),
                "without": F.coalesce(following, "to_all_ever") - F.col("to_all"),
            }
        )
        .withColumn("alive", F.expr("was IS NOT NULL AND was <> 'dead'"))
    )
    appears = (
        "is_sent AND (begun IS NULL OR begun.kind = 'elected' OR of_epoch > first_epoch)"
        " OR kind = 'active' AND coalesce(begun_before.kind, 'none') <> 'elected'"
        " OR begun IS NOT NULL AND peer <> node"
        " AND (NOT alive AND (is_sent OR detail = 'dead') OR alive AND detail = 'added')"
    )
    stays = "if(is_sent, alive, coalesce(detail, 'listed') <> 'dead')"
    # A single request may go only to brokers that came at that moment.
    vanishes = (
        f"peer <> node AND {stays}"
        f" AND (without > 1 OR after_us IS NULL AND without > 0 AND to_all_us - ts_us > {AT_ONCE_US})"
    )
    found = (
        placed.withColumns({name: F.expr(f"coalesce({x}, false)") for name, x in
                            (("appears", appears), ("vanishes", vanishes))})
        .where("appears OR vanishes")
        .withColumn("from_us", F.expr("if(appears, before_us, ts_us)"))
        .withColumn("to_us", F.expr("if(appears, ts_us, coalesce(after_us, to_all_us))"))
    )  # fmt: skip
    by_term = found.groupBy("cluster", "node", "begun").agg(
        F.min_by(F.struct(*(name for name in lines.columns if name not in ("cluster", "node"))),
                 F.struct("ts_us", "seq")).alias("first"),
        F.min("from_us").alias("from_us"), F.max("to_us").alias("last_us"),
    ).select("cluster", "node", "first.*", "from_us", "last_us")  # fmt: skip
    return rows(by_term.withColumn("ts_us", F.col("from_us")), lines, _gap("node", CONTROLLER_LOG))


def _by_peer(lines: DataFrame) -> DataFrame:
    """Return a row for each broker that a controller's requests, broker lists and notices name.

    ``begun`` is the election or list before it, ``to_all`` the number of UpdateMetadata requests so far.
    """
    elected = f"source = '{CONTROLLER_LOG}' AND kind = 'elected'"
    listed = f"source = '{CONTROLLER_LOG}' AND kind = 'active'"
    changed = f"source = '{CONTROLLER_LOG}' AND kind = 'broker' AND detail IN ('added', 'dead', 'bounced')"
    resigned = f"source = '{CONTROLLER_LOG}' AND kind = 'resigned'"
    of_node = Window.partitionBy("cluster", "node").orderBy("ts_us", "seq")
    so_far = of_node.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    begins = F.expr(f"if(({elected}) OR ({listed}), named_struct('ts_us', ts_us, 'kind', kind), NULL)")
    of_list = Window.partitionBy("cluster", "node", "begun")
    return (
        lines.where(f"node IS NOT NULL AND (({elected}) OR ({listed}) OR ({changed}) OR ({resigned}) OR ({_SENT}))")
        .withColumns(
            {
                "begun": F.last(begins, ignorenulls=True).over(so_far),
                "begun_before": F.last(begins, ignorenulls=True).over(
                    of_node.rowsBetween(Window.unboundedPreceding, -1)
                ),
                "has_log": F.max(F.expr(f"source = '{CONTROLLER_LOG}'")).over(Window.partitionBy("cluster", "node")),
                "of_epoch": F.expr(f"if({_SENT}, coalesce(epoch, controller_epoch), NULL)"),
                "to_all": F.sum(F.expr(f"int(coalesce({_TO_ALL}, false))")).over(so_far),
            }
        )
        .where(f"has_log AND NOT ({resigned})")
        .withColumns(
            {
                "is_sent": F.expr(_SENT),
                "first_epoch": F.min("of_epoch").over(of_list),
                "to_all_us": F.max(F.expr(f"if({_TO_ALL}, ts_us, NULL)")).over(of_list),
                "to_all_ever": F.max("to_all").over(of_list),
                "peer": F.explode(F.expr("coalesce(brokers, array(broker))")),
            }
        )
        .where("peer IS NOT NULL")
    )


def unresigned(lines: DataFrame) -> DataFrame:
    """Return the gaps at the end of controller.log: the controller shut down, but the log has no resignation."""
    turns = f"source = '{CONTROLLER_LOG}' AND kind IN ('elected', 'resigned')"
    shut_down = "kind = 'broker' AND detail = 'shut down'"
    narrow = lines.where(f"node IS NOT NULL AND (source = '{CONTROLLER_LOG}' OR ({shut_down}))")
    before = Window.partitionBy("cluster", "node").orderBy("ts_us", "seq").rowsBetween(Window.unboundedPreceding, -1)
    placed = narrow.withColumns(
        {
            "turn": F.last(F.expr(f"if({turns}, kind, NULL)"), ignorenulls=True).over(before),
            "before_us": F.max(F.expr(f"if(source = '{CONTROLLER_LOG}', ts_us, NULL)")).over(before),
        }
    )
    found = placed.where(f"{shut_down} AND turn = 'elected'")
    found = found.withColumn("last_us", F.col("ts_us")).withColumn("ts_us", F.col("before_us"))
    return rows(found, lines, _gap("node", CONTROLLER_LOG))


def unregistered(events: DataFrame) -> DataFrame:
    """Return the gaps in server.log, from the ``schema.EVENTS`` of journals and logs: a controller saw a broker
    register, but the broker, which then writes lines, has none near that time.

    The time before its first line proves nothing, since old files are deleted.
    """
    came = "kind = 'broker' AND detail IN ('added', 'bounced')"
    own = f"source = '{SERVER_LOG}' AND NOT ({came})"
    named = events.where(f"({came} AND broker IS NOT NULL) OR ({own} AND node IS NOT NULL)").withColumns(
        {"written_us": F.expr(f"if({own}, ts_us, NULL)"), "whose": F.expr(f"if({own}, node, broker)")}
    )
    in_order = Window.partitionBy("cluster", "whose").orderBy("ts_us", "seq")
    before = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    line = F.when(F.col("written_us").isNotNull(), F.struct(*events.columns))
    placed = named.withColumns(
        {
            "line": F.last(line, ignorenulls=True).over(before),
            "after_us": F.min("written_us").over(in_order.rowsBetween(Window.currentRow, Window.unboundedFollowing)),
        }
    )
    alone = placed.where(
        f"written_us IS NULL AND ts_us - line.ts_us > {SOON_US} AND coalesce(after_us - ts_us > {SOON_US}, true)"
    )
    by_hole = alone.groupBy("cluster", "whose", "line").agg(
        F.min_by("reference", F.struct("ts_us", "seq")).alias("shown_by"), F.max("ts_us").alias("last_us")
    )
    rest = (f"line.{name}" for name in events.columns if name not in ("cluster", "reference"))
    found = by_hole.select("cluster", "whose", "last_us", F.col("shown_by").alias("reference"), *rest)
    return rows(found, events, {**_gap("whose", SERVER_LOG), "event": F.lit(UNHEARD)})


def skipped(histories: DataFrame, reassigning: DataFrame) -> DataFrame:
    """Return the gaps that partitions' histories show, one for each term.

    They are a leader epoch that grew by more than one, and a partition that left OfflinePartition but was never seen to
    enter it.  A reassignment raises the leader epoch in lines outside the histories (``reassigning``).
    """
    so_far = (
        Window.partitionBy("cluster", "topic", "partition")
        .orderBy("epoch", "ts_us", "seq")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    numbered = F.when(F.col("leader_epoch").isNotNull(), F.struct("epoch", "leader_epoch", "ts_us", "node"))
    up = "leader >= 0 AND coalesce(to_state, 'OnlinePartition') = 'OnlinePartition'"
    led = F.expr(f"if(kind = 'reassigning', NULL, named_struct('epoch', epoch, 'up', {up}, 'ts_us', ts_us))")
    placed = (
        histories.unionByName(reassigning)
        .withColumn("led", led)
        .withColumns(
            {
                "numbered": F.last(numbered, ignorenulls=True).over(so_far),
                "was": F.last("led", ignorenulls=True).over(so_far),
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
    return rows(whole, histories, {**_gap("whose", STATE_CHANGE_LOG), "epoch": F.col("epoch")})


def _gap(whose: str, log: str) -> dict[str, Column]:
    return {
        "kind": F.lit("gap"),
        "broker": F.col(whose),
        "detail": F.lit(log),
        "duration_us": F.expr("last_us - ts_us"),
    }
