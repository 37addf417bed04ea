"""``aiocontroller storm unclean``: what is lost when all in-sync replicas are gone, under both controllers.

Three brokers die one after the other while records are written to a topic; the first two return, the last one does not.
So every partition has two logs left, one longer than the other, and its ISR is dead.  Then unclean elections are
allowed.  A trial is one partition.  The number of records before each death and the order of the replicas are drawn; in
half of the trials the first replica is on the broker that died first, and Kafka's own controller elects it.

The minimum loss follows from the remaining logs.  It is a violation if aiocontroller loses more.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from aiocontroller.lab.kafka.acknowledged import readable_records, states_of, write_acknowledged
from aiocontroller.lab.kafka.controllers import ClusterController, ZooKeeperController, until
from aiocontroller.lab.kafka.played_cluster import AS_SHIPPED, PlayedCluster, zookeeper_cluster
from aiocontroller.lab.storms.kafka import KAFKAS, OURS, in_turns
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient

SESSION_MS = 4000
AT_ONCE = 10
"""The most partitions of one story."""
WRITTEN = range(20, 301)
"""Possible numbers of records before a death."""
ALLOW, MIN_ISR = "unclean.leader.election.enable", "min.insync.replicas"


class Options(NamedTuple):
    seed: int
    trials: int
    """Partitions for each controller."""
    version: str
    """Kafka's version."""
    properties: Mapping[str, str]
    """Properties of aiocontroller."""


class Trial(msgspec.Struct):
    controller: str
    replicas: tuple[int, ...]
    deaths: tuple[int, ...]
    """Brokers in the order in which they died; all but the last came back."""
    ends: dict[int, int]
    """Broker -> records in its log when it died."""
    leader: int
    lost: int
    """Acknowledged records that can no longer be read."""

    @property
    def least(self) -> int:
        """The number of records lost even if the longest remaining log leads."""
        return self.ends[self.deaths[-1]] - max(self.ends[broker] for broker in self.deaths[:-1])


class Report(msgspec.Struct):
    seed: int
    version: str
    trials: list[Trial]
    unfinished: str
    """The reason if the storm ended early; otherwise empty."""

    @property
    def ok(self) -> bool:
        return not self.unfinished and all(trial.lost == trial.least for trial in self.of(OURS))

    def of(self, controller: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.controller == controller]


class Story(NamedTuple):
    """What is played under both controllers: the deaths, and for each partition its replicas and records."""

    deaths: tuple[int, ...]
    partitions: list[tuple[tuple[int, ...], tuple[int, ...]]]


def stories(seed: int, trials: int, brokers: Sequence[int]) -> list[Story]:
    """Draw enough stories for this number of trials."""
    chance, found = random.Random(seed), []
    for start in range(0, trials, AT_ONCE):
        deaths = tuple(chance.sample(brokers, len(brokers)))
        partitions = []
        for number in range(start, min(start + AT_ONCE, trials)):
            replicas = deaths if number % 2 else tuple(chance.sample(brokers, len(brokers)))
            partitions.append((replicas, tuple(chance.choice(WRITTEN) for _ in deaths)))
        found.append(Story(deaths, partitions))
    return found


