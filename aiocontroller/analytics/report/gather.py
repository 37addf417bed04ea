"""Reads the content of the page from the gold tables as plain values; the engine counts, bins and limits them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from aiocontroller.analytics.dataframes import DataFrame, F, SparkSession
from aiocontroller.analytics.gold.availability import NOT_AN_OUTAGE
from aiocontroller.analytics.gold.windows import IF_KNOWN
from aiocontroller.analytics.schema import GOLD
from aiocontroller.analytics.schema import QUARANTINE as QUARANTINE_COLUMNS
from aiocontroller.analytics.store import Store, read_parquet
from aiocontroller.analytics.stream import QUARANTINE
from aiocontroller.analytics.summary import longest_first, with_skipped_hours

BINS: Final = 600
"""The number of bins of the timeline."""
CLUSTERS: Final = 8
WINDOWS: Final = 25
FAILOVERS: Final = 20
LATENCIES: Final = 24
TOPICS: Final = 30
BROKERS: Final = 12
CAUSES: Final = 50
LIFE_EVENTS: Final = 200
INCIDENTS: Final = 100
"""The number of incidents with a section of their own; the worst are chosen."""
VIOLATIONS: Final = 50
PROBLEMS: Final = 50
REQUESTS: Final = 40
FILES: Final = 50
QUARANTINED: Final = 10
SHORT_US: Final = 6 * 3_600_000_000
"""A heat map by the hour needs at least this much time."""

Row = dict[str, Any]


@dataclass
class Cluster:
    """One cluster's figures; every list is in display order."""

    name: str
    from_us: int
    to_us: int
    partitions: int
    unavailable_us: int
    availability: float | None
    """As the controller saw it; None if unknown."""
    onset_availability: float | None = None
    """Counted from when brokers failed, not from when the controller noticed."""
    onset_unavailable_us: int | None = None
    onset_error_us: int | None = None
    """The error bound of ``onset_unavailable_us``; both are summed over partitions."""
    incidents: list[Row] = field(default_factory=list)
    """The worst, by time."""
    incidents_count: int = 0
    completeness: list[Row] = field(default_factory=list)
    """(what, name, known, words), with what is missing first."""
    topics_seen: int = 0
    bin_us: int = 1
    without_leader: list[int] = field(default_factory=list)
    """For each bin of ``bin_us`` from ``from_us``: an upper bound on the partitions without a leader at the same
    time."""
    under_replicated: list[int] = field(default_factory=list)
    causes: list[Row] = field(default_factory=list)
    windows: list[Row] = field(default_factory=list)
    failovers: list[Row] = field(default_factory=list)
    """The slowest, each with its ``phases``: [(phase, µs)]."""
    elections: int = 0
    life: list[Row] = field(default_factory=list)
    """The first events of brokers' lives, by time."""
    turns: dict[str, int] = field(default_factory=dict)
    """The number of events of each kind."""
    latencies: list[Row] = field(default_factory=list)
    requests: list[Row] = field(default_factory=list)
    churn: list[Row] = field(default_factory=list)
    """(topic, x, changes): x is an hour (µs), or the broker if the records cover only a few hours."""
    churn_by_hour: bool = False
    imbalance: list[Row] = field(default_factory=list)
    """(broker, ts_us, imbalance) of the most unbalanced brokers."""
    worst_topics: list[Row] = field(default_factory=list)
    broker_accounts: list[Row] = field(default_factory=list)
    violations: list[Row] = field(default_factory=list)
    violated: list[Row] = field(default_factory=list)
    """(invariant, count)"""
    problems: list[Row] = field(default_factory=list)
    """The first known problems, by time."""
    problems_count: int = 0


@dataclass
class Content:
    """What the page shows; clusters are sorted, the worst first, and limited in number."""

    clusters: list[Cluster]
    more_clusters: int
    quality: list[Row]
    """Incomplete files, the worst first."""
    quarantine: list[Row]
    records: int
    quarantined: int
    files: int
    whole_files: int
    remarks: list[Row] = field(default_factory=list)
    """(words, files): assumptions about files, and files that were not read."""


