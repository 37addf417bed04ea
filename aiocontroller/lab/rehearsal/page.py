"""The page of a rehearsal: the worst and the median effect of each event, a strip of all seeds, and the violations."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from markupsafe import Markup, escape

from aiocontroller.core.text import not_registered
from aiocontroller.lab.rehearsal.meter import Went
from aiocontroller.lab.rehearsal.rehearsal import SESSION_S, Rehearsed
from aiocontroller.lab.rehearsal.seeds import Row, Summary
from aiocontroller.pages import Column, render

WIDTH, ROW, LEFT, TOP = 1200, 22, 300, 22
MARGIN = 32
TICKS = 5
STEPS_S = (0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20)


def page(found: Summary, *, at: str, headline: str, again: Callable[[int], str]) -> str:
    """Return the whole HTML document; ``at`` is when the tree was recorded, and ``again`` returns a seed's command."""
    return render(
        Path(__file__).with_suffix(".html"),
        headline=headline,
        at=at,
        found=found,
        stage=found.stage,
        missing=not_registered(found.stage.missing) if found.stage.missing else "",
        session_s=f"{SESSION_S:g}",
        again=again,
        chart=_chart(found),
        events=_columns(),
        seeds=[
            Column("seed", lambda one: one.seed),
            Column("without a leader, s", _longest, "n"),
            Column("records at risk", lambda one: sum(each.went.at_risk for each in one.results), "n"),
            Column("violations", lambda one: len(one.violations), "n"),
            Column("digest", lambda one: Markup("<code>{}</code>").format(one.digest)),
            Column("again", lambda one: Markup("<code>{}</code>").format(again(one.seed)), "words"),
        ],
    )


def _longest(one: Rehearsed) -> str:
    return f"{max((each.went.leaderless_s for each in one.results), default=0.0):.2f}"


def _columns() -> list[Column]:
    def both(heading: str, field: str, seconds: str = "") -> Column:
        def cell(row: Row) -> str:
            return f"{_figure(row.middle, field, seconds)} | {_figure(row.worst, field, seconds)}"

        return Column(heading, cell, "n")

    return [
        Column("event", lambda row: row.name),
        both("leaders moved", "leaders_moved"),
        both("without a leader, for", "leaderless", "leaderless_s"),
        both("under min ISR, for", "under_min_isr", "under_min_isr_s"),
        both("one copy left, for", "last_copy", "last_copy_s"),
        Column("records at risk", lambda row: f"{row.worst.at_risk:,} of {row.worst.acknowledged:,}", "n"),
        Column("calm after", lambda row: f"{row.seconds:.1f} s", "n"),
        Column("worst seed", lambda row: row.worst_seed, "n"),
        Column("violations", lambda row: row.violations, "n"),
    ]


def _figure(went: Went, field: str, seconds: str) -> str:
    count = getattr(went, field)
    return f"{count:,}, {getattr(went, seconds):.2f} s" if seconds and count else f"{count:,}"


def _chart(found: Summary) -> Markup:
    """Draw a dot for each seed, by the longest time that a partition had no leader."""
    most_s = max((row.worst.leaderless_s for row in found.rows), default=0.0)
    step_s = next((step for step in STEPS_S if step * TICKS >= most_s), math.ceil(most_s / TICKS))
    end_s = step_s * TICKS
    height = TOP + len(found.rows) * ROW + 24

    def x(seconds: float) -> float:
        return round(LEFT + seconds / end_s * (WIDTH - LEFT - MARGIN), 1)

    drawn = []
    for number, row in enumerate(found.rows):
        middle = TOP + number * ROW + ROW // 2
        drawn.append(f'<text x="0" y="{middle + 5}">{escape(row.name)}</text>')
        drawn.append(f'<line x1="{x(0)}" x2="{x(end_s)}" y1="{middle}" y2="{middle}"/>')
        for seed, result in row.results:
            title = f"{row.name}, seed {seed}: {result.went.leaderless_s:.2f} s"
            kind = "wrong" if result.violations else "also" if result.also else "seed"
            also = f"; {result.also}" if result.also else ""
            at = x(result.went.leaderless_s)
            drawn.append(
                f'<circle class="{kind}" cx="{at}" cy="{middle}" r="5"><title>{escape(title + also)}</title></circle>'
            )
    for tick in range(TICKS + 1):
        drawn.append(f'<text x="{x(tick * step_s)}" y="{height - 6}" text-anchor="middle">{tick * step_s:g} s</text>')
    label = "how long partitions were without a leader, by event and seed"
    return Markup(f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">{"".join(drawn)}</svg>')
