"""A topic is deleted while a broker is dead, and created again: the broker returns with the old log, and deletes it."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.kafka.controllers import until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.kafka.conftest import KafkaCluster, take_over
from tests.integration.kafka.releases import number

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
VICTIM = 2
RECORDS = 100
_numbers = itertools.count(1)


def write(bootstrap: str, topic: str, text: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60_000})
    for at in range(RECORDS):
        producer.produce(topic, f"{text} {at}".encode(), partition=0)
    assert producer.flush(60) == 0


def read(bootstrap: str, topic: str) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[str] = []
        for _ in range(120):
            found += [
                (message.value() or b"").decode() for message in consumer.consume(RECORDS, 0.5) if not message.error()
            ]
            if len(found) >= RECORDS:
                break
        return found
    finally:
        consumer.close()


def directories(broker_folder: Path, topic: str) -> dict[str, str]:
    """Return directory of partition 0 -> its topic id, including one to be removed (``topic-0.<id>-delete``)."""
    return {
        folder.name: (folder / "partition.metadata").read_text().split("topic_id: ")[1].strip()
        for folder in (broker_folder / "logs").glob(f"{topic}-0*")
        if (folder / "partition.metadata").exists()
    }


async def test_broker_that_was_dead_deletes_the_old_topic_and_serves_the_new_one(
    stage: PlayedCluster, kafka: KafkaCluster
) -> None:
    """Kafka's deletion waits for the broker."""
    if number(kafka.version) < (2, 8):
        pytest.skip(f"Kafka {kafka.version} has no topic ids: the deletion waits for the broker, as with Kafka")
    controller = await take_over(stage)
    zk, topic = controller.zk, f"deleted-{next(_numbers)}"
    admin = AdminZkClient(zk)
    folder = kafka.folder / f"broker-{VICTIM}"
    victim = stage.brokers[VICTIM]

    async def in_sync(isr: set[int]) -> bool:
        (state,) = await zk.get_topic_partition_states([topic], [0])
        return isinstance(state, LeaderAndIsr) and state.leader >= 0 and set(state.isr) == isr

    await admin.create_topic(topic, {0: (1, VICTIM)})
    await until(lambda: in_sync({1, VICTIM}), "both are in sync")
    await asyncio.to_thread(write, stage.bootstrap, topic, "old")
    old = list(directories(folder, topic).values())
    assert len(old) == (number(kafka.version) >= (3, 0)), "2.8 keeps no topic id on the disk"
    await asyncio.to_thread(victim.kill)
    await until(lambda: in_sync({1}), "the dead broker is out of the ISR")

    await zk.client.create(f"/admin/delete_topics/{topic}")

    async def gone() -> bool:
        queued = await zk.get_topic_deletions(watch=False)
        return topic not in [*await zk.get_all_topics_in_cluster(watch=False), *queued]

    await until(gone, "the topic is gone, although a broker is dead")
    assert [(one.broker, one.topic) for one in (await zk.debts.load()).owed] == [(VICTIM, topic)]
    assert list(directories(folder, topic).values()) == old

    await admin.create_topic(topic, {0: (VICTIM, 1)})
    await until(lambda: in_sync({1}), "the new topic is led")
    await asyncio.to_thread(write, stage.bootstrap, topic, "new")
    await stage.start(victim)
    await until(lambda: in_sync({1, VICTIM}), "the broker that was dead is in sync", 60)

    async def paid() -> bool:
        return not (await zk.debts.load()).owed

    await until(paid, "nothing is owed any more")
    live = [topic_id for name, topic_id in directories(folder, topic).items() if name == f"{topic}-0"]
    assert len(live) == len(old)
    assert not live or live != old
    found = await asyncio.to_thread(read, stage.bootstrap, topic)
    assert found == [f"new {at}" for at in range(RECORDS)]
