"""Reports on many measured events: median, 95th percentile and worst of the stalls, with the controllers one below the
other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

import msgspec
from rich.table import Table

from aiocontroller.lab.cluster.load.tally import LoadVerdict
from aiocontroller.lab.kafka.events import EVENTS, FLOWS_GAP_MS, SLOW, Felt

LED, OTHERS = "led", "others"
"""Partitions that the victim led, and the others."""


class Stalls(msgspec.Struct, frozen=True):
    """One event under one controller, for one kind of client and of partition; ``samples`` is partitions times trials.

    Times in milliseconds: the longest without an acknowledged record on a partition.
    """

    event: str
    client: str
    partitions: str
    subject: str
    trials: int
    samples: int
    median_ms: float
    p95_ms: float
    max_ms: float
    flows_after_ms: float
    """The latest end of a stall of more than ``FLOWS_GAP_MS``, since the strike; the median of the trials."""
    interference_ms: float
    """The longest delay of a process that was ready to run; the worst of the trials."""


def percentile(values: Sequence[float], share: float) -> float:
    """Return the nearest rank, which is a measured value."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def stalls(felt: Sequence[Felt]) -> list[Stalls]:
    """Return the rows in the order of ``EVENTS``, then of clients, partitions, and subjects' first appearance."""
    subjects = list(dict.fromkeys(f.subject for f in felt))
    clients = list(dict.fromkeys(stall.client for f in felt for stall in f.stalls))
    rows = []
    for event, client, partitions, subject in product(EVENTS, clients, (LED, OTHERS), subjects):
        trials = [f for f in felt if (f.event, f.subject) == (event, subject)]
        felt_by = [[s for s in f.stalls if (s.client, s.led) == (client, partitions == LED)] for f in trials]
        gaps = [stall.longest_ms for each in felt_by for stall in each]
        if gaps:
            flows = statistics.median(max((stall.flows_after_ms for stall in each), default=0.0) for each in felt_by)
            numbers = (statistics.median(gaps), percentile(gaps, 0.95), max(gaps), flows)
            worst = max(f.interference_ms for f in trials)
            rows.append(Stalls(event, client, partitions, subject, len(trials), len(gaps), *numbers, worst))
    return rows


def stall_table(rows: Sequence[Stalls], title: str) -> Table:
    """Return a table with a line per event, client, kind of partition and subject; times in milliseconds."""
    table = Table(
        title=title,
        caption="longest time without an acknowledged record on a partition, ms; flows after: from then on, no stall "
        f"of a slow broker's partitions takes more than {FLOWS_GAP_MS:,} ms; interference: longest delay of a process "
        "that was ready to run",
    )
    for n, heading in enumerate(_HEADINGS):
        table.add_column(heading, justify="left" if n < _NAMES else "right", no_wrap=n == 0)
    for cells in _lines(rows):
        table.add_row(*cells)
    return table


def stall_markdown(rows: Sequence[Stalls]) -> list[str]:
    """Return the lines of the same table as Markdown."""
    rule = ["---"] * _NAMES + ["---:"] * (len(_HEADINGS) - _NAMES)
    return [f"| {' | '.join(cells)} |" for cells in (_HEADINGS, rule, *_lines(rows))]


_HEADINGS = (
    *("event", "client", "partitions", "subject"),
    *("trials", "median", "p95", "worst", "flows after", "interference"),
)
_NAMES = 4
"""The number of leading columns that are text."""


def _lines(rows: Sequence[Stalls]) -> Iterator[list[str]]:
    last: tuple[str, ...] = ("", "", "")
    for row in rows:
        names = (row.event, row.client, row.partitions)
        shown = ["" if names[: n + 1] == last[: n + 1] else name for n, name in enumerate(names)]
        times = (row.median_ms, row.p95_ms, row.max_ms)
        flows = f"{row.flows_after_ms:,.0f}" if row.event in SLOW else ""
        numbers = [str(row.trials), *(f"{ms:,.0f}" for ms in times), flows, f"{row.interference_ms:,.0f}"]
        yield [*shown, row.subject, *numbers]
        last = names


def felt_line(felt: Felt) -> str:
    worst = [
        f"{name} {max(gaps):,.0f}"
        for name, led in ((LED, True), (OTHERS, False))
        if (gaps := [stall.longest_ms for stall in felt.stalls if stall.led == led])
    ]
    errors = f"; {len(felt.errors)} errors: {felt.errors[0]}" if felt.errors else ""
    return f"{felt.subject:14} {felt.event:22} longest stall, ms: {', '.join(worst)}{errors}"


def verdict_lines(verdicts: Mapping[str, LoadVerdict]) -> list[str]:
    """Return a line for each kind of client, and one for each error that it reported to its user."""
    lines = []
    for kind, verdict in verdicts.items():
        lines.append(f"{kind}: {verdict_line(verdict)}")
        lines += [f"  {verdict.errors.count(error)} x {error}" for error in dict.fromkeys(verdict.errors)]
    return lines


def verdict_line(verdict: LoadVerdict) -> str:
    counts = f"{verdict.lost:,} lost, {verdict.doubled:,} doubled, {verdict.reordered:,} out of order"
    again = f"{verdict.redelivered:,} read again by groups"
    return f"{verdict.acknowledged:,} records acknowledged: {counts}, {again}, {len(verdict.errors)} client errors"


def surfaced_in(felt: Iterable[Felt], events: Iterable[str], subject: str) -> list[str]:
    """Return the errors that clients reported to their users during these events."""
    wanted = set(events)
    return [f"{f.event}: {error}" for f in felt if f.event in wanted and f.subject == subject for error in f.errors]
