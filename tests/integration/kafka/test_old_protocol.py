"""inter.broker.protocol.version=2.6: brokers write ISRs to ZooKeeper themselves and notify the controller there."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiocontroller.chaos.kafka.offices import until
from aiocontroller.chaos.kafka.stage import stage_on
from aiocontroller.chaos.kafka.view import whole
from aiocontroller.cluster.real_kafka import RealKafkaCluster, kafka_missing
from tests.integration.kafka.conftest import SETTINGS, KafkaCluster, check_nothing_lost, take_over, under_load
from tests.integration.kafka.test_broker_faults import PARTITIONS, VICTIM, states

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


@pytest.mark.slow_kafka
async def test_isrs_shrink_and_expand_by_zookeeper(kafka_version: str, zk_connect: str, tmp_path: Path) -> None:
    """Metadata of every broker follows the notifications: a shrunk ISR is seen by clients, and a full one again."""
    if missing := kafka_missing(kafka_version):
        pytest.skip(missing)
    settings = SETTINGS | {"inter.broker.protocol.version": "2.6"}
    cluster = RealKafkaCluster(3, zk_connect, tmp_path, version=kafka_version, overrides=settings)
    try:
        await cluster.start_async()
        async with stage_on(zk_connect, cluster.brokers, tmp_path, session_ms=6000) as stage:
            await take_over(stage)
            await under_load(stage, KafkaCluster(kafka_version, None, cluster, tmp_path), PARTITIONS)  # type: ignore[arg-type]
            before = await states(stage)
            followed = [p for p, state in enumerate(before) if state.leader != VICTIM]
            (topic,) = stage.topics
            stage.freeze(VICTIM)

            async def shrunk() -> bool:
                now = await states(stage)
                return all(VICTIM not in now[p].isr for p in followed)

            await until(shrunk, "ISRs without the frozen follower, in ZooKeeper", 20)
            await stage.until(lambda view: all(VICTIM not in view[topic, p].isr for p in followed), "in metadata too")
            stage.thaw(VICTIM)
            await stage.until(whole, "it is in every ISR again")
            after = await states(stage)
            assert all(after[p].leader_epoch == before[p].leader_epoch for p in followed)
            stage.brokers[VICTIM].kill()
            await stage.load.settled()
            await stage.heal()
            assert await check_nothing_lost(stage)
    finally:
        cluster.kill()
