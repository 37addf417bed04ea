"""One row for each failure: what failed, when, which broker or controller took over, when it ended, and the evidence.

A failure is a broker's death, a broker's restart without a controlled shutdown, or anything else that left partitions
without a leader.  Spark counts the windows.  Plain Python joins the rest, a row for each failure and each controller's
term: some thousands of rows, however many partitions the cluster has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from aiocontroller.analytics import schema
from aiocontroller.analytics.dataframes import Column, DataFrame, F
from aiocontroller.analytics.gold.availability import NOT_AN_OUTAGE
from aiocontroller.analytics.gold.onsets import Onset, Signs
from aiocontroller.analytics.gold.rows import Row, collected
from aiocontroller.analytics.gold.stalls import Stall, stalls_of
from aiocontroller.analytics.gold.terms import incident_of, last_records, lost_controllers, terms_of

WRITES_US: Final = 1_000_000
"""A controller writes what it has decided within this time."""
OUTAGES_APART_US: Final = 60_000_000
"""Windows that no broker's death explains belong to one incident unless more than this time lies between them."""
_KINDS: Final = ("elected", "active", "loaded", "resigned", "peer_lost", "log_end", "session", "broker", "term")
_ONSETS: Final = "cluster string, culprit string, broker int, onset_us long, onset_error_us long, onset_evidence string"
_ONSET_OF: Final = ("cluster", "culprit", "broker", "onset_us", "onset_error_us", "onset_evidence")


def incidents(
    events: DataFrame, milestones: DataFrame, tallies: DataFrame, windows: DataFrame
) -> tuple[DataFrame, DataFrame]:
    """Return the table ``incidents``, and the onsets of its deaths.

    The onsets have the columns (cluster, culprit, broker, onset_us, onset_error_us, onset_evidence); one record may
    report the deaths of several brokers.  ``events`` are those of ``brokers.broker_events``, ``windows`` those of
    ``windows.attributed``.
    """
    turns = collected(events.where("event <> 'came'"))
    signs = collected(milestones.where(F.col("kind").isin(*_KINDS)))
    counted = collected(_counted(windows))
    last = collected(last_records(tallies))
    found = [
        row
        for cluster in sorted({row["cluster"] for row in (*turns, *signs, *counted)})
        for row in of_cluster(cluster, *(_only(rows, cluster) for rows in (turns, signs, counted, last)))
    ]
    spark = events.sparkSession
    _count_once(windows, found)
    onsets: list[tuple[Any, ...]] = [
        tuple(row[name] for name in _ONSET_OF) for row in found if row["culprit"] is not None
    ]
    onsets += [
        (row["cluster"], *turn, None, None, row["onset_evidence"]) for row in found for turn in row.get("served", ())
    ]
    columns = schema.GOLD["incidents"]
    made = spark.createDataFrame([tuple(row[name] for name in columns.names) for row in found], columns.ddl)
    return made, spark.createDataFrame(onsets, _ONSETS)


def with_onsets(windows: DataFrame, onsets: DataFrame) -> DataFrame:
    """Return the windows with their onsets: a window that a death began starts at the death, not when the controller
    noticed.

    A broker that only lost its session went on serving a partition until it lost the leadership, between the
    controller's first record (``start_us``) and the write to ZooKeeper.  That follows the controller's decision
    (``decided_us``) within ``WRITES_US`` and precedes the record of the next leader.
    """
    of_dead = "unavailable AND onset_us IS NOT NULL AND leader_before = broker"
    served = "unavailable AND onset_us IS NULL AND onset_evidence IS NOT NULL AND leader_before = broker"
    written_us = f"decided_us + {WRITES_US}"
    took_us = f"greatest(least(coalesce(end_us, {written_us}), {written_us}) - start_us, 0)"
    first = f"if({of_dead}, least(onset_us, start_us), if({served}, start_us + {took_us} DIV 2, start_us))"
    error = f"if({of_dead}, onset_error_us, if({served}, error_us + ({took_us} + 1) DIV 2, error_us))"
    return windows.join(F.broadcast(onsets), ["cluster", "culprit", "broker"], "left").withColumns(
        {
            "onset_us": F.expr(first),
            "onset_error_us": F.expr(error),
            "onset_evidence": F.expr(f"if({of_dead} OR {served}, onset_evidence, 'controller')"),
        }
    )


