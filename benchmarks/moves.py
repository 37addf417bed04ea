"""Measures what producers notice while replicas move: `aiocontroller move` beside Kafka's own tool without throttles.

    scripts/bench moves [--rounds 3] [--replicas 200] [--megabytes 1000] [--rate 50M] [--json FILE]

Three Kafka brokers under Kafka's own controller.  A topic of `--replicas` partitions with two replicas each holds
`--megabytes`; each move takes one replica of every partition from broker 1 to broker 3, and the next one brings them
back.  Meanwhile an idempotent acks=all producer (Java's defaults) writes to another topic, of 12 partitions.
In each round both subjects move, in alternating order, each after a quiet time.  Latencies are from sending to
acknowledgement; the ratio is that of the p99 during the move to the p99 in the quiet time before it.
Exit code 1 when a record was lost or duplicated.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from aiocontroller.core.ids import TopicPartition
from aiocontroller.java import SMALL_JVM, find_java
from aiocontroller.lab.cluster.load.clients import now_us
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, kafka_jars, kafka_tools_jars
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import AS_SHIPPED, PlayedCluster, zookeeper_cluster
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient

SUBJECTS = ("aiocontroller", "kafka")
TOPIC = "bulk"
SIDES = ((1, 2), (3, 2))
PEACE_S = 15.0
RECORD_BYTES = 50_000
WITHIN_S = 1800.0


class Move(msgspec.Struct):
    """One move; latencies in ms."""

    round: int
    subject: str
    seconds: float
    peace_p50: float
    peace_p99: float
    p50: float
    p99: float
    longest: float
    load: float
    """The machine's load average when it ended."""

    @property
    def ratio(self) -> float:
        return self.p99 / self.peace_p99


