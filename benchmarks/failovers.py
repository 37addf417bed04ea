"""Measures how long failovers take under a storm: the distribution, side by side with Kafka's.

    scripts/bench failovers --failovers 30 --seed 7 --against kafka

The seed draws a schedule of episodes, the same for every subject.  Each episode contains a failover: alone, with
brokers that die during it, with a broker failure during which the controller dies, with brokers that flap, with
ZooKeeper's leader killed during it (``--ensemble``).  Detection is not measured: a dead process's znode is deleted at
once.  An episode's time runs from the first fault to the last byte of the last request.  Then every live broker must
know what is in ZooKeeper, and everything is healed before the next episode.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import plotly.graph_objects as go
from rich.console import Console
from rich.table import Table

from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.from_aiozk import exc
from benchmarks.controller.cases import Bench
from benchmarks.controller.figures import PEER, wide_console
from benchmarks.controller.page import COLOURS, document
from benchmarks.controller.preloaded_cluster import add_data_options, preloaded_cluster, shape_of
from benchmarks.controller.subjects import SUBJECTS, Subject

MAX_PAUSE_S = 0.5
BINS = 12


class Episode(NamedTuple):
    kind: str
    brokers: tuple[int, ...]
    pauses: tuple[float, ...]
    """Seconds between its faults."""


class Took(msgspec.Struct):
    subject: str
    kind: str
    seconds: float


def schedule(seed: int, failovers: int, *, ensemble: bool, brokers: int) -> list[Episode]:
    """Draw the episodes, which are the same for every subject; each kind occurs about equally often."""
    rng = random.Random(seed)
    kinds = [kind for kind in KINDS if ensemble or kind != "ZooKeeper's leader dies inside"]
    drawn = [kinds[i % len(kinds)] for i in range(failovers)]
    rng.shuffle(drawn)
    episodes = []
    for kind in drawn:
        some = tuple(rng.sample(range(1, brokers + 1), rng.choice((1, 1, 2))))
        episodes.append(Episode(kind, some, tuple(round(rng.uniform(0, MAX_PAUSE_S), 3) for _ in range(4))))
    return episodes


async def delete_controller_znode(bench: Bench) -> None:
    try:
        await bench.zk.client.delete(paths.CONTROLLER)
    except exc.NoNode:
        pass  # between two controllers


async def kill_controller(bench: Bench) -> int:
    """Kill the active controller by SIGKILL and delete its registration at once; return its id."""
    active = await bench.subject.active(bench.zk)
    bench.subject.kill_one(active)
    await delete_controller_znode(bench)
    return active


async def alone(bench: Bench, episode: Episode) -> None:
    await delete_controller_znode(bench)


async def controller_killed(bench: Bench, episode: Episode) -> None:
    await kill_controller(bench)


async def brokers_die_inside(bench: Bench, episode: Episode) -> None:
    await delete_controller_znode(bench)
    for broker, pause in zip(episode.brokers, episode.pauses, strict=False):
        await asyncio.sleep(pause)
        await bench.brokers.ask_async(f"kill-broker {broker}")


async def controller_dies_inside(bench: Bench, episode: Episode) -> None:
    for broker in episode.brokers:
        await bench.brokers.ask_async(f"kill-broker {broker}")
    await asyncio.sleep(episode.pauses[0])
    await kill_controller(bench)


async def brokers_flap(bench: Bench, episode: Episode) -> None:
    await delete_controller_znode(bench)
    for broker in episode.brokers:
        for pause in episode.pauses[:2]:
            await bench.brokers.ask_async(f"kill-broker {broker}")
            await asyncio.sleep(pause)
            await bench.brokers.ask_async(f"start-broker {broker}")


async def zookeepers_leader_dies_inside(bench: Bench, episode: Episode) -> None:
    await delete_controller_znode(bench)
    await asyncio.sleep(episode.pauses[0])
    leader = next(server for server in bench.cluster.servers if server.mode() == "leader")
    leader.kill()
    await asyncio.sleep(1 + episode.pauses[1])
    await leader.start_async()


KINDS: dict[str, Callable[[Bench, Episode], Awaitable[None]]] = {
    "failover": alone,
    "controller is killed": controller_killed,
    "brokers die inside": brokers_die_inside,
    "controller dies inside a broker failure": controller_dies_inside,
    "brokers flap": brokers_flap,
    "ZooKeeper's leader dies inside": zookeepers_leader_dies_inside,
}


async def play(bench: Bench, episode: Episode) -> float:
    """Play an episode; return the seconds from the first fault to the last request."""
    await bench.brokers.ask_async("mark")
    started = time.monotonic()
    await KINDS[episode.kind](bench, episode)
    ended = await bench.brokers.quiet(started, bench.whole_quiet_s)
    await bench.check_in_time()
    await heal(bench)
    return ended - started


async def heal(bench: Bench) -> None:
    for number in await bench.brokers.ask_async("dead"):
        back: float = await bench.brokers.ask_async(f"start-broker {number}")
        await bench.brokers.quiet(back, bench.whole_quiet_s)
    for number in bench.subject.ids:
        if not bench.subject.running(number):
            await bench.subject.start_one(number)
    await bench.heal()
    await bench.check_in_time()


async def storm(kind: type[Subject], given: argparse.Namespace, console: Console) -> list[Took]:
    shape = shape_of(given)
    episodes = schedule(given.seed, given.failovers, ensemble=given.ensemble, brokers=shape.brokers)
    took: list[Took] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) if given.keep is None else given.keep / kind.name
        async with preloaded_cluster(folder, shape, ensemble=given.ensemble) as cluster:
            subject = kind(cluster.zookeeper, folder, given.property)
            bench = Bench(cluster, subject)
            try:
                await subject.start()
                await cluster.brokers.quiet(0.0, bench.whole_quiet_s)
                for number, episode in enumerate(episodes, start=1):
                    seconds = await play(bench, episode)
                    took.append(Took(kind.name, episode.kind, round(seconds, 4)))
                    console.print(
                        f"{kind.name}  {number}/{len(episodes)}  {episode.kind:<40} {seconds:7.3f} s", highlight=False
                    )
            finally:
                subject.stop()
    return took


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, -int(-share * len(ordered) // 1) - 1))]


def show(took: Sequence[Took], partitions: int) -> None:
    console = wide_console()
    table = Table(title=f"failovers under a storm, {partitions:,} partitions, seconds")
    for heading in ("kind", "subject", "n", "p50", "p90", "p99", "max"):
        table.add_column(heading, justify="left" if heading in ("kind", "subject") else "right")
    subjects = list(dict.fromkeys(t.subject for t in took))
    for kind in ("all", *dict.fromkeys(t.kind for t in took)):
        for subject in subjects:
            own = [t.seconds for t in took if t.subject == subject and kind in ("all", t.kind)]
            figures = (statistics.median(own), percentile(own, 0.9), percentile(own, 0.99), max(own))
            table.add_row(kind, subject, str(len(own)), *(f"{value:.3f}" for value in figures))
        table.add_section()
    console.print(table)
    for subject in subjects:
        console.print(f"{subject}:")
        for line in histogram([t.seconds for t in took if t.subject == subject]):
            console.print("  " + line, highlight=False)
    if len(subjects) > 1:
        medians = {s: statistics.median(t.seconds for t in took if t.subject == s) for s in subjects}
        peer = next(s for s in subjects if s.startswith(PEER))
        console.print(f"median of Kafka over ours: {medians[peer] / medians['aiocontroller']:.1f}")


def histogram(values: Sequence[float]) -> list[str]:
    """Return a histogram with bins of equal width in seconds, one a line."""
    low, high = min(values), max(values)
    width = (high - low) / BINS or 1.0
    counts = [0] * BINS
    for value in values:
        counts[min(BINS - 1, int((value - low) / width))] += 1
    return [f"{low + i * width:7.2f} s  {'█' * n}{' ' if n else ''}{n or ''}".rstrip() for i, n in enumerate(counts)]


def write_page(file: Path, took: Sequence[Took], given: argparse.Namespace) -> None:
    figure, box = go.Figure(), go.Figure()
    for subject in dict.fromkeys(t.subject for t in took):
        own = sorted(t.seconds for t in took if t.subject == subject)
        shares = [(i + 1) / len(own) for i in range(len(own))]
        line = {"shape": "hv", "color": COLOURS.get(subject)}
        figure.add_scatter(x=own, y=shares, name=subject, mode="lines+markers", line=line)
        kinds = [t.kind for t in took if t.subject == subject]
        seconds = [t.seconds for t in took if t.subject == subject]
        box.add_box(
            x=seconds, y=kinds, name=subject, orientation="h", boxpoints="all", marker_color=COLOURS.get(subject)
        )
    figure.update_layout(xaxis={"title": "seconds", "type": "log"}, yaxis={"title": "share of failovers"}, height=420)
    box.update_layout(xaxis={"title": "seconds", "type": "log"}, boxmode="group", height=520)
    sentence = "The share of failovers that were over after so many seconds; further left is faster."
    title = f"Failover storm: {given.partitions:,} partitions, {given.failovers} failovers, seed {given.seed}"
    kinds_sentence = "Each dot is one failover. The same schedule for every subject."
    file.write_text(document(title, [("Distribution", sentence, figure), ("By kind", kinds_sentence, box)]))


async def run(given: argparse.Namespace) -> list[Took]:
    console = Console(stderr=True)
    names = ["aiocontroller", *([] if given.against == "none" else [given.against])]
    return [took for name in names for took in await storm(SUBJECTS[name], given, console)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench failovers", description="Failovers under a storm.")
    parser.add_argument("--failovers", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int)
    add_data_options(parser)
    parser.add_argument("--against", choices=("none", "kafka", "kafka-1000"), default="kafka")
    parser.add_argument("--ensemble", action="store_true", help="three ZooKeeper servers, whose leader dies too")
    parser.add_argument("--property", action="append", default=[], help="name=value for aiocontroller; repeatable")
    parser.add_argument("--keep", type=Path, help="leave logs and journals in this folder")
    parser.add_argument("--json", type=Path, help="also write each failover to this file")
    parser.add_argument("--report", type=Path, help="also write a page (HTML) to this file")
    given = parser.parse_args()
    given.topics = given.topics or max(1, given.partitions // 100)
    took = asyncio.run(run(given))
    show(took, given.partitions)
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(took)))
    if given.report is not None:
        write_page(given.report, took, given)


if __name__ == "__main__":
    main()
