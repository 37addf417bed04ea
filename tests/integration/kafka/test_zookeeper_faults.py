"""ZooKeeper restarts, or changes its leader, under a live cluster that we control."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from aiocontroller.lab.cluster.embedded_zookeeper import ZooKeeperEnsemble
from aiocontroller.lab.cluster.real_kafka import RealKafkaCluster, kafka_missing
from aiocontroller.lab.kafka.controllers import until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster, cluster_on
from tests.integration.kafka.conftest import SETTINGS, KafkaCluster, check_nothing_lost, take_over, under_load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


async def still_decides(stage: PlayedCluster) -> None:
    """Check a change that needs ZooKeeper and every broker: leaders move away and back."""
    key, replicas = next(iter(stage.made().items()))
    await stage.reassign({key: (*replicas[1:], replicas[0])})
    await stage.elect_preferred({key: replicas[1]})
    await stage.heal()


async def test_zookeeper_restarts(stage: PlayedCluster, kafka: KafkaCluster) -> None:
    """It is killed and started: sessions survive, so no controller and no broker loses its znode."""
    controller = await take_over(stage)
    await under_load(stage, kafka, kind="librdkafka")
    epoch = await controller.epoch()
    kafka.zookeeper.kill()
    await asyncio.to_thread(kafka.zookeeper.start)

    async def connected() -> bool:
        return await controller.epoch() >= epoch

    await until(connected, "ZooKeeper answers again")
    await still_decides(stage)
    assert await controller.epoch() in (epoch, epoch + 1)  # one more if our session expired on a slow machine
    assert await check_nothing_lost(stage)


@pytest.mark.slow_kafka
async def test_zookeeper_changes_its_leader(kafka_version: str, tmp_path: Path) -> None:
    if missing := kafka_missing(kafka_version):
        pytest.skip(missing)
    ensemble = ZooKeeperEnsemble(tmp_path / "zookeeper")
    ensemble.start()
    cluster = RealKafkaCluster(3, ensemble.address, tmp_path, version=kafka_version, overrides=SETTINGS)
    try:
        await cluster.start_async()
        async with cluster_on(ensemble.address, cluster.brokers, tmp_path, session_ms=8000) as stage:
            own = KafkaCluster(kafka_version, ensemble.servers[0], cluster, tmp_path)
            await take_over(stage)
            await under_load(stage, own)
            leader = ensemble.leader()
            assert leader is not None
            leader.kill()
            await until(lambda: asyncio.to_thread(ensemble.leader), "the others have elected a leader")
            await still_decides(stage)
            await asyncio.to_thread(leader.start)
            await still_decides(stage)
            assert await check_nothing_lost(stage)
    finally:
        cluster.kill()
        ensemble.stop()
