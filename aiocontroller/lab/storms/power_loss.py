"""``aiocontroller storm power-loss``: the last in-sync replica loses the end of its log, under both controllers.

A topic with three replicas and ``min.insync.replicas=2`` is written.  One broker shuts down, more is written, the
second one shuts down, and the last one loses power: it is killed, and the end of each log is cut off, as if the
operating system had not written it.  The second one, whose log is complete, returns first, then the last one, then the
first.  A trial is one partition; how much is written and how much is cut off is drawn.

It is a violation if acknowledged records are lost under aiocontroller.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker
from aiocontroller.lab.kafka.acknowledged import readable_records, states_of, write_acknowledged
from aiocontroller.lab.kafka.controllers import ZooKeeperController, until
from aiocontroller.lab.kafka.played_cluster import AS_SHIPPED, PlayedCluster, zookeeper_cluster
from aiocontroller.lab.storms.kafka import KAFKAS, OURS, in_turns
from aiocontroller.lab.storms.unclean import Options
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient

SESSION_MS = 4000
AT_ONCE = 20
"""Partitions of one story, at most."""
WRITTEN = range(50, 301)
"""Records in a phase, drawn from these."""
LONGEST_CUT = 0.6
"""Share of a log that is cut off, at most."""
CONFIGS = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
ALONE_S = 2.0
"""The time for an election while only the complete replica is back."""


class Planned(NamedTuple):
    """One partition of a story."""

    replicas: tuple[int, ...]
    written: tuple[int, int]
    """With three replicas in sync, and with two."""
    cut: float
    """The share of the last one's log that is lost."""


class Story(NamedTuple):
    """What both controllers live through."""

    order: tuple[int, ...]
    """Brokers as they stop; the last one loses power."""
    partitions: list[Planned]


class Trial(msgspec.Struct):
    controller: str
    order: tuple[int, ...]
    acknowledged: int
    leader: int
    lost: int


class Report(msgspec.Struct):
    seed: int
    version: str
    trials: list[Trial]
    unfinished: str
    """The reason if the storm ended early; otherwise empty."""

    @property
    def ok(self) -> bool:
        return not self.unfinished and not any(trial.lost for trial in self.of(OURS))

    def of(self, controller: str) -> list[Trial]:
        return [trial for trial in self.trials if trial.controller == controller]


def stories(seed: int, trials: int, brokers: Sequence[int]) -> list[Story]:
    """Enough of them for so many trials."""
    chance, found = random.Random(seed), []
    for start in range(0, trials, AT_ONCE):
        planned = [
            Planned(
                tuple(chance.sample(brokers, len(brokers))),
                (chance.choice(WRITTEN), chance.choice(WRITTEN)),
                chance.uniform(0.1, LONGEST_CUT),
            )
            for _ in range(start, min(start + AT_ONCE, trials))
        ]
        found.append(Story(tuple(chance.sample(brokers, len(brokers))), planned))
    return found


class PowerLossStorm:
    """Tells every story under both controllers, in turns."""

    def __init__(self, cluster: PlayedCluster, options: Options, console: Console) -> None:
        self.trials: list[Trial] = []
        self._cluster, self._options, self._console = cluster, options, console
        self._started = time.monotonic()
        self._topics = 0

    async def run(self) -> None:
        told = stories(self._options.seed, self._options.trials, sorted(self._cluster.brokers))
        async for name, story, trials in in_turns(self._cluster, told, self._tell):
            self.trials += trials
            lost = [trial.lost for trial in trials if trial.lost]
            self._console.print(
                f"{time.monotonic() - self._started:6.0f} s  {name}: broker {story.order[-1]} lost power; "
                f"{len(lost)} of {len(trials)} partitions lost {sum(lost)} acknowledged records",
                markup=False,
            )

    async def _tell(self, story: Story, controller: ZooKeeperController) -> list[Trial]:
        brokers, admin = self._cluster.brokers, AdminZkClient(controller.zk)
        first, second, last = story.order
        self._topics += 1
        topic = f"power-{self._topics}"
        planned = dict(enumerate(story.partitions))
        await admin.create_topic(topic, {n: each.replicas for n, each in planned.items()}, configs=CONFIGS)
        for phase, stopping in enumerate((first, second)):
            alive = set(story.order[phase:])
            await until(lambda alive=alive: self._in_sync(controller, topic, alive), f"{alive} are in sync")  # type: ignore[misc]
            bootstrap = ",".join(brokers[broker].address for broker in sorted(alive))
            counts = {n: each.written[phase] for n, each in planned.items()}
            await asyncio.to_thread(write_acknowledged, bootstrap, topic, counts)
            await brokers[stopping].stop_async()
        await until(lambda: self._in_sync(controller, topic, {last}), f"{last} is in sync alone")
        brokers[last].kill()
        for number, each in planned.items():
            cut_off(brokers[last], f"{topic}-{number}", each.cut)
        await self._cluster.start(brokers[second])
        await asyncio.sleep(ALONE_S)
        await self._cluster.start(brokers[last])
        await until(lambda: self._in_sync(controller, topic, {second, last}), "two replicas are in sync")
        trials = []
        bootstrap = ",".join(brokers[broker].address for broker in (second, last))
        for number, (state, each) in enumerate(
            zip(await states_of(controller.zk, topic), story.partitions, strict=True)
        ):
            end = await readable_records(bootstrap, topic, number)
            acknowledged = sum(each.written)
            trials.append(Trial(controller.name, story.order, acknowledged, state.leader, acknowledged - end))
        await self._cluster.heal()
        await until(lambda: self._in_sync(controller, topic, set(story.order)), "all replicas are in sync")
        await admin.delete_topic(topic)
        return trials

    async def _in_sync(self, controller: ZooKeeperController, topic: str, brokers: set[int]) -> bool:
        """Every partition is led by one of these, and they are its ISR."""
        states = await states_of(controller.zk, topic)
        return bool(states) and all(state.leader in brokers and set(state.isr) == brokers for state in states)


def cut_off(broker: RealKafkaBroker, partition: str, share: float) -> None:
    """Cut off the end of the last segment of a dead broker's log."""
    segment = max((broker.data_dir / "logs" / partition).glob("*.log"))
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(int(size * (1 - share)))


async def storm(options: Options, folder: Path, console: Console) -> Report:
    """Tell all stories in a new cluster whose files are in the folder."""
    overrides = AS_SHIPPED | {"zookeeper.session.timeout.ms": str(SESSION_MS), "replica.lag.time.max.ms": "1500"}
    started = zookeeper_cluster(folder, overrides=overrides, properties=options.properties, version=options.version)
    async with started as cluster:
        console.print(f"three Kafka {options.version} brokers are up")
        run = PowerLossStorm(cluster, options, console)
        unfinished = ""
        try:
            await run.run()
        except (TimeoutError, AssertionError) as error:
            unfinished = str(error)
            console.print(f"the storm ends early: {error}", style="red", markup=False)
        return Report(options.seed, options.version, run.trials, unfinished)


def show(report: Report, console: Console) -> None:
    table = Table(title=f"Kafka {report.version}, seed {report.seed}: acknowledged records after a power loss")
    for heading in ("controller", "trials", "acknowledged", "lost", "partitions that lost some", "most lost"):
        table.add_column(heading, justify="left" if heading == "controller" else "right")
    for name in (OURS, KAFKAS):
        if own := report.of(name):
            lost = [trial.lost for trial in own]
            figures = (len(own), sum(trial.acknowledged for trial in own), sum(lost), sum(map(bool, lost)), max(lost))
            table.add_row(name, *map(str, figures))
    console.print(table)