def _count_once(windows: DataFrame, found: Sequence[Row]) -> None:
    """Correct the counts of incidents that add up several groups of windows, since a partition may be in more than
    one."""
    several = [row for row in found if len(_groups_of(row)) > 1]
    if not several:
        return
    of = [(row["cluster"], *group, row["number"]) for row in several for group in _groups_of(row)]
    groups = windows.sparkSession.createDataFrame(of, f"cluster string, {_GROUPS}, number int")
    same = " AND ".join(f"w.{name} IS NOT DISTINCT FROM g.{name}" for name in ("cluster", *_GROUP))
    counted = (
        _outages(windows)
        .withColumn("bucket", F.expr(_BUCKET))
        .alias("w")
        .join(F.broadcast(groups).alias("g"), F.expr(same))
        .selectExpr("g.cluster AS cluster", "number", "topic", "partition", "unavailable")
    )
    rows = {(row["cluster"], row["number"]): row for row in found}
    for row in collected(counted.groupBy("cluster", "number").agg(*_distinct())):
        rows[row["cluster"], row["number"]].update({name: row[name] for name in _ONCE})


def _groups_of(row: Row) -> list[tuple[Any, ...]]:
    """Return the groups of windows (``_GROUP``) in an incident, if there may be several."""
    return [*row.get("groups", ()), *((culprit, None, broker) for culprit, broker in row.get("served", ()))]


def _outages(windows: DataFrame) -> DataFrame:
    causes = ", ".join(f"'{cause}'" for cause in (*NOT_AN_OUTAGE, "reassignment"))
    return windows.where(f"cause NOT IN ({causes})")


_GROUP: Final = ("culprit", "bucket", "broker")
_GROUPS: Final = "culprit string, bucket long, broker int"
_BUCKET: Final = f"if(culprit IS NULL, start_us DIV {OUTAGES_APART_US}, NULL)"
_LOST: Final = "if(unavailable, {}, NULL)"
_ONCE: Final = {
    "partitions": _LOST.format("struct(topic, partition)"),
    "topics": _LOST.format("topic"),
    "under_replicated": "if(unavailable, NULL, struct(topic, partition))",
}


def _distinct() -> list[Column]:
    return [F.expr(f"count(DISTINCT {what})").alias(name) for name, what in _ONCE.items()]


def _counted(windows: DataFrame) -> DataFrame:
    """Group the windows by event; windows without a known event by cause and minute."""
    lost = _LOST
    begun, ended = "unavailable AND start_us IS NOT NULL", "unavailable AND end_us IS NOT NULL"
    unknown = "count_if(unavailable AND duration_us IS NULL) > 0"
    return (
        _outages(windows)
        .withColumn("bucket", F.expr(_BUCKET))
        .groupBy("cluster", *_GROUP)
        .agg(
            F.expr("sort_array(collect_set(if(unavailable, cause, NULL)))").alias("causes"),
            *_distinct(),
            F.expr(f"min({lost.format('start_us')})").alias("start_us"),
            F.expr(f"max({lost.format('error_us')})").alias("error_us"),
            F.expr(f"max({lost.format('end_us')})").alias("led_again_us"),
            F.expr("max(end_us)").alias("in_sync_us"),
            F.expr("count_if(unavailable AND end_us IS NULL)").alias("still_open"),
            F.expr("count_if(end_us IS NULL)").alias("open"),
            F.expr(f"if({unknown}, NULL, coalesce(sum({lost.format('duration_us')}), 0))").alias("unavailable_us"),
            F.expr(f"if({unknown}, NULL, coalesce(max({lost.format('duration_us')}), 0))").alias("longest_us"),
            F.expr(f"min_by({lost.format('evidence')}, if({begun}, struct(start_us, topic, partition), NULL))").alias(
                "evidence"
            ),
            F.expr(f"max_by({lost.format('evidence')}, if({ended}, struct(end_us, topic, partition), NULL))").alias(
                "last_evidence"
            ),
        )
    )


def of_cluster(
    cluster: str, turns: Sequence[Row], signs: Sequence[Row], counted: Sequence[Row], last: Sequence[Row] = ()
) -> list[Row]:
    """Return the rows of ``incidents`` in the order of their onsets; each also has ``culprit``."""
    costs = {(row["culprit"], row["broker"]): row for row in counted if row["culprit"] is not None}
    known = Signs(signs)
    terms = terms_of(signs)
    came = _came_us([*turns, *signs])
    incidents = [
        _of_turn(turn, costs.get((turn["place"], turn["broker"])), known, terms, _last_before(came, turn))
        for turn in turns
        if turn["event"] in ("died", "bounced") or (costs.get((turn["place"], turn["broker"])) or {}).get("partitions")
    ]
    incidents += [_row(None, **incident_of(lost)) for lost in lost_controllers(signs, last, known)]
    found, of_stalls = _apart(incidents, stalls_of(signs, known))
    for stall, of_it in of_stalls:
        found += _of_stall(stall, of_it, terms)
    explained = {(turn["place"], turn["broker"]) for turn in turns}
    rest = [row for row in counted if (row["culprit"], row["broker"]) not in explained and row["partitions"]]
    found += [_of_windows(group) for group in _together(rest)]
    found.sort(key=lambda row: (row["onset_us"], _number(row["broker"]), row["noticed_us"]))
    return [{**row, "cluster": cluster, "number": n} for n, row in enumerate(found, 1)]


