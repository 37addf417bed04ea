"""Reports of many measured events: median, 99th percentile and maximum of the stalls, with the controllers side by
side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from rich.table import Table

from aiocontroller.lab.cluster.load.tally import Verdict
from aiocontroller.lab.kafka.events import EVENTS, Felt

LED, OTHERS = "led", "others"
"""Partitions that the victim led, and the others."""


class Stalls(msgspec.Struct, frozen=True):
    """One event under one controller, for one kind of partition; ``samples`` is partitions times trials."""

    event: str
    partitions: str
    subject: str
    trials: int
    samples: int
    median_ms: float
    p99_ms: float
    max_ms: float


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest rank, which is a measured value."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def stalls(felt: Sequence[Felt]) -> list[Stalls]:
    """Return the rows in the order of ``EVENTS``, then of partitions, then of the subjects' first appearance."""
    subjects = list(dict.fromkeys(f.subject for f in felt))
    rows = []
    for event in EVENTS:
        for partitions in (LED, OTHERS):
            for subject in subjects:
                trials = [f for f in felt if (f.event, f.subject) == (event, subject)]
                gaps = [gap for f in trials for gap in (f.led_ms if partitions == LED else f.others_ms)]
                if gaps:
                    numbers = (statistics.median(gaps), percentile(gaps, 0.99), max(gaps))
                    rows.append(Stalls(event, partitions, subject, len(trials), len(gaps), *numbers))
    return rows


def stall_table(rows: Sequence[Stalls], title: str) -> Table:
    """Return a table with a line per event and kind of partition, and four columns per subject; times in
    milliseconds."""
    subjects = list(dict.fromkeys(row.subject for row in rows))
    table = Table(title=title, caption="longest time without an acknowledged record on a partition, ms")
    table.add_column("event", no_wrap=True)
    table.add_column("partitions")
    for subject in subjects:
        for heading in ("trials", "median", "p99", "max"):
            table.add_column(f"{subject}\n{heading}" if heading == "trials" else f"\n{heading}", justify="right")
    by_key = {(row.event, row.partitions, row.subject): row for row in rows}
    last = ""
    for event, partitions in dict.fromkeys((row.event, row.partitions) for row in rows):
        cells = [cell for subject in subjects for cell in _cells(by_key.get((event, partitions, subject)))]
        table.add_row("" if event == last else event, partitions, *cells)
        last = event
    return table


def _cells(row: Stalls | None) -> tuple[str, str, str, str]:
    if row is None:
        return "", "-", "-", "-"
    return str(row.trials), f"{row.median_ms:,.0f}", f"{row.p99_ms:,.0f}", f"{row.max_ms:,.0f}"


def felt_line(felt: Felt) -> str:
    worst = [f"{name} {max(gaps):,.0f}" for name, gaps in (("led", felt.led_ms), ("others", felt.others_ms)) if gaps]
    errors = f"; {len(felt.errors)} errors: {felt.errors[0]}" if felt.errors else ""
    return f"{felt.subject:14} {felt.event:22} longest stall, ms: {', '.join(worst)}{errors}"


def verdict_lines(verdicts: Mapping[str, Verdict]) -> list[str]:
    """Return a line for each kind of client, and one for each error that it reported to its user."""
    lines = []
    for kind, verdict in verdicts.items():
        lines.append(f"{kind}: {verdict_line(verdict)}")
        lines += [f"  {verdict.errors.count(error)} x {error}" for error in dict.fromkeys(verdict.errors)]
    return lines


def verdict_line(verdict: Verdict) -> str:
    counts = f"{verdict.lost:,} lost, {verdict.doubled:,} doubled, {verdict.reordered:,} out of order"
    again = f"{verdict.redelivered:,} read again by groups"
    return f"{verdict.acknowledged:,} records acknowledged: {counts}, {again}, {len(verdict.errors)} client errors"


def surfaced_in(felt: Iterable[Felt], events: Iterable[str], subject: str) -> list[str]:
    """Return the errors that clients reported to their users during these events."""
    wanted = set(events)
    return [f"{f.event}: {error}" for f in felt if f.event in wanted and f.subject == subject for error in f.errors]
