"""A log directory fails: its leaders move, under any inter-broker protocol, and the other directory stays in use."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker, RealKafkaCluster, kafka_missing
from aiocontroller.lab.kafka.controllers import until
from aiocontroller.lab.kafka.played_cluster import cluster_on
from aiocontroller.property_values import parse_protocol_version
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.kafka.conftest import SETTINGS, take_over

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
PROTOCOLS = ("2.2", "2.6", "2.7", "2.8", "3.0", "3.3", "3.9")
TOPIC, PARTITIONS = "two-directories", 4
FAILING, OTHER = 1, 2
DIRECTORIES = ("one", "two")


def directories(broker: RealKafkaBroker) -> list[Path]:
    """Return partition -> the directory in which the broker has created it."""
    folders = [broker.data_dir / name for name in DIRECTORIES]
    return [folder for p in range(PARTITIONS) for folder in folders if (folder / f"{TOPIC}-{p}").is_dir()]


@pytest.mark.slow_kafka
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_leaders_leave_a_failed_log_directory(
    kafka_version: str, protocol: str, zk_connect: str, tmp_path: Path
) -> None:
    """Before 2.8 brokers' answers to LeaderAndIsr have topic names, from 2.8 on topic ids."""
    if missing := kafka_missing(kafka_version):
        pytest.skip(missing)
    if parse_protocol_version(protocol) > parse_protocol_version(kafka_version):
        pytest.skip(f"Kafka {kafka_version} does not know protocol {protocol}")
    settings = SETTINGS | {
        "inter.broker.protocol.version": protocol,
        "replica.lag.time.max.ms": "30000",  # the follower stays in sync, however busy the machine
        "replica.high.watermark.checkpoint.interval.ms": "1000",  # it writes often, and so notices the failure
    }
    cluster = RealKafkaCluster(2, zk_connect, tmp_path, version=kafka_version, overrides=settings)
    for broker in cluster.brokers.values():
        broker.overrides["log.dirs"] = ",".join(str((broker.data_dir / name).resolve()) for name in DIRECTORIES)
    try:
        await cluster.start_async()
        async with cluster_on(
            zk_connect,
            cluster.brokers,
            tmp_path,
            session_ms=6000,
            properties={"inter.broker.protocol.version": protocol},
        ) as stage:
            controller = await take_over(stage)
            await AdminZkClient(controller.zk).create_topic(TOPIC, dict.fromkeys(range(PARTITIONS), (FAILING, OTHER)))

            async def leaders() -> list[int]:
                found = await controller.zk.get_topic_partition_states([TOPIC] * PARTITIONS, list(range(PARTITIONS)))
                return [s.leader if isinstance(s, LeaderAndIsr) else -1 for s in found]

            async def all_led() -> bool:
                made = all(len(directories(broker)) == PARTITIONS for broker in cluster.brokers.values())
                return made and await leaders() == [FAILING] * PARTITIONS

            await until(all_led, "broker 1 leads all")
            where = directories(cluster.brokers[FAILING])
            assert len(set(where)) == 2, "both directories are used"
            shutil.move(where[0], tmp_path / "taken-away")
            where[0].write_text("no directory")
            expected = [OTHER if directory == where[0] else FAILING for directory in where]

            async def moved() -> bool:
                return await leaders() == expected

            await until(moved, f"leaders {expected}")
    finally:
        cluster.kill()
