"""``aiocontroller storm power-loss``: the last in-sync replica loses the end of its log, under each controller.

The same stories are played in a ZooKeeper-mode cluster, under aiocontroller and under Kafka's own controller in turns,
and in a KRaft cluster of the same release and settings.

Records are written to a topic with three replicas and ``min.insync.replicas=2``.  One broker shuts down, more records
are written, a second broker shuts down, and the last one loses power: it is killed, and the end of each log is cut off,
as if the operating system had not written it.  The second broker, whose log is complete, returns first, then the last
one, then the first.  A trial is one partition; the numbers of records and the share that is cut off are drawn.

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
from aiocontroller.lab.kafka.acknowledged import readable_records, write_acknowledged
from aiocontroller.lab.kafka.controllers import ClusterController, KRaftController, until
from aiocontroller.lab.kafka.played_cluster import AS_SHIPPED, PlayedCluster, kraft_cluster, zookeeper_cluster
from aiocontroller.lab.kafka.view import View
from aiocontroller.lab.storms.kafka import KAFKAS, OURS, in_turns
from aiocontroller.lab.storms.unclean import Options

KRAFT = KRaftController.name
CONTROLLERS = (OURS, KAFKAS, KRAFT)
KRAFT_SINCE = (3, 3)
"""The first release whose KRaft mode is ready for production."""
SETTINGS = AS_SHIPPED | {"replica.lag.time.max.ms": "1500"}
"""Kafka's default session timeout: a broker that needs more than half of it to stop counts as started uncleanly."""
AT_ONCE = 20
"""The most partitions of one story."""
WRITTEN = range(50, 301)
"""Possible numbers of records in a phase."""
LONGEST_CUT = 0.6
"""The largest share of a log that is cut off."""
ALONE_S = 2.0
"""The time for an election while only the complete replica is back."""


class Planned(NamedTuple):
    """One partition of a story."""

    replicas: tuple[int, ...]
    written: tuple[int, int]
    """The records written with three replicas in sync, and with two."""
    cut: float
    """The share of the last broker's log that is lost."""


class Story(NamedTuple):
    """A sequence of events that is played under each controller."""

    order: tuple[int, ...]
    """Brokers in the order in which they stop; the last one loses power."""
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
    """Draw enough stories for this number of trials."""
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


def played(version: str, only: Sequence[str] = ()) -> list[str]:
    """Return the requested ones of CONTROLLERS, by default all of the release; ValueError for any other name."""
    has_kraft = tuple(map(int, version.split(".")[:2])) >= KRAFT_SINCE
    known = [name for name in CONTROLLERS if name != KRAFT or has_kraft]
    for name in only:
        if name not in known:
            raise ValueError(f"found {name!r}, expected one of {', '.join(known)} with Kafka {version}")
    return [name for name in known if name in only or not only]


class PowerLossStorm:
    """Plays every story under the controllers of one cluster, in turns."""

    def __init__(self, cluster: PlayedCluster, options: Options, console: Console) -> None:
        self.trials: list[Trial] = []
        self._cluster, self._options, self._console = cluster, options, console
        self._started = time.monotonic()
        self._topics = 0

    async def run(self, names: Sequence[str]) -> None:
        all_stories = stories(self._options.seed, self._options.trials, sorted(self._cluster.brokers))
        async for name, story, trials in in_turns(self._cluster, all_stories, self._play, names):
            self.trials += trials
            lost = [trial.lost for trial in trials if trial.lost]
            self._console.print(
                f"{time.monotonic() - self._started:6.0f} s  {name}: broker {story.order[-1]} lost power; "
                f"{len(lost)} of {len(trials)} partitions lost {sum(lost)} acknowledged records",
                markup=False,
            )

    async def _play(self, story: Story, controller: ClusterController) -> list[Trial]:
        cluster, brokers = self._cluster, self._cluster.brokers
        first, second, last = story.order
        self._topics += 1
        topic = f"power-{self._topics}"
        planned = dict(enumerate(story.partitions))
        await cluster.create_topic(topic, {n: each.replicas for n, each in planned.items()})
        for phase, stopping in enumerate((first, second)):
            alive = set(story.order[phase:])
            await self._in_sync(topic, alive)
            bootstrap = ",".join(brokers[broker].address for broker in sorted(alive))
            counts = {n: each.written[phase] for n, each in planned.items()}
            await asyncio.to_thread(write_acknowledged, bootstrap, topic, counts)
            await brokers[stopping].stop_async()
        await self._in_sync(topic, {last})
        brokers[last].kill()
        for number, each in planned.items():
            cut_off(brokers[last], f"{topic}-{number}", each.cut)
        await cluster.start(brokers[second])
        await asyncio.sleep(ALONE_S)
        await cluster.start(brokers[last])
        view = await self._in_sync(topic, {second, last})
        trials = []
        bootstrap = ",".join(brokers[broker].address for broker in (second, last))
        for number, each in planned.items():
            end = await readable_records(bootstrap, topic, number)
            acknowledged = sum(each.written)
            leader = view[topic, number].leader
            trials.append(Trial(controller.name, story.order, acknowledged, leader, acknowledged - end))
        await cluster.heal()
        await self._in_sync(topic, set(story.order))
        await cluster.delete_topic(topic)
        return trials

    async def _in_sync(self, topic: str, brokers: set[int]) -> View:
        """Wait until every partition is led by one of these brokers, and they are its ISR."""

        async def reached() -> View | None:
            view = await self._cluster.look_at([topic])
            led = bool(view) and all(each.leader in brokers and each.isr == brokers for each in view.values())
            return view if led else None

        view: View = await until(reached, f"{brokers} are in sync")
        return view


def cut_off(broker: RealKafkaBroker, partition: str, share: float) -> None:
    """Cut off the end of the last segment of a dead broker's log."""
    segment = max((broker.data_dir / "logs" / partition).glob("*.log"))
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(int(size * (1 - share)))


async def storm(options: Options, folder: Path, console: Console, *, names: Sequence[str] = CONTROLLERS) -> Report:
    """Play all stories under these controllers, in new clusters whose files are in the folder."""
    version = options.version
    ours = zookeeper_cluster(folder / "zk", overrides=SETTINGS, properties=options.properties, version=version)
    theirs = kraft_cluster(folder / KRAFT, overrides=SETTINGS, version=version)
    report = Report(options.seed, version, [], "")
    for started, of_cluster in ((ours, (OURS, KAFKAS)), (theirs, (KRAFT,))):
        chosen = [name for name in of_cluster if name in names]
        if not chosen or report.unfinished:
            continue
        async with started as cluster:
            console.print(f"three Kafka {version} brokers are up, for {' and '.join(chosen)}")
            run = PowerLossStorm(cluster, options, console)
            try:
                await run.run(chosen)
            except (TimeoutError, AssertionError) as error:
                report.unfinished = str(error)
                console.print(f"the storm ends early: {error}", style="red", markup=False)
            report.trials += run.trials
    return report


def show(report: Report, console: Console) -> None:
    table = Table(title=f"Kafka {report.version}, seed {report.seed}: acknowledged records after a power loss")
    for heading in ("controller", "trials", "acknowledged", "lost", "partitions that lost some", "most lost"):
        table.add_column(heading, justify="left" if heading == "controller" else "right")
    for name in CONTROLLERS:
        if own := report.of(name):
            lost = [trial.lost for trial in own]
            figures = (len(own), sum(trial.acknowledged for trial in own), sum(lost), sum(map(bool, lost)), max(lost))
            table.add_row(name, *map(str, figures))
    console.print(table)
