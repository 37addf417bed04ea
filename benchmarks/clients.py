"""Measures what clients notice when something dies: the longest time without an acknowledged record, by partition.

    scripts/bench clients [--trials 3] [--session-ms 18000] [--subjects kafka,aiocontroller,early,kraft] [--json FILE]
    scripts/bench clients --subjects early,fenced,kafka --clients java,librdkafka --events "broker SIGSTOP,slow disk"
    scripts/bench clients --subjects early,late --variant late:aiocontroller.early.detection.silence.ms=5000
    scripts/bench clients --broker replica.fetch.wait.max.ms=50 --events "broker SIGKILL,rolling restart"

Three Kafka 3.9 brokers with their default timeouts, three replicas of which two must be in sync, an idempotent acks=all
producer (Java's defaults, a record every 10 ms to each partition) and consumers that check that nothing is lost,
duplicated or out of order.  The subjects, one after the other, each on a cluster of its own:

  kafka          the controller inside one of the brokers
  aiocontroller  outside; a variant is the same with properties of its own
  early          the variant with early detection of dead brokers (docs/early-detection.md) and treatment of sick ones
                 (docs/sick-brokers.md)
  pair           the same with a warm standby, and early detection of a dead controller
  fenced         early with a fence command that ends a broker's process
  kraft          three brokers and three separate controllers, of the same release

"Led" are the partitions whose leader was hit (in a leader move: those moved), "others" the rest.  "controller and
broker" hits both at once; under Kafka's own controller they are one process, so it is "controller SIGKILL" again.
"nothing" is three seconds without faults: the noise of the machine.  "interference" is the longest time that a process
which was ready to run had to wait.  A slow broker is slow for half a minute: each write to a log takes 2 s longer, or
each send to a socket 0.2 s.
Exit code 1 when a record was lost, duplicated or out of order, or a subject did not finish.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec
from rich.console import Console

from aiocontroller.lab.cluster.load.clients import KINDS, kept_its_word
from aiocontroller.lab.cluster.load.tally import LoadVerdict
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, KafkaMissingError, kafka_jars
from aiocontroller.lab.cluster.slowness import compiler_missing
from aiocontroller.lab.kafka.events import EVENTS, SLOW, Felt, play
from aiocontroller.lab.kafka.played_cluster import AS_SHIPPED, PlayedCluster, kraft_cluster, zookeeper_cluster
from aiocontroller.lab.kafka.report import Stalls, felt_line, stall_markdown, stall_table, stalls, verdict_lines

PLAYED = [event for event in EVENTS if event not in ("takeover", "release")]
EARLY = {
    "aiocontroller.early.broker.detection": "full",
    "aiocontroller.early.fast.bounce.ms": "1000",
    "aiocontroller.sickness.mode": "act",
}
FENCED = EARLY | {"aiocontroller.fence.command": "sh -c 'kill -9 $(cat {folder}/broker-{broker}/pid)'"}
"""``{folder}`` is the cluster's folder, in the values of every variant."""
PAIR = EARLY | {"aiocontroller.early.controller.detection": "full"}
SUBJECTS = ("kafka", "aiocontroller", "early", "kraft")


class Outcome(msgspec.Struct):
    subject: str
    verdicts: dict[str, LoadVerdict]
    """By kind of client."""
    seconds: float
    unfinished: str
    """Why it ended early; empty if it did not."""

    @property
    def ok(self) -> bool:
        return kept_its_word(self.verdicts) and not self.unfinished


class Report(msgspec.Struct):
    version: str
    session_ms: int
    brokers: dict[str, str]
    variants: dict[str, dict[str, str]]
    stalls: list[Stalls]
    outcomes: list[Outcome]
    felt: list[Felt]
    load: str
    """The machine's load averages during the run, and its processors."""


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path, console: Console) -> None:
        self.options = options
        self.folder = folder
        self.console = console
        self.felt: list[Felt] = []
        self.outcomes: list[Outcome] = []
        self.loads = [os.getloadavg()[0]]
        self.broker_settings = AS_SHIPPED | {"zookeeper.session.timeout.ms": str(options.session_ms)} | options.broker

    async def run(self) -> Report:
        for subject in self.options.subjects:
            started = time.monotonic()
            verdicts, unfinished = await self._measure(subject)
            self.outcomes.append(Outcome(subject, verdicts, time.monotonic() - started, unfinished))
            self.console.print(f"{subject} is done{unfinished and f', early: {unfinished}'}", markup=False)
        options = self.options
        return Report(
            options.version,
            options.session_ms,
            options.broker,
            options.variant,
            stalls(self.felt),
            self.outcomes,
            self.felt,
            f"load {min(self.loads):.0f} to {max(self.loads):.0f} on {os.cpu_count()} processors",
        )

    async def _measure(self, subject: str) -> tuple[dict[str, LoadVerdict], str]:
        """Measure one subject; return the verdicts on the records, and why it ended early, if it did."""
        options, started = self.options, time.monotonic()
        chance = random.Random(options.seed)  # the same victims for every subject
        async with self._cluster(subject) as cluster:
            own = "aiocontroller" if subject in options.variant and subject != "pair" else subject
            cluster.controller = cluster.controllers.get(own, cluster.controller)
            cluster.controller.name = subject
            await cluster.open_load(
                options.clients, options.partitions, self.folder / subject / "load", options.version
            )
            if subject not in ("kafka", "kraft"):
                await cluster.controller.take()
            unfinished = ""
            try:
                await cluster.heal()
                for event in options.events * options.trials:
                    felt = await play(cluster, event, chance)
                    self.felt.append(felt)
                    self.loads.append(os.getloadavg()[0])
                    self.console.print(f"{time.monotonic() - started:6.0f} s  {felt_line(felt)}", markup=False)
            except (TimeoutError, AssertionError) as error:
                unfinished = str(error)
                for broker in cluster.brokers.values():
                    broker.resume()
            return await cluster.load.finish(), unfinished

    def _cluster(self, subject: str) -> AbstractAsyncContextManager[PlayedCluster]:
        folder, version = self.folder / subject, self.options.version
        slowable = not SLOW.isdisjoint(self.options.events)
        if subject == "kraft":
            return kraft_cluster(folder, overrides=self.broker_settings, version=version, slowable=slowable)
        given = self.options.variant.get(subject, {})
        properties = {key: value.replace("{folder}", str(folder.resolve())) for key, value in given.items()}
        overrides = self.broker_settings
        return zookeeper_cluster(folder, overrides=overrides, properties=properties, version=version, slowable=slowable)


