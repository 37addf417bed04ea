"""A page (one HTML file, no network) with the figures of a run and of those before it."""

from __future__ import annotations

import datetime
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import plotly.graph_objects as go

from benchmarks.controller.figures import PEER, History, Row

COLOURS = {"aiocontroller": "#1f77b4", "kafka": "#d62728", "kafka, in-flight 1000": "#ff9896"}
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color: #1c2330; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .25rem .8rem; border-bottom: 1px solid #dde3ec; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; }
p.note { color: #5a6577; }
"""


def document(title: str, sections: Sequence[tuple[str, str, go.Figure | str]]) -> str:
    """A whole page from (heading, a sentence of what to see, a figure or a piece of HTML)."""
    parts = [f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{html.escape(title)}</title>"]
    parts.append(f"<style>{_STYLE}</style><h1>{html.escape(title)}</h1>")
    library: str | bool = True
    for heading, sentence, content in sections:
        parts.append(f"<h2>{html.escape(heading)}</h2><p class='note'>{html.escape(sentence)}</p>")
        if isinstance(content, str):
            parts.append(content)
        else:
            content.update_layout(template="plotly_white", margin={"l": 10, "r": 10, "t": 10, "b": 10})
            bare = {"displayModeBar": False}  # its tools would cover the legend
            parts.append(content.to_html(full_html=False, include_plotlyjs=library, config=bare))
            library = False
    return "".join(parts)


def write_page(file: Path, rows: Sequence[Row], history: History) -> None:
    when = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    sections: list[tuple[str, str, go.Figure | str]] = [
        ("Seconds", "Medians; the whiskers are the fastest and the slowest run. The axis is logarithmic.", _bars(rows)),
        ("The same as a table", "Ratios compare medians of the same run.", _table(rows)),
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


def _table(rows: Sequence[Row]) -> str:
    lines = [
        "<table><tr><th>case<th>subject<th class=n>median<th class=n>min<th class=n>max<th class=n>times faster</tr>"
    ]
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}"
        numbers = "".join(f"<td class=n>{value:.3f}" for value in (row.median_s, row.min_s, row.max_s))
        lines.append(f"<tr><td>{html.escape(row.case)}<td>{row.subject}{numbers}<td class=n>{ratio}</tr>")
    return "".join(lines) + "</table>"


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
