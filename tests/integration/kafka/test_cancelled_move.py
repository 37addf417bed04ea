"""A move that is cancelled while its replica still catches up leaves nothing on the target broker's disk."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.lab.kafka.controllers import until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.kafka.conftest import KafkaCluster, take_over

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
TARGET = 3
RECORDS, RECORD_BYTES = 60, 100_000
"""More bytes than a follower fetches at once, which a throttle does not limit."""


def write(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60_000})
    for _ in range(RECORDS):
        producer.produce(topic, bytes(RECORD_BYTES), partition=0)
    assert producer.flush(60) == 0


def directories(broker_folder: Path, topic: str) -> list[str]:
    """Return the directories of replicas, including one that waits to be removed, ``topic-0.<id>-delete``."""
    return [folder.name for folder in (broker_folder / "logs").glob(f"{topic}-0*")]


@pytest.mark.slow_kafka
@pytest.mark.parametrize("target", [None, (1, 2)], ids=["cancelled", "overridden"])
async def test_throttled_move_that_is_taken_back_leaves_no_directory(
    stage: PlayedCluster, kafka: KafkaCluster, target: tuple[int, ...] | None
) -> None:
    """Brokers of 2.6 to 3.4.0 ignore a StopReplica with the leader epoch that they already have (KAFKA-13972)."""
    from kafka import TopicPartition

    controller = await take_over(stage)
    admin = AdminZkClient(controller.zk)
    topic = f"taken-back-{'cancelled' if target is None else 'overridden'}"
    await admin.create_topic(topic, {0: (1,)})
    # Brokers only notice a change: they do not throttle by the settings with which a topic was created.
    await admin.change_entity_configs("topics", topic, {"follower.replication.throttled.replicas": "*"})
    await asyncio.to_thread(write, stage.bootstrap, topic)
    await admin.change_entity_configs("brokers", str(TARGET), {"follower.replication.throttled.rate": "1"})
    try:

        def reassign(to: tuple[int, ...] | None) -> Any:
            plan = {TopicPartition(topic, 0): None if to is None else list(to)}
            return stage._ask(lambda client: client.alter_partition_reassignments(plan))

        async def assignment() -> ReplicaAssignment:
            (found,) = (await controller.zk.get_topic_assignments([topic], watch=False)).found
            return found.partitions[0]

        async def begun() -> bool:
            return directories(kafka.folder / f"broker-{TARGET}", topic) == [f"{topic}-0"]

        async def taken_back() -> bool:
            return TARGET not in (await assignment()).replicas

        async def gone() -> bool:
            return not directories(kafka.folder / f"broker-{TARGET}", topic)

        assert not any((await asyncio.to_thread(reassign, (1, TARGET))).values())
        await until(begun, "the new replica is being made")
        assert (await assignment()).adding == (TARGET,), "it is throttled, so it goes on"
        assert not any((await asyncio.to_thread(reassign, target)).values())
        await until(taken_back, "the topic's znode names it no more")
        await until(gone, "its directory is gone")
    finally:
        await admin.change_entity_configs("brokers", str(TARGET), {})
        await admin.change_entity_configs("topics", topic, {})
