"""The facts that each batch of events contributes: small tables that can be merged.

Gold is made from facts alone.  Facts of several batches merge by sums, minima and maxima, so a batch run (one batch)
and an incremental run (many batches) compute the same tables in the same way.

A partition's facts depend on the order of its rows.  When a late row changes a partition's past, its facts are
retracted and made again: they carry a weight ``n`` of -1 or 1, and facts whose weights sum to zero disappear.

| fact | one row for each |
| --- | --- |
| ``tallies`` | file, process, epoch and kind (with event, API, broker): the count and the range |
| ``latencies`` | duration: its value and count, which suffice for percentiles and merge exactly |
| ``milestones`` | record of the few that matter individually: elections, broker lives, failures, very slow events |
| ``windows`` | window that has closed |
| ``findings`` | row of a partition that breaks an invariant |
| ``churn`` | hour, topic and leader |
| ``balance`` | minute and broker: change of what it leads and holds |
| ``lives`` | topic, broker, cluster: births and ends of partitions, and their times summed |

``windows`` and ``findings`` are not stored as tables: each comes from a row of a history (``history``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Final

from aiocontroller.analytics import schema
from aiocontroller.analytics.dataframes import DataFrame, F
from aiocontroller.analytics.gold import leadership
from aiocontroller.analytics.gold.findings import FOUND, UNCLEAN_BY_LOGS, findings
from aiocontroller.analytics.gold.leadership import KEY, ORDER, PLACE, ordered

SLOW_US: Final = 60_000_000
"""An event that waited or ran for longer is a violation (``waiting``, ``handler``)."""
LARGEST_ZNODE_BYTES: Final = 1_048_575
"""ZooKeeper's default ``jute.maxbuffer`` (``size``)."""
WRITTEN_BY_ANOTHER: Final = "already written by another controller"
"""Kafka's reason for refusing an election: the state has a controller epoch above the controller's own."""
MINUTE_US: Final = 60_000_000
HOUR_US: Final = 3_600_000_000

MILESTONES: Final = (
    "elected", "loaded", "failover", "resigned", "outranked", "broker", "fault", "topic_deleted", "session",
    "active", "cluster_id", "log_end", "peer_lost", "term", "reassigning", "group_rebalance", "group_stable",
    "known_bug", "gap",
)  # fmt: skip

TALLIED: Final = (
    "cluster", "source", "file", "node", "process", "start_us", "epoch", "kind", "event", "api", "broker",
    "broker_epoch",
)  # fmt: skip
_TALLY: Final = {
    "n": "count(*)",
    "partitions": "sum(partitions)",
    "bytes": "sum(bytes)",
    "errors": "sum(if(code <> 0, 1L, 0L))",
    "first_seq": "min(seq)",
    "last_seq": "max(seq)",
    "first_us": "min(ts_us)",
    "last_us": "max(ts_us)",
    "seq_sum": f"sum(if(source = '{schema.JOURNAL_SOURCE}', seq, 0L))",
    "seq_xor": "bit_xor(seq)",
}


def tallies(events: DataFrame) -> DataFrame:
    """Return counts, sums and bounds (``_TALLY``) of the records of each process and kind (``TALLIED``)."""
    named = events.withColumn("start_us", F.expr("coalesce(start_us, 0)"))
    return named.groupBy(*TALLIED).agg(*(F.expr(f"{how} AS {name}") for name, how in _TALLY.items()))


def latencies(events: DataFrame) -> DataFrame:
    """Return (cluster, what, name, broker, value_us, n).

    Reading three narrow selections costs less than reading once and building arrays.
    """
    handled = events.where("kind = 'event' AND event IS NOT NULL")
    took = "CASE kind WHEN 'response' THEN 'request' ELSE kind END AS what", "coalesce(api, event, kind) AS name"
    parts = (
        handled.selectExpr("cluster", "'queue' AS what", "event AS name", "NULL AS broker", "queue_us AS value_us"),
        handled.selectExpr("cluster", "'processing' AS what", "event AS name", "NULL AS broker", "processing_us"),
        events.where("kind IN ('response', 'write', 'failover')").selectExpr("cluster", *took, "broker", "duration_us"),
    )
    values = reduce(DataFrame.union, parts).where("value_us IS NOT NULL")
    return values.groupBy("cluster", "what", "name", "broker", "value_us").agg(F.count("*").alias("n"))


def milestones(events: DataFrame) -> DataFrame:
    """Return the few records that gold examines individually."""
    wanted = ", ".join(f"'{kind}'" for kind in MILESTONES)
    slow = f"kind = 'event' AND (event IN ('BrokerChange') OR queue_us > {SLOW_US} OR processing_us > {SLOW_US})"
    large = f"kind = 'write' AND bytes > {LARGEST_ZNODE_BYTES}"
    outranked = f"kind = 'failed' AND detail LIKE '%{WRITTEN_BY_ANOTHER}%'"
    return ordered(events).where(f"kind IN ({wanted}) OR ({slow}) OR ({large}) OR ({outranked})").selectExpr(
        "cluster", "source", "node", "process", *ORDER, "ts_us", "ts_error_us", "kind", "event", "topic", "partition",
        "controller_epoch", "broker", "broker_epoch", "brokers", "partitions", "count", "bytes", "queue_us",
        "processing_us", "duration_us", "detail", f"{PLACE} AS place",
    )  # fmt: skip