def _came_us(rows: Iterable[Row]) -> dict[int, list[int]]:
    """Map each broker to the times at which it is known to have started, in order."""
    came: dict[int, list[int]] = {}
    for row in rows:
        if row.get("event") in ("came_back", "bounced") or (row.get("kind") == "broker" and row["detail"] in _CAME):
            came.setdefault(row["broker"], []).append(row["ts_us"])
    for times in came.values():
        times.sort()
    return came


def _last_before(came: Mapping[int, Sequence[int]], turn: Row) -> int:
    """Return the time of the broker's last known start before this event; 0 if no record shows one."""
    times = came.get(turn["broker"], ())
    before = bisect_left(times, turn["ts_us"])
    return times[before - 1] if before else 0


_CAME: Final = ("added", "started", "registered")


def _of_turn(turn: Row, cost: Row | None, signs: Signs, terms: Sequence[Row], came_us: int) -> Row:
    noticed_us, broker = turn["ts_us"], turn["broker"]
    onset = signs.onset(broker, noticed_us, turn["ts_error_us"] or 0, came_us)
    if turn["event"] in ("shutdown", "left"):
        onset = Onset(noticed_us, turn["ts_error_us"] or 0, "controller", "shut down", ())
    elif turn["event"] == "bounced" and onset.how == "unknown":
        onset = replace(onset, how="restarted")
    onset_us, error_us, how = onset.us, onset.error_us, onset.how
    # If a controller's election and requests are lost, no record shows its epoch.
    epoch = max((term["epoch"] for term in terms if term["ts_us"] <= noticed_us), default=0)
    epoch = epoch if turn["epoch"] is None else turn["epoch"]
    ruling = [term for term in terms if term["epoch"] < epoch + (not turn["missed"])]
    after = [term for term in terms if term["epoch"] >= epoch]
    successor = after[0] if turn["missed"] and ruling and after else {}
    session_end_us = min(noticed_us, successor.get("ts_us") or noticed_us)
    if not turn["missed"] and len(ruling) > 1 and ruling[-1]["ts_us"] > onset_us + error_us:
        successor = ruling.pop()  # its session ended only after the next controller was elected
    lost_controller = bool(successor) and ruling[-1]["controller"] == broker
    cause = "controlled_shutdown" if how == "shut down" else "broker_death"
    if "unclean" in (cost or {}).get("causes", ()):
        cause = "unclean"
    several = len({turn["place"], *onset.places}) > 1
    return _row(
        cost,
        what="broker and controller" if lost_controller else "broker",
        broker=broker,
        how=how,
        cause=cause,
        certainty="certain" if several and how != "unknown" else "likely",
        onset_us=onset_us,
        onset_error_us=error_us,
        onset_evidence=onset.evidence,
        noticed_us=noticed_us,
        session_end_us=session_end_us,
        controller_before=ruling[-1]["controller"] if ruling else None,
        controller_after=successor.get("controller"),
        controller_epoch=successor.get("epoch"),
        elected_us=successor.get("ts_us"),
        evidence=_unique(
            [*onset.places, successor.get("place"), turn["place"], *((cost or {}).get("last_evidence") or ())]
        ),
        culprit=turn["place"],
    )


def _apart(rows: Iterable[Row], stalls: Sequence[Stall]) -> tuple[list[Row], list[tuple[Stall, list[Row]]]]:
    """Split the rows into independent ones and those that a stall of ZooKeeper explains.

    A stall explains why a broker or controller that was cut off from ZooKeeper seemed dead, but not the end of a
    process.
    """
    alone: list[Row] = []
    of_stalls: list[tuple[Stall, list[Row]]] = [(stall, []) for stall in stalls]
    begins = [stall.low_us - stall.error_us for stall in stalls]
    for row in rows:
        at = bisect_right(begins, row["noticed_us"]) - 1
        lived = row["how"] not in ("killed", "stopped", "shut down")
        (of_stalls[at][1] if lived and at >= 0 and stalls[at].explains(row["noticed_us"]) else alone).append(row)
    return alone, of_stalls


