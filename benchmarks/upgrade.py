"""Measures what clients see of a rolling upgrade under load, beside the same load without one.

    scripts/bench upgrade                        # from the last commit of 25 November 2026, five times up and down
    scripts/bench upgrade --from v1.2 --rounds 10
    scripts/bench upgrade --from /opt/aiocontroller/bin/aiocontroller

Three real brokers, idempotent acks=all producers and consumers that check every record, and an operator who creates,
moves and deletes topics all the time.  A pair of controllers of the earlier version, one of them a warm standby, is
upgraded to this version, and downgraded again: the standby first, then the active one, which hands over
(docs/operating.md).  Before each upgrade the same load runs for the same time without one.

An earlier commit's sources are taken from the checkout's history and run on this environment's libraries; a version
that needs other libraries has to be installed into an environment of its own, and is named by its program's path.

pause: the longest time without an acknowledged record on any partition in a round.  answer: how long the operator
waited for a change, from the start of a client until its request succeeded.  between: from the end of the old
controller's registration until its successor's.  known: from SIGTERM until every broker named the successor.  by a
broker: how often a broker was the controller in between, because the version that ended leaves the role to brokers; the
role is then taken back as an operator would do it, by aiocontroller takeover.
Exit code 1 if a record was lost, duplicated or out of order, or a client or the operator got an error, or a round did
not finish.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
from rich.table import Table

from aiocontroller.lab.cluster.load.clients import KINDS, kept_its_word
from aiocontroller.lab.cluster.load.tally import LoadVerdict
from aiocontroller.lab.cluster.processes import ChildFailedError
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, KafkaMissingError, kafka_jars
from aiocontroller.lab.kafka.controllers import ControllerPair
from aiocontroller.lab.kafka.played_cluster import AS_SHIPPED, zookeeper_cluster
from aiocontroller.lab.kafka.programs import PREVIOUS, THIS, Program, ProgramMissingError, chosen
from aiocontroller.lab.kafka.report import verdict_lines
from aiocontroller.lab.kafka.upgrade import Handover, Operator, Round, exchange, measured
from benchmarks.controller.figures import wide_console

WITHOUT, UP, DOWN = "no upgrade", "upgrade", "downgrade"


class Report(msgspec.Struct):
    earlier: str
    version: str
    """Kafka's."""
    rounds: list[Round]
    verdicts: dict[str, LoadVerdict]
    """By kind of client."""
    unfinished: str
    """Why it ended early; empty if it did not."""

    @property
    def ok(self) -> bool:
        errors = any(one.errors for one in self.rounds)
        return kept_its_word(self.verdicts) and not errors and not self.unfinished


async def run(given: argparse.Namespace, folder: Path, earlier: Program) -> Report:
    rounds: list[Round] = []
    async with zookeeper_cluster(folder, overrides=AS_SHIPPED, version=given.version) as cluster:
        pair = cluster.controller = cluster.controllers["pair"]
        assert isinstance(pair, ControllerPair)
        for instance in pair.instances.values():
            instance.program = earlier
        await cluster.open_load(given.clients, given.partitions, folder / "load", given.version)
        await pair.take()
        operator = Operator(cluster)
        working = asyncio.create_task(operator.run())

        async def play(what: str, act: Callable[[], Awaitable[Handover | None]]) -> None:
            one = await measured(cluster, operator, what, act)
            rounds.append(one)
            print(f"{len(rounds)}/{3 * given.rounds} {msgspec.json.encode(one).decode()}", flush=True)

        unfinished, seconds = "", 15.0
        try:
            for _ in range(given.rounds):
                await play(WITHOUT, functools.partial(peace, seconds))
                await play(UP, lambda: exchange(pair, THIS))
                seconds = rounds[-1].seconds
                await play(DOWN, lambda: exchange(pair, earlier))
            await operator.end(working)
        except (TimeoutError, AssertionError, ChildFailedError) as error:
            unfinished = str(error)
            working.cancel()
        return Report(earlier.name, given.version, rounds, await cluster.load.finish(), unfinished)


