"""The result of ``aiocontroller analyze``, as tables for people and as one object for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from aiocontroller.analytics.dataframes import Column, DataFrame, F, SparkSession
from aiocontroller.analytics.gold.availability import NOT_AN_OUTAGE
from aiocontroller.analytics.gold.windows import IF_KNOWN
from aiocontroller.analytics.lost_hours import moments_within
from aiocontroller.analytics.schema import GOLD
from aiocontroller.analytics.session import suited_to_little
from aiocontroller.analytics.store import Store, read_parquet
from aiocontroller.analytics.times import time_of

LONGEST: Final = 15
"""The number of windows that are shown individually."""
MOST_VIOLATIONS: Final = 20
MOST_INCIDENTS: Final = 200
MOST_PROBLEMS: Final = 50


def longest_first(duration_us: str) -> tuple[Column, Column]:
    """Return an order by a column of durations; those that are unknown come first."""
    return F.expr(f"{duration_us} IS NOT NULL"), F.desc(duration_us)


def summarise(spark: SparkSession, out: str) -> dict[str, Any]:
    """Return the summary of the gold tables below ``out``; times are in microseconds."""

    store = Store(spark, out)

    def table(name: str) -> DataFrame:
        return read_parquet(spark, [store.gold(name)], GOLD[name])

    def found(rows: DataFrame) -> list[dict[str, Any]]:
        return [row.asDict() for row in rows.collect()]

    outages = table("windows").where(~F.col("cause").isin(*NOT_AN_OUTAGE))
    kinds = outages.groupBy("cluster", "kind", "cause", "broker").agg(
        F.count("*").alias("windows"),
        F.countDistinct("topic", "partition").alias("partitions"),
        F.expr(f"{IF_KNOWN.format('sum')} AS total_us"),
        F.expr(f"{IF_KNOWN.format('max')} AS longest_us"),
        F.expr("count_if(end_us IS NULL) AS still_open"),
    )
    unavailable = outages.where("kind <> 'under_replicated'")
    # There may be millions of windows, but only thousands of everything else.
    of_windows = {
        "windows": found(kinds.orderBy("cluster", "kind", F.desc("total_us"), "cause", "broker")),
        "longest_windows": found(
            unavailable.orderBy(*longest_first("duration_us"), "start_us", "topic", "partition").limit(LONGEST)
        ),
    }
    quality = table("data_quality")
    with suited_to_little(spark):
        return {
            "incidents": found(table("incidents").orderBy("cluster", "number").limit(MOST_INCIDENTS)),
            "incidents_count": table("incidents").count(),
            "problems": found(
                table("problems").orderBy("cluster", "from_us", "problem", "broker").limit(MOST_PROBLEMS)
            ),
            "problems_count": table("problems").count(),
            "completeness": found(table("completeness").orderBy("cluster", "what", "name")),
            "clusters": found(table("availability").where("level = 'cluster'").drop("level").orderBy("name")),
            **of_windows,
            "failovers": found(table("failovers").orderBy("cluster", "epoch", "node")),
            "brokers": found(table("brokers").where("event <> 'came'").orderBy("cluster", "ts_us", "broker")),
            "violations": found(table("violations").orderBy("cluster", "ts_us", "invariant").limit(MOST_VIOLATIONS)),
            "violations_count": table("violations").count(),
            "records": int(quality.agg(F.sum("records")).first()[0] or 0),  # type: ignore[index]
            "remarks": store.remarks(),
            "data_quality": found(quality.where("words <> 'complete'").orderBy("file")),
        }


Row = dict[str, Any]
Section = str | tuple[list[str], list[list[object]]]


def sections(summary: dict[str, Any]) -> list[Section]:
    """Return sentences and (headings, rows)."""
    parts: list[Section] = []
    if summary["incidents"]:
        count = summary["incidents_count"]
        parts.append(f"{count:,} incidents" + (f", the first {MOST_INCIDENTS}:" if count > MOST_INCIDENTS else ":"))
        rows = with_skipped_hours(summary["incidents"], summary["completeness"])
        parts.append((list(_INCIDENT), [[show(row) for show in _INCIDENT.values()] for row in rows]))
    else:
        unknown = any(cluster["availability"] is None for cluster in summary["clusters"])
        parts.append("No incident is known." if unknown else "No incidents.")
    if summary["problems"]:
        count = summary["problems_count"]
        more = f", the first {MOST_PROBLEMS}" if count > MOST_PROBLEMS else ""
        parts.append(f"\nKnown problems: {count:,}{more}:")
        parts += [_problem(row) for row in summary["problems"]]
        parts.append("")
    parts += [_availability(cluster, summary["completeness"]) for cluster in summary["clusters"]]
    missing = [row for row in summary["completeness"] if not row["known"] and row["what"] != "availability"]
    if missing:
        parts.append("\nWhat is missing:")
        parts.append((["cluster", "what"], [[row["cluster"], row["words"]] for row in missing]))
    corrected = [row for row in summary["completeness"] if row["known"] and row["what"] in ("clock", "file")]
    if corrected:
        parts.append("\nWhat was corrected:")
        parts.append((["cluster", "what"], [[row["cluster"], row["words"]] for row in corrected]))
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


def _problem(row: dict[str, Any]) -> str:
    """Return the problem and its time, with the evidence and the advice below."""
    when = moment(row["from_us"]) + ("" if row["to_us"] == row["from_us"] else f" to {moment(row['to_us'])}")
    return (
        f"* {row['problem'].replace('_', ' ')} in cluster {row['cluster']}, {when}: {row['words']}.\n"
        f"    evidence: {evidence(row['evidence'])}\n"
        f"    {row['advice']}"
    )


def _availability(cluster: dict[str, Any], completeness: Sequence[dict[str, Any]]) -> str:
    watched = f"Cluster {cluster['name']}, {moment(cluster['from_us'])} to {moment(cluster['to_us'])}"
    lost = f"{cluster['partitions']:,} partitions were without a leader for"
    from_onset, as_seen = duration(cluster["onset_unavailable_us"]), duration(cluster["unavailable_us"])
    error = duration(cluster["onset_error_us"])
    times = f"{from_onset} in all (± {error}), as the controller saw it {as_seen}"
    if cluster["availability"] is None:
        why = next(
            row["words"]
            for row in completeness
            if row["what"] == "availability" and row["cluster"] == cluster["name"]
        )  # fmt: skip
        return f"{watched}: availability unknown: {why}.  As far as is known, {lost} {times}."
    shares = [f"{100 * cluster[name]:.4f} %" for name in ("onset_availability", "availability")]
    return f"{watched}: available {shares[0]} of the time, as the controller saw it {shares[1]}; {lost} {times}."


def duration(us: int | None) -> str:
    """Return a duration in a readable unit."""
    if us is None:
        return "-"
    for unit, size in (("h", 3.6e9), ("min", 6e7), ("s", 1e6), ("ms", 1e3)):
        if us >= size * (2 if unit in ("h", "min") else 1):
            return f"{us / size:.1f} {unit}"
    return f"{us} µs"


def known_duration(us: int | None) -> str:
    """Return the same of something that took a time, which is unknown for None."""
    return "unknown" if us is None else duration(us)


def with_skipped_hours(incidents: Sequence[Row], completeness: Sequence[Row]) -> list[Row]:
    """Return the incidents with ``skipped``: moments across which nobody knows how long something lasted."""
    found = moments_within(completeness)
    return [{**row, "skipped": [us for cluster, us in found if cluster == row["cluster"]]} for row in incidents]


def since_onset(row: Row, us: int) -> str:
    """Return the time from an incident's onset until ``us``."""
    if any(row["onset_us"] < skipped <= us for skipped in row.get("skipped", ())):
        return "unknown"
    return duration(max(0, us - row["onset_us"]))


