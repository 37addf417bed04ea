"""Measures *Check now* of the page: how long it takes, and how much it delays the controller that does it.

    scripts/bench page --partitions 100000 --runs 5

Two instances on a real ZooKeeper with varied data; some brokers have died, so that there is something to find.  The
active instance and the standby are asked for a check in turn, in the same way as the page asks.  During the check, and
for a while before it, another process keeps two pages open and polls ``/healthz``.  A late answer shows that the event
loop was blocked, or that the processors were busy.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from aiocontroller.server.check_page import PAUSE_S
from benchmarks.controller.cases import Bench
from benchmarks.controller.figures import wide_console
from benchmarks.controller.preloaded_cluster import add_data_options, preloaded_cluster, shape_of
from benchmarks.controller.resources import cpu_s
from benchmarks.controller.subjects import Ours
from benchmarks.standbys import Pages, address

PAGES = 2
WITHIN_S = 200.0
ACTIVE, STANDBY = "active", "standby"


class Checked(msgspec.Struct):
    """One check, and the answers of ``/healthz`` before and during it."""

    asked: str
    """Which instance: active or standby."""
    took_s: float
    findings: int
    loop_s: float
    """Processor seconds that the instance's own process used during the check."""
    before_p99_ms: float
    before_most_ms: float
    p99_ms: float
    most_ms: float
    load: float


def ask(at: str, path: str, body: bytes | None = None) -> Any:
    """Ask as the page does: a browser sends the origin of a request."""
    headers = {"Content-Type": "application/json", "Origin": at} if body else {}
    request = urllib.request.Request(at + path, body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


async def check(subject: Ours, number: int, asked: str, quiet_s: float) -> Checked:
    at, pid, load = address(subject, number), subject.pid_of(number), os.getloadavg()[0]
    before = await asyncio.to_thread(Pages, subject, number, PAGES)
    await asyncio.sleep(quiet_s)
    quiet = await asyncio.to_thread(before.close)
    probe = await asyncio.to_thread(Pages, subject, number, PAGES)
    used_s, deadline = cpu_s(pid), time.monotonic() + WITHIN_S
    was = (await asyncio.to_thread(ask, at, "/findings"))["at_us"]
    await asyncio.to_thread(ask, at, "/check", b"{}")
    while (found := await asyncio.to_thread(ask, at, "/findings"))["at_us"] == was:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the check did not end within {WITHIN_S:.0f} s")
        await asyncio.sleep(0.5)
    used_s = cpu_s(pid) - used_s
    meanwhile = await asyncio.to_thread(probe.close)
    if found["error"]:
        raise RuntimeError(f"the check failed: {found['error']}")
    return Checked(
        asked,
        found["took_ms"] / 1000,
        found["count"],
        used_s,
        quiet["answer_p99_ms"],
        quiet["answer_most_ms"],
        meanwhile["answer_p99_ms"],
        meanwhile["answer_most_ms"],
        load,
    )


async def run(given: argparse.Namespace) -> list[Checked]:
    checked = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with preloaded_cluster(folder, shape_of(given)) as cluster:
            subject = Ours(cluster.zookeeper, folder)
            bench = Bench(cluster, subject)
            try:
                await subject.start()
                await cluster.brokers.quiet(0.0, bench.whole_quiet_s)
                for number in range(1, 1 + given.away):
                    await cluster.brokers.ask_async(f"kill-broker {number}")
                await cluster.brokers.quiet(time.monotonic(), bench.whole_quiet_s)
                active = await subject.active(bench.zk)
                standby = next(number for number in subject.ids if number != active)
                for number in range(given.runs):
                    for asked, instance in ((ACTIVE, active), (STANDBY, standby)):
                        one = await check(subject, instance, asked, max(PAUSE_S, 10.0))
                        checked.append(one)
                        print(f"{number + 1}/{given.runs} {msgspec.json.encode(one).decode()}", flush=True)
            finally:
                subject.stop()
    return checked


def show(checked: Sequence[Checked], given: argparse.Namespace) -> None:
    title = f"Check now: {given.partitions:,} partitions, {given.brokers} brokers, {given.away} away"
    table = Table(title=title, caption="median (least to most) of the runs; answers: of /healthz, ms")
    names = {
        "took_s": "seconds",
        "loop_s": "processor seconds of the controller",
        "before_p99_ms": "answers before, p99",
        "before_most_ms": "answers before, longest",
        "p99_ms": "answers meanwhile, p99",
        "most_ms": "answers meanwhile, longest",
        "findings": "findings",
        "load": "load",
    }
    for heading in ("", ACTIVE, STANDBY):
        table.add_column(heading, justify="right" if heading else "left")
    for field, name in names.items():
        cells = []
        for asked in (ACTIVE, STANDBY):
            own = [getattr(one, field) for one in checked if one.asked == asked]
            cells.append(f"{statistics.median(own):.1f} ({min(own):.1f} to {max(own):.1f})")
        table.add_row(name, *cells)
    wide_console().print(table)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/bench page", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=100_000, help="default: 100000")
    parser.add_argument("--topics", type=int)
    parser.add_argument("--runs", type=int, default=5, help="of each instance; default: 5")
    parser.add_argument("--away", type=int, default=3, help="brokers that have died; default: 3")
    parser.add_argument("--json", type=Path, help="also write each run to this file")
    add_data_options(parser)
    given = parser.parse_args(arguments)
    given.topics = given.topics or max(1, given.partitions // 100)
    if not 0 <= given.away < given.brokers:
        parser.error(f"--away: found {given.away}, expected less than the {given.brokers} brokers")
    checked = asyncio.run(run(given))
    show(checked, given)
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(checked)))


if __name__ == "__main__":
    main()
