"""inter.broker.protocol.version=2.6: brokers write ISRs to ZooKeeper themselves and notify the controller there."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from aiocontroller.chaos.kafka.offices import until
from aiocontroller.chaos.kafka.stage import stage_on
from aiocontroller.chaos.kafka.view import whole
from aiocontroller.cluster.real_kafka import RealKafkaCluster, kafka_missing
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
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


ROUNDS = 3
"""More find more: the second bug of this kind showed in round 3 once, and in round 13."""


@pytest.mark.slow_kafka
async def test_live_replica_in_sync_leads_after_the_other_dies(
    kafka_version: str, zk_connect: str, tmp_path: Path
) -> None:
    """A follower dies, comes back into the ISR (in ZooKeeper only, at first), and then the leader dies."""
    if missing := kafka_missing(kafka_version):
        pytest.skip(missing)
    delays = random.Random(26)
    settings = SETTINGS | {"inter.broker.protocol.version": "2.6", "replica.lag.time.max.ms": "10000"}
    cluster = RealKafkaCluster(2, zk_connect, tmp_path, version=kafka_version, overrides=settings)
    try:
        await cluster.start_async()
        properties = {"inter.broker.protocol.version": "2.6"}
        async with stage_on(zk_connect, cluster.brokers, tmp_path, session_ms=6000, properties=properties) as stage:
            ours = await take_over(stage)
            await AdminZkClient(ours.zk).create_topic("pair", {0: (1, 2)})

            leader, follower = 1, 2
            await until_led(ours.zk, leader, leader, follower, within_s=30)
            for _ in range(ROUNDS):
                stage.brokers[follower].kill()
                await until_led(ours.zk, leader, leader, within_s=30)
                await stage.start(stage.brokers[follower])
                await until_led(ours.zk, leader, leader, follower, within_s=60)
                await asyncio.sleep(delays.choice((0.0, 0.05, 0.3, 1.0, 3.0)))
                stage.brokers[leader].kill()
                await until_led(ours.zk, follower, follower, within_s=30)
                await stage.start(stage.brokers[leader])
                leader, follower = follower, leader
                await until_led(ours.zk, leader, leader, follower, within_s=60)
    finally:
        cluster.kill()


async def until_led(zk: KafkaZkClient, leader: int, *isr: int, within_s: float) -> None:
    """Until ``pair-0`` has this leader and this ISR, in any order."""

    found: list[object] = []

    async def reached() -> bool:
        found[:] = await zk.get_topic_partition_states(["pair"], [0])
        (state,) = found
        return isinstance(state, LeaderAndIsr) and state.leader == leader and set(state.isr) == set(isr)

    try:
        await until(reached, f"pair-0 led by {leader} with ISR {isr}", within_s)
    except TimeoutError as error:
        raise AssertionError(f"{error}, found {found}") from error
