"""The page: one HTML file, everything in it, no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import PurePosixPath
from typing import Any, Final

import plotly.graph_objects as go

from aiocontroller.analytics.report import figures, words
from aiocontroller.analytics.report.gather import Cluster, Content
from aiocontroller.analytics.summary import duration, evidence, moment

STYLE: Final = """
:root { --ink: #1c2733; --dim: #5a6b7d; --line: #dfe6ee; --card: #f6f8fb; --red: #c0392b; --green: #2f855a; }
body { font: 15px/1.55 system-ui, sans-serif; color: var(--ink); max-width: 76rem; margin: 2rem auto;
  padding: 0 1.2rem; }
h1 { font-size: 1.55rem; margin-bottom: .2rem; }
h2 { font-size: 1.3rem; margin-top: 2.6rem; }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .2rem; }
p.note { color: var(--dim); margin: .1rem 0 .6rem; max-width: 60rem; }
nav a { margin-right: 1.1rem; color: #2b6cb0; text-decoration: none; }
ul.story { padding-left: 1.2rem; max-width: 62rem; }
.cards { display: flex; flex-wrap: wrap; gap: .8rem; margin: 1rem 0; }
.card { background: var(--card); border-radius: .5rem; padding: .7rem 1rem; min-width: 8.5rem; }
.card b { display: block; font-size: 1.35rem; font-variant-numeric: tabular-nums; }
.card span { color: var(--dim); }
.bad b { color: var(--red); }
.good b { color: var(--green); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .4rem 0; font-size: .93rem; }
th { text-align: left; color: var(--dim); font-weight: 600; }
td, th { padding: .25rem .9rem .25rem 0; vertical-align: top; border-bottom: 1px solid var(--line); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.time { white-space: nowrap; font-variant-numeric: tabular-nums; }
td { min-width: 3.5rem; }
code { font-size: .85rem; color: var(--dim); overflow-wrap: anywhere; }
td:last-child:not(.n) { min-width: 12rem; }
"""

FILES_NAMED: Final = 5
Cell = Callable[[dict[str, Any]], str]


def page(content: Content) -> str:
    """The whole document."""
    title = words.headline(content)
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'>",
        "<meta name='viewport' content='width=device-width'>",
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>",
        f"<h1>{escape(title)}</h1><p class='note'>{escape(words.quality(content))}</p>",
    ]
    plots = _Plots()
    names = [cluster.name for cluster in content.clusters]
    links = [f"<a href='#c{i}'>cluster {escape(name)}</a>" for i, name in enumerate(names)] if len(names) > 1 else []
    parts.append(f"<nav>{''.join(links)}<a href='#data'>data quality</a></nav>")
    for number, cluster in enumerate(content.clusters):
        parts.append(f"<section id='c{number}'>{_cluster(cluster, plots)}</section>")
    if content.more_clusters:
        parts.append(f"<p class='note'>{content.more_clusters} more clusters, more available than these.</p>")
    parts.append(f"<section id='data'>{_quality(content)}</section></body></html>")
    return "".join(parts)


class _Plots:
    """The library goes into the page once, with the first plot."""

    def __init__(self) -> None:
        self._first = True

    def html(self, figure: go.Figure) -> str:
        text: str = figure.to_html(
            full_html=False, include_plotlyjs=self._first, config={"displayModeBar": False, "responsive": True}
        )
        self._first = False
        return text


def _cluster(cluster: Cluster, plots: _Plots) -> str:
    parts = [f"<h2>Cluster {escape(cluster.name)}</h2>", _cards(cluster)]
    parts.append("<ul class='story'>" + "".join(f"<li>{escape(line)}</li>" for line in words.story(cluster)) + "</ul>")

    def section(heading: str, note: str, *contents: str) -> None:
        if any(contents):
            parts.append(f"<h3>{heading}</h3><p class='note'>{note}</p>{''.join(contents)}")

    def plot(figure: go.Figure | None) -> str:
        return "" if figure is None else plots.html(figure)

    width = duration(cluster.bin_us)
    section(
        "When",
        f"How many partitions were affected at once, at most, in each {width}; and what happened to brokers and "
        "controllers. Drag to look closer, double-click to go back.",
        plot(figures.timeline(cluster)),
    )
    section(
        "Violations of invariants",
        "What must never be, with the records that prove it (at most 50).",
        _table(cluster.violations, VIOLATIONS),
    )
    section(
        "Why", "Gaps by what caused them; creation and deletion of topics are none.", _table(cluster.causes, CAUSES)
    )
    section(
        "The worst gaps",
        "Partitions without a leader, the longest first. A gap begins when the controller learns of it: the dead "
        "broker's session time-out lies before.",
        _table(cluster.windows, WINDOWS),
    )
    section("Brokers", "Their lives, in order.", _table(cluster.life, LIFE))
    section(
        "Failovers",
        "Each election of a controller, by the steps of its failover; at most the 20 slowest.",
        plot(figures.phases(cluster)),
        "" if any(row["phases"] for row in cluster.failovers) else _table(cluster.failovers, FAILOVERS),
    )
    section(
        "How long things took",
        "From the median to the maximum; percentiles are exact. The axis is logarithmic.",
        plot(figures.percentiles(cluster)),
    )
    by = "hours" if cluster.churn_by_hour else "the brokers that became leader"
    section("Churn of leaders", f"Topics whose leaders changed most, against {by}.", plot(figures.churn(cluster)))
    section(
        "Imbalance of leaders",
        "The share of the partitions that prefer a broker and that another one leads.",
        plot(figures.imbalance(cluster)),
    )
    section("Requests to brokers", "The slowest round trips first.", _table(cluster.requests, REQUESTS))
    section("Topics", "The least available first.", _table(cluster.worst_topics, ACCOUNTS))
    section("Availability by broker", "Of what each led.", _table(cluster.broker_accounts, ACCOUNTS))
    return "".join(parts)


def _cards(cluster: Cluster) -> str:
    died = sum(row["event"] == "died" for row in cluster.life)
    violated = sum(row["count"] for row in cluster.violated)
    longest = cluster.windows[0]["duration_us"] if cluster.windows else None
    cards = (
        ("available", words.percent(cluster.availability), "good" if cluster.availability >= 0.9999 else ""),
        ("partitions", f"{cluster.partitions:,}", ""),
        ("longest gap", duration(longest), ""),
        ("brokers died", f"{died:,}", ""),
        ("controllers elected", f"{cluster.elections:,}", ""),
        ("violations", f"{violated:,}", "bad" if violated else "good"),
    )
    return (
        "<div class='cards'>"
        + "".join(
            f"<div class='card {mood}'><b>{escape(value)}</b><span>{name}</span></div>" for name, value, mood in cards
        )
        + "</div>"
    )


def _quality(content: Content) -> str:
    parts = ["<h2>Data quality</h2>", f"<p class='note'>{escape(words.quality(content))}</p>"]
    parts.append(_table(content.quality, QUALITY))
    if content.quarantine:
        parts.append("<h3>Lines that could not be understood</h3>")
        parts.append(_table(content.quarantine, QUARANTINE))
    if content.remarks:
        parts.append("<h3>What was assumed, and what was not read</h3>")
        parts.append(_table(content.remarks, REMARKS))
    return "".join(parts)


def _table(rows: Sequence[dict[str, Any]], columns: dict[str, Cell]) -> str:
    """``columns``: heading -> the cell's HTML; a heading that ends with a space is of numbers."""
    if not rows:
        return ""
    heads = "".join(f"<th{_numeric(name)}>{escape(name.strip())}</th>" for name in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{_numeric(name)}>{cell(row)}</td>" for name, cell in columns.items()) + "</tr>"
        for row in rows
    )
    return f"<div class='scroll'><table><tr>{heads}</tr>{body}</table></div>"


def _numeric(heading: str) -> str:
    return " class='n'" if heading.endswith(" ") else ""


def _text(name: str) -> Cell:
    return lambda row: (
        "–" if row[name] is None else escape(str(row[name]).replace("_", " ") if name in _PLAIN else str(row[name]))
    )


_PLAIN: Final = ("kind", "cause", "event")
"""Words of ours: shown without their underscores."""


def _number(name: str) -> Cell:
    return lambda row: "–" if row[name] is None else f"{row[name]:,}"


def _long(name: str) -> Cell:
    return lambda row: escape(duration(row[name]))


def _when(name: str) -> Cell:
    return lambda row: f"<span class='time'>{moment(row[name])}</span>"


def _partition(row: dict[str, Any]) -> str:
    return "–" if row["topic"] is None else escape(f"{row['topic']}-{row['partition']}")


def _leaders(row: dict[str, Any]) -> str:
    before, after = ("none" if row[name] in (None, -1) else row[name] for name in ("leader_before", "leader_after"))
    return f"{before} → {after}"


def _evidence(row: dict[str, Any]) -> str:
    return f"<span class='time'><code>{escape(evidence(row['evidence']))}</code></span>"


def _file(row: dict[str, Any]) -> str:
    return f"<span title='{escape(row['file'], quote=True)}'>{escape(PurePosixPath(row['file']).name)}</span>"


def _some_files(row: dict[str, Any]) -> str:
    shown = ", ".join(row["files"][:FILES_NAMED])
    return escape(shown + (" …" if len(row["files"]) > FILES_NAMED else ""))


CAUSES: Final[dict[str, Cell]] = {
    "what": _text("kind"), "cause": _text("cause"), "broker": _text("broker"), "gaps ": _number("windows"),
    "partitions ": _number("partitions"), "in all ": _long("total_us"), "longest ": _long("longest_us"),
    "still open ": _number("still_open"),
}  # fmt: skip
WINDOWS: Final[dict[str, Cell]] = {
    "partition": _partition, "from (UTC)": _when("start_us"), "for ": _long("duration_us"), "what": _text("kind"),
    "cause": _text("cause"), "broker": _text("broker"), "leader": _leaders, "give or take ": _long("error_us"),
    "evidence": _evidence,
}  # fmt: skip
LIFE: Final[dict[str, Cell]] = {
    "at (UTC)": _when("ts_us"), "broker": _text("broker"), "what": _text("event"),
    "broker epoch ": _text("broker_epoch"), "led ": _number("partitions_led"),
    "handled in ": _long("processing_us"), "gaps ": _number("windows"), "longest ": _long("longest_window_us"),
}  # fmt: skip
FAILOVERS: Final[dict[str, Cell]] = {
    "elected (UTC)": _when("elected_us"), "controller": _text("node"), "epoch ": _text("epoch"),
    "took ": _long("duration_us"), "partitions ": _number("partitions"), "brokers ": _number("brokers"),
}  # fmt: skip
VIOLATIONS: Final[dict[str, Cell]] = {
    "invariant": _text("invariant"), "at (UTC)": _when("ts_us"), "partition": _partition, "controller": _text("node"),
    "epoch ": _text("epoch"), "what": _text("words"), "evidence": _evidence,
}  # fmt: skip
REQUESTS: Final[dict[str, Cell]] = {
    "broker": _text("broker"), "request": _text("api"), "sent ": _number("count"), "partitions ": _number("partitions"),
    "bytes ": _number("bytes"), "errors ": _number("errors"), "unanswered ": _number("unanswered"),
    "p50 ": _long("p50_us"), "p99 ": _long("p99_us"), "max ": _long("max_us"),
}  # fmt: skip
ACCOUNTS: Final[dict[str, Cell]] = {
    "name": _text("name"), "available ": lambda row: words.percent(row["availability"]),
    "without a leader ": _long("unavailable_us"), "partitions ": _number("partitions"),
}  # fmt: skip
QUALITY: Final[dict[str, Cell]] = {
    "file": _file, "kind": _text("source"), "records ": _number("records"), "not understood ": _number("quarantined"),
    "torn ": _number("torn"), "read twice ": _number("duplicates"), "gaps ": _number("gaps"), "what": _text("words"),
}  # fmt: skip
REMARKS: Final[dict[str, Cell]] = {
    "what": _text("words"), "files ": lambda row: f"{len(row['files']):,}", "some of them": _some_files,
}  # fmt: skip
QUARANTINE: Final[dict[str, Cell]] = {
    "file": _file, "lines ": _number("count"), "reason": _text("reason"),
    "one of them": lambda row: f"<code>{escape(str(row['line'])[:300])}</code>",
}  # fmt: skip
