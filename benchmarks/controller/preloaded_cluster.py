"""Sets up the cluster for a subject: ZooKeeper with the znodes of an existing cluster, and recording brokers."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper, ZooKeeperEnsemble
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper import znodes
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.writes import Create

REPLICATION_FACTOR = 3
EPOCHS, CONTROLLER_EPOCHS = 500, 20
"""Leader epochs and controller epochs of varied states are below these."""
PRELOAD_SLICE = 100_000
HEAP_MB_PER_MILLION = 4000
SERVER_JVM = ("-server", "-XX:+UseG1GC", "-Djava.awt.headless=true")


class Shape(NamedTuple):
    """The size of the cluster: ``topics`` times ``per_topic`` partitions, three replicas each, on ``brokers``.

    Varied data is like a real cluster's: replicas and the order of ISRs are drawn, with the topic as the seed, and
    states have many epochs.  Otherwise 10 brokers have 30 different assignments, and one state for each.
    """

    topics: int
    per_topic: int
    brokers: int = 10
    varied: bool = True

    @property
    def partitions(self) -> int:
        return self.topics * self.per_topic

    def replicas(self, topic: int) -> list[tuple[int, ...]]:
        """Return the replicas of each of the topic's partitions."""
        if self.varied:
            draw, everyone = random.Random(f"replicas of {topic}"), range(1, self.brokers + 1)
            return [tuple(draw.sample(everyone, REPLICATION_FACTOR)) for _ in range(self.per_topic)]
        steps = [i * (1 + topic % 3) for i in range(REPLICATION_FACTOR)]
        return [tuple((topic + p + step) % self.brokers + 1 for step in steps) for p in range(self.per_topic)]

    def states(self, topic: int) -> list[LeaderAndIsr]:
        """Return the state of each of the topic's partitions, which its first replica leads."""
        replicas = self.replicas(topic)
        if not self.varied:
            return [LeaderAndIsr(own[0], 0, own, 1, -1) for own in replicas]
        draw = random.Random(f"states of {topic}")
        return [
            LeaderAndIsr(
                own[0],
                draw.randrange(EPOCHS),
                tuple(draw.sample(own, len(own))),
                1 + draw.randrange(CONTROLLER_EPOCHS),
                -1,
            )
            for own in replicas
        ]


def add_data_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--brokers", type=int, default=10, help="default: 10")
    parser.add_argument("--uniform", action="store_true", help="few assignments and one epoch instead of varied data")