# -- facts of partitions, from their histories; ``n`` is the sum of the rows' weights ---------------------------------

_NO_BROKERS: Final = "CAST(array() AS ARRAY<INT>)"
_HELD: Final = f"if({{0}}phase = 'gone', {_NO_BROKERS}, coalesce({{0}}replicas, {_NO_BROKERS}))"
_OF_PREDECESSORS: Final = {
    "prev_phase": "prev.phase",
    "prev_leader": "prev.leader",
    "prev_held": f"""
        if(prev IS NULL, {_NO_BROKERS},
           if({_HELD.format("")} IS DISTINCT FROM {_HELD.format("prev.")}, {_HELD.format("prev.")}, NULL))""",
    "led_anew": "coalesce(leader >= 0 AND leader <> prev.leader, false)",
    "isr_changed": "coalesce(isr <> prev.isr AND array_sort(isr) <> array_sort(prev.isr), false)",
    "led_by_outsider": f"{UNCLEAN_BY_LOGS} AND NOT coalesce(array_contains(prev.isr, leader), false)",
    "unclean": UNCLEAN_BY_LOGS,
    "found": FOUND,
}


def history(new: DataFrame, last: DataFrame | None = None) -> DataFrame:
    """Return ``leadership.timeline`` with only those columns of each predecessor that facts need, to keep the rows
    narrow.

    ``prev_held`` are the previous replicas if they have changed, empty without a previous row, and otherwise null.
    """
    rows = leadership.timeline(new, last)
    return rows.withColumns({name: F.expr(how) for name, how in _OF_PREDECESSORS.items()}).drop("prev", "hidden")


def windows(rows: DataFrame) -> DataFrame:
    """Return the windows that these rows close; ``unavailable`` distinguishes down from under-replicated."""
    closing = rows.where("down_ends OR under_ends").selectExpr(
        *KEY, "ts_us AS end_us", "ts_error_us AS end_error_us", f"{PLACE} AS end_place",
        "if(phase = 'up', leader, NULL) AS leader_after", "phase = 'gone' AS gone",
        "coalesce(prev_leader = -1, false) AS leaderless", "unclean", "n",
        "explode(array(struct(down_ends AS ends, true AS unavailable, down_since AS since), "
        "struct(under_ends AS ends, false AS unavailable, under_since AS since))) AS w",
    )  # fmt: skip
    return closing.where("w.ends").selectExpr(
        *KEY, "w.unavailable AS unavailable", "w.since AS since", "end_us", "end_error_us", "end_place",
        "leader_after", "gone", "leaderless", "unclean", "n",
    )  # fmt: skip


def churn(rows: DataFrame) -> DataFrame:
    """Return (cluster, hour_us, topic, broker, leader_changes, isr_changes, elections_unclean) by hour, UTC."""
    changed = rows.where("led_anew OR isr_changed OR led_by_outsider").selectExpr(
        "cluster", f"ts_us - pmod(ts_us, {HOUR_US}) AS hour_us", "topic", "leader AS broker",
        "if(led_anew, n, 0) AS leader_changes", "if(isr_changed, n, 0) AS isr_changes",
        "if(led_by_outsider, n, 0) AS elections_unclean",
    )  # fmt: skip
    return changed.groupBy("cluster", "hour_us", "topic", "broker").agg(
        *(F.sum(name).alias(name) for name in ("leader_changes", "isr_changes", "elections_unclean"))
    )


