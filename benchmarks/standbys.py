"""Measures failovers to a standby, on one cluster: the time until the first decision, the first and the last request.

    scripts/bench standbys --partitions 100000 --failovers 20 --broker-dies
    scripts/bench standbys --partitions 1000000 --failovers 20 --only warm --pages 20
    scripts/storm controller --failovers 100 --partitions 10000

Two instances.  Before each failover the standby is restarted, warm or cold in turn; then the active one is killed,
and its ``/controller`` is deleted at once, so detection is not measured.  With ``--broker-dies`` a broker's
registration is deleted just before; the first decision is the first new leader for one of its partitions in ZooKeeper,
by the journal.  After each failover all brokers must know what is in ZooKeeper.  Brokers that have just started would
get everything first, so the dead brokers return a few at a time, and are given time before the next failover.
Processor seconds are the successor's.  With ``--pages``, in every other failover that many readers have the successor's
page open, from a process of their own; in all failovers that process polls ``/healthz``, whose answers show how long
the event loop is blocked.  The last command is the first with warm standbys only, and a broker that dies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from aiocontroller.controller.warm_failover import FRESH_S
from aiocontroller.zookeeper import paths
from benchmarks._page_clients import Heard
from benchmarks.controller.cases import Bench
from benchmarks.controller.figures import wide_console
from benchmarks.controller.preloaded_cluster import add_data_options, preloaded_cluster, shape_of
from benchmarks.controller.resources import cpu_s, peak_rss_mib
from benchmarks.controller.subjects import Ours
from benchmarks.failovers import percentile

SETTINGS = ("warm", "cold")
WARM_WITHIN_S = 300.0
DEAD_AT_MOST = 3
"""The number of dead brokers that return together, which saves waiting for them each time."""


class Took(msgspec.Struct):
    standby: str
    decided_ms: float | None
    """Until the first leader elected by the successor was in ZooKeeper; None if none had to be elected."""
    first_s: float
    """Until the first LeaderAndIsr, at any broker."""
    last_s: float
    """Until the last request."""
    steps_ms: float
    """The failover's steps before the first event, by the journal."""
    processor_s: float
    peak_mib: float
    pause_ms: float
    """The longest pause of the successor's event loop since its start."""
    load: float
    """The machine's load average when it began."""
    pages: int = 0
    answer_p99_ms: float | None = None
    """Of ``/healthz``, from before the kill until the last request; None: it was not polled."""
    answer_most_ms: float | None = None
    page_messages: int = 0
    page_mb: float = 0.0
    """What all pages received, in 10^6 bytes."""


def address(subject: Ours, number: int) -> str:
    return str(json.loads((subject.folder / f"ours-{number}" / "controller.json").read_text())["http"])


def status(subject: Ours, number: int) -> Any:
    with urllib.request.urlopen(f"{address(subject, number)}/status", timeout=30) as answer:
        return json.loads(answer.read())


def longest_pause_ms(subject: Ours, number: int) -> float:
    with urllib.request.urlopen(f"{address(subject, number)}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[-1]) for line in lines if line.startswith("aiocontroller_eventloop_lagms_max"))


async def start_standby(subject: Ours, number: int, setting: str) -> None:
    """Restart a standby, and return once it could take over and has been idle for a while."""
    subject.kill_one(number)
    subject.properties = [*(p for p in subject.properties if "aiocontroller.standby=" not in p)]
    subject.properties.append(f"aiocontroller.standby={setting}")
    await subject.start_one(number)
    deadline = time.monotonic() + WARM_WITHIN_S
    while True:
        shown = await asyncio.to_thread(status, subject, number)
        if shown["readiness"]["ready"] and (setting == "cold" or shown["standby"]["state"] == "warm"):
            break
        if time.monotonic() > deadline:
            raise TimeoutError(f"the standby is not ready: {shown['readiness']}, {shown['standby']}")
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)


