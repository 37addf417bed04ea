"""``aiocontroller storm kafka``: real brokers and clients under faults, with aiocontroller and with Kafka's controller.

Three Kafka 3.9 brokers run with default settings except for the session timeout.  Each round plays every event once
under aiocontroller and once under Kafka's own controller, in an order drawn from the seed, and lets the cluster recover
in between; so the role is taken over and released once for each event.  The storm prints how long partitions went
without an acknowledgement.  The event "nothing" is three seconds without a fault, which measures the noise of the
machine.  Takeover and release of Kafka's own controller are its re-election.

It is a violation if an acknowledged record is lost, doubled or out of order (records that librdkafka doubles by itself
are counted separately: docs/clients.md), or if a client reports an error to its user during a takeover or a release.
Errors during other events are counted and shown.
"""

from __future__ import annotations

import contextlib
import random
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from rich.console import Console

from aiocontroller.lab.cluster.load.clients import KINDS, kept_its_word
from aiocontroller.lab.cluster.load.tally import LoadVerdict
from aiocontroller.lab.kafka.controllers import ClusterController
from aiocontroller.lab.kafka.events import Felt, play
from aiocontroller.lab.kafka.played_cluster import AS_SHIPPED, PlayedCluster, zookeeper_cluster
from aiocontroller.lab.kafka.report import Stalls, felt_line, stall_table, stalls, surfaced_in, verdict_lines

S = TypeVar("S")
T = TypeVar("T")
STRUCK = ("nothing", "broker SIGKILL", "controlled shutdown", "leader move", "controller SIGKILL")
NOTHING_MAY_SHOW = ("takeover", "release")
OURS, KAFKAS = "aiocontroller", "kafka"


class Options(NamedTuple):
    seed: int
    minutes: float
    session_ms: int
    partitions: int
    """Partitions of each client's topic."""
    version: str
    """Kafka's version."""
    properties: Mapping[str, str]
    """Properties of aiocontroller."""


class Report(msgspec.Struct):
    seed: int
    minutes: float
    session_ms: int
    version: str
    rounds: int
    stalls: list[Stalls]
    verdicts: dict[str, LoadVerdict]
    """Verdicts by kind of client."""
    surfaced: list[str]
    """Errors that clients reported to their users during takeover and release."""
    unfinished: str
    """The reason if the storm ended early; otherwise empty."""

    @property
    def ok(self) -> bool:
        return kept_its_word(self.verdicts) and not self.surfaced and not self.unfinished


class KafkaStorm:
    """Plays rounds until time is up, at least one."""

    def __init__(self, cluster: PlayedCluster, seed: int, minutes: float, console: Console) -> None:
        self.cluster = cluster
        self.felt: list[Felt] = []
        self.rounds = 0
        self._chance = random.Random(seed)
        self._console = console
        self._started = time.monotonic()
        self._deadline = self._started + minutes * 60

    async def run(self) -> None:
        await self.cluster.heal()
        while self.rounds == 0 or time.monotonic() < self._deadline:
            for event in self._chance.sample(STRUCK, len(STRUCK)):
                await self._compare(event)
                if self.rounds and time.monotonic() > self._deadline:
                    break
            self.rounds += 1

    async def _compare(self, event: str) -> None:
        self.cluster.controller = self.cluster.controllers[OURS]
        await self._play("takeover")
        await self._play(event)
        await self._play("release")
        self.cluster.controller = self.cluster.controllers[KAFKAS]
        await self._play("takeover")
        await self._play(event)
        await self._play("release")

    async def _play(self, event: str) -> None:
        felt = await play(self.cluster, event, self._chance)
        self.felt.append(felt)
        self._console.print(f"{time.monotonic() - self._started:6.0f} s  {felt_line(felt)}", markup=False)


async def storm(options: Options, folder: Path, console: Console) -> Report:
    """Play rounds, at least one, in a new cluster whose files are in the folder."""
    overrides = AS_SHIPPED | {"zookeeper.session.timeout.ms": str(options.session_ms)}
    started = zookeeper_cluster(folder, overrides=overrides, properties=options.properties, version=options.version)
    async with started as cluster:
        await cluster.open_load(KINDS, options.partitions, folder / "load", options.version)
        console.print(f"three Kafka {options.version} brokers are up; {' and '.join(KINDS)} clients write and read")
        run = KafkaStorm(cluster, options.seed, options.minutes, console)
        unfinished = ""
        try:
            await run.run()
        except (TimeoutError, AssertionError) as error:
            unfinished = str(error)
            console.print(f"the storm ends early: {error}", style="red", markup=False)
            for broker in cluster.brokers.values():
                broker.resume()
        verdicts = await cluster.load.finish()
        return Report(
            options.seed,
            options.minutes,
            options.session_ms,
            options.version,
            run.rounds,
            stalls(run.felt),
            verdicts,
            surfaced_in(run.felt, NOTHING_MAY_SHOW, OURS),
            unfinished,
        )


async def in_turns(
    cluster: PlayedCluster,
    stories: Sequence[S],
    play_story: Callable[[S, ClusterController], Awaitable[T]],
    names: Sequence[str] = (OURS, KAFKAS),
) -> AsyncIterator[tuple[str, S, T]]:
    """Call ``play_story`` for each story under each of these controllers; yields (controller's name, story, result)."""
    for story in stories:
        for name in names:
            controller = cluster.controller = cluster.controllers[name]
            await controller.take()
            yield name, story, await play_story(story, controller)
            if name == OURS:
                await controller.give()


def show(report: Report, console: Console) -> None:
    title = f"Kafka {report.version}, sessions {report.session_ms:,} ms, seed {report.seed}, {report.rounds} rounds"
    console.print(stall_table(report.stalls, title))
    for line in verdict_lines(report.verdicts):
        console.print(line, markup=False)
    for error in report.surfaced:
        console.print(f"surfaced: {error}", style="red", markup=False)


@contextlib.contextmanager
def folder_for(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    with tempfile.TemporaryDirectory(prefix="storm-kafka-") as name:
        yield Path(name)