def moment(us: int | None) -> str:
    """Return UTC to the millisecond for µs since 1970; ``-`` for None."""
    if us is None:
        return "-"
    return time_of(us).isoformat(" ", "milliseconds")[:23]


def evidence(references: Sequence[str] | None) -> str:
    """Return the references, naming a journal only once for successive records: ``1-17000:5, 6, 9``."""
    named: list[str] = []
    before = ""
    for reference in references or ():
        process, _, number = reference.rpartition(":")
        named.append(number if process == before and number.isdecimal() else reference)
        before = process
    return ", ".join(named)


def _of(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda row: "-" if row[name] is None else row[name]


def _long(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda row: duration(row[name])


def _known(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda row: known_duration(row[name])


def _when(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda row: moment(row[name])


_TITLES: Final = {
    "windows": "Windows by kind and cause:",
    "longest_windows": "The longest without a leader:",
    "failovers": "Controllers:",
    "brokers": "Brokers:",
    "data_quality": "Incomplete data:",
}
_COLUMNS: Final[dict[str, dict[str, Callable[[dict[str, Any]], object]]]] = {
    "windows": {
        "kind": _of("kind"), "cause": _of("cause"), "broker": _of("broker"), "windows": _of("windows"),
        "partitions": _of("partitions"), "in all": _known("total_us"), "longest": _known("longest_us"),
        "still open": _of("still_open"),
    },
    "longest_windows": {
        "from": _when("start_us"), "partition": lambda row: f"{row['topic']}-{row['partition']}",
        "for": _known("duration_us"), "kind": _of("kind"), "cause": _of("cause"), "broker": _of("broker"),
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
        "longest": lambda row: known_duration(row["longest_window_us"]) if row["windows"] else "-",
    },
    "data_quality": {
        "file": _of("file"), "records": _of("records"), "quarantined": _of("quarantined"), "words": _of("words"),
    },
}  # fmt: skip
_INCIDENT: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "from": lambda row: f"{moment(row['onset_us'])} ± {duration(row['onset_error_us'])}",
    "what": lambda row: f"{row['what']} {_of('broker')(row)} {row['how']}",
    "cause": _of("cause"),
    "known by": _of("onset_evidence"),
    "session over": lambda row: _after(row, "session_end_us"),
    "new controller": lambda row: "-" if row["elected_us"] is None else f"{row['controller_after']}",
    "led again": lambda row: "still open" if row["still_open"] else _after(row, "led_again_us"),
    "in sync": lambda row: _after(row, "in_sync_us"),
    "partitions": _of("partitions"),
    "topics": _of("topics"),
    "certainty": _of("certainty"),
}


def _after(row: dict[str, Any], name: str) -> str:
    """Return the time since the onset."""
    return "-" if row[name] is None else f"+{since_onset(row, row[name])}".replace("+unknown", "unknown")


_VIOLATION: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "invariant": _of("invariant"),
    "at": _when("ts_us"),
    "partition": lambda row: "-" if row["topic"] is None else f"{row['topic']}-{_of('partition')(row)}",
    "node": _of("node"),
    "epoch": _of("epoch"),
    "what": _of("words"),
    "evidence": lambda row: evidence(row["evidence"]),
}