class Pages:
    """Readers of an instance's page, and the probe beside them (``_page_clients``); None: neither."""

    def __init__(self, subject: Ours, number: int, pages: int | None) -> None:
        self._process: subprocess.Popen[str] | None = None
        if pages is not None:
            command = [sys.executable, "-m", "benchmarks._page_clients", address(subject, number), str(pages)]
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert self._process.stdout is not None
            if self._process.stdout.readline() != "connected\n":
                raise RuntimeError("the pages could not be opened")

    def close(self) -> dict[str, Any]:
        """End the process; return the fields of ``Took`` about pages."""
        if self._process is None:
            return {}
        output, _ = self._process.communicate(timeout=60)
        heard = msgspec.json.decode(output, type=Heard)
        return {
            "answer_p99_ms": percentile(heard.answers_ms, 0.99),
            "answer_most_ms": max(heard.answers_ms),
            "page_messages": heard.messages,
            "page_mb": heard.bytes / 1e6,
        }


async def fail_over(bench: Bench, subject: Ours, setting: str, *, broker_dies: bool, pages: int | None = None) -> Took:
    active = await subject.active(bench.zk)
    standby = next(number for number in subject.ids if number != active)
    await start_standby(subject, standby, setting)
    readers = await asyncio.to_thread(Pages, subject, standby, pages)
    await bench.brokers.ask_async("mark")
    pid = subject.pid_of(standby)
    load, before_s = os.getloadavg()[0], cpu_s(pid)
    subject.kill_one(active)
    if broker_dies:
        await bench.brokers.ask_async(f"kill-broker {next(bench.victims)}")
    started, started_us = time.monotonic(), time.time_ns() // 1000
    await bench.zk.client.delete(paths.CONTROLLER)
    ended = await bench.brokers.quiet(started, bench.whole_quiet_s)
    used_s = cpu_s(pid) - before_s
    heard_of_pages = await asyncio.to_thread(readers.close)
    heard = await bench.brokers.ask_async("heard")
    first = min(r["first"]["LEADER_AND_ISR"] for r in heard.values() if "LEADER_AND_ISR" in r["first"])
    assert await subject.active(bench.zk) == standby
    term = _last_term(subject, standby)
    pause_ms = await asyncio.to_thread(longest_pause_ms, subject, standby)
    await bench.check_in_time()
    dead = await bench.brokers.ask_async("dead")
    if len(dead) >= DEAD_AT_MOST:
        await start_brokers(bench, dead)
        await asyncio.sleep(FRESH_S)
        await bench.heal()
    return Took(
        standby=setting,
        decided_ms=_decided_ms(term, started_us),
        first_s=first - started,
        last_s=ended - started,
        steps_ms=_steps_ms(term),
        processor_s=used_s,
        peak_mib=peak_rss_mib(pid),
        pause_ms=pause_ms,
        load=load,
        pages=pages or 0,
        **heard_of_pages,
    )


async def start_brokers(bench: Bench, dead: Sequence[int]) -> None:
    for number in dead:
        back: float = await bench.brokers.ask_async(f"start-broker {number}")
        await bench.brokers.quiet(back, bench.whole_quiet_s)


def _last_term(subject: Ours, number: int) -> list[Any]:
    """Return the records since the last election."""
    records: list[Any] = []
    files = (subject.folder / f"ours-{number}" / "journal").glob("*.jsonl")
    for file in sorted(files, key=lambda file: file.stat().st_mtime):
        for line in file.read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "elected":
                records = []
            records.append(record)
    return records


def _decided_ms(term: Sequence[Any], started_us: int) -> float | None:
    led = (r["ts"] for r in term if r["kind"] == "partition" and r.get("leader", -1) >= 0)
    first_us = next(led, None)
    return None if first_us is None else (first_us - started_us) / 1000


def _steps_ms(term: Sequence[Any]) -> float:
    """Return the duration of the failover's steps, without the sending of the full metadata afterwards."""
    steps = {r["event"]: r["duration_us"] / 1000 for r in term if r["kind"] == "failover"}
    return sum(took for name, took in steps.items() if name != "send the full metadata")


