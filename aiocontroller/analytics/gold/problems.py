"""Known problems by name: what a cluster's records show, with evidence and advice.

| problem | evidence |
| --- | --- |
| ``unclean_election`` | a leader from outside the ISR, as its controller recorded it |
| ``session_lost_to_pause`` | a broker heard nothing from ZooKeeper for 5/4 of a session: its process was paused |
| ``isr_thrashing`` | an ISR that shrank ``THRASHES`` times within an hour while the broker that left it was alive |
| ``rebalance_storm`` | a consumer group that rebalanced more often within an hour than a restart of all members does |
| ``stuck_reassignment`` | a replica that is being added, and no change of its partition for ``STUCK_US`` |
| ``epoch_regression`` | a controller whose epoch is below an earlier one; states in which an epoch goes back |
| ``stale_zk_version`` | a leader that can no longer write its ISR (KAFKA-2729) |
| ``broker_id_taken`` | a broker that finds its id registered by another session (KAFKA-7165) |

A running client gives up a silent session after two thirds of the timeout, or all of it while connecting, so a client
that was silent for longer was not running.

The engine counts.  Plain Python makes the rows, a few for each problem and broker, as for incidents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from aiocontroller.analytics import schema
from aiocontroller.analytics.dataframes import DataFrame, F, Window
from aiocontroller.analytics.gold.leadership import KEY
from aiocontroller.analytics.gold.onsets import EXPIRY_US, Signs
from aiocontroller.analytics.gold.rows import Row, collected
from aiocontroller.core.text import plural

HOUR_US: Final = 3_600_000_000
MINUTE_US: Final = 60_000_000
THRASHES: Final = 6
REBALANCES: Final = 20
PER_MEMBER: Final = 3
"""How often a group rebalances when one member restarts: it leaves, it joins, and the group's leader joins again."""
UNKNOWN_MEMBERS: Final = 20
"""The assumed size of a group if no record shows it (before 2.8)."""
STUCK_US: Final = HOUR_US
EVIDENCE: Final = 5
"""The number of records that a finding names."""

ADVICE: Final = {
    "unclean_election": "Assume that records acknowledged by the former leaders are lost: compare offsets, and turn "
    "unclean.leader.election.enable off where records must not be lost.",
    "session_lost_to_pause": "Look for long garbage collections, swapping and paused virtual machines at that time; a "
    "longer zookeeper.session.timeout.ms only hides short ones.",
    "isr_thrashing": "Look at that broker's disks, network and fetchers (num.replica.fetchers) and at replication "
    "quotas before raising replica.lag.time.max.ms.",
    "rebalance_storm": "Look for members that miss max.poll.interval.ms or session.timeout.ms or restart in a loop; "
    "static membership (group.instance.id) spares restarts.",
    "stuck_reassignment": "Check that the new replicas' brokers are alive and that no throttle is below the producers' "
    "rate; otherwise cancel the reassignment and submit it again.",
    "epoch_regression": "Do not restart any broker or controller until /controller_epoch is above every controller "
    "epoch in the partitions' states (Kafka's notes on rolling back a migration say how).",
    "stale_zk_version": "Restart that broker in a controlled way; from 2.8 on Kafka changes ISRs through the "
    "controller and does not get into this state.",
    "broker_id_taken": "Check that no second broker has this id; otherwise wait until the old session has ended, and "
    "update to 2.2 or later.",
}
_NAMED: Final = {"KAFKA-2729": "stale_zk_version", "KAFKA-7165": "broker_id_taken"}
_OTHERS_EPOCH: Final = re.compile(r"elected with epoch (\d+)", re.ASCII)


def problems(
    milestones: DataFrame, tallies: DataFrame, windows: DataFrame, findings: DataFrame, last_rows: DataFrame,
    events: DataFrame, span: DataFrame,
) -> DataFrame:  # fmt: skip
    """The table ``problems``; ``windows`` are those of ``windows.attributed``, ``events`` those of
    ``brokers.broker_events``."""
    signs = collected(milestones.where("kind IN ('session', 'elected', 'term')"))
    deaths = collected(events.where("event IN ('died', 'bounced')").select("cluster", "broker", "ts_us", "place"))
    found = [
        *_unclean(collected(_led_by_outsiders(windows))),
        *_thrashing(collected(_often_shrunk(windows))),
        *_storms(collected(_often_rebalanced(milestones, events))),
        *_stuck(collected(_not_ended(milestones, last_rows, windows, _known_until(tallies, span)))),
        *_epochs_in_states(collected(_went_back(findings))),
        *_bugs(collected(_known_bugs(milestones))),
    ]
    outranked = collected(_outranked(milestones))
    for cluster in sorted({row["cluster"] for row in (*signs, *outranked)}):
        own, died, given_up = ([r for r in table if r["cluster"] == cluster] for table in (signs, deaths, outranked))
        found += _pauses(cluster, own, died)
        found += _epochs_of_controllers(cluster, own, given_up)
    columns = schema.GOLD["problems"]
    rows = [tuple(row[name] for name in columns.names) for row in found]
    return milestones.sparkSession.createDataFrame(rows, columns.ddl)


