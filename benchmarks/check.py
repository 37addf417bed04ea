"""Measures how long the commands ``aiocontroller check`` and ``what-if`` take on a large cluster.

    scripts/bench check --partitions 100000

A real ZooKeeper holds varied data: every assignment and state is drawn, a fifth of the topics have settings of their
own, and one broker is down, so that a third of the partitions have a problem.  ``check`` looks twice, two seconds
apart; that is part of the figure.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.writes import Create
from aiocontroller.zookeeper.znodes import BrokerInfo, encode_controller
from benchmarks.controller.figures import wide_console
from benchmarks.controller.preloaded_cluster import (
    HEAP_MB_PER_MILLION,
    SERVER_JVM,
    Shape,
    add_data_options,
    preload,
    shape_of,
    topic_name,
)
from benchmarks.controller.resources import peak_rss_mib

SETTING = b'{"version":1,"config":{"min.insync.replicas":"2","retention.ms":"604800000"}}'
WITH_SETTINGS = 5
"""One in this many topics has settings of its own."""


async def populate(client: ZooKeeperClient, shape: Shape, away: int) -> None:
    """Write the znodes of a cluster whose first ``away`` brokers are down, and whose last one is the controller."""
    zk = KafkaZkClient(client)
    await preload(client, zk, shape)
    await client.write_many(
        [Create(f"/config/topics/{topic_name(number)}", SETTING) for number in range(0, shape.topics, WITH_SETTINGS)],
        fence=None,
    )
    now_ms = time.time_ns() // 1_000_000
    for number in range(1 + away, shape.brokers + 1):
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", 1)
        await zk.register_broker(BrokerInfo(Broker(number, -1, (endpoint,), f"rack-{number % 3}"), now_ms))
    content = encode_controller(shape.brokers, now_ms, software="")
    await client.write_many([Create("/controller", content, ephemeral=True)], fence=None)


def run_once(arguments: Sequence[str], codes: Sequence[int]) -> tuple[float, float]:
    """Return the seconds from the command's start to its end, and its peak memory in MiB."""
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-m", "aiocontroller", *arguments], stdout=subprocess.DEVNULL) as process:
        peak = 0.0
        while process.poll() is None:
            peak = max(peak, peak_rss_mib(process.pid))
            time.sleep(0.02)
    if process.returncode not in codes:
        raise RuntimeError(f"{' '.join(arguments)} ended with {process.returncode}")
    return time.monotonic() - began, peak


def measure(address: str, folder: Path, runs: int) -> list[tuple[str, list[float], list[float], float]]:
    """Return for each command its name, the seconds and MiB of each run, and the machine's load when it began."""
    tree = str(folder / "tree.json")
    cases = {
        "check": (["check", "--zookeeper", address], (3, 4)),
        "what-if --kill 2": (["what-if", "--zookeeper", address, "--kill", "2"], (0,)),
        "check --save-tree": (["check", "--zookeeper", address, "--save-tree", tree], (3, 4)),
        "check --tree": (["check", "--tree", tree], (3, 4)),
        "what-if --tree --kill 2": (["what-if", "--tree", tree, "--kill", "2"], (0,)),
    }
    found = []
    for name, (arguments, codes) in cases.items():
        load = os.getloadavg()[0]
        took = [run_once(arguments, codes) for _ in range(runs)]
        found.append((name, [seconds for seconds, _ in took], [peak for _, peak in took], load))
    return found


def show(found: Sequence[tuple[str, list[float], list[float], float]], shape: Shape, runs: int, size: int) -> None:
    table = Table(title=f"{shape.partitions:,} partitions, {shape.brokers} brokers, {runs} runs; seconds")
    for heading in ("command", "median", "least", "most", "peak MiB", "load"):
        table.add_column(heading, justify="left" if heading == "command" else "right")
    for name, took, peaks, load in found:
        figures = (statistics.median(took), min(took), max(took))
        table.add_row(name, *(f"{each:.2f}" for each in figures), f"{max(peaks):.0f}", f"{load:.1f}")
    console = wide_console()
    console.print(table)
    console.print(f"The saved tree has {size / 1e6:.1f} MB.")


async def bench(given: argparse.Namespace) -> None:
    shape = shape_of(given)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        heap_mb = 2000 + shape.partitions * HEAP_MB_PER_MILLION // 1_000_000
        keeper = EmbeddedZooKeeper(folder / "zookeeper", heap_mb=heap_mb, jvm=SERVER_JVM)
        await keeper.start_async()
        client = ZooKeeperClient(keeper.address, world=real_world(), session_timeout_s=30)
        try:
            await client.start(30)
            await populate(client, shape, given.away)
            found = await asyncio.to_thread(measure, keeper.address, folder, given.runs)
        finally:
            await client.close()
            keeper.stop()
        show(found, shape, given.runs, (folder / "tree.json").stat().st_size)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="scripts/bench check", description=__doc__.partition("\n")[0])
    parser.add_argument("--topics", type=int, default=1000, help="default: 1000")
    parser.add_argument("--partitions", type=int, default=100_000, help="default: 100000")
    parser.add_argument("--runs", type=int, default=5, help="default: 5")
    parser.add_argument("--away", type=int, default=1, help="brokers that are not registered; default: 1")
    add_data_options(parser)
    asyncio.run(bench(parser.parse_args(arguments)))


if __name__ == "__main__":
    main()