def write(bootstrap: str, partitions: int, megabytes: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "queue.buffering.max.kbytes": 65_536})
    payload = os.urandom(RECORD_BYTES)
    for number in range(megabytes * 1_000_000 // RECORD_BYTES):
        while True:
            try:
                producer.produce(TOPIC, payload, partition=number % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(600) == 0


def quantiles_ms(latencies_us: list[int]) -> tuple[float, float, float]:
    """Return the median, the p99 and the longest latency."""
    cuts = statistics.quantiles(latencies_us, n=100)
    return cuts[49] / 1000, cuts[98] / 1000, max(latencies_us) / 1000


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path, cluster: PlayedCluster) -> None:
        self.options, self.folder, self.cluster = options, folder, cluster
        ours = cluster.controllers["aiocontroller"]
        assert isinstance(ours, OurController)
        self.zk, self.zookeeper = ours.zk, next(iter(cluster.brokers.values())).zookeeper
        self.side = 0

    async def prepare(self) -> None:
        replicas = self.options.replicas
        await AdminZkClient(self.zk).create_topic(TOPIC, dict.fromkeys(range(replicas), SIDES[0]))
        await until(self.settled, "the topic is led")
        await asyncio.to_thread(write, self.cluster.bootstrap, replicas, self.options.megabytes)
        await self.cluster.open_load(["java"], 12, self.folder / "load", DEFAULT_VERSION)

    async def settled(self) -> bool:
        """Whether every partition is on the brokers of this side, with all its replicas in sync."""
        partitions = range(self.options.replicas)
        (topic,) = (await self.zk.get_topic_assignments([TOPIC], watch=False)).found
        states = await self.zk.get_topic_partition_states([TOPIC] * len(partitions), list(partitions))
        return all(topic.partitions[n].replicas == SIDES[self.side] for n in partitions) and all(
            set(getattr(state, "isr", ())) == set(SIDES[self.side]) for state in states
        )

    async def move(self, number: int, subject: str) -> Move:
        await self.cluster.load.settled()
        began_us = now_us()
        await asyncio.sleep(PEACE_S)
        peace = self.latencies(began_us, now_us())
        self.side = 1 - self.side
        plan = self.folder / f"plan-{number}-{subject}.json"
        targets = {TopicPartition(TOPIC, n): SIDES[self.side] for n in range(self.options.replicas)}
        entries = [{"topic": tp.topic, "partition": tp.partition, "replicas": to} for tp, to in targets.items()]
        plan.write_text(json.dumps({"version": 1, "partitions": entries}))
        began_us, began = now_us(), time.monotonic()
        await self.run(self.ours(plan) if subject == "aiocontroller" else self.kafkas(plan), plan.with_suffix(".log"))
        await until(self.settled, "the move has ended", within_s=WITHIN_S)
        seconds = time.monotonic() - began
        await self.cluster.load.settled()
        moved = self.latencies(began_us, began_us + int(seconds * 1e6))
        return Move(
            number,
            subject,
            seconds,
            *quantiles_ms(peace)[:2],
            *quantiles_ms(moved),
            os.getloadavg()[0],
        )

    def latencies(self, since_us: int, until_us: int) -> list[int]:
        return [
            each for tally in self.cluster.load.tallies().values() for each in tally.latencies_us(since_us, until_us)
        ]

    def ours(self, plan: Path) -> list[str]:
        bounds = ["--rate", self.options.rate, "--at-once", str(self.options.at_once)]
        return [
            *(sys.executable, "-m", "aiocontroller", "move", "--plan", str(plan), "--zookeeper", self.zookeeper),
            *bounds,
        ]

    def kafkas(self, plan: Path) -> list[str]:
        jars = f"{kafka_jars()}/*:{kafka_tools_jars()}/*"
        main = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        return [
            *(str(find_java()), *SMALL_JVM, "-Xmx128m", "-cp", jars, main),
            *("--bootstrap-server", self.cluster.bootstrap, "--reassignment-json-file", str(plan), "--execute"),
        ]

    async def run(self, command: list[str], log: Path) -> None:
        with log.open("wb") as out:
            process = await asyncio.create_subprocess_exec(*command, stdout=out, stderr=out)
            code = await process.wait()
        if code:
            output = await asyncio.to_thread(log.read_text)
            raise SystemExit(f"{command}: exit code {code}:\n{output[-2000:]}")


def shown(move: Move) -> str:
    return (
        f"round {move.round} {move.subject:13} {move.seconds:6.1f} s; "
        f"p99 {move.peace_p99:7.1f} -> {move.p99:7.1f} ms (x {move.ratio:.2f}), "
        f"p50 {move.peace_p50:.1f} -> {move.p50:.1f}, longest {move.longest:.0f}; load {move.load:.1f}"
    )


async def measure(options: argparse.Namespace, folder: Path) -> tuple[list[Move], bool]:
    moves: list[Move] = []
    async with zookeeper_cluster(folder, overrides=AS_SHIPPED) as cluster:
        bench = Bench(options, folder, cluster)
        await bench.prepare()
        for number in range(options.rounds):
            for subject in SUBJECTS if number % 2 == 0 else SUBJECTS[::-1]:
                moves.append(await bench.move(number + 1, subject))
                print(shown(moves[-1]), flush=True)
        verdicts = await cluster.load.finish()
    return moves, all(verdict.ok for verdict in verdicts.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/bench moves", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--replicas", type=int, default=200, help="to move (default 200)")
    parser.add_argument("--megabytes", type=int, default=1000, help="of the replicas together (default 1000)")
    parser.add_argument("--rate", default="50M", help="of aiocontroller move (default 50M)")
    parser.add_argument("--at-once", type=int, default=5, help="of aiocontroller move (default 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write everything to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-moves-") as name:
        moves, kept = asyncio.run(measure(options, Path(name)))
    for subject in SUBJECTS:
        ratios = sorted(move.ratio for move in moves if move.subject == subject)
        seconds = statistics.median(move.seconds for move in moves if move.subject == subject)
        spread = f"median of {len(ratios)}; {ratios[0]:.2f} to {ratios[-1]:.2f}"
        print(f"{subject}: p99 x {statistics.median(ratios):.2f} ({spread}), {seconds:.0f} s")
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(moves), indent=1) + b"\n")
    print("every acknowledged record is there, once" if kept else "RECORDS WERE LOST OR DOUBLED")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
