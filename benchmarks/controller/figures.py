"""Turns seconds into rows, a table, and a history of past runs on this machine."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.controller.cases import Cost, Seconds

KEPT = Path(__file__).parents[2] / ".cache" / "benchmarks"
PEER = "kafka"


class Measured:
    """All runs of one subject."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}
        self.costs: dict[str, list[Cost]] = {}
        self.peak_rss_mib = 0.0

    def add(self, case: str, seconds: Seconds, cost: Cost) -> None:
        for row, value in seconds.items():
            self.seconds.setdefault(row, []).append(value)
        self.costs.setdefault(case, []).append(cost)


class Row(msgspec.Struct):
    case: str
    partitions: int
    subject: str
    median_s: float
    min_s: float
    max_s: float
    runs: int
    ratio: float | None
    """How many times as long Kafka took in the same run; None for Kafka itself, or without it."""


class Past(msgspec.Struct):
    """One past run."""

    when_s: int
    commit: str
    settings: str
    rows: list[Row]


def rows_of(results: dict[str, Measured], partitions: int) -> list[Row]:
    rows = []
    peer = results.get(PEER) or next((m for name, m in results.items() if name.startswith(PEER)), None)
    for case in dict.fromkeys(case for measured in results.values() for case in measured.seconds):
        theirs = None if peer is None else peer.seconds.get(case)
        for name, measured in results.items():
            if case not in measured.seconds:
                continue  # it failed earlier
            values = measured.seconds[case]
            median = statistics.median(values)
            ratio = None if theirs is None or measured is peer else round(statistics.median(theirs) / median, 1)
            numbers = (round(v, 4) for v in (median, min(values), max(values)))
            rows.append(Row(case, partitions, name, *numbers, len(values), ratio))
    return rows


class History:
    """Runs with the same settings, oldest first, in a file of JSON lines."""

    def __init__(self, file: Path, settings: str) -> None:
        self._file = file
        self._settings = settings
        self.past: list[Past] = []
        if file.exists():
            for line in file.read_bytes().splitlines():
                try:
                    run = msgspec.json.decode(line, type=Past)
                except msgspec.DecodeError:
                    continue  # truncated, or of an older format: it is only lost for comparison
                if run.settings == settings:
                    self.past.append(run)

    @classmethod
    def of(cls, name: str, given: argparse.Namespace) -> History:
        settings = f"{given.partitions} partitions, {given.topics} topics, rtt {given.rtt_ms} ms"
        settings += f", {given.brokers} brokers, {'uniform' if given.uniform else 'varied'} data"
        settings += ", ensemble" if given.ensemble else ""
        settings += "".join(f", {line}" for line in given.property)
        return cls(KEPT / f"{name}.jsonl", settings)

    def keep(self, rows: Sequence[Row]) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        run = Past(int(time.time()), _commit(), self._settings, list(rows))
        self.past.append(run)
        with open(self._file, "ab") as out:
            out.write(msgspec.json.encode(run) + b"\n")

    def figures(self, case: str, subject: str) -> list[tuple[int, float, float | None]]:
        """Return (when, median seconds, ratio) of each past run."""
        return [
            (run.when_s, row.median_s, row.ratio)
            for run in self.past
            for row in run.rows
            if row.case == case and row.subject == subject
        ]


def _commit() -> str:
    run = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return run.stdout.strip() or "?"


def wide_console() -> Console:
    """Return a console on which tables keep their columns even without a terminal."""
    console = Console()
    return console if console.is_terminal else Console(width=140)


def show(rows: Sequence[Row], results: dict[str, Measured], history: History) -> None:
    console = wide_console()
    table = Table(title=f"{rows[0].partitions:,} partitions, seconds")
    for heading in ("case", "subject", "median", "min", "max", "runs", "times faster", f"before ({len(history.past)})"):
        table.add_column(heading, justify="left" if heading in ("case", "subject") else "right")
    previous = ""
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}"
        numbers = (f"{row.median_s:.3f}", f"{row.min_s:.3f}", f"{row.max_s:.3f}", str(row.runs))
        if previous and row.case != previous:
            table.add_section()
        case = "" if row.case == previous else row.case
        table.add_row(case, row.subject, *numbers, ratio, _before(history, row))
        previous = row.case
    console.print(table)
    console.print(_costs(results, rows[0].partitions))


def _before(history: History, row: Row) -> str:
    """Return the range of past medians, which shows the noise of this machine."""
    medians = [median for _, median, _ in history.figures(row.case, row.subject)]
    if not medians:
        return ""
    return f"{min(medians):.3f}–{max(medians):.3f}" if len(medians) > 1 else f"{medians[0]:.3f}"


def _costs(results: dict[str, Measured], partitions: int) -> Table:
    table = Table(title="what a case cost (median of the runs; whole case with what surrounds it)")
    for heading in ("case", "subject", "CPU s", "ZooKeeper CPU s", "ZooKeeper requests", "broker requests", "MB sent"):
        table.add_column(heading, justify="left" if heading in ("case", "subject") else "right")
    for case in dict.fromkeys(case for measured in results.values() for case in measured.costs):
        for name, measured in results.items():
            if case not in measured.costs:
                continue
            costs = measured.costs[case]
            cells = (
                f"{statistics.median(c.usage.cpu_s for c in costs):.2f}",
                f"{statistics.median(c.usage.zookeeper_cpu_s for c in costs):.2f}",
                f"{statistics.median(c.usage.zookeeper_packets for c in costs):,.0f}",
                f"{statistics.median(c.requests for c in costs):,.0f}",
                f"{statistics.median(c.megabytes for c in costs):,.1f}",
            )
            table.add_row(case, name, *cells)
    peaks = ", ".join(
        f"{name} {m.peak_rss_mib:,.0f} MiB ({m.peak_rss_mib * 2**20 / partitions:,.0f} bytes for each partition)"
        for name, m in results.items()
    )
    table.caption = f"peak memory of a candidate: {peaks}"
    return table


def write_json(file: Path, rows: Sequence[Row]) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))
