"""The page: one self-contained HTML file.  ``page.html`` is its template, ``page.css`` its style."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from markupsafe import Markup

from aiocontroller.analytics.report import charts, words
from aiocontroller.analytics.report.gather import Cluster, Content, Row
from aiocontroller.analytics.summary import duration, evidence, known_duration, moment
from aiocontroller.pages import Column, render

_HERE: Final = Path(__file__).parent
FILES_NAMED: Final = 5
Cell = Callable[[Row], str]


class Card(NamedTuple):
    """A figure at the head of a cluster's section; ``mood`` is ``good``, ``bad`` or empty."""

    name: str
    value: str
    mood: str = ""


class Part(NamedTuple):
    """A heading with a chart, a table or both; left out without either."""

    heading: str
    note: str
    chart: Markup | None = None
    rows: Sequence[Row] = ()
    columns: Sequence[Column] = ()


def page(content: Content) -> str:
    """Return the whole document."""
    return render(
        _HERE / "page.html",
        headline=words.headline(content),
        quality=words.quality(content),
        clusters=content.clusters,
        more_clusters=content.more_clusters,
        data_parts=_data_parts(content),
        cards=_cards,
        parts=_parts,
        worst_of=worst_of,
        anchors=lambda cluster, id_: {row["number"]: f"{id_}-i{row['number']}" for row in cluster.incidents},
        bin=lambda cluster: duration(cluster.bin_us),
        incident_columns=_incident_columns,
        charts=charts,
        title=words.incident_title,
        impact=words.impact,
        lasted=words.lasted,
        how_long=words.how_long,
        why=words.why,
        onset=words.onset,
        missing=words.missing,
        problem_columns=PROBLEMS,
        story=words.story,
        onset_words=words.ONSET,
        certainty_words=words.CERTAINTY,
        watched=words.watched,
        moment=moment,
        evidence=_evidence,
    )


def worst_of(cluster: Cluster) -> Row | None:
    """Return the incident with the longest total unavailability."""
    return max(
        cluster.incidents,
        key=lambda row: (
            math.inf if row["unavailable_us"] is None else row["unavailable_us"],
            row["under_replicated"],
            -row["number"],
        ),
        default=None,
    )


def _cards(cluster: Cluster) -> list[Card]:
    violated = sum(row["count"] for row in cluster.violated)
    longest = known_duration(cluster.windows[0]["duration_us"]) if cluster.windows else "none"
    share = cluster.availability
    cards = [
        Card("available, as the controller saw it", words.percent(share), "good" if share and share >= 0.9999 else ""),
        Card("incidents", f"{cluster.incidents_count:,}"),
        Card("partitions", f"{cluster.partitions:,}"),
        Card("longest without a leader", longest),
        Card("brokers died", f"{cluster.turns.get('died', 0):,}"),
        Card("controllers elected", f"{cluster.elections:,}"),
        Card("invariants violated", f"{violated:,}", "bad" if violated else "good"),
    ]
    if cluster.onset_availability is not None:
        bound = f" (± {duration(cluster.onset_error_us)} in sum)" if cluster.onset_error_us else ""
        card = Card(f"available, from when brokers failed{bound}", words.percent(cluster.onset_availability))
        cards.insert(0 if words.onsets_are_known(cluster) else 1, card)
    return cards


