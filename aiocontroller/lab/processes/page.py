"""A storm's verdict as a self-contained HTML page: the processes over time, the steps, and the times of recovery."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from markupsafe import Markup, escape

from aiocontroller.pages import columns, render

if TYPE_CHECKING:
    from aiocontroller.lab.storms.processes import StormVerdict

WIDTH, ROW, LEFT = 1200, 22, 160


def page(verdict: StormVerdict) -> str:
    """Return the whole HTML document."""
    count = len(verdict.violations)
    outcome = "no violation" if verdict.ok else f"{count} violation{'s' * (count > 1)}"
    times = [(t.what, t.count, f"{t.p50:.3f}", f"{t.p90:.3f}", f"{t.max:.3f}") for t in verdict.times]
    steps = [(kind.replace("_", "-"), number) for kind, number in verdict.faults.items()]
    return render(
        Path(__file__).with_suffix(".html"),
        headline=f"Storm {verdict.seed}",
        verdict=verdict,
        outcome=outcome,
        timeline=_timeline(verdict),
        tables=[
            ("Durations, in seconds", times, columns("what", "count", "p50", "p90", "max")),
            ("What was checked", list(verdict.examined.items()), columns("what", "count")),
            ("Early detection", list(verdict.suspicions.items()), columns("what", "count")),
            ("Steps", steps, columns("step", "times")),
        ],
    )


def _timeline(verdict: StormVerdict) -> Markup:
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
            drawn.append(_bar(x(healing_s), x(moment.at_s), 0, height - 24, "healing", "healing"))
        else:
            drawn.append(_bar(x(moment.at_s), x(moment.at_s) + 2, 4, ROW - 8, "step", moment.what))
    for row, name in enumerate(names, 1):
        drawn.append(f'<text x="0" y="{row * ROW + 15}">{escape(name)}</text>')
        for span in (span for span in verdict.spans if span.who == name):
            end_s = since(span.end_ms) if span.end_ms else seconds
            about = f"{name}: {since(span.start_ms):.1f} s to {end_s:.1f} s"
            left, right = x(since(span.start_ms)), x(end_s)
            drawn.append(_bar(left, right, row * ROW + 4, ROW - 8, name.partition(" ")[0], about))
    ticks = [round(seconds * share / 6, 1) for share in range(7)]
    drawn += [f'<text x="{x(at)}" y="{height - 4}" text-anchor="middle">{at / 60:.1f} min</text>' for at in ticks]
    drawn.append('<text x="0" y="15">steps</text>')
    head = f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="timeline">'
    return Markup(head + "".join(drawn) + "</svg>")


def _bar(left: float, right: float, top: float, height: float, kind: str, about: str) -> str:
    return (
        f'<rect class="{kind}" x="{left}" y="{top}" width="{max(right - left, 1):.1f}" height="{height}">'
        f"<title>{escape(about)}</title></rect>"
    )
