"""Makes a page (one HTML file, no network) with the figures of a run and of earlier ones."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from markupsafe import Markup

from aiocontroller.pages import Column, render
from benchmarks.controller.figures import PEER, History, Row

COLOURS = {"aiocontroller": "#1f77b4", "kafka": "#d62728", "kafka, in-flight 1000": "#ff9896"}


def document(title: str, sections: Sequence[tuple[str, str, go.Figure | Sequence[Row]]]) -> str:
    """Return a whole page from (heading, a sentence on what it shows, a figure or the rows of a table)."""
    library: str | bool = True
    shown = []
    for heading, sentence, content in sections:
        if isinstance(content, go.Figure):
            content.update_layout(template="plotly_white", margin={"l": 10, "r": 10, "t": 10, "b": 10})
            bare = {"displayModeBar": False}  # its tools would cover the legend
            drawn = Markup(content.to_html(full_html=False, include_plotlyjs=library, config=bare))
            shown.append((heading, sentence, drawn, (), ()))
            library = False
        else:
            shown.append((heading, sentence, "", content, _columns()))
    return render(Path(__file__).with_suffix(".html"), headline=title, sections=shown)


def write_page(file: Path, rows: Sequence[Row], history: History) -> None:
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    sections: list[tuple[str, str, go.Figure | Sequence[Row]]] = [
        ("Seconds", "Medians; the whiskers are the fastest and the slowest run. The axis is logarithmic.", _bars(rows)),
        ("The same as a table", "Ratios compare medians of the same run.", rows),
    ]
    if any(row.ratio is not None for row in rows) and len(history.past) > 1:
        sentence = "How many times faster than Kafka, run by run: what is noise on this machine and what is not."
        sections.append(("Past runs", sentence, _trend(rows, history)))
    title = f"Controller benchmark: {rows[0].partitions:,} partitions ({when})"
    file.write_text(document(title, sections))


def _bars(rows: Sequence[Row]) -> go.Figure:
    figure = go.Figure()
    for subject in dict.fromkeys(row.subject for row in rows):
        own = [row for row in rows if row.subject == subject][::-1]
        error: dict[str, Any] = {
            "type": "data",
            "symmetric": False,
            "array": [row.max_s - row.median_s for row in own],
            "arrayminus": [row.median_s - row.min_s for row in own],
        }
        figure.add_bar(
            y=[row.case for row in own],
            x=[row.median_s for row in own],
            name=subject,
            orientation="h",
            error_x=error,
            marker_color=COLOURS.get(subject),
        )
    cases = len({row.case for row in rows})
    figure.update_layout(xaxis={"type": "log", "title": "seconds"}, barmode="group", height=120 + 45 * cases)
    return figure


def _columns() -> list[Column]:
    return [
        Column("case", lambda row: row.case),
        Column("subject", lambda row: row.subject),
        Column("median", lambda row: f"{row.median_s:.3f}", "n"),
        Column("min", lambda row: f"{row.min_s:.3f}", "n"),
        Column("max", lambda row: f"{row.max_s:.3f}", "n"),
        Column("times faster", lambda row: "" if row.ratio is None else f"{row.ratio:.1f}", "n"),
    ]


def _trend(rows: Sequence[Row], history: History) -> go.Figure:
    figure = go.Figure()
    for row in rows:
        if row.ratio is None or row.subject.startswith(PEER):
            continue
        past = history.figures(row.case, row.subject)
        when = [datetime.datetime.fromtimestamp(moment, datetime.UTC) for moment, _, _ in past]
        figure.add_scatter(x=when, y=[ratio for _, _, ratio in past], name=row.case, mode="lines+markers")
    figure.update_layout(yaxis={"title": "times faster", "type": "log"}, height=420)
    return figure