def _parts(cluster: Cluster) -> list[Part]:
    by = "hours" if cluster.churn_by_hour else "the brokers that became leader"
    failovers = "Each election of a controller, by the steps of its failover; at most the 20 slowest."
    return [
        Part("Violations of invariants", "What must never happen, with the records that prove it (at most 50).",
             rows=cluster.violations, columns=VIOLATIONS),
        Part("Causes", "Times without a leader, or with too few replicas in sync, by cause (the 50 that cost most). "
             "Creating and deleting topics does not count.", rows=cluster.causes, columns=CAUSES),
        Part("The longest times without a leader", "By partition. They begin when the controller learns of a failure; "
             "the incidents show when it happened.", rows=cluster.windows, columns=WINDOWS),
        Part("Brokers", f"When they came and went, by time (the first {len(cluster.life)}).",
             rows=cluster.life, columns=LIFE),
        Part("Failovers", failovers, charts.phases(cluster), cluster.failovers, FAILOVERS),
        Part("How long things took", "From the median to the maximum; percentiles are exact. The axis is logarithmic.",
             charts.percentiles(cluster)),
        Part("Changes of leaders", f"Topics whose leaders changed most often, against {by}.", charts.churn(cluster)),
        Part("Imbalance of leaders", "The share of the partitions that prefer a broker but are led by another one.",
             charts.imbalance(cluster)),
        Part("Requests to brokers", "The slowest round trips first.", rows=cluster.requests, columns=REQUESTS),
        Part("Topics", "The least available first.", rows=cluster.worst_topics, columns=ACCOUNTS),
        Part("Availability by broker", "Of the partitions that each led.",
             rows=cluster.broker_accounts, columns=ACCOUNTS),
        Part("What is known of this cluster", "Which records there are, which are missing, and what that means.",
             rows=cluster.completeness, columns=COMPLETENESS),
    ]  # fmt: skip


def _data_parts(content: Content) -> list[Part]:
    return [
        Part("Files that are not whole", "The worst first.", rows=content.quality, columns=QUALITY),
        Part("Lines that could not be read", "A sample.", rows=content.quarantine, columns=QUARANTINE),
        Part("What was assumed, and what was not read", "By file.", rows=content.remarks, columns=REMARKS),
    ]


# -- cells -------------------------------------------------------------------------------------------------------------


_PLAIN: Final = ("kind", "cause", "event", "problem")
"""Columns with our own identifiers, which are shown without underscores."""


def _text(name: str) -> Cell:
    def cell(row: Row) -> str:
        if row[name] is None:
            return "–"
        return str(row[name]).replace("_", " ") if name in _PLAIN else str(row[name])

    return cell


def _number(name: str) -> Cell:
    return lambda row: "–" if row[name] is None else f"{row[name]:,}"


def _long(name: str) -> Cell:
    return lambda row: "–" if row[name] is None else duration(row[name])


def _known(name: str) -> Cell:
    return lambda row: known_duration(row[name])


def _when(name: str) -> Cell:
    return lambda row: moment(row[name])


def _while(row: Row) -> str:
    if row["to_us"] == row["from_us"]:
        return moment(row["from_us"])
    return Markup("{}<br>to {}").format(moment(row["from_us"]), moment(row["to_us"]))


def _partition(row: Row) -> str:
    return "–" if row["topic"] is None else f"{row['topic']}-{row['partition']}"


def _leaders(row: Row) -> str:
    before, after = ("none" if row[name] in (None, -1) else row[name] for name in ("leader_before", "leader_after"))
    return f"{before} → {after}"


def _evidence(row: Row) -> str:
    """Return each reference as code that wraps only if it is longer than a line."""
    parts = evidence(row["evidence"]).split(", ")
    return Markup(" ").join(
        Markup("<code>{}</code>").format(each) for each in [*(f"{e}," for e in parts[:-1]), parts[-1]]
    )


def _file(row: Row) -> str:
    return Markup('<span title="{}">{}</span>').format(row["file"], PurePosixPath(row["file"]).name)


def _some_files(row: Row) -> str:
    return ", ".join(row["files"][:FILES_NAMED]) + (" …" if len(row["files"]) > FILES_NAMED else "")


def _incident_columns(section: str) -> list[Column]:
    def link(row: Row) -> str:
        return Markup('<a href="#{}-i{}">{}</a>').format(section, row["number"], words.incident_title(row))

    return [
        Column("what", link, "short"), Column("onset (UTC)", words.onset, "time"), Column("lasted", words.lasted, "n"),
        Column("partitions", _number("partitions"), "n"), Column("longest", _known("longest_us"), "n"),
        Column("cause", _text("cause"), "kind"), Column("certainty", _text("certainty")),
    ]  # fmt: skip


