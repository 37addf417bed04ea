"""On a live Kafka 3.9 cluster in our charge: topics made by clients and by brokers themselves, consumer groups."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from aiocontroller.cluster.real_kafka import RealKafkaCluster, kafka_missing
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.net.ports import World
from tests.integration.controller.harness import Cluster, running, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
RECORDS = 50


@pytest.fixture(autouse=True)
def _jars() -> None:
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)


def administer(bootstrap: str) -> None:
    """Create, grow and delete as operators' clients do; raises what they would see."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("made", 3, 3, config={"retention.ms": "3600000"})], request_timeout=30)[
        "made"
    ].result(40)
    admin.create_topics([NewTopic("default", -1, -1)], request_timeout=30)["default"].result(40)
    admin.create_partitions([NewPartitions("made", 5)], request_timeout=30)["made"].result(40)
    with pytest.raises(KafkaException, match="TOPIC_ALREADY_EXISTS"):
        admin.create_topics([NewTopic("made", 1, 1)], request_timeout=30)["made"].result(40)
    topics = admin.list_topics(timeout=30).topics
    assert sorted(topics["made"].partitions) == [0, 1, 2, 3, 4]
    admin.delete_topics(["default"], operation_timeout=30)["default"].result(40)


def consume_by_group(bootstrap: str) -> int:
    """Produce to a topic that nobody made, read it back as a group; both topics are the brokers' own making."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 60_000})
    for number in range(RECORDS):
        producer.produce("by-itself", str(number).encode())
    assert producer.flush(60) == 0
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["by-itself"])
    read, deadline = 0, time.monotonic() + 60
    while read < RECORDS and time.monotonic() < deadline:
        read += sum(message.error() is None for message in consumer.consume(RECORDS, 0.5))
    consumer.commit(asynchronous=False)
    consumer.close()
    return read


async def assignments(cluster: Cluster) -> dict[str, set[int]]:
    """Every broker that a topic's partitions name."""
    names = await cluster.zk.get_all_topics_in_cluster(watch=False)
    found = (await cluster.zk.get_topic_assignments(names, watch=False)).found
    return {a.topic: {b for replicas in a.partitions.values() for b in replicas.replicas} for a in found}


async def test_clients_and_brokers_make_topics(world: World, zk_connect: str, tmp_path: Path) -> None:
    defaults = {"num.partitions": "4", "default.replication.factor": "2", "auto.create.topics.enable": "true"}
    brokers = RealKafkaCluster(3, zk_connect, tmp_path, overrides=defaults)
    await brokers.start_async()
    try:
        async with running(world, zk_connect) as cluster:
            service = await cluster.add_controller(aiocontroller_takeover_policy="takeover")
            await cluster.active()
            await until(lambda: len(service.shell.context.live) == 3)
            await asyncio.to_thread(administer, brokers.bootstrap)
            assert await asyncio.to_thread(consume_by_group, brokers.bootstrap) == RECORDS
            made = await assignments(cluster)
            assert sorted(made) == ["__consumer_offsets", "by-itself", "made"]
            assert all(brokers_of <= {1, 2, 3} for brokers_of in made.values()), made  # never this controller
            states = await cluster.states("by-itself", 4)
            assert all(isinstance(s, LeaderAndIsr) and s.leader > 0 and len(s.isr) == 2 for s in states)
    finally:
        brokers.kill()