def shape_of(given: argparse.Namespace) -> Shape:
    return Shape(given.topics, given.partitions // given.topics, given.brokers, not given.uniform)


def topic_name(number: int) -> str:
    return f"topic-{number:05}"


def topic_id(number: int) -> bytes:
    return (number + 1).to_bytes(16, "big")


class RecordingBrokers:
    """The process of ``aiocontroller.lab.recording_brokers``, which takes commands on its standard input."""

    def __init__(self, zookeeper: str, brokers: int) -> None:
        command = [sys.executable, "-m", "aiocontroller.lab.recording_brokers", "--zookeeper", zookeeper]
        self._process = subprocess.Popen(
            [*command, "--brokers", str(brokers)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the recording brokers ended")
        return json.loads(line)

    def ask(self, command: str) -> Any:
        """Return the answer to a command; RuntimeError with the brokers' message if it failed."""
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer = self._read()
        if "error" in answer:
            raise RuntimeError(f"recording brokers: {answer['error']}")
        return answer["answer"]

    async def ask_async(self, command: str) -> Any:
        return await asyncio.to_thread(self.ask, command)

    async def quiet(self, since: float, quiet_s: float, within_s: float = 900.0) -> float:
        """Wait until no broker has received anything for ``quiet_s``; return the time of the last request.

        TimeoutError if no request comes at all after ``since`` (``time.monotonic``), or if they do not end.
        """
        deadline = time.monotonic() + within_s
        while True:
            await asyncio.sleep(0.1)
            latest: float = await self.ask_async("latest")
            if latest > since and time.monotonic() - latest > quiet_s:
                return latest
            if time.monotonic() > deadline:
                raise TimeoutError(f"the controller said nothing, or did not stop, in {within_s:.0f} s")

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class DelayProxy:
    """A process between the subject and ZooKeeper that delays every byte by ``rtt_ms / 2`` each way."""

    def __init__(self, zookeeper: str, rtt_ms: float) -> None:
        command = [sys.executable, "-m", "benchmarks.controller.delay_proxy", zookeeper, str(rtt_ms)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


class PreloadedCluster(NamedTuple):
    zookeeper: str
    """The address for the subject: behind the delay, if there is one."""

    servers: list[EmbeddedZooKeeper]
    zk: KafkaZkClient
    brokers: RecordingBrokers
    shape: Shape


@asynccontextmanager
async def preloaded_cluster(
    folder: Path, shape: Shape, *, rtt_ms: float = 0.0, ensemble: bool = False
) -> AsyncIterator[PreloadedCluster]:
    heap_mb = 2000 + shape.partitions * HEAP_MB_PER_MILLION // 1_000_000
    keeper: EmbeddedZooKeeper | ZooKeeperEnsemble
    if ensemble:
        keeper = ZooKeeperEnsemble(folder / "zookeeper", heap_mb=heap_mb)
        await asyncio.to_thread(keeper.start)
        servers = keeper.servers
    else:
        keeper = EmbeddedZooKeeper(folder / "zookeeper", heap_mb=heap_mb, force_sync=True, jvm=SERVER_JVM)
        await keeper.start_async()
        servers = [keeper]
    client = ZooKeeperClient(keeper.address, world=real_world(), session_timeout_s=30)
    brokers: RecordingBrokers | None = None
    proxy: DelayProxy | None = None
    try:
        await client.start(30)
        zk = KafkaZkClient(client)
        await preload(client, zk, shape)
        brokers = await asyncio.to_thread(RecordingBrokers, keeper.address, shape.brokers)
        if rtt_ms > 0:
            proxy = await asyncio.to_thread(DelayProxy, keeper.address, rtt_ms)
        yield PreloadedCluster(proxy.address if proxy else keeper.address, servers, zk, brokers, shape)
    finally:
        if proxy is not None:
            proxy.stop()
        if brokers is not None:
            brokers.stop()
        await client.close()
        keeper.stop()


async def preload(client: ZooKeeperClient, zk: KafkaZkClient, shape: Shape) -> None:
    """Write the znodes of a cluster that has run before: a controller epoch, topics, states."""
    await zk.create_top_level_paths()
    await client.write_many([Create("/controller_epoch", b"%d" % CONTROLLER_EPOCHS)], fence=None)
    _, fence = await zk.get_controller_epoch() or (0, 0)
    await create_topics(client, shape, range(shape.topics), topic_name)
    step = max(1, PRELOAD_SLICE // shape.per_topic)
    for start in range(0, shape.topics, step):
        numbers = range(start, min(start + step, shape.topics))
        names = [topic_name(t) for t in numbers for _ in range(shape.per_topic)]
        states = [state for t in numbers for state in shape.states(t)]
        partitions = [*range(shape.per_topic)] * len(numbers)
        await zk.create_topic_partition_states(names, partitions, states, fence=fence)


async def create_topics(client: ZooKeeperClient, shape: Shape, numbers: range, name: Any = topic_name) -> None:
    """Write the znodes that create topics: ids and assignments, no states."""
    await client.write_many(
        [
            Create(
                f"/brokers/topics/{name(t)}",
                znodes.encode_topic(
                    TopicAssignment(
                        name(t),
                        topic_id(t),
                        {p: ReplicaAssignment(own) for p, own in enumerate(shape.replicas(t))},
                    )
                ),
            )
            for t in numbers
        ],
        fence=None,
    )
