"""Compares the controller with Kafka's own, on the same kind of ZooKeeper and the same brokers, in one run.

    scripts/bench controller --partitions 100000 --against kafka

Recording brokers answer at once; a subject is two instances of aiocontroller, or two Kafka 3.9 brokers that hold no
partitions.  Absolute times on a shared machine mean little; the ratio of two subjects in one run means more.  Past runs
are kept in .cache/benchmarks and shown beside the present one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from benchmarks.controller.cases import CASES, LARGEST_FROM, OF_THE_LARGEST, USUAL, Bench, IncompleteError
from benchmarks.controller.figures import History, Measured, rows_of, show, write_json
from benchmarks.controller.page import write_page
from benchmarks.controller.preloaded_cluster import add_data_options, preloaded_cluster, shape_of
from benchmarks.controller.resources import peak_rss_mib
from benchmarks.controller.subjects import SUBJECTS, Subject

AGAINST = {"none": (), "kafka": ("kafka",), "kafka-1000": ("kafka-1000",), "both": ("kafka", "kafka-1000")}


class Stage:
    """One subject, on a cluster of its own, and its measurements."""

    def __init__(self, bench: Bench, given: argparse.Namespace, progress: Progress, task: TaskID) -> None:
        self.measured = Measured()
        self.failed: Exception | None = None
        """The error that ended its measurements."""
        self._bench, self._given, self._progress, self._task = bench, given, progress, task

    async def round(self) -> None:
        """Measure every case once."""
        console, name = self._progress.console, self._bench.subject.name
        for case in self._given.cases:
            self._progress.update(self._task, now=case)
            seconds, cost = await self._bench.measure(CASES[case])
            self.measured.add(case, seconds, cost)
            if not console.is_terminal:
                figures = ", ".join(f"{row} {value:.3f}" for row, value in seconds.items())
                console.print(f"{name}: {figures}", soft_wrap=True, highlight=False)
            self._progress.advance(self._task)
        self.measured.peak_rss_mib = max(map(peak_rss_mib, self._bench.subject.pids()))
        self._progress.update(self._task, now="")


@asynccontextmanager
async def prepared(kind: type[Subject], given: argparse.Namespace, progress: Progress) -> AsyncIterator[Stage]:
    task = progress.add_task(kind.name, total=given.runs * len(given.cases) + 2, now="preloading")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) if given.keep is None else given.keep / kind.name
        async with preloaded_cluster(folder, shape_of(given), rtt_ms=given.rtt_ms, ensemble=given.ensemble) as cluster:
            progress.update(task, advance=1, now="starting")
            subject = kind(cluster.zookeeper, folder, given.property)
            bench = Bench(cluster, subject)
            try:
                await subject.start()
                await cluster.brokers.quiet(0.0, bench.whole_quiet_s)
                progress.advance(task)
                yield Stage(bench, given, progress, task)
            finally:
                subject.stop()


async def compare(given: argparse.Namespace) -> dict[str, Stage]:
    """Measure the subjects in turns, a round of all cases each; on the largest clusters one after the other, to save
    memory.

    When a subject fails, its earlier measurements and the other subjects are kept.
    """
    columns = (TextColumn("{task.description:<22}"), BarColumn(), TextColumn("{task.fields[now]:<20}"))
    stages: dict[str, Stage] = {}
    names = ("aiocontroller", *AGAINST[given.against])
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        for together in [[name] for name in names] if given.partitions >= LARGEST_FROM else [names]:
            async with AsyncExitStack() as stack:
                present = []
                for name in together:
                    kind = SUBJECTS[name]
                    present.append(await stack.enter_async_context(prepared(kind, given, progress)))
                    stages[kind.name] = present[-1]
                for _ in range(given.runs):
                    for stage in [stage for stage in present if stage.failed is None]:
                        try:
                            await stage.round()
                        except (IncompleteError, TimeoutError, OSError) as error:
                            stage.failed = error
    return stages


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/bench controller", description="The controller against Kafka's own.")
    parser.add_argument("--partitions", type=int, default=100_000, help="default: 100000")
    parser.add_argument("--topics", type=int, help="default: one for each 100 partitions")
    add_data_options(parser)
    parser.add_argument(
        "--runs", type=int, help=f"how often each case (default: 3; 1 from {LARGEST_FROM:,} partitions)"
    )
    parser.add_argument("--against", choices=tuple(AGAINST), default="none")
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=tuple(CASES),
        metavar="CASE",
        help=f"of {', '.join(CASES)} (default: all but the last; from {LARGEST_FROM:,} partitions "
        f"{', '.join(OF_THE_LARGEST)})",
    )
    parser.add_argument("--rtt-ms", type=float, default=0.0, help="added round-trip time between subject and ZooKeeper")
    parser.add_argument("--ensemble", action="store_true", help="three ZooKeeper servers instead of one")
    parser.add_argument("--property", action="append", default=[], help="name=value for aiocontroller; repeatable")
    parser.add_argument("--keep", type=Path, help="leave logs and journals in this folder")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    parser.add_argument("--report", type=Path, help="also write a page (HTML) to this file")
    given = parser.parse_args(arguments)
    given.topics = given.topics or max(1, given.partitions // 100)
    large = given.partitions >= LARGEST_FROM
    given.runs = given.runs or (1 if large else 3)
    given.cases = given.cases or (OF_THE_LARGEST if large else USUAL)
    if given.ensemble and given.rtt_ms:
        parser.error("--rtt-ms needs a single ZooKeeper server: leave --ensemble out")
    if given.partitions % given.topics:
        parser.error(f"--partitions {given.partitions} is no multiple of --topics {given.topics}")
    return given


def main() -> None:
    given = parse()
    stages = asyncio.run(compare(given))
    results = {name: stage.measured for name, stage in stages.items()}
    rows = rows_of(results, given.partitions)
    history = History.of("controller", given)
    if rows:
        show(rows, results, history)
        history.keep(rows)
    if given.json is not None:
        write_json(given.json, rows)
    if given.report is not None:
        write_page(given.report, rows, history)
        Console(stderr=True).print(f"report: {given.report}")
    if failed := [f"{name}: {stage.failed}" for name, stage in stages.items() if stage.failed is not None]:
        sys.exit("\n".join(failed))


if __name__ == "__main__":
    main()