class UncleanStorm:
    """Plays every story under both controllers, in turns."""

    def __init__(self, cluster: PlayedCluster, options: Options, console: Console) -> None:
        self.trials: list[Trial] = []
        self._cluster, self._options, self._console = cluster, options, console
        self._started = time.monotonic()
        self._topics = 0

    async def run(self) -> None:
        all_stories = stories(self._options.seed, self._options.trials, sorted(self._cluster.brokers))
        async for name, story, trials in in_turns(self._cluster, all_stories, self._play):
            self.trials += trials
            lost = sum(trial.lost for trial in trials)
            least = sum(trial.least for trial in trials)
            self._console.print(
                f"{time.monotonic() - self._started:6.0f} s  {name}: brokers died in the order {story.deaths}; "
                f"{len(trials)} partitions lost {lost} records, {least} at least",
                markup=False,
            )

    async def _play(self, story: Story, controller: ClusterController) -> list[Trial]:
        assert isinstance(controller, ZooKeeperController), controller.name
        cluster, admin = self._cluster, AdminZkClient(controller.zk)
        self._topics += 1
        topic = f"unclean-{self._topics}"
        assignment = {number: replicas for number, (replicas, _) in enumerate(story.partitions)}
        await admin.create_topic(topic, assignment, configs={ALLOW: "false", MIN_ISR: "1"})
        ends: list[dict[int, int]] = [{} for _ in assignment]
        for step, broker in enumerate(story.deaths):
            alive = story.deaths[step:]
            counts = {number: written[step] for number, (_, written) in enumerate(story.partitions)}
            await until(lambda alive=alive: self._led(controller, topic, alive), "every partition is led")  # type: ignore[misc]
            await asyncio.to_thread(
                write_acknowledged, ",".join(cluster.brokers[b].address for b in alive), topic, counts
            )
            for number, count in counts.items():
                ends[number][broker] = count + max(ends[number].values(), default=0)
            cluster.brokers[broker].kill()
        for broker in story.deaths[:-1]:
            await cluster.start(cluster.brokers[broker])
        await admin.change_entity_configs("topics", topic, {ALLOW: "true", MIN_ISR: "1"})
        back = story.deaths[:-1]
        await until(lambda: self._led(controller, topic, back), "every partition is led by a broker that came back")
        address = ",".join(cluster.brokers[broker].address for broker in back)
        trials = []
        for number, (replicas, _) in enumerate(story.partitions):
            state = (await states_of(controller.zk, topic))[number]
            end = await readable_records(address, topic, number)
            acknowledged = ends[number][story.deaths[-1]]
            trials.append(
                Trial(controller.name, replicas, story.deaths, ends[number], state.leader, acknowledged - end)
            )
        await admin.change_entity_configs("topics", topic, {ALLOW: "false", MIN_ISR: "1"})
        await cluster.heal()
        await admin.delete_topic(topic)
        return trials

    async def _led(self, controller: ZooKeeperController, topic: str, alive: Sequence[int]) -> bool:
        """Whether every partition is led by one of these brokers, and no other broker is in its ISR."""
        states = await states_of(controller.zk, topic)
        return bool(states) and all(state.leader in alive and set(state.isr) <= set(alive) for state in states)


async def storm(options: Options, folder: Path, console: Console) -> Report:
    """Play all stories in a new cluster whose files are in the folder."""
    overrides = AS_SHIPPED | {"zookeeper.session.timeout.ms": str(SESSION_MS)}
    started = zookeeper_cluster(folder, overrides=overrides, properties=options.properties, version=options.version)
    async with started as cluster:
        console.print(f"three Kafka {options.version} brokers are up")
        run = UncleanStorm(cluster, options, console)
        unfinished = ""
        try:
            await run.run()
        except (TimeoutError, AssertionError) as error:
            unfinished = str(error)
            console.print(f"the storm ends early: {error}", style="red", markup=False)
        return Report(options.seed, options.version, run.trials, unfinished)


def show(report: Report, console: Console) -> None:
    table = Table(title=f"Kafka {report.version}, seed {report.seed}: acknowledged records lost")
    for heading in ("controller", "trials", "lost", "at least", "the best log led", "median lost", "most lost"):
        table.add_column(heading, justify="left" if heading == "controller" else "right")
    for name in (OURS, KAFKAS):
        own = report.of(name)
        if own:
            lost = sorted(trial.lost for trial in own)
            best = sum(trial.lost == trial.least for trial in own)
            figures = (len(own), sum(lost), sum(trial.least for trial in own), f"{best} of {len(own)}")
            table.add_row(name, *map(str, figures), str(lost[len(lost) // 2]), str(lost[-1]))
    console.print(table)
