"""inter.broker.protocol.version=2.6: brokers write ISRs to ZooKeeper themselves, and notify the controller there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.cluster.real_kafka import RealKafkaCluster, kafka_missing
from aiocontroller.lab.kafka import pair
from aiocontroller.lab.kafka.controllers import BrokerAsController, until
from aiocontroller.lab.kafka.played_cluster import cluster_on
from aiocontroller.lab.kafka.view import whole
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.kafka.conftest import SETTINGS, KafkaCluster, check_nothing_lost, take_over, under_load
from tests.integration.kafka.releases import number
from tests.integration.kafka.test_broker_faults import PARTITIONS, VICTIM, states

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def old_protocol(version: str) -> dict[str, str]:
    """Return the last protocol in which leaders write ISRs themselves, or the release's own if that is older."""
    return {"inter.broker.protocol.version": "2.6"} if number(version) >= (2, 6) else {}


@pytest.mark.slow_kafka
async def test_isrs_shrink_and_expand_by_zookeeper(kafka_version: str, zk_connect: str, tmp_path: Path) -> None:
    """Metadata of every broker follows the notifications: a shrunk ISR is seen by clients, and a full one again."""
    if missing := kafka_missing(kafka_version):
        pytest.skip(missing)
    # The frozen follower stays registered, however long it takes to notice that it has left the ISRs.
    settings = SETTINGS | {"zookeeper.session.timeout.ms": "30000"} | old_protocol(kafka_version)
    cluster = RealKafkaCluster(3, zk_connect, tmp_path, version=kafka_version, overrides=settings)
    try:
        await cluster.start_async()
        async with cluster_on(zk_connect, cluster.brokers, tmp_path, session_ms=6000) as stage:
            controller = await take_over(stage)
            await under_load(stage, KafkaCluster(kafka_version, None, cluster, tmp_path), PARTITIONS)  # type: ignore[arg-type]
            before = await states(stage)
            followed = [p for p, state in enumerate(before) if state.leader != VICTIM]
            (topic,) = stage.topics
            stage.freeze(VICTIM)

            async def shrunk() -> bool:
                now = await states(stage)
                return all(VICTIM not in now[p].isr for p in followed)

            await until(shrunk, "ISRs without the frozen follower, in ZooKeeper")
            await stage.until(lambda view: all(VICTIM not in view[topic, p].isr for p in followed), "in metadata too")
            stage.thaw(VICTIM)
            await stage.until(whole, "it is in every ISR again")
            after = await states(stage)
            assert all(after[p].leader_epoch == before[p].leader_epoch for p in followed)
            stage.brokers[VICTIM].kill()
            await controller.zk.client.delete(paths.broker_id(VICTIM))  # as the end of its session would do 30 s later
            await stage.load.settled()
            await stage.heal()
            assert await check_nothing_lost(stage)
    finally:
        cluster.kill()


@pytest.mark.slow_kafka
async def test_takeover_leaves_znodes_as_the_brokers_controller_has_them(
    kafka_version: str, zk_connect: str, tmp_path: Path
) -> None:
    """No topic ids before 2.8, and ``/feature`` as Kafka's own has left it: disabled, or absent in older releases."""
    if missing := kafka_missing(kafka_version):
        pytest.skip(missing)
    settings = SETTINGS | old_protocol(kafka_version)
    cluster = RealKafkaCluster(2, zk_connect, tmp_path, version=kafka_version, overrides=settings)
    try:
        await cluster.start_async()
        async with cluster_on(zk_connect, cluster.brokers, tmp_path, session_ms=6000) as stage:
            kafkas = stage.controllers["kafka"]
            assert isinstance(kafkas, BrokerAsController)
            client = kafkas.zk.client

            async def znodes() -> list[bytes | None]:
                paths = ("/feature", "/brokers/topics/before")
                return [await client.get_data(path) if await client.exists(path) else None for path in paths]

            await AdminZkClient(kafkas.zk).create_topic("before", {0: (1, 2)})

            async def led(topic: str = "before") -> bool:
                (state,) = await kafkas.zk.get_topic_partition_states([topic], [0])
                return isinstance(state, LeaderAndIsr) and len(state.isr) == 2

            await until(led, "before-0 has a leader")
            before = await znodes()
            await take_over(stage)
            await AdminZkClient(kafkas.zk).create_topic("after", {0: (1, 2)})
            await until(lambda: led("after"), "after-0 has a leader")
            assert await znodes() == before
            assert b"topic_id" not in await client.get_data("/brokers/topics/after")
    finally:
        cluster.kill()


ROUNDS = int(os.environ.get("OLD_PROTOCOL_ROUNDS", "3"))
"""More rounds find more: the second bug of this kind showed once in round 3, and once in round 13."""


@pytest.mark.slow_kafka
@pytest.mark.timeout(300 + 60 * ROUNDS)
async def test_live_replica_in_sync_leads_after_the_other_dies(
    kafka_version: str, zk_connect: str, tmp_path: Path
) -> None:
    """A follower dies, returns to the ISR (at first only in ZooKeeper), and then the leader dies."""
    if missing := kafka_missing(kafka_version):
        pytest.skip(missing)
    settings = SETTINGS | {"replica.lag.time.max.ms": "10000"} | old_protocol(kafka_version)
    cluster = RealKafkaCluster(3, zk_connect, tmp_path, version=kafka_version, overrides=settings)
    try:
        await cluster.start_async()
        async with cluster_on(zk_connect, cluster.brokers, tmp_path, session_ms=6000) as stage:
            found = await pair.rounds(stage, ["aiocontroller"], ROUNDS)
            assert [one.leaderless for one in found["aiocontroller"]] == [False] * ROUNDS
    finally:
        cluster.kill()
