"""What ``aiocontroller analyze`` says at the end: the same for people, as tables, and for programs, as one object."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from aiocontroller.analytics.gold.availability import NOT_AN_OUTAGE
from aiocontroller.analytics.schema import GOLD
from aiocontroller.analytics.session import suited_to_little
from aiocontroller.analytics.store import Store

LONGEST: Final = 15
"""Windows that are shown one by one."""
MOST_VIOLATIONS: Final = 20


def summarise(spark: SparkSession, out: str) -> dict[str, Any]:
    """From the gold tables below ``out``; times in microseconds."""

    def table(name: str) -> DataFrame:
        return spark.read.schema(GOLD[name]).parquet(f"{out}/gold/{name}")

    def found(rows: DataFrame) -> list[dict[str, Any]]:
        return [row.asDict() for row in rows.collect()]

    outages = table("windows").where(~F.col("cause").isin(*NOT_AN_OUTAGE))
    kinds = outages.groupBy("cluster", "kind", "cause", "broker").agg(
        F.count("*").alias("windows"),
        F.countDistinct("topic", "partition").alias("partitions"),
        F.expr("sum(duration_us) AS total_us"),
        F.expr("max(duration_us) AS longest_us"),
        F.expr("count_if(end_us IS NULL) AS still_open"),
    )
    unavailable = outages.where("kind <> 'under_replicated'")
    # Of windows there may be millions, of everything else thousands.
    of_windows = {
        "windows": found(kinds.orderBy("cluster", "kind", F.desc("total_us"), "cause", "broker")),
        "longest_windows": found(
            unavailable.orderBy(F.desc("duration_us"), "start_us", "topic", "partition").limit(LONGEST)
        ),
    }
    quality = table("data_quality")
    with suited_to_little(spark):
        return {
            "clusters": found(table("availability").where("level = 'cluster'").drop("level").orderBy("name")),
            **of_windows,
            "failovers": found(table("failovers").orderBy("cluster", "epoch", "node")),
            "brokers": found(table("brokers").where("event <> 'came'").orderBy("cluster", "ts_us", "broker")),
            "violations": found(table("violations").orderBy("cluster", "ts_us", "invariant").limit(MOST_VIOLATIONS)),
            "violations_count": table("violations").count(),
            "records": int(quality.agg(F.sum("records")).first()[0] or 0),  # type: ignore[index]
            "remarks": Store(spark, out).remarks(),
            "data_quality": found(quality.where("words <> 'complete'").orderBy("file")),
        }


Section = str | tuple[list[str], list[list[object]]]


def sections(summary: dict[str, Any]) -> list[Section]:
    """Sentences and (headings, rows)."""
    parts: list[Section] = []
    for cluster in summary["clusters"]:
        share = f"{100 * cluster['availability']:.4f} %"
        lost = duration(cluster["unavailable_us"])
        watched = f"{moment(cluster['from_us'])} to {moment(cluster['to_us'])}"
        parts.append(
            f"Cluster {cluster['name']}, {watched}: available {share} of the time; "
            f"{cluster['partitions']:,} partitions were without a leader for {lost} in all."
        )
    parts.append(f"{summary['records']:,} records.")
    for name, title in _TITLES.items():
        rows = summary[name]
        if rows:
            parts.append(f"\n{title}")
            parts.append((list(_COLUMNS[name]), [[show(row) for show in _COLUMNS[name].values()] for row in rows]))
    count = summary["violations_count"]
    parts.append(
        f"\n{count:,} violations of invariants"
        + (f", the first {MOST_VIOLATIONS}:" if count > MOST_VIOLATIONS else ".")
    )
    if count:
        parts.append((list(_VIOLATION), [[show(row) for show in _VIOLATION.values()] for row in summary["violations"]]))
    return parts


def duration(us: int | None) -> str:
    """In the unit that people read best."""
    if us is None:
        return "-"
    for unit, size in (("h", 3.6e9), ("min", 6e7), ("s", 1e6), ("ms", 1e3)):
        if us >= size * (2 if unit in ("h", "min") else 1):
            return f"{us / size:.1f} {unit}"
    return f"{us} µs"


def moment(us: int | None) -> str:
    if us is None:
        return "-"
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def evidence(references: Sequence[str] | None) -> str:
    """References to records of one journal name it once: ``1-17000:5, 6, 9``."""
    told: list[str] = []
    before = ""
    for reference in references or ():
        process, _, number = reference.rpartition(":")
        told.append(number if process == before and number.isdecimal() else reference)
        before = process
    return ", ".join(told)


def _of(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda row: "-" if row[name] is None else row[name]


def _long(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda row: duration(row[name])


def _when(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda row: moment(row[name])


_TITLES: Final = {
    "windows": "Windows by kind and cause:",
    "longest_windows": "The longest without a leader:",
    "failovers": "Controllers:",
    "brokers": "Brokers:",
    "data_quality": "Data that are not whole:",
}
_COLUMNS: Final[dict[str, dict[str, Callable[[dict[str, Any]], object]]]] = {
    "windows": {
        "kind": _of("kind"), "cause": _of("cause"), "broker": _of("broker"), "windows": _of("windows"),
        "partitions": _of("partitions"), "in all": _long("total_us"), "longest": _long("longest_us"),
        "still open": _of("still_open"),
    },
    "longest_windows": {
        "from": _when("start_us"), "partition": lambda row: f"{row['topic']}-{row['partition']}",
        "for": _long("duration_us"), "kind": _of("kind"), "cause": _of("cause"), "broker": _of("broker"),
        "leader": lambda row: f"{_of('leader_before')(row)} → {_of('leader_after')(row)}",
        "evidence": lambda row: evidence(row["evidence"]),
    },
    "failovers": {
        "elected": _when("elected_us"), "node": _of("node"), "epoch": _of("epoch"), "took": _long("duration_us"),
        "partitions": _of("partitions"), "brokers": _of("brokers"), "topics": _of("topics"),
    },
    "brokers": {
        "at": _when("ts_us"), "broker": _of("broker"), "epoch": _of("broker_epoch"), "what": _of("event"),
        "led": _of("partitions_led"), "handled in": _long("processing_us"), "windows": _of("windows"),
        "longest": _long("longest_window_us"),
    },
    "data_quality": {
        "file": _of("file"), "records": _of("records"), "quarantined": _of("quarantined"), "words": _of("words"),
    },
}  # fmt: skip
_VIOLATION: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "invariant": _of("invariant"),
    "at": _when("ts_us"),
    "partition": lambda row: "-" if row["topic"] is None else f"{row['topic']}-{_of('partition')(row)}",
    "node": _of("node"),
    "epoch": _of("epoch"),
    "what": _of("words"),
    "evidence": lambda row: evidence(row["evidence"]),
}
