"""Measures how long it takes to ask three brokers about leaderless partitions, and to elect their best logs.

    scripts/bench recovery [--partitions 10000] [--rounds 5] [--json FILE]

After a power cut, broker 3, the only ISR member of every partition, is dead, and brokers 1 and 2, outside the ISRs, are
live.  Then broker 3 returns from an unclean start, under ``aiocontroller.unclean.recovery.strategy=Balanced``: all
brokers are asked about every partition, and the replica with the best log leads.  ZooKeeper and the controller are
real; the brokers are a process that reports made-up logs with phantom epochs and decodes nothing else, so that the
controller is what is measured.

"asked" is the time for all questions, by the journal; "all led" runs from broker 3's registration to the last request
that announces leaders to a broker.  Each round has a controller and znodes of its own.  The benchmark ends if a leader
does not have the best log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.table import Table

from aiocontroller.core.broker_starts import BrokerStarts
from aiocontroller.core.ids import NO_LEADER, LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.journal.records import decode_record
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.processes import Child
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znodes import encode_topic
from benchmarks._log_reporting_brokers import BROKERS, log_of
from benchmarks.controller.figures import wide_console

PER_TOPIC = 100
LAST_IN_SYNC = 3
QUIET_S = 1.5
WITHIN_S = 300.0
STRATEGY = "aiocontroller.unclean.recovery.strategy=Balanced"


class Took(msgspec.Struct):
    partitions: int
    asked_s: float
    led_s: float
    load: float
    """The machine's load average of the last minute."""


class Brokers:
    """The process of the brokers."""

    def __init__(self, zookeeper: str) -> None:
        command = [sys.executable, "-m", "benchmarks._log_reporting_brokers", "--zookeeper", zookeeper]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._read()

    def ask(self, command: str) -> Any:
        assert self._process.stdin is not None
        print(command, file=self._process.stdin, flush=True)
        return self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the brokers' process ended")
        return json.loads(line)["answer"]

    async def quiet(self, since_s: float) -> float:
        """Wait until no request has come for QUIET_S; return the time of the last one.  TimeoutError if none comes at
        all, or if they do not end."""
        while True:
            await asyncio.sleep(0.1)
            latest_s: float = await asyncio.to_thread(self.ask, "latest")
            if latest_s > since_s and time.monotonic() - latest_s > QUIET_S:
                return latest_s
            if time.monotonic() > since_s + WITHIN_S:
                raise TimeoutError(f"the controller said nothing, or did not end, in {WITHIN_S:.0f} s")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def names(partitions: int) -> list[tuple[str, int]]:
    return [(f"topic-{number // PER_TOPIC:04}", number % PER_TOPIC) for number in range(partitions)]


async def preload(client: ZooKeeperClient, partitions: int) -> None:
    """Create topics whose partitions have lost their leader, broker 3, the only replica in sync."""
    zk = KafkaZkClient(client)
    await zk.create_top_level_paths()
    await client.write_many([Create("/controller_epoch", b"1")], fence=None)
    found = await zk.get_controller_epoch()
    assert found is not None
    topics: dict[str, dict[int, ReplicaAssignment]] = {}
    for topic, number in names(partitions):
        first = number % len(BROKERS)
        topics.setdefault(topic, {})[number] = ReplicaAssignment(BROKERS[first:] + BROKERS[:first])
    creations = [
        Create(f"/brokers/topics/{topic}", encode_topic(TopicAssignment(topic, (number + 1).to_bytes(16, "big"), own)))
        for number, (topic, own) in enumerate(topics.items())
    ]
    await client.write_many(creations, fence=None)
    states = [
        LeaderAndIsr(NO_LEADER, log_of(LAST_IN_SYNC, topic, number).state_epoch, (LAST_IN_SYNC,), 1, -1)
        for topic, number in names(partitions)
    ]
    each = list(zip(*names(partitions), strict=True))
    await zk.create_topic_partition_states(list(each[0]), list(each[1]), states, fence=found[1])


async def until_known(zk: KafkaZkClient) -> None:
    """Wait until the controller records brokers' starts, so that it sees that broker 3 starts uncleanly."""
    deadline_s = time.monotonic() + WITHIN_S
    while not isinstance(await zk.get_broker_starts(), BrokerStarts):
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the controller keeps no record of starts after {WITHIN_S:.0f} s")
        await asyncio.sleep(0.1)


