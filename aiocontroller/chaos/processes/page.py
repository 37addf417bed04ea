"""A storm's verdict as a page that needs nothing else: who was there when, what was done, how long recovery took."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aiocontroller.chaos.processes.storm import Verdict

WIDTH, ROW, LEFT = 1200, 22, 160
STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1240px;margin:2rem auto;padding:0 1rem;color:#1c2733;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}
table{border-collapse:collapse}td,th{padding:.25rem .9rem .25rem 0;text-align:left;border-bottom:1px solid #e3e8ee}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}.ok{color:#0b7a3b}.bad{color:#b3261e}
.columns{columns:2 30rem;column-gap:3rem}.columns section{break-inside:avoid;padding-top:2rem}.columns h2{margin-top:0}
svg{overflow:visible}text{font-size:12px;fill:#44546a}.flow{overflow-x:auto}
@media(prefers-color-scheme:dark){body{background:#12181f;color:#dfe7ef}td,th{border-color:#2b3642}text{fill:#9fb0c3}}
"""
COLOURS = {"broker": "#4c8bc9", "controller": "#2f9e6e", "step": "#d9822b", "healing": "#b9c4d0"}


def page(verdict: Verdict) -> str:
    """The whole HTML document."""
    count = len(verdict.violations)
    outcome = "no violation" if verdict.ok else f"{count} violation{'s' * (count > 1)}"
    servers = "an ensemble of three ZooKeepers" if verdict.ensemble else "one ZooKeeper"
    parts = [
        f"<h1>Storm of seed {verdict.seed}: <span class={'ok' if verdict.ok else 'bad'}>{outcome}</span></h1>",
        f"<p>{verdict.brokers} brokers, {verdict.controllers} controllers and {servers} as processes; "
        f"{sum(verdict.faults.values())} steps in {verdict.rounds} rounds and {verdict.seconds / 60:.1f} minutes; "
        f"{verdict.failovers} elections of a controller.</p>",
        _list(verdict.violations),
        "<h2>Who was there</h2>",
        "<p>Blue: registered. Green: in office. Orange: a step. Grey: all healed, until the cluster is whole.</p>",
        f"<div class=flow>{_timeline(verdict)}</div>",
        "<div class=columns>",
        _section(
            "How long things took, in seconds",
            ("", "count", "p50", "p90", "max"),
            [(t.what, t.count, f"{t.p50:.3f}", f"{t.p90:.3f}", f"{t.max:.3f}") for t in verdict.times],
        ),
        _section("What was examined", ("", "count"), list(verdict.examined.items())),
        _section("What early detection did", ("", "count"), list(verdict.suspicions.items())),
        _section(
            "What was done", ("step", "times"), [(kind.replace("_", "-"), n) for kind, n in verdict.faults.items()]
        ),
        "</div>",
    ]
    return f"<!doctype html><meta charset=utf-8><title>Storm {verdict.seed}</title><style>{STYLE}</style>" + "".join(
        parts
    )


def _list(violations: Sequence[str]) -> str:
    return f"<ul class=bad>{''.join(f'<li>{escape(v)}</li>' for v in violations)}</ul>" if violations else ""


def _section(title: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    return f"<section><h2>{title}</h2>{_table(headings, rows)}</section>" if rows else ""


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    def line(cells: Sequence[object], tag: str) -> str:
        marks = ["", *(" class=n" for _ in cells[1:])]
        return "".join(f"<{tag}{mark}>{escape(str(cell))}</{tag}>" for mark, cell in zip(marks, cells, strict=True))

    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{line(headings, 'th')}</tr>{body}</table>"


def _timeline(verdict: Verdict) -> str:
    names = sorted({span.who for span in verdict.spans})
    seconds = max(verdict.seconds, 1.0)
    height = (len(names) + 1) * ROW + 24

    def x(at_s: float) -> float:
        return round(LEFT + min(max(at_s, 0.0), seconds) / seconds * (WIDTH - LEFT), 1)

    def since(ms: int) -> float:
        return (ms - verdict.began_ms) / 1000

    drawn = []
    healing_s = None
    for moment in verdict.moments:
        if moment.what == "all healed":
            healing_s = moment.at_s
        elif moment.what == "whole" and healing_s is not None:
            drawn.append(_bar(x(healing_s), x(moment.at_s), 0, height - 24, COLOURS["healing"], "healing", 0.35))
        else:
            drawn.append(_bar(x(moment.at_s), x(moment.at_s) + 2, 4, ROW - 8, COLOURS["step"], moment.what))
    for row, name in enumerate(names, 1):
        drawn.append(f"<text x=0 y={row * ROW + 15}>{escape(name)}</text>")
        for span in (span for span in verdict.spans if span.who == name):
            end_s = since(span.end_ms) if span.end_ms else seconds
            about = f"{name}: {since(span.start_ms):.1f} s to {end_s:.1f} s"
            colour = COLOURS[name.partition(" ")[0]]
            drawn.append(_bar(x(since(span.start_ms)), x(end_s), row * ROW + 4, ROW - 8, colour, about))
    ticks = [round(seconds * share / 6, 1) for share in range(7)]
    drawn += [f"<text x={x(at)} y={height - 4} text-anchor=middle>{at / 60:.1f} min</text>" for at in ticks]
    drawn.append("<text x=0 y=15>steps</text>")
    return f"<svg width={WIDTH} height={height} role=img aria-label='timeline'>{''.join(drawn)}</svg>"


def _bar(left: float, right: float, top: float, height: float, colour: str, about: str, opacity: float = 1.0) -> str:
    return (
        f"<rect x={left} y={top} width={max(right - left, 1):.1f} height={height} fill='{colour}' opacity={opacity}>"
        f"<title>{escape(about)}</title></rect>"
    )