def balance(rows: DataFrame) -> DataFrame:
    """Return by minute and broker how many more partitions it leads, is preferred for, leads as preferred, and holds.

    If the replicas are unchanged, only the old and the new leader are compared.
    """
    changed = rows.selectExpr(
        "cluster", f"ts_us - pmod(ts_us, {MINUTE_US}) AS ts_us", "n", "prev_held IS NULL AS same_held",
        f"{_HELD.format('')} AS held", "prev_held",
        "if(phase = 'up', leader, NULL) AS leads", "if(prev_phase = 'up', prev_leader, NULL) AS led",
    ).where("NOT same_held OR leads IS DISTINCT FROM led")  # fmt: skip
    sides = changed.selectExpr(
        "cluster", "ts_us", "same_held",
        "explode(array(struct(n AS n, leads AS leader, held AS replicas), "
        "struct(-n AS n, led AS leader, coalesce(prev_held, held) AS replicas))) AS side",
    )  # fmt: skip
    leader = f"if(side.leader IS NULL, {_NO_BROKERS}, array(side.leader))"
    each = sides.selectExpr(
        "cluster", "ts_us", "side.n AS n", "side.leader AS leader", "side.replicas AS replicas", "same_held",
        f"explode(if(same_held, {leader}, array_union(side.replicas, {leader}))) AS broker",
    )  # fmt: skip
    counted = each.selectExpr(
        "cluster", "ts_us", "broker",
        "if(leader = broker, n, 0) AS leaders",
        "if(NOT same_held AND get(replicas, 0) = broker, n, 0) AS preferred_leaders",
        "if(get(replicas, 0) = broker AND leader = broker, n, 0) AS led_preferred",
        "if(NOT same_held AND array_contains(replicas, broker), n, 0) AS replicas",
    )  # fmt: skip
    summed = counted.groupBy("cluster", "ts_us", "broker").agg(
        *(F.sum(name).alias(name) for name in _SUMMED["balance"])
    )
    return summed.where(" OR ".join(f"{name} <> 0" for name in _SUMMED["balance"]))


def lives(rows: DataFrame) -> DataFrame:
    """Return how often partitions were born and ended (levels ``topic``, ``cluster``) and began and ceased to be led
    (``broker``).

    The sums of the times are decimals: a million partitions times 10**15 exceeds a long.
    """
    delta = "struct('{0}' AS level, {1} AS name, {2} AS born, {3} AS gone)"
    born, gone = "int(now AND NOT was)", "int(was AND NOT now)"
    moved = "leads IS DISTINCT FROM led"
    sides = rows.selectExpr(
        "cluster", "topic", "ts_us", "n",
        "phase <> 'gone' AS now", "coalesce(prev_phase <> 'gone', false) AS was",
        "if(phase = 'up', leader, NULL) AS leads", "if(prev_phase = 'up', prev_leader, NULL) AS led",
    ).where(f"now <> was OR {moved}")  # fmt: skip
    each = sides.selectExpr(
        "cluster", "ts_us", "n",
        "explode(array("
        + ", ".join((
            delta.format("cluster", "cluster", born, gone),
            delta.format("topic", "topic", born, gone),
            delta.format("broker", "CAST(leads AS STRING)", f"int({moved})", "0"),
            delta.format("broker", "CAST(led AS STRING)", "0", f"int({moved})"),
        ))
        + ")) AS d",
    ).where("d.name IS NOT NULL AND d.born + d.gone > 0")  # fmt: skip
    # Sums of seconds and of the remaining microseconds fit into longs, which cost less than decimals for each row.
    when = "CAST(sum(d.{0} * n * (ts_us DIV 1000000)) AS DECIMAL(38, 0)) * 1000000 + sum(d.{0} * n * (ts_us % 1000000))"
    return each.groupBy("cluster", "d.level", "d.name").agg(
        F.expr("sum(d.born * n) AS born"),
        F.expr("sum(d.gone * n) AS gone"),
        F.expr(f"CAST({when.format('born')} AS DECIMAL(38, 0)) AS born_us"),
        F.expr(f"CAST({when.format('gone')} AS DECIMAL(38, 0)) AS gone_us"),
    )


OF_EVENTS: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "tallies": tallies,
    "latencies": latencies,
    "milestones": milestones,
}
OF_PARTITIONS: Final[dict[str, Callable[[DataFrame], DataFrame]]] = {
    "windows": windows,
    "findings": findings,
    "churn": churn,
    "balance": balance,
    "lives": lives,
}

COUNTED: Final = ("churn", "balance", "lives")
"""The facts of ``OF_PARTITIONS`` that are stored as tables; the others come from the histories, row by row."""

_SUMMED: Final = {
    "latencies": ("n",),
    "windows": ("n",),
    "findings": ("n",),
    "churn": ("leader_changes", "isr_changes", "elections_unclean"),
    "balance": ("leaders", "preferred_leaders", "led_preferred", "replicas"),
    "lives": ("born", "gone", "born_us", "gone_us"),
}
_MERGED_TALLY: Final = {
    name: how if how.startswith(("min", "max", "bit_xor")) else "sum" for name, how in _TALLY.items()
}


def merge(name: str, facts: DataFrame) -> DataFrame:
    """Merge the facts of several batches in one table, and drop what was retracted."""
    if name == "milestones":
        return facts
    if name == "tallies":
        sums = {column: how.split("(")[0] for column, how in _MERGED_TALLY.items()}
        return facts.groupBy(*TALLIED).agg(*(F.expr(f"{how}({column}) AS {column}") for column, how in sums.items()))
    summed = _SUMMED[name]
    keys = [column for column in facts.columns if column not in summed]
    merged = facts.groupBy(*keys).agg(*(F.sum(column).alias(column) for column in summed))
    return merged.where(" OR ".join(f"{column} <> 0" for column in summed))
