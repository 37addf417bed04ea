"""The findings of ``aiocontroller simulate --zoo``, as a table for a terminal and for docs/chaos.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aiocontroller.cli.output import table
from aiocontroller.lab.simulation.zoo import Bug, Hunt

HEADINGS = ("bug", "source", "found", "median", "runs of each try", "by")


def zoo_table(hunts: Sequence[Hunt], bugs: Mapping[str, Bug]) -> str:
    """Return a line for each bug, with its origin and the cost of finding it."""
    rows = [
        (hunt.bug, bugs[hunt.bug].origin, source, found, hunt.median, hunt.cpu_s_per_find, by)
        for hunt, source, found, by in _common(hunts, bugs)
    ]
    return table(["bug", "origin", "source", "found", "median runs", "CPU s a find", "by"], rows)


def zoo_markdown(hunts: Sequence[Hunt], bugs: Mapping[str, Bug]) -> str:
    """Return the same for a page, the bugs found soonest first; with the runs of each try, – if it found nothing."""
    ordered = sorted(_common(hunts, bugs), key=lambda row: (_runs(row[0].median), list(map(_runs, row[0].seeds))))
    rows = [
        (hunt.bug, source, found, _text(hunt.median), ", ".join(map(_text, hunt.seeds)), by)
        for hunt, source, found, by in ordered
    ]
    rule = ["---"] * len(HEADINGS)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (HEADINGS, rule, *rows))


def _common(hunts: Sequence[Hunt], bugs: Mapping[str, Bug]) -> Iterator[tuple[Hunt, str, str, str]]:
    for hunt in hunts:
        bug = bugs[hunt.bug]
        by = ", ".join(hunt.complaints) or ("harmless" if bug.harmless else "NOT FOUND")
        yield hunt, bug.source, f"{hunt.found} of {len(hunt.seeds)}", by


def _runs(found: float | None) -> float:
    return float("inf") if found is None else found


def _text(found: float | None) -> str:
    return "–" if found is None else f"{found:g}"