def _row(problem: str, words: str, evidence: Iterable[str | None], **values: Any) -> Row:
    named = list(dict.fromkeys(place for place in evidence if place))[:EVIDENCE]
    made = {"problem": problem, "words": words, "advice": ADVICE[problem], "evidence": named}
    return dict.fromkeys(schema.GOLD["problems"].names) | values | made


def _span(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in ("cluster", "from_us", "to_us", "times")}


# -- counted by the engine ---------------------------------------------------------------------------------------------


def _counted(windows: DataFrame, *by: str) -> DataFrame:
    end_us = "coalesce(end_us, start_us)"
    return windows.groupBy(*by).agg(
        F.expr("count(*)").alias("times"),
        F.expr("count(DISTINCT struct(topic, partition))").alias("partitions"),
        F.expr("min(struct(topic, partition))").alias("one"),
        F.expr("min(start_us)").alias("from_us"),
        F.expr(f"max({end_us})").alias("to_us"),
        F.expr("min_by(evidence, struct(start_us, topic, partition))").alias("first"),
        F.expr(f"max_by(evidence, struct({end_us}, topic, partition))").alias("last"),
    )


def _led_by_outsiders(windows: DataFrame) -> DataFrame:
    unclean = windows.where("cause = 'unclean'").withColumn("until_us", F.expr("coalesce(end_us, start_us)"))
    return _counted(
        _in_episodes(unclean, ("cluster", "broker"), "start_us", "until_us"), "cluster", "broker", "episode"
    )


def _often_shrunk(windows: DataFrame) -> DataFrame:
    """Return the hours in which partitions were under-replicated many times without an event that explains it."""
    shrunk = windows.where("NOT unavailable AND cause = 'unknown' AND broker IS NOT NULL").withColumn(
        "until_us", F.expr("coalesce(end_us, start_us)")
    )
    often = _crowded(shrunk, (*KEY, "broker"), "start_us", str(THRASHES))
    return _counted(_in_episodes(often, ("cluster", "broker"), "start_us", "until_us"), "cluster", "broker", "episode")


def _often_rebalanced(milestones: DataFrame, events: DataFrame) -> DataFrame:
    """Return the hours in which groups rebalanced many times, without what a broker's restart explains."""
    group = ("cluster", "detail")
    minute = f"CAST(floor(ts_us / {MINUTE_US}) AS BIGINT)"
    restarts = events.selectExpr("cluster", f"explode(array({minute}, {minute} + 1)) AS minute").distinct()
    # A log that was copied while it rotated has lines twice.
    once = milestones.where("kind = 'group_rebalance'").groupBy(*group, "node", "ts_us").agg(
        F.min("place").alias("place")
    )  # fmt: skip
    values = once.withColumn("minute", F.expr(minute))
    members = milestones.where("kind = 'group_stable'").groupBy(*group).agg(F.max("count").alias("members"))
    every = values.join(F.broadcast(restarts), ["cluster", "minute"], "left_anti").join(members, [*group], "left")
    limit = f"greatest({REBALANCES}, 1 + {PER_MEMBER} * coalesce(members, {UNKNOWN_MEMBERS}))"
    often = _in_episodes(_crowded(every, group, "ts_us", limit), group, "ts_us", "ts_us")
    return often.groupBy(*group, "episode").agg(*_places(), F.max("members").alias("members"))


def _crowded(rows: DataFrame, by: Sequence[str], at: str, limit: str) -> DataFrame:
    """Return the rows that lie within an hour that holds at least ``limit`` rows of the same ``by``."""
    of_one = Window.partitionBy(*by).orderBy(at)
    counted = rows.withColumn("in_hour", F.count("*").over(of_one.rangeBetween(-HOUR_US, Window.currentRow)))
    full = counted.withColumn("full", F.expr(f"int(in_hour >= {limit})"))
    before_full = F.max("full").over(of_one.rangeBetween(Window.currentRow, HOUR_US))
    return full.withColumn("crowded", before_full).where("crowded = 1").drop("in_hour", "full", "crowded")