def gather(spark: SparkSession, out: str) -> Content:
    """Read the content from the tables that are published in the folder ``out``."""
    store = Store(spark, out)

    def table(name: str) -> DataFrame:
        return read_parquet(spark, [store.gold(name)], GOLD[name])

    tables = {
        name: table(name)
        for name in (
            *("windows", "failovers", "failover_phases", "latencies", "requests", "churn", "imbalance"),
            *("violations", "availability", "brokers", "data_quality", "incidents", "completeness", "problems"),
        )
    }
    whole = tables["availability"].where("level = 'cluster'").orderBy(F.col("availability").asc_nulls_first(), "name")
    clusters = [_cluster(tables, row) for row in _rows(whole.limit(CLUSTERS))]
    quality = tables["data_quality"]
    totals = quality.agg(
        F.sum("records").alias("records"),
        F.sum("quarantined").alias("quarantined"),
        F.count("*").alias("files"),
        F.count_if(F.col("words") == "complete").alias("whole"),
    ).first()
    assert totals is not None
    broken = quality.where("words <> 'complete'").orderBy(F.desc("quarantined"), F.desc("gaps"), "file")
    return Content(
        clusters,
        max(0, whole.count() - CLUSTERS),
        _rows(broken.limit(FILES)),
        _quarantine(store),
        int(totals["records"] or 0),
        int(totals["quarantined"] or 0),
        int(totals["files"]),
        int(totals["whole"]),
        [{"words": words, "files": files} for words, files in store.remarks().items()],
    )


def _rows(table: DataFrame) -> list[Row]:
    return [row.asDict() for row in table.collect()]


def _quarantine(store: Store) -> list[Row]:
    """Return a sample of the lines that could not be read; empty if no batch had any."""
    folders = store.published_batches(QUARANTINE)
    if not folders:
        return []
    found = read_parquet(store.spark, folders, QUARANTINE_COLUMNS)
    return _rows(found.orderBy(F.desc("count"), "file").select("file", "reason", "count", "line").limit(QUARANTINED))