def show(took: Sequence[Took], given: argparse.Namespace) -> None:
    console = wide_console()
    settings = sorted({(SETTINGS.index(one.standby), one.pages) for one in took})
    title = f"{given.partitions:,} partitions, {given.brokers} brokers, {len(took)} failovers"
    table = Table(title=title)
    for heading in ("", "standby", "median", "p90", "p99", "least", "most"):
        table.add_column(heading, justify="left" if heading in ("", "standby") else "right")
    rows = {
        "first decision, ms": "decided_ms",
        "first LeaderAndIsr, s": "first_s",
        "last request, s": "last_s",
        "steps before the first event, ms": "steps_ms",
        "processor seconds": "processor_s",
        "peak memory, MiB": "peak_mib",
        "longest pause of the loop, ms": "pause_ms",
        "load of the machine": "load",
        "answers of /healthz, p99, ms": "answer_p99_ms",
        "answers of /healthz, longest, ms": "answer_most_ms",
        "sent to pages, MB": "page_mb",
    }
    for name, field in rows.items():
        for number, pages in settings:
            setting = SETTINGS[number] + (f", {pages} pages" if pages else "")
            found = [getattr(one, field) for one in took if (SETTINGS.index(one.standby), one.pages) == (number, pages)]
            own = [value for value in found if value is not None]
            if own:
                figures = statistics.median(own), percentile(own, 0.9), percentile(own, 0.99), min(own), max(own)
                table.add_row(name, setting, *(f"{figure:.3f}" for figure in figures))
        table.add_section()
    console.print(table)


def turns(given: argparse.Namespace) -> Iterator[tuple[str, int | None]]:
    """Return each failover's setting and number of pages: all combinations asked for, in turn."""
    settings = SETTINGS if given.only is None else (given.only,)
    pages = (None,) if given.pages is None else (0, given.pages)
    return islice(cycle((setting, number) for number in pages for setting in settings), given.failovers)


async def run(given: argparse.Namespace) -> list[Took]:
    took, began_s = [], time.monotonic()

    def say(what: str) -> None:
        """Print progress: with a million partitions it takes minutes until the first failover."""
        print(f"{time.monotonic() - began_s:.0f} s: {what}", file=sys.stderr, flush=True)

    say("the cluster's znodes are written")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) if given.keep is None else given.keep
        async with preloaded_cluster(folder, shape_of(given), ensemble=given.ensemble) as cluster:
            subject = Ours(cluster.zookeeper, folder, list(given.property))
            bench = Bench(cluster, subject)
            try:
                say("two controllers start")
                await subject.start()
                await cluster.brokers.quiet(0.0, bench.whole_quiet_s)
                say("one has sent everything; failovers begin")
                await asyncio.sleep(FRESH_S)
                for setting, pages in turns(given):
                    one = await fail_over(bench, subject, setting, broker_dies=given.broker_dies, pages=pages)
                    took.append(one)
                    print(f"{len(took)}/{given.failovers} {msgspec.json.encode(one).decode()}", flush=True)
            finally:
                subject.stop()
    return took


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench standbys", description="Warm and cold standbys in turn.")
    parser.add_argument("--failovers", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int)
    add_data_options(parser)
    parser.add_argument("--only", choices=SETTINGS, help="instead of warm and cold ones in turn")
    parser.add_argument("--pages", type=int, metavar="N", help="N readers of the page in every other failover")
    parser.add_argument("--broker-dies", action="store_true", help="a broker dies with the controller each time")
    parser.add_argument("--ensemble", action="store_true", help="three ZooKeeper servers")
    parser.add_argument("--property", action="append", default=[], help="name=value for aiocontroller; repeatable")
    parser.add_argument("--keep", type=Path, help="leave logs and journals in this folder")
    parser.add_argument("--json", type=Path, help="also write each failover to this file")
    given = parser.parse_args()
    given.topics = given.topics or max(1, given.partitions // 100)
    took = asyncio.run(run(given))
    show(took, given)
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(took)))


if __name__ == "__main__":
    main()