async def peace(seconds: float) -> None:
    await asyncio.sleep(seconds)


def spread(values: Sequence[float]) -> str:
    """Return the median, the least and the most as text."""
    if not values:
        return ""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


def show(report: Report) -> None:
    loads = [one.load for one in report.rounds]
    table = Table(
        title=f"{report.earlier} and this version, Kafka {report.version}, "
        f"load {min(loads, default=0):.1f} to {max(loads, default=0):.1f} on {os.cpu_count()} processors",
        caption="ms: median (least to most) of the rounds",
    )
    kinds = list(dict.fromkeys(kind for one in report.rounds for kind in one.pause_ms))
    columns: list[tuple[str, Callable[[Round], float | None]]] = [
        *((f"pause, {kind}", lambda one, kind=kind: one.pause_ms.get(kind)) for kind in kinds),
        ("answer, median", lambda one: one.answer_median_ms),
        ("answer, longest", lambda one: one.answer_most_ms),
        ("between", lambda one: None if one.handover is None else one.handover.between_ms),
        ("known", lambda one: None if one.handover is None else one.handover.known_ms),
        ("interference", lambda one: one.interference_ms),
    ]
    for heading in ("", "rounds", "seconds", *(name for name, _ in columns), "changes", "errors", "by a broker"):
        table.add_column(heading, justify="left" if not heading else "right")
    for what in (WITHOUT, UP, DOWN):
        own = [one for one in report.rounds if one.what == what]
        if own:
            found = [[value for one in own if (value := of(one)) is not None] for _, of in columns]
            between = sum(one.handover.terms > 1 for one in own if one.handover is not None)
            counts = sum(one.answered for one in own), sum(len(one.errors) for one in own), between
            seconds = f"{statistics.median(one.seconds for one in own):.0f}"
            table.add_row(what, str(len(own)), seconds, *map(spread, found), *map(str, counts))
    console = wide_console()
    console.print(table)
    for line in verdict_lines(report.verdicts):
        console.print(line, markup=False)
    for one in report.rounds:
        for error in one.errors:
            console.print(f"{one.what}: {error}", style="red", markup=False)
    if report.unfinished:
        console.print(f"ended early: {report.unfinished}", style="red", markup=False)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/bench upgrade", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--from", dest="earlier", default=PREVIOUS, metavar="COMMIT|PROGRAM", help="the earlier version"
    )
    parser.add_argument("--rounds", type=int, default=5, help="upgrades and downgrades each (default 5)")
    parser.add_argument("--clients", default=",".join(KINDS), help=f"of: {', '.join(KINDS)}")
    parser.add_argument("--partitions", type=int, default=12, help="of each client's topic (default 12)")
    parser.add_argument("--version", default=DEFAULT_VERSION, help=f"Kafka's (default {DEFAULT_VERSION})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to this file")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave logs, journals and records in this folder")
    given = parser.parse_args()
    given.clients = given.clients.split(",")
    if strange := set(given.clients) - set(KINDS):
        parser.error(f"--clients: found {', '.join(sorted(strange))}, expected some of: {', '.join(KINDS)}")
    for name in ("rounds", "partitions"):
        if getattr(given, name) < 1:
            parser.error(f"--{name}: {getattr(given, name)} is not a positive number")
    if given.keep is not None and given.keep.exists():
        parser.error(f"--keep: {given.keep} exists already; expected a new folder")
    try:
        kafka_jars(given.version)
    except KafkaMissingError as error:
        parser.error(str(error))
    return given


def main() -> int:
    given = parsed()
    with tempfile.TemporaryDirectory(prefix="bench-upgrade-") as name:
        folder = given.keep or Path(name)
        try:
            earlier = chosen(given.earlier, folder / "earlier")
        except ProgramMissingError as error:
            sys.exit(f"--from: {error}")
        report = asyncio.run(run(given, folder, earlier))
    show(report)
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