def _cluster(tables: dict[str, DataFrame], whole: Row) -> Cluster:
    name, from_us, to_us = whole["name"], int(whole["from_us"]), int(whole["to_us"])

    def of(table: str) -> DataFrame:
        return tables[table].where(F.col("cluster") == name)

    outages = of("windows").where(~F.col("cause").isin(*NOT_AN_OUTAGE))
    without = outages.where("kind <> 'under_replicated'")
    bin_us = max(1, -(-(to_us - from_us + 1) // BINS))
    cluster = Cluster(
        name, from_us, to_us, int(whole["partitions"]), int(whole["unavailable_us"] or 0), whole["availability"]
    )
    for column in ("onset_availability", "onset_unavailable_us", "onset_error_us"):
        setattr(cluster, column, whole[column])
    cluster.incidents_count = of("incidents").count()
    worst = of("incidents").orderBy(*longest_first("unavailable_us"), F.desc("longest_us"), "number").limit(INCIDENTS)
    cluster.completeness = _rows(of("completeness").orderBy("known", "what", "name").limit(FILES))
    cluster.incidents = with_skipped_hours(
        sorted(_rows(worst), key=lambda row: row["number"]), _rows(of("completeness").where("what = 'clock'"))
    )
    cluster.bin_us = bin_us
    cluster.without_leader = _most_at_once(without, from_us, to_us, bin_us)
    cluster.under_replicated = _most_at_once(outages.where("kind = 'under_replicated'"), from_us, to_us, bin_us)
    causes = _rows(
        outages.groupBy("kind", "cause", "broker")
        .agg(
            F.count("*").alias("windows"),
            F.countDistinct("topic", "partition").alias("partitions"),
            F.expr(f"{IF_KNOWN.format('sum')} AS total_us"),
            F.expr(f"{IF_KNOWN.format('max')} AS longest_us"),
            F.expr("count_if(end_us IS NULL) AS still_open"),
        )
        .orderBy(*longest_first("total_us"), "kind", "cause", "broker")
        .limit(CAUSES)
    )
    cluster.causes = sorted(causes, key=lambda row: row["kind"])
    longest = without.orderBy(*longest_first("duration_us"), "start_us", "topic", "partition")
    cluster.windows = _rows(longest.limit(WINDOWS))
    cluster.elections = of("failovers").count()
    cluster.failovers = _failovers(of("failovers"), of("failover_phases"))
    cluster.turns = {row["event"]: row["count"] for row in of("brokers").groupBy("event").count().collect()}
    cluster.life = _rows(of("brokers").where("event <> 'came'").orderBy("ts_us", "broker").limit(LIFE_EVENTS))
    plain = of("latencies").where("broker IS NULL")
    cluster.latencies = _rows(plain.orderBy(F.desc("count"), "what", "name").limit(LATENCIES))
    cluster.requests = _rows(of("requests").orderBy(F.desc("p99_us"), "broker", "api").limit(REQUESTS))
    cluster.churn_by_hour = to_us - from_us >= SHORT_US
    cluster.churn = _churn(of("churn"), "hour_us" if cluster.churn_by_hour else "broker")
    cluster.imbalance = _imbalance(of("imbalance"), from_us, bin_us)
    topics = tables["availability"].where(F.col("cluster") == name).where("level = 'topic'")
    cluster.topics_seen = topics.count()
    cluster.worst_topics = _rows(
        topics.where("unavailable_us > 0").orderBy("availability", F.desc("unavailable_us"), "name").limit(TOPICS)
    )
    cluster.broker_accounts = _rows(
        tables["availability"]
        .where(F.col("cluster") == name)
        .where("level = 'broker'")
        .orderBy("availability", "name")
        .limit(TOPICS)
    )
    cluster.violations = _rows(of("violations").orderBy("ts_us", "invariant", "topic", "partition").limit(VIOLATIONS))
    cluster.problems_count = of("problems").count()
    cluster.problems = _rows(of("problems").orderBy("from_us", "problem", "broker", "words").limit(PROBLEMS))
    cluster.violated = _rows(of("violations").groupBy("invariant").count().orderBy("invariant"))
    return cluster


def _most_at_once(windows: DataFrame, from_us: int, to_us: int, bin_us: int) -> list[int]:
    """Return, for each bin, the number of windows that were open when it began plus those that began in it.

    This takes two counts for each bin, however many windows there are.  With windows shorter than a bin, it is an upper
    bound.
    """
    bins = (to_us - from_us) // bin_us + 1

    def counted(moment: str) -> dict[int, int]:
        number = F.expr(f"CAST(least(greatest(({moment} - {from_us}) DIV {bin_us}, 0), {bins - 1}) AS INT)")
        rows = windows.where(f"{moment} IS NOT NULL").groupBy(number.alias("bin")).count().collect()
        return {row["bin"]: row["count"] for row in rows}

    starts, ends = counted("start_us"), counted("end_us")
    most, still_open = [], 0
    for number in range(bins):
        most.append(still_open + starts.get(number, 0))
        still_open = most[-1] - ends.get(number, 0)
    return most


def _failovers(failovers: DataFrame, phases: DataFrame) -> list[Row]:
    slowest = _rows(failovers.orderBy(F.desc_nulls_last("duration_us"), "epoch").limit(FAILOVERS))
    epochs = [row["epoch"] for row in slowest]
    steps: dict[tuple[int, int], list[tuple[str, int]]] = {}
    for row in phases.where(F.col("epoch").isin(epochs)).orderBy("epoch", "node", "position").collect():
        steps.setdefault((row["epoch"], row["node"]), []).append((row["phase"], row["duration_us"] or 0))
    return sorted(
        (row | {"phases": steps.get((row["epoch"], row["node"]), [])} for row in slowest),
        key=lambda row: (-1 if row["epoch"] is None else row["epoch"], -1 if row["node"] is None else row["node"]),
    )


def _churn(churn: DataFrame, x: str) -> list[Row]:
    """Return the changes of the topics that changed most."""
    summed = churn.groupBy("topic", F.col(x).alias("x")).agg(F.sum("leader_changes").alias("changes"))
    busiest = churn.groupBy("topic").agg(F.sum("leader_changes").alias("n")).orderBy(F.desc("n"), "topic").limit(TOPICS)
    kept = summed.join(F.broadcast(busiest), "topic").where("changes > 0 AND x IS NOT NULL")
    return _rows(kept.orderBy(F.desc("n"), "topic", "x").select("topic", "x", "changes"))


def _imbalance(imbalance: DataFrame, from_us: int, bin_us: int) -> list[Row]:
    """Return the imbalance of the most unbalanced brokers, the worst of each bin."""
    worst = imbalance.groupBy("broker").agg(F.max("imbalance").alias("w")).orderBy(F.desc("w"), "broker").limit(BROKERS)
    at = F.expr(f"{from_us} + {bin_us} * ((ts_us - {from_us}) DIV {bin_us})")
    binned = imbalance.join(F.broadcast(worst), "broker").groupBy("broker", at.alias("ts_us"))
    return _rows(binned.agg(F.max("imbalance").alias("imbalance")).orderBy("broker", "ts_us"))
