"""Real brokers for every scenario: one cluster per release, shared by all tests, each with topics of its own.

A test finds the cluster whole and without topics, with a broker as controller, and leaves it so.  ``--kafka`` chooses
releases.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.load.clients import kept_its_word
from aiocontroller.lab.cluster.real_kafka import LOG4J, RealKafkaCluster, archive_classes, kafka_missing
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster, cluster_on
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.kafka.releases import chosen_generations, chosen_releases, number

SESSION_MS = 8000
SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "replica.lag.time.max.ms": "1500",  # a suspended follower leaves the ISR long before its session expires
    "auto.leader.rebalance.enable": "false",
    "num.partitions": "4",
    "default.replication.factor": "2",
    "auto.create.topics.enable": "true",
    "reserved.broker.max.id": "1000",
}
_numbers = itertools.count(1)


class KafkaCluster(NamedTuple):
    version: str
    zookeeper: EmbeddedZooKeeper
    brokers: RealKafkaCluster
    folder: Path


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow_kafka: a longer scenario of real brokers; runs with --kafka only")
    line = "every_generation: asks each release that brokers are simulated of; 3.0.2 and 3.9.1 without --kafka"
    config.addinivalue_line("markers", line)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without ``--kafka`` only the short scenarios run."""
    if config.getoption("--kafka") is not None:
        return
    left_out = [item for item in items if item.get_closest_marker("slow_kafka")]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kafka_version" in metafunc.fixturenames:
        generations = metafunc.definition.get_closest_marker("every_generation") is not None
        chosen = (chosen_generations if generations else chosen_releases)(metafunc.config)
        metafunc.parametrize("kafka_version", chosen, scope="session")


@pytest.fixture(scope="session")
def kafka(kafka_version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers, with their own ZooKeeper, which tests may restart."""
    missing = kafka_missing(kafka_version)
    if missing:
        pytest.skip(missing)
    archive_classes(kafka_version)
    folder = tmp_path_factory.mktemp(f"kafka-{kafka_version}")
    zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
    zookeeper.start()
    log4j = LOG4J + (
        "log4j.logger.state.change.logger=TRACE\n" if number(kafka_version) < (2, 6) else ""
    )  # as in Kafka's own configuration
    brokers = RealKafkaCluster(3, zookeeper.address, folder, version=kafka_version, overrides=SETTINGS, log4j=log4j)
    try:
        brokers.start()
        yield KafkaCluster(kafka_version, zookeeper, brokers, folder)
    finally:
        brokers.kill()
        zookeeper.kill()


@pytest.fixture
async def stage(kafka: KafkaCluster, tmp_path: Path) -> AsyncIterator[PlayedCluster]:
    """The cluster, with a broker as controller until a test lets aiocontroller ``take`` the role."""
    brokers = kafka.brokers.brokers
    async with cluster_on(kafka.zookeeper.address, brokers, tmp_path, session_ms=6000) as stage:
        await stage.heal()
        try:
            yield stage
        finally:
            await stage.heal()
            await released(stage)
            stage.close()
            await until(functools.partial(topics_are_gone, stage), "the test's topics are deleted")


async def topics_are_gone(stage: PlayedCluster) -> bool:
    """Delete all topics but Kafka's own: those of another test keep brokers from being restarted, and fill logs."""
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    topics = [topic for topic in await ours.zk.get_all_topics_in_cluster(watch=False) if not topic.startswith("__")]
    await AdminZkClient(ours.zk).delete_topics(topics)
    return not topics and not await ours.zk.client.get_children("/admin/delete_topics")


async def released(stage: PlayedCluster) -> None:
    """Make a broker the controller again."""
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    if ours.running:
        await ours.give()
    await until(ours.held_by_a_broker, "a broker holds /controller")


async def take_over(stage: PlayedCluster) -> OurController:
    """Run aiocontroller as a process, and let it take over."""
    stage.controller = ours = stage.controllers["aiocontroller"]
    await ours.take()
    assert isinstance(ours, OurController)
    return ours


async def under_load(stage: PlayedCluster, kafka: KafkaCluster, partitions: int = 6, kind: str = "java") -> None:
    """Run clients that write to a topic of this test, and read it."""
    suffix = f"-{next(_numbers)}"
    await stage.open_load([kind], partitions, kafka.folder / "load", kafka.version, suffix=suffix)


async def check_nothing_lost(stage: PlayedCluster) -> int:
    """Check that every acknowledged record is there, once and in order, and that no client reported an error."""
    verdicts = await stage.load.finish()
    assert kept_its_word(verdicts), verdicts
    assert not any(verdict.errors for verdict in verdicts.values()), verdicts
    acknowledged = sum(verdict.acknowledged for verdict in verdicts.values())
    assert acknowledged > 0
    return acknowledged
