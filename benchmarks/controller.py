"""The controller against Kafka's own, on the same ZooKeeper and the same brokers, in one run.

    scripts/bench controller [--partitions 100000] [--topics 1000] [--runs 3] [--against kafka] [--json FILE]

Recording brokers (one process, no partition logs) answer at once.  A subject is a command line: two instances of
aiocontroller, or two Kafka 3.9 brokers that hold no partitions.  The zero point is just before the change in ZooKeeper
that starts an event; the end is the last byte of the last request at the last broker.  Completeness is checked: each
broker must have been told of every partition, or of every one that changed.

 * failover: ``/controller`` is deleted; one of the two instances wins, loads, and tells everybody everything;
 * broker failure: one broker's registration goes; first and last LeaderAndIsr;
 * broker startup: it registers again; its last UpdateMetadata;
 * controlled shutdown: until the broker is answered.

Times on a machine that others use too are worth little; the ratio of two subjects in one run is worth more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from aiocontroller.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.cluster.processes import Child
from aiocontroller.cluster.real_kafka import RealKafkaBroker
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper import znodes
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.writes import Create

BROKERS = 10
REPLICATION_FACTOR = 3
QUIET_S = 1.5
"""An event is over when no broker has heard anything for this long, and a second more for each 10,000 partitions."""
CASES = ("failover", "broker failure", "first LeaderAndIsr", "broker startup", "controlled shutdown")


class RecordingBrokers:
    """The process of ``benchmarks.recording_brokers``."""

    def __init__(self, zookeeper: str, quiet_s: float) -> None:
        self._quiet_s = quiet_s
        command = [sys.executable, "-m", "benchmarks.recording_brokers", "--zookeeper", zookeeper]
        self._process = subprocess.Popen(
            [*command, "--brokers", str(BROKERS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the recording brokers ended")
        return json.loads(line)

    def ask(self, command: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        return self._answer()

    async def quiet(self, since: float, within_s: float = 300.0) -> float:
        """Wait until nobody has heard anything for a while; the time of the last request."""
        deadline = time.monotonic() + within_s
        while True:
            await asyncio.sleep(0.1)
            latest: float = self.ask("latest")
            if latest > since and time.monotonic() - latest > self._quiet_s:
                return latest
            if time.monotonic() > deadline:
                raise TimeoutError("the controller said nothing, or did not stop")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class Subject:
    """Something that can be controller, twice."""

    name = "?"

    def __init__(self, zookeeper: str, folder: Path) -> None:
        self.zookeeper = zookeeper
        self.folder = folder

    async def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    async def address(self, zk: KafkaZkClient) -> tuple[str, int]:
        """Where the one in office takes ControlledShutdown."""
        raise NotImplementedError


class Ours(Subject):
    name = "aiocontroller"

    async def start(self) -> None:
        self._children: list[Child] = []
        for number in range(2):
            folder = self.folder / f"ours-{number}"
            folder.mkdir(parents=True)
            command = [sys.executable, "-m", "aiocontroller", "run", "--zookeeper", self.zookeeper]
            command += ["--id", str(1_000_001 + number), "--http-port", "0", "--data", str(folder)]
            command += ["--property", "auto.leader.rebalance.enable=false"]
            child = Child(f"aiocontroller {number}", command, log=folder / "log")
            self._children.append(child)
            await child.wait_until_async((folder / "controller.json").exists, 60)

    def stop(self) -> None:
        for child in self._children:
            child.kill()

    async def address(self, zk: KafkaZkClient) -> tuple[str, int]:
        holder = await zk.get_controller(watch=False)
        number = getattr(holder, "controller_id", 0) - 1_000_001
        found = json.loads((self.folder / f"ours-{number}" / "controller.json").read_text())
        listener = found["listeners"][0] if isinstance(found["listeners"], list) else found["listeners"]
        host, port = str(listener).rsplit("/", 1)[1].rsplit(":", 1)
        return host, int(port)


class Kafkas(Subject):
    name = "kafka"

    def __init__(self, zookeeper: str, folder: Path) -> None:
        super().__init__(zookeeper, folder)
        self._brokers = [
            RealKafkaBroker(
                1000 + n,
                zookeeper,
                folder / f"kafka-{n}",
                overrides={"auto.leader.rebalance.enable": "false", "reserved.broker.max.id": "2000"},
                heap_mb=3000,
            )
            for n in (1, 2)
        ]

    async def start(self) -> None:
        for broker in self._brokers:
            await broker.start_async()

    def stop(self) -> None:
        for broker in self._brokers:
            broker.kill()

    async def address(self, zk: KafkaZkClient) -> tuple[str, int]:
        holder = await zk.get_controller(watch=False)
        broker = next(b for b in self._brokers if b.id == getattr(holder, "controller_id", 0))
        return "127.0.0.1", broker.port


async def preload(client: ZooKeeperClient, zk: KafkaZkClient, topics: int, partitions: int) -> None:
    """The znodes of a cluster that has run before: topics, states, a controller epoch."""
    await zk.create_top_level_paths()
    await client.write_many([Create("/controller_epoch", b"1")], fence=None)
    _, fence = await zk.get_controller_epoch() or (0, 0)
    names = [f"topic-{t:05}" for t in range(topics)]
    replicas = {
        (t, p): tuple((t + p + i * (1 + t % 3)) % BROKERS + 1 for i in range(REPLICATION_FACTOR))
        for t in range(topics)
        for p in range(partitions)
    }
    assignments = [
        TopicAssignment(
            name,
            (t + 1).to_bytes(16, "big"),
            {p: ReplicaAssignment(replicas[t, p]) for p in range(partitions)},
        )
        for t, name in enumerate(names)
    ]
    await client.write_many(
        [Create(f"/brokers/topics/{a.topic}", znodes.encode_topic(a)) for a in assignments], fence=None
    )
    keys = list(replicas)
    states = [LeaderAndIsr(replicas[key][0], 0, replicas[key], 1, -1) for key in keys]
    await zk.create_topic_partition_states([names[t] for t, _ in keys], [p for _, p in keys], states, fence=fence)


class Measurement:
    def __init__(self, brokers: RecordingBrokers, zk: KafkaZkClient, subject: Subject, total: int) -> None:
        self.brokers = brokers
        self.zk = zk
        self.subject = subject
        self.total = total
        self.seconds: dict[str, list[float]] = {case: [] for case in CASES}

    async def once(self, victim: int) -> None:
        await self._failover()
        await self._broker_failure(victim)
        await self._startup(victim)
        await self._controlled_shutdown(victim)

    async def _failover(self) -> None:
        self.brokers.ask("mark")
        started = time.monotonic()
        await self.zk.client.delete("/controller")
        ended = await self.brokers.quiet(started)
        heard = self.brokers.ask("heard")
        told = sum(report["partitions"].get("LEADER_AND_ISR", 0) for report in heard.values())
        assert told >= self.total * REPLICATION_FACTOR, (
            f"{told} of {self.total * REPLICATION_FACTOR} replicas were told"
        )
        self.seconds["failover"].append(ended - started)

    async def _broker_failure(self, victim: int) -> None:
        self.brokers.ask("mark")
        started: float = self.brokers.ask(f"kill {victim}")
        await self.brokers.quiet(started)
        heard = {n: report for n, report in self.brokers.ask("heard").items() if int(n) != victim}
        informed = [r for r in heard.values() if "LEADER_AND_ISR" in r["last"]]
        changed = self.total * REPLICATION_FACTOR // BROKERS
        for number, report in heard.items():
            known = report["partitions"].get("UPDATE_METADATA", 0)
            assert known >= changed, f"broker {number} was told of {known} partitions, {changed} changed"
        self.seconds["broker failure"].append(max(r["last"]["LEADER_AND_ISR"] for r in informed) - started)
        self.seconds["first LeaderAndIsr"].append(min(r["first"]["LEADER_AND_ISR"] for r in informed) - started)

    async def _startup(self, victim: int) -> None:
        self.brokers.ask("mark")
        started: float = self.brokers.ask(f"start {victim}")
        await self.brokers.quiet(started)
        report = self.brokers.ask("heard")[str(victim)]
        assert report["partitions"]["UPDATE_METADATA"] >= self.total
        self.seconds["broker startup"].append(report["last"]["UPDATE_METADATA"] - started)

    async def _controlled_shutdown(self, victim: int) -> None:
        other = victim % BROKERS + 1
        host, port = await self.subject.address(self.zk)
        self.brokers.ask("mark")
        started = time.monotonic()
        self.seconds["controlled shutdown"].append(self.brokers.ask(f"shutdown {other} {host} {port}"))
        await self.brokers.quiet(started)
        for command in (f"kill {other}", f"start {other}"):
            await self.brokers.quiet(self.brokers.ask(command))


Stage = tuple[str, KafkaZkClient, RecordingBrokers]


@asynccontextmanager
async def stage(
    folder: Path, topics: int, partitions: int
) -> AsyncIterator[tuple[str, KafkaZkClient, RecordingBrokers]]:
    zookeeper = EmbeddedZooKeeper(folder / "zookeeper", heap_mb=2000)
    await zookeeper.start_async()
    client = ZooKeeperClient(zookeeper.address, world=real_world(), session_timeout_s=30)
    brokers: RecordingBrokers | None = None
    try:
        await client.start(30)
        zk = KafkaZkClient(client)
        await preload(client, zk, topics, partitions)
        brokers = await asyncio.to_thread(RecordingBrokers, zookeeper.address, QUIET_S + topics * partitions / 10_000)
        yield zookeeper.address, zk, brokers
    finally:
        if brokers is not None:
            brokers.stop()
        await client.close()
        zookeeper.stop()


async def measure(kind: type[Subject], given: argparse.Namespace, progress: Progress) -> dict[str, list[float]]:
    per_topic = given.partitions // given.topics
    task = progress.add_task(kind.name, total=given.runs + 2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) if given.keep is None else given.keep / kind.name
        async with stage(folder, given.topics, per_topic) as (address, zk, brokers):
            progress.advance(task)
            subject = kind(address, folder)
            started = time.monotonic()
            try:
                await subject.start()
                await brokers.quiet(started)
                progress.advance(task)
                measurement = Measurement(brokers, zk, subject, given.topics * per_topic)
                for run in range(given.runs):
                    await measurement.once(run % BROKERS + 1)
                    progress.advance(task)
            finally:
                subject.stop()
    return measurement.seconds


class Row(msgspec.Struct):
    case: str
    partitions: int
    subject: str
    median_s: float
    min_s: float
    max_s: float
    runs: int
    ratio: float | None
    """How many times longer the peer took; None for the peer itself, or without one."""


def rows_of(results: dict[str, dict[str, list[float]]], partitions: int) -> list[Row]:
    rows = []
    for case in CASES:
        for name, seconds in results.items():
            values = seconds[case]
            median = statistics.median(values)
            peer = results.get("kafka") if name != "kafka" else None
            ratio = None if peer is None else round(statistics.median(peer[case]) / median, 1)
            numbers = (round(v, 4) for v in (median, min(values), max(values)))
            rows.append(Row(case, partitions, name, *numbers, len(values), ratio))
    return rows


def show(rows: list[Row]) -> None:
    table = Table(title=f"{rows[0].partitions:,} partitions on {BROKERS} brokers, seconds")
    for heading in ("case", "subject", "median", "min", "max", "runs", "times faster"):
        table.add_column(heading, justify="left" if heading in ("case", "subject") else "right")
    for row in rows:
        ratio = "" if row.ratio is None else f"{row.ratio:.1f}"
        table.add_row(
            row.case, row.subject, f"{row.median_s:.3f}", f"{row.min_s:.3f}", f"{row.max_s:.3f}", str(row.runs), ratio
        )
    Console().print(table)


async def compare(given: argparse.Namespace) -> list[Row]:
    kinds: list[type[Subject]] = [Ours, Kafkas] if given.against == "kafka" else [Ours]
    with Progress(console=Console(stderr=True)) as progress:
        results = {kind.name: await measure(kind, given, progress) for kind in kinds}
    return rows_of(results, given.partitions)


def main() -> None:
    parser = argparse.ArgumentParser(description="The controller against Kafka's own.")
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--against", choices=("kafka", "nobody"), default="nobody")
    parser.add_argument("--keep", type=Path, help="leave logs and journals in this folder")
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    given = parser.parse_args()
    rows = asyncio.run(compare(given))
    show(rows)
    if given.json is not None:
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(rows)))


if __name__ == "__main__":
    main()