def settings(texts: list[str]) -> dict[str, str]:
    for text in texts:
        if "=" not in text:
            raise ValueError(f"found {text!r}, expected KEY=VALUE")
    return {key.strip(): value.strip() for key, _, value in (text.partition("=") for text in texts)}


def parsed() -> argparse.Namespace:
    described = __doc__ or ""
    parser = argparse.ArgumentParser(
        prog="scripts/bench clients", description=described, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=3, help="of each event (default 3)")
    parser.add_argument("--session-ms", type=int, default=18_000, help="ZooKeeper session timeout (default 18000)")
    parser.add_argument("--subjects", default=",".join(SUBJECTS), help="which, in which order")
    parser.add_argument("--variant", action="append", default=[], metavar="NAME:KEY=VALUE,…", help="of aiocontroller")
    parser.add_argument("--broker", action="append", default=[], metavar="KEY=VALUE", help="a setting of all brokers")
    parser.add_argument("--events", default=",".join(PLAYED), help=f"of: {', '.join(PLAYED)}")
    parser.add_argument("--clients", default="java", help=f"of: {', '.join(KINDS)} (default java)")
    parser.add_argument("--partitions", type=int, default=12, help="of each client's topic (default 12)")
    parser.add_argument("--seed", type=int, default=1, help="draws the victims")
    parser.add_argument("--version", default=DEFAULT_VERSION, help=f"Kafka's (default {DEFAULT_VERSION})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to this file")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave logs, journals and records in this folder")
    options = parser.parse_args()
    try:
        options.broker = settings(options.broker)
        named = [text.partition(":") for text in options.variant]
        given = {name: settings(texts.split(",")) for name, _, texts in named}
        options.variant = {"early": EARLY, "fenced": FENCED, "pair": PAIR} | given
    except ValueError as error:
        parser.error(str(error))
    for name, known in (
        ("subjects", dict.fromkeys((*SUBJECTS, *options.variant))),
        ("events", PLAYED),
        ("clients", KINDS),
    ):
        found = [text.strip() for text in getattr(options, name).split(",")]
        setattr(options, name, found)
        if strange := set(found) - set(known):
            parser.error(f"--{name}: found {', '.join(sorted(strange))}, expected some of: {', '.join(known)}")
    if not SLOW.isdisjoint(options.events) and (missing := compiler_missing()):
        parser.error(f"--events: {', '.join(sorted(SLOW))} need a library: {missing}")
    if options.keep is not None and options.keep.exists():
        parser.error(f"--keep: {options.keep} exists already; expected a new folder")
    try:
        kafka_jars(options.version)
    except KafkaMissingError as error:
        parser.error(str(error))
    return options


def show(report: Report, console: Console, markdown: bool) -> None:
    trials = max((row.trials for row in report.stalls), default=0)
    settings_shown = "".join(f", {key}={value}" for key, value in report.brokers.items())
    title = f"Kafka {report.version}, sessions {report.session_ms:,} ms{settings_shown}, {trials} trials, {report.load}"
    if markdown:
        console.print("\n".join((title, "", *stall_markdown(report.stalls), "")), markup=False)
    else:
        console.print(stall_table(report.stalls, title))
    for outcome in report.outcomes:
        for line in verdict_lines(outcome.verdicts):
            console.print(f"{outcome.subject}, {line}", markup=False)
        if outcome.unfinished:
            console.print(f"{outcome.subject} ended early: {outcome.unfinished}", style="red", markup=False)


def main() -> int:
    options = parsed()
    console = Console(width=None if sys.stdout.isatty() else 150, highlight=False, soft_wrap=True)
    with tempfile.TemporaryDirectory(prefix="bench-clients-") as name:
        report = asyncio.run(Bench(options, options.keep or Path(name), console).run())
    show(report, console, options.markdown)
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    return 0 if all(outcome.ok for outcome in report.outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