async def until_led(zk: KafkaZkClient, partitions: int) -> None:
    """Wait until every partition has a leader; TimeoutError if one stays without."""
    topics, numbers = map(list, zip(*names(partitions), strict=True))
    deadline_s = time.monotonic() + WITHIN_S
    at = partitions - 1  # elections go in this order: while the last partition has no leader, read only its state
    while at >= 0:
        [state] = await zk.get_topic_partition_states([topics[at]], [numbers[at]])
        if isinstance(state, LeaderAndIsr) and state.leader != NO_LEADER:
            states = await zk.get_topic_partition_states(topics, numbers)
            at = max((i for i, s in enumerate(states) if not isinstance(s, LeaderAndIsr) or s.leader < 0), default=-1)
        elif time.monotonic() > deadline_s:
            raise TimeoutError(f"{topics[at]}-{numbers[at]} has no leader after {WITHIN_S:.0f} s")
        else:
            await asyncio.sleep(0.1)


async def check(zk: KafkaZkClient, partitions: int) -> None:
    """RuntimeError unless each partition's leader has one of its best logs."""
    each = list(zip(*names(partitions), strict=True))
    states = await zk.get_topic_partition_states(list(each[0]), list(each[1]))
    for (topic, number), state in zip(names(partitions), states, strict=True):
        ranks = {broker: log_of(broker, topic, number)[1:] for broker in BROKERS}
        if not isinstance(state, LeaderAndIsr) or ranks.get(state.leader) != max(ranks.values()):
            raise RuntimeError(f"{topic}-{number}: found {state}, expected the best of {ranks}")


def asked_s(folder: Path) -> float:
    """Return the seconds of the longest round of questions in the journal."""
    lines = [line for file in sorted(folder.glob("*.jsonl")) for line in file.read_bytes().splitlines(keepends=True)]
    records = [decode_record(line) for line in lines if b'"recovery"' in line and line.endswith(b"\n")]
    return max(record.duration_us or 0 for record in records) / 1e6


async def play(zookeeper: str, partitions: int, folder: Path) -> Took:
    """Play one round on a chroot of its own."""
    await asyncio.to_thread(folder.mkdir)
    client = ZooKeeperClient(zookeeper, world=real_world(), session_timeout_s=30)
    command = [sys.executable, "-m", "aiocontroller", "run", "--zookeeper", zookeeper, "--listen", "127.0.0.1:0"]
    command += ["--http-port", "0", "--data", str(folder), "--property", STRATEGY]
    brokers = await asyncio.to_thread(Brokers, zookeeper)
    controller: Child | None = None
    try:
        await client.start(30)
        await preload(client, partitions)
        for broker in BROKERS:
            if broker != LAST_IN_SYNC:
                await asyncio.to_thread(brokers.ask, f"start {broker}")
        begun_s = time.monotonic()
        controller = Child("aiocontroller", command, log=folder / "log")
        await brokers.quiet(begun_s)
        await until_known(KafkaZkClient(client))
        started_s = await asyncio.to_thread(brokers.ask, f"start {LAST_IN_SYNC}")
        await until_led(KafkaZkClient(client), partitions)
        last_s = await brokers.quiet(started_s)
        await check(KafkaZkClient(client), partitions)
        await controller.stop_async(30)  # which completes its journal
        return Took(partitions, asked_s(folder / "journal"), last_s - started_s, os.getloadavg()[0])
    finally:
        brokers.stop()
        if controller is not None:
            controller.kill()
        await client.close()


async def measure(options: argparse.Namespace) -> list[Took]:
    took = []
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as name:
        zookeeper = EmbeddedZooKeeper(Path(name) / "zookeeper", heap_mb=1000)
        await zookeeper.start_async()
        try:
            for number in range(options.rounds):
                root = ZooKeeperClient(zookeeper.address, world=real_world(), session_timeout_s=30)
                await root.start(30)
                await root.create(f"/round-{number}", data=b"")
                await root.close()
                took.append(
                    await play(f"{zookeeper.address}/round-{number}", options.partitions, Path(name) / f"{number}")
                )
                one = took[-1]
                print(f"round {number + 1}: asked {one.asked_s:.2f} s, all led {one.led_s:.2f} s", flush=True)
        finally:
            zookeeper.kill()
    return took


def table(took: Sequence[Took]) -> Table:
    shown = Table(title=f"{took[0].partitions:,} leaderless partitions on three brokers, {len(took)} rounds")
    for heading in ("", "median s", "least s", "most s"):
        shown.add_column(heading, justify="right" if heading else "left")
    for name, values in (("asked", [t.asked_s for t in took]), ("all led", [t.led_s for t in took])):
        shown.add_row(name, *(f"{value:.2f}" for value in (statistics.median(values), min(values), max(values))))
    shown.caption = f"load {min(t.load for t in took):.1f} to {max(t.load for t in took):.1f}"
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/bench recovery", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, default=10_000, help="default: 10000")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every round to this file")
    options = parser.parse_args()
    for name in ("partitions", "rounds"):
        if getattr(options, name) < 1:
            parser.error(f"--{name}: found {getattr(options, name)}, expected at least 1")
    took = asyncio.run(measure(options))
    wide_console().print(table(took))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(took), indent=1) + b"\n")


if __name__ == "__main__":
    main()