def _in_episodes(rows: DataFrame, by: Sequence[str], at: str, until: str) -> DataFrame:
    """Number the times of each ``by`` that lie more than an hour apart, as ``episode``."""
    of_one = Window.partitionBy(*by).orderBy(at)
    earlier, so_far = (of_one.rowsBetween(Window.unboundedPreceding, end) for end in (-1, Window.currentRow))
    before = rows.withColumn("before_us", F.max(until).over(earlier))
    begun = before.withColumn("begins", F.expr(f"int(coalesce({at} - before_us > {HOUR_US}, true))"))
    return begun.withColumn("episode", F.sum("begins").over(so_far)).drop("before_us", "begins")


def _places() -> list[Any]:
    return [
        F.expr("count(*)").alias("times"), F.expr("min(ts_us)").alias("from_us"), F.expr("max(ts_us)").alias("to_us"),
        F.expr("min_by(place, struct(ts_us, place))").alias("first"),
        F.expr("max_by(place, struct(ts_us, place))").alias("last"),
    ]  # fmt: skip


def _known_until(tallies: DataFrame, span: DataFrame) -> DataFrame:
    """Return (cluster, to_us): the end of the controllers' records, or of all records if there are none."""
    controllers = tallies.where(f"source IN ('{schema.JOURNAL_SOURCE}', 'controller.log')").groupBy("cluster").agg(
        F.max("last_us").alias("controlled_us")
    )  # fmt: skip
    return span.join(controllers, "cluster", "left").selectExpr("cluster", "coalesce(controlled_us, to_us) AS to_us")


def _not_ended(milestones: DataFrame, last_rows: DataFrame, windows: DataFrame, until: DataFrame) -> DataFrame:
    """Return partitions with a replica that has not joined yet, by the last log line of a reassignment or by the last
    state."""
    values = milestones.where("kind = 'reassigning'").groupBy(*KEY).agg(
        F.expr("max_by(struct(ts_us, place, detail), struct(ts_us, seq)) AS r")
    )  # fmt: skip
    deleted = milestones.where("kind = 'topic_deleted'").groupBy("cluster", "topic").agg(
        F.expr("max(ts_us) AS deleted_us")
    )  # fmt: skip
    state = last_rows.selectExpr(*KEY, "ts_us", "phase", "isr", "under", "under_since", "reference", "process", "seq")
    both = state.join(values, [*KEY], "left").join(deleted, ["cluster", "topic"], "left").join(
        F.broadcast(until), "cluster"
    )  # fmt: skip
    adding = "transform(split(r.detail, ','), each -> try_cast(each AS INT))"
    by_log = f"coalesce(r.detail <> '' AND size(array_except({adding}, isr)) > 0, false)"
    by_state = "coalesce(under AND under_since.grown, false)"
    since_us = f"greatest(if({by_log}, r.ts_us, ts_us), ts_us)"
    place = "coalesce(reference, concat(process, ':', seq))"
    open_ = both.where(f"phase <> 'gone' AND ({by_log} OR {by_state})").selectExpr(
        *KEY, f"{since_us} AS since_us", "to_us", "deleted_us",
        f"if({by_log}, r.place, {place}) AS place",
    )  # fmt: skip
    # A replica that had joined and was lost later is another problem.
    lost = windows.where("NOT unavailable AND end_us IS NULL AND cause <> 'reassignment'").select(*KEY).distinct()
    waiting = open_.join(lost, [*KEY], "left_anti").where(
        f"to_us - since_us >= {STUCK_US} AND coalesce(deleted_us < since_us, true)"
    )
    return waiting.groupBy("cluster").agg(
        F.expr("count(*)").alias("times"),
        F.expr("min(since_us)").alias("from_us"),
        F.expr("max(to_us)").alias("to_us"),
        F.expr("min_by(struct(topic, partition), struct(since_us, topic, partition))").alias("one"),
        F.expr("min_by(place, struct(since_us, topic, partition))").alias("first"),
        F.expr("max_by(place, struct(since_us, topic, partition))").alias("last"),
    )