def _of_stall(stall: Stall, of_it: Sequence[Row], terms: Sequence[Row]) -> list[Row]:
    """Return the row of a stall; nothing if it ended no session."""
    ruling = [term for term in terms if term["ts_us"] < stall.low_us]
    after = [term for term in terms if stall.low_us <= term["ts_us"] <= stall.followed_us]
    if not of_it and not after:
        return []
    row = _row(
        None,
        what="zookeeper",
        how="no answer",
        cause="zookeeper",
        certainty="certain",
        onset_us=(stall.low_us + stall.high_us) // 2,
        onset_error_us=(stall.high_us - stall.low_us + 1) // 2 + stall.error_us,
        onset_evidence="brokers' sessions",
        session_end_us=min([each["session_end_us"] for each in of_it] + [term["ts_us"] for term in after[:1]]),
        noticed_us=stall.until_us,
        controller_before=ruling[-1]["controller"] if ruling else None,
        controller_after=after[0]["controller"] if after else None,
        controller_epoch=after[0]["epoch"] if after else None,
        elected_us=after[0]["ts_us"] if after else None,
        evidence=_unique([*stall.places, *(place for each in of_it for place in each["evidence"])]),
        culprit=None,
        served=[(each["culprit"], each["broker"]) for each in of_it if each["culprit"] is not None],
    )
    for name in ("partitions", "under_replicated", "still_open"):
        row[name] = sum(each[name] for each in of_it)
    row["unavailable_us"] = _known(sum, [each["unavailable_us"] for each in of_it])
    row["longest_us"] = _known(max, [each["longest_us"] for each in of_it])
    # bounds on the numbers that ``_count_once`` finds: several brokers may have led the same partitions
    row["topics"] = max((each["topics"] for each in of_it), default=0)
    for name in ("led_again_us", "in_sync_us"):
        row[name] = max((each[name] for each in of_it if each[name] is not None), default=None)
    row["led_again_us"] = None if row["still_open"] else row["led_again_us"]
    return [row]


def _of_windows(cost: Row) -> Row:
    """Return the row for partitions without a leader that no event of a broker explains."""
    return _row(
        cost,
        what="partitions",
        broker=cost["broker"],
        how="unknown",
        cause=next(iter(cost["causes"]), "unknown"),
        certainty="unknown",
        onset_us=cost["start_us"],
        onset_error_us=cost["error_us"] or 0,
        onset_evidence="controller",
        noticed_us=cost["start_us"],
        evidence=_unique([*(cost["evidence"] or ()), *(cost["last_evidence"] or ())]),
        culprit=None,
        groups=cost["groups"],
    )


def _row(cost: Row | None, **values: Any) -> Row:
    row: Row = dict.fromkeys(schema.GOLD["incidents"].names) | values
    costs = cost or {}
    for name in ("partitions", "topics", "under_replicated", "still_open"):
        row[name] = costs.get(name) or 0
    for name in ("unavailable_us", "longest_us"):
        row[name] = costs.get(name, 0)
    row["led_again_us"] = None if row["still_open"] else costs.get("led_again_us")
    row["in_sync_us"] = None if costs.get("open") else costs.get("in_sync_us")
    return row


def _together(rows: Iterable[Row]) -> list[Row]:
    """Merge windows of adjacent minutes with the same causes and broker; ``_count_once`` corrects the sums."""
    groups: list[Row] = []
    until_us = 0
    for row in sorted(rows, key=lambda r: (str(r["causes"]), _number(r["broker"]), r["start_us"])):
        last = groups[-1] if groups else None
        if last is None or (last["causes"], last["broker"]) != (row["causes"], row["broker"]) or (
            row["start_us"] > until_us + OUTAGES_APART_US
        ):  # fmt: skip
            groups.append({**row, "groups": [tuple(row[name] for name in _GROUP)]})
            until_us = max(row["led_again_us"] or 0, row["start_us"])
            continue
        until_us = max(row["led_again_us"] or 0, row["start_us"], until_us)
        last["groups"].append(tuple(row[name] for name in _GROUP))
        for name in ("partitions", "topics", "under_replicated", "still_open", "open"):
            last[name] = (last[name] or 0) + (row[name] or 0)
        last["unavailable_us"] = _known(sum, [last["unavailable_us"], row["unavailable_us"]])
        last["longest_us"] = _known(max, [last["longest_us"], row["longest_us"]])
        for name in ("led_again_us", "in_sync_us", "error_us"):
            last[name] = max((value for value in (last[name], row[name]) if value is not None), default=None)
        last["last_evidence"] = row["last_evidence"]
    return groups


def _known(add: Callable[[Iterable[int]], int], values: Sequence[int | None]) -> int | None:
    """Return the sum or the maximum; None if one of the values is unknown, 0 if there is none."""
    known = [value for value in values if value is not None]
    return None if len(known) < len(values) else add(known or [0])


def _number(broker: int | None) -> int:
    """Return a sort key for a broker; 0 is a valid broker id."""
    return -1 if broker is None else broker


def _unique(places: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(place for place in places if place))


def _only(rows: Iterable[Mapping[str, Any]], cluster: str) -> list[Row]:
    return [dict(row) for row in rows if row["cluster"] == cluster]
