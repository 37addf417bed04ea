"""One conversation with two brokers: a real one of each release and a simulated one must answer and do the same.

The differences between releases are in ``aiocontroller/lab/cluster/generations.py``.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from aiocontroller.lab.cluster.generations import GENERATIONS, Generation, protocol_of
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker, kafka_missing
from aiocontroller.lab.cluster.simulated_broker import BrokerConfig, SimulatedBroker, read_ready
from aiocontroller.net.ports import World
from aiocontroller.zookeeper import paths, znodes
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.integration.kafka.conversation import (
    WITHIN_S,
    Answers,
    Conversation,
    Subject,
    change_isrs,
    end,
    hold,
    lose_a_directory,
)
from tests.integration.lab.cluster.by_hand import CONTROLLER_ID, ControllerByHand, eventually

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.every_generation, pytest.mark.timeout(600)]

SHORT_LAG_MS = 1500
"""A follower that does not fetch for this long leaves the ISR; in other conversations none does."""
LONG_LAG_MS = 600_000
SESSION_MS = 30_000
"""No conversation waits for it, and it must not expire on a busy machine: the broker's epoch would change."""
PARTITION = re.compile(r"[^_].*-\d+")


class Real(Subject):
    def __init__(self, zookeeper: str, folder: Path, generation: Generation, protocol: str, lag_ms: int) -> None:
        self._logs = [folder / "real" / name for name in ("logs-a", "logs-b")]
        self._client: ZooKeeperClient | None = None
        overrides = {
            "log.dirs": ",".join(str(each) for each in self._logs),
            "replica.lag.time.max.ms": str(lag_ms),
            "replica.high.watermark.checkpoint.interval.ms": "500",  # this finds that a directory is gone
            "controlled.shutdown.max.retries": "2",
            "zookeeper.session.timeout.ms": str(SESSION_MS),
        }
        if protocol:
            overrides["inter.broker.protocol.version"] = protocol
        self._broker = RealKafkaBroker(1, zookeeper, folder / "real", version=generation.version, overrides=overrides)

    async def start(self) -> None:
        await self._broker.start_async()

    def directories(self) -> list[str]:
        found = [each.name for logs in self._logs if logs.is_dir() for each in logs.iterdir()]
        return sorted(name for name in found if PARTITION.fullmatch(name))

    async def lose_directory_of(self, topic: str, partition: int) -> None:
        (lost,) = [each for each in self._logs if (each / f"{topic}-{partition}").is_dir()]
        lost.rename(lost.with_name("lost"))  # in one step: the broker keeps writing checkpoints into it
        lost.write_text("no directory any more")
        message = f"Stopped serving replicas in dir {lost}"
        await eventually(lambda: message in self._broker.log.read_text(), WITHIN_S)

    async def stop(self) -> None:
        await self._broker.stop_async(WITHIN_S)

    async def kill(self) -> None:
        self._broker.kill()


class Simulated(Subject):
    def __init__(
        self, world: World, zookeeper: str, folder: Path, generation: Generation, protocol: str, lag_ms: int
    ) -> None:
        self._folder = folder
        config = BrokerConfig(
            1,
            zookeeper,
            folder,
            zookeeper_session_timeout_ms=SESSION_MS,
            replica_lag_time_max_ms=lag_ms,
            controlled_shutdown_max_retries=2,
            controlled_shutdown_retry_backoff_ms=100,
            release=generation.release,
            inter_broker_protocol_version=protocol,
            reports_policy=True,
        )
        self._broker = SimulatedBroker(config, world)
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self._running = asyncio.create_task(self._broker.run())
        await eventually(lambda: read_ready(self._folder))

    def directories(self) -> list[str]:
        return sorted(str(each) for each in self._broker.replicas.partitions())

    async def lose_directory_of(self, topic: str, partition: int) -> None:
        await self._broker.fail_log_dir([(topic, partition)])

    async def stop(self) -> None:
        self._broker.stop()
        assert self._running is not None
        await self._running

    async def kill(self) -> None:
        if self._running is not None and not self._running.done():
            self._broker.stop(controlled=False)
            await self._running


@asynccontextmanager
async def introduced(world: World, connect: str, subject: Subject) -> AsyncIterator[Conversation]:
    """Register a controller, so that the real broker does not become one."""
    client = ZooKeeperClient(connect, world=world)
    await client.start(10)
    zk = KafkaZkClient(client)
    controller = ControllerByHand(world, zk)
    await controller.serve()
    await client.write_many(
        [
            Create(paths.CONTROLLER, znodes.encode_controller(CONTROLLER_ID, 0)),
            Create(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(1)),
        ],
        fence=None,
    )
    await subject.start()
    try:
        (broker,) = await controller.brokers()
        yield Conversation(controller, broker, subject, client)
    finally:
        await subject.kill()
        controller.close()
        await client.close()


class Stage:
    """Both brokers of one release, each with a ZooKeeper path of its own."""

    def __init__(self, world: World, zk_connect: str, folder: Path, generation: Generation) -> None:
        self.world, self.zk_connect, self.folder, self.generation = world, zk_connect, folder, generation

    async def compare(
        self, talk: Callable[[Conversation], Awaitable[None]], protocol: str = "", lag_ms: int = SHORT_LAG_MS
    ) -> None:
        """Hold both conversations at once: they mostly wait for ISRs to shrink."""

        async def say(connect: str, subject: Subject) -> Answers:
            async with introduced(self.world, connect, subject) as conversation:
                await talk(conversation)
                return conversation.answers

        real, simulated = f"{self.zk_connect}-real", f"{self.zk_connect}-simulated"
        common = (self.folder, self.generation, protocol, lag_ms)
        async with asyncio.TaskGroup() as both:
            by_real = both.create_task(say(real, Real(real, *common)))
            by_ours = both.create_task(say(simulated, Simulated(self.world, simulated, *common)))
        answers = by_real.result(), by_ours.result()
        differences = [(real_one, ours) for real_one, ours in zip(*answers, strict=True) if real_one != ours]
        assert not differences, "\n".join(f"real {real_one}\nours {ours}\n" for real_one, ours in differences)


@pytest.fixture
def stage(world: World, zk_connect: str, tmp_path: Path, kafka_version: str) -> Stage:
    if missing := kafka_missing(kafka_version):
        pytest.skip(f"real Kafka: {missing}")
    (generation,) = [g for g in GENERATIONS.values() if g.version == kafka_version]
    return Stage(world, zk_connect, tmp_path, generation)


async def test_answers_and_directories(stage: Stage) -> None:
    """Every version of every request that its controller sends, and what happens to replicas."""
    await stage.compare(lambda c: hold(c, stage.generation), lag_ms=LONG_LAG_MS)


async def test_changes_of_isrs_a_lost_directory_and_the_end(stage: Stage) -> None:
    """With the release's own inter-broker protocol."""
    spoken = protocol_of(stage.generation, "")

    async def talk(c: Conversation) -> None:
        await change_isrs(c, stage.generation, spoken)
        await lose_a_directory(c, stage.generation)
        await end(c)

    await stage.compare(talk)


async def test_an_older_protocol(stage: Stage) -> None:
    """A newer binary at inter.broker.protocol.version 2.6: ISRs go through ZooKeeper."""
    older = "2.6" if stage.generation.alter_partition >= 0 else "2.1"
    spoken = protocol_of(stage.generation, older)

    async def talk(c: Conversation) -> None:
        await c.settings(1)
        await change_isrs(c, stage.generation, spoken)
        await end(c)

    await stage.compare(talk, older)