def _went_back(findings: DataFrame) -> DataFrame:
    """Return states whose epochs went back; versions alone may go back for other reasons."""
    back = findings.where(
        "invariant = 'I2' AND (words LIKE 'leader epoch%' OR words LIKE 'controller epoch%' OR words LIKE 'the state%')"
    )
    return back.groupBy("cluster").agg(
        F.expr("count(*)").alias("times"),
        F.expr("count(DISTINCT struct(topic, partition))").alias("partitions"),
        F.expr("min(ts_us)").alias("from_us"),
        F.expr("max(ts_us)").alias("to_us"),
        F.expr("min_by(struct(topic, partition, words, evidence), struct(ts_us, topic, partition))").alias("one"),
    )


def _known_bugs(milestones: DataFrame) -> DataFrame:
    values = milestones.where("kind = 'known_bug'").withColumn("broker", F.coalesce("broker", "node"))
    return values.groupBy("cluster", "event", "broker").agg(
        *_places(), F.expr("count(DISTINCT struct(topic, partition))").alias("partitions")
    )


def _outranked(milestones: DataFrame) -> DataFrame:
    """Return elections that a Kafka controller refused because a state has a higher controller epoch."""
    return milestones.where("kind = 'failed'").groupBy("cluster", "node", "epoch").agg(
        *_places(), F.expr("count(DISTINCT struct(topic, partition))").alias("partitions"),
        F.expr("max_by(detail, struct(ts_us, place))").alias("detail"),
    )  # fmt: skip


# -- made one by one ---------------------------------------------------------------------------------------------------


def _seconds(us: int) -> str:
    return f"{us / 1e6:.1f} s"