COMPLETENESS: Final = (
    Column("what", _text("what")), Column("name", _text("name"), "short"),
    Column("there", lambda row: "yes" if row["known"] else "no"), Column("meaning", _text("words"), "words"),
)  # fmt: skip
CAUSES: Final = (
    Column("what", _text("kind"), "kind"), Column("cause", _text("cause"), "kind"), Column("broker", _text("broker")),
    Column("times", _number("windows"), "n"), Column("partitions", _number("partitions"), "n"),
    Column("in all", _known("total_us"), "n"), Column("longest", _known("longest_us"), "n"),
    Column("still open", _number("still_open"), "n"),
)  # fmt: skip
WINDOWS: Final = (
    Column("partition", _partition, "short"), Column("from (UTC)", _when("start_us"), "time"),
    Column("for", _known("duration_us"), "n"), Column("what", _text("kind"), "kind"),
    Column("cause", _text("cause"), "kind"), Column("broker", _text("broker")), Column("leader", _leaders, "time"),
    Column("±", _long("error_us"), "n"), Column("evidence", _evidence, "words"),
)  # fmt: skip
LIFE: Final = (
    Column("at (UTC)", _when("ts_us"), "time"), Column("broker", _text("broker")),
    Column("what", _text("event"), "kind"), Column("broker epoch", _text("broker_epoch"), "n"),
    Column("led", _number("partitions_led"), "n"), Column("handled in", _long("processing_us"), "n"),
    Column("without a leader", _number("windows"), "n"), Column("longest", _long("longest_window_us"), "n"),
)  # fmt: skip
FAILOVERS: Final = (
    Column("elected (UTC)", _when("elected_us"), "time"), Column("controller", _text("node")),
    Column("epoch", _text("epoch"), "n"), Column("took", _long("duration_us"), "n"),
    Column("partitions", _number("partitions"), "n"), Column("brokers", _number("brokers"), "n"),
)  # fmt: skip
VIOLATIONS: Final = (
    Column("invariant", _text("invariant")), Column("at (UTC)", _when("ts_us"), "time"),
    Column("partition", _partition, "short"), Column("controller", _text("node")), Column("epoch", _text("epoch"), "n"),
    Column("what", _text("words"), "words"), Column("evidence", _evidence, "words"),
)  # fmt: skip
PROBLEMS: Final = (
    Column("problem", _text("problem"), "kind"), Column("when (UTC)", _while, "time"),
    Column("what", _text("words"), "words"),
    Column("advice", _text("advice"), "words"), Column("evidence", _evidence, "words"),
)  # fmt: skip
REQUESTS: Final = (
    Column("broker", _text("broker")), Column("request", _text("api")), Column("sent", _number("count"), "n"),
    Column("partitions", _number("partitions"), "n"), Column("bytes", _number("bytes"), "n"),
    Column("errors", _number("errors"), "n"), Column("unanswered", _number("unanswered"), "n"),
    Column("median", _long("p50_us"), "n"), Column("p99", _long("p99_us"), "n"),
    Column("maximum", _long("max_us"), "n"),
)  # fmt: skip
ACCOUNTS: Final = (
    Column("name", _text("name"), "short"), Column("available", lambda row: words.percent(row["availability"]), "n"),
    Column("without a leader", _long("unavailable_us"), "n"), Column("partitions", _number("partitions"), "n"),
)  # fmt: skip
QUALITY: Final = (
    Column("file", _file, "short"), Column("kind", _text("source")), Column("records", _number("records"), "n"),
    Column("not read", _number("quarantined"), "n"), Column("torn", _number("torn"), "n"),
    Column("read twice", _number("duplicates"), "n"), Column("gaps", _number("gaps"), "n"),
    Column("what", _text("words"), "words"),
)  # fmt: skip
REMARKS: Final = (
    Column("what", _text("words"), "words"), Column("files", lambda row: f"{len(row['files']):,}", "n"),
    Column("some of them", _some_files, "words"),
)  # fmt: skip
QUARANTINE: Final = (
    Column("file", _file, "short"), Column("lines", _number("count"), "n"), Column("reason", _text("reason"), "words"),
    Column("one of them", lambda row: Markup("<code>{}</code>").format(str(row["line"])[:300]), "words"),
)  # fmt: skip