def _unclean(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        of = "" if row["broker"] is None else f" after broker {row['broker']} was lost"
        words = f"{plural(row['partitions'], 'partition')} got a leader from outside the ISR{of}: data may be lost"
        values = {"broker": row["broker"], "partitions": row["partitions"], **_one(row), **_span(row)}
        yield _row("unclean_election", words, [*(row["first"] or ()), *(row["last"] or ())], **values)


def _one(row: Row) -> dict[str, Any]:
    """Return the partition if there is only one."""
    return {name: row["one"][name] for name in ("topic", "partition")} if row["partitions"] == 1 else {}


def _thrashing(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        words = (
            f"broker {row['broker']} left the ISR of {plural(row['partitions'], 'partition')} {row['times']:,} times "
            f"while it was alive"
        )
        values = {"broker": row["broker"], "partitions": row["partitions"], **_one(row), **_span(row)}
        yield _row("isr_thrashing", words, [*(row["first"] or ()), *(row["last"] or ())], **values)


def _storms(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        size = "" if row["members"] is None else f" of {plural(row['members'], 'member')}"
        words = f"consumer group {row['detail']}{size} rebalanced {row['times']:,} times"
        yield _row("rebalance_storm", words, [row["first"], row["last"]], **_span(row))


def _stuck(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        longest_us = row["to_us"] - row["from_us"]
        words = (
            f"{plural(row['times'], 'partition')} with a replica that is being added; "
            f"{row['one']['topic']}-{row['one']['partition']} did not change for {longest_us / HOUR_US:.1f} h, "
            f"until the records end"
        )
        values = {"partitions": row["times"], **_one({**row, "partitions": row["times"]}), **_span(row)}
        yield _row("stuck_reassignment", words, [row["first"], row["last"]], **values)


def _bugs(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        if row["event"] == "KAFKA-2729":
            words = (
                f"broker {row['broker']} could not change the ISR of {plural(row['partitions'], 'partition')}: its "
                f"version of the state is not ZooKeeper's (KAFKA-2729)"
            )
        else:
            words = f"broker {row['broker']} found its id registered by another session (KAFKA-7165)"
        partitions = row["partitions"] if row["event"] == "KAFKA-2729" else None
        values = {"broker": row["broker"], "partitions": partitions, **_span(row)}
        yield _row(_NAMED[row["event"]], words, [row["first"], row["last"]], **values)


def _epochs_in_states(rows: Sequence[Row]) -> Iterator[Row]:
    for row in rows:
        one = row["one"]
        words = f"epochs went back in {plural(row['partitions'], 'partition')}; the first: {one['topic']}-"
        words += f"{one['partition']}: {one['words']}"
        yield _row("epoch_regression", words, one["evidence"] or (), partitions=row["partitions"], **_span(row))


def _pauses(cluster: str, signs: Sequence[Row], deaths: Sequence[Row]) -> Iterator[Row]:
    """Yield a row for each broker that was paused for longer than its session lasts, and lost it."""
    known = Signs(signs)
    of_broker: dict[int, list[Row]] = {}
    for row in sorted(signs, key=lambda r: (r["ts_us"], r["place"])):
        if row["kind"] == "session" and row["node"] is not None:
            of_broker.setdefault(row["node"], []).append(row)
    died: dict[int, list[Row]] = {}
    for death in deaths:
        died.setdefault(death["broker"], []).append(death)
    for broker, own in sorted(of_broker.items()):
        session_us = known.session_us(broker)
        pauses: list[tuple[Row, str | None]] = []
        agreed_us = next((r["duration_us"] for r in own if _agrees(r)), session_us)
        for row in own:
            if _agrees(row):
                agreed_us = row["duration_us"]  # each start may negotiate another timeout
            if row["detail"] != "TIMED_OUT" or (row["duration_us"] or 0) < agreed_us * 5 // 4:
                continue
            session_us = agreed_us
            if pauses and row["ts_us"] - pauses[-1][0]["ts_us"] < EXPIRY_US:
                continue  # ZooKeeper's client logs it twice
            lost = _lost(row, own, died.get(broker, ()))
            if lost is not None:
                pauses.append((row, lost))
        if not pauses:
            continue
        longest_us = max(row["duration_us"] for row, _ in pauses)
        often = "once" if len(pauses) == 1 else f"{len(pauses):,} times"
        words = (
            f"broker {broker} was paused for up to {_seconds(longest_us)} and lost its ZooKeeper session of "
            f"{_seconds(session_us)} {often}"
        )
        yield _row(
            "session_lost_to_pause", words, [place for row, lost in pauses for place in (row["place"], lost)],
            cluster=cluster, broker=broker, times=len(pauses),
            from_us=pauses[0][0]["ts_us"] - pauses[0][0]["duration_us"], to_us=pauses[-1][0]["ts_us"],
        )  # fmt: skip


def _agrees(row: Row) -> bool:
    return row["detail"] == "ESTABLISHED" and bool(row["duration_us"])


def _lost(pause: Row, own: Sequence[Row], deaths: Sequence[Row]) -> str | None:
    """Return the record of the session's end: the broker's own or the controller's."""
    began_us, until_us = pause["ts_us"] - pause["duration_us"], pause["ts_us"] + 10 * EXPIRY_US
    expired = [r["place"] for r in own if r["detail"] == "EXPIRED" and pause["ts_us"] <= r["ts_us"] <= until_us]
    noticed = [r["place"] for r in deaths if began_us <= r["ts_us"] <= until_us]
    return next(iter((*expired, *noticed)), None)


def _epochs_of_controllers(cluster: str, signs: Sequence[Row], outranked: Sequence[Row]) -> Iterator[Row]:
    """Yield controllers that were elected after one with a higher epoch, and the elections that they refused because of
    it."""
    seen = sorted((r for r in signs if r["kind"] in ("elected", "term") and r["epoch"]), key=lambda r: r["ts_us"])
    highest: Row | None = None
    for row in seen:
        if highest is None or row["epoch"] > highest["epoch"]:
            highest = row
        elif row["kind"] == "elected" and row["epoch"] < highest["epoch"] and _after(row, highest):
            words = (
                f"controller {row['node']} was elected with epoch {row['epoch']} after epoch {highest['epoch']}: "
                f"brokers refuse its requests"
            )
            yield _row("epoch_regression", words, [highest["place"], row["place"]], cluster=cluster, times=1,
                       from_us=row["ts_us"], to_us=row["ts_us"])  # fmt: skip
    for row in outranked:
        named = _OTHERS_EPOCH.search(row["detail"] or "")
        other = int(named[1]) if named else None
        if any(r["epoch"] == other and r["ts_us"] >= _elected_us(row, signs) for r in seen):
            continue  # a successor was elected in time: this controller had lost the role and is about to resign
        above = "a higher epoch" if other is None else f"epoch {other}"
        words = (
            f"controller {row['node']} of epoch {row['epoch']} elected no leader for "
            f"{plural(row['partitions'], 'partition')}, whose states have {above}"
        )
        yield _row("epoch_regression", words, [row["first"], row["last"]], partitions=row["partitions"], **_span(row))


def _after(row: Row, before: Row) -> bool:
    """Return whether a row is later, clock errors included."""
    return bool(row["ts_us"] - before["ts_us"] > (row["ts_error_us"] or 0) + (before["ts_error_us"] or 0))


def _elected_us(row: Row, signs: Sequence[Row]) -> int:
    elected = [r["ts_us"] for r in signs if r["kind"] == "elected" and r["epoch"] == row["epoch"]]
    return int(min(elected, default=row["from_us"]))
