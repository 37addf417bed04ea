"""A live cluster under our control: what admin calls change, topics that brokers create, consumer groups."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import aiokafka.admin
import kafka.admin
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.lab.kafka.view import controller_address
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, take_over, under_load
from tests.integration.kafka.releases import number

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
RECORDS = 50


def administer(bootstrap: str) -> None:
    """Create, expand and delete topics as operators' clients do; raise the errors that they would get."""
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
    """Produce to a topic that was not created, and read it as a group; brokers create both topics."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 60_000})
    for record in range(RECORDS):
        producer.produce("by-itself", str(record).encode())
    assert producer.flush(60) == 0
    settings = {"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe(["by-itself"])
    read, deadline = 0, time.monotonic() + 150
    while read < RECORDS and time.monotonic() < deadline:
        read += sum(message.error() is None for message in consumer.consume(RECORDS, 0.5))
    consumer.commit(asynchronous=False)
    consumer.close()
    return read


async def assignments(controller: OurController) -> dict[str, set[int]]:
    """Return every broker that a topic's partitions name."""
    names = await controller.zk.get_all_topics_in_cluster(watch=False)
    found = (await controller.zk.get_topic_assignments(names, watch=False)).found
    return {a.topic: {b for replicas in a.partitions.values() for b in replicas.replicas} for a in found}


async def test_clients_and_brokers_make_topics(stage: PlayedCluster) -> None:
    controller = await take_over(stage)
    await asyncio.to_thread(administer, stage.bootstrap)
    assert await asyncio.to_thread(consume_by_group, stage.bootstrap) == RECORDS
    made = await assignments(controller)
    assert {"__consumer_offsets", "by-itself", "made"} <= set(made)
    assert "default" not in made
    assert all(brokers_of <= {1, 2, 3} for brokers_of in made.values()), made  # never this controller

    async def whole() -> bool:
        states = await controller.zk.get_topic_partition_states(["by-itself"] * 4, list(range(4)))
        return all(isinstance(s, LeaderAndIsr) and s.leader > 0 and len(s.isr) == 2 for s in states)

    await until(whole, "leaders, and all replicas in sync")  # on a busy machine followers fall behind


def within(condition: Callable[[], Any], within_s: float = 150) -> Any:
    deadline = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < deadline, condition
        time.sleep(0.05)
    return found


def by_kafka_python(bootstrap: str, incremental: bool) -> None:
    """Send everything that it can ask of a controller; ``incremental``: whether it alters configs incrementally."""
    admin = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    topic, key = "by-kafka-python", kafka.TopicPartition("by-kafka-python", 0)

    def partitions() -> dict[int, dict[str, Any]]:
        (found,) = admin.describe_topics([topic])
        return {p["partition_index"]: p for p in found["partitions"]}

    try:
        admin.create_topics({topic: {"assignments": {0: [1, 2], 1: [2, 3]}}}, validate_only=True)
        assert topic not in admin.list_topics()
        admin.create_topics({topic: {"assignments": {0: [1, 2], 1: [2, 3]}}})
        admin.create_partitions({topic: 3})
        within(lambda: len(partitions()) == 3)
        assert admin.alter_partition_reassignments({key: [3, 2]}) == {key: None}
        within(lambda: not admin.list_partition_reassignments([key]))
        within(lambda: partitions()[0]["replica_nodes"] == [3, 2] and sorted(partitions()[0]["isr_nodes"]) == [2, 3])
        admin.elect_leaders(0, {topic: [0]}, raise_errors=False)
        within(lambda: partitions()[0]["leader_id"] == 3)
        config = kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic, {"retention.ms": "77000"})
        assert admin.alter_configs([config], incremental=incremental) == {"topic": {topic: "OK"}}
        admin.delete_topics([topic])
        within(lambda: topic not in admin.list_topics())
    finally:
        admin.close()


async def test_kafka_python_works_through_us(stage: PlayedCluster, kafka: KafkaCluster) -> None:
    """It asks for nothing that its first broker cannot do: where brokers know no reassignments it begins with us.

    Then it takes every broker to know what we know, and sends changes of configs to any of them, or to us: they must be
    asked for as old brokers understand them.
    """
    await take_over(stage)
    bootstrap = stage.bootstrap
    if number(kafka.version) < (2, 4):
        bootstrap = await asyncio.to_thread(controller_address, bootstrap)
    await asyncio.to_thread(by_kafka_python, bootstrap, incremental=number(kafka.version) >= (2, 3))


async def test_aiokafka_works_through_us(stage: PlayedCluster) -> None:
    await take_over(stage)
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=stage.bootstrap)
    topic = "by-aiokafka"
    await admin.start()
    try:
        made = await admin.create_topics([aiokafka.admin.NewTopic(topic, 2, 3)])
        assert [error[1] for error in made.topic_errors] == [0]
        again = await admin.create_topics([aiokafka.admin.NewTopic(topic, 2, 3)])
        assert [error[1] for error in again.topic_errors] == [36]  # TOPIC_ALREADY_EXISTS
        grown = await admin.create_partitions({topic: aiokafka.admin.NewPartitions(4)})
        assert [error[1] for error in grown.topic_errors] == [0]
        (described,) = await admin.describe_topics([topic])
        assert sorted(p["partition"] for p in described["partitions"]) == [0, 1, 2, 3]
        assert all(sorted(p["replicas"]) == [1, 2, 3] for p in described["partitions"])
        deleted = await admin.delete_topics([topic])
        assert [code for _, code in deleted.topic_error_codes] == [0]
        assert topic not in await admin.list_topics()
    finally:
        await admin.close()


async def test_replicas_move_while_a_producer_writes(stage: PlayedCluster, kafka: KafkaCluster) -> None:
    """Every partition loses a replica, gets it back elsewhere in the list, and no record is lost."""
    await take_over(stage)
    await under_load(stage, kafka)
    made = stage.made()
    await stage.reassign({key: replicas[:2] for key, replicas in made.items()})
    await stage.load.settled()
    await stage.reassign({key: (replicas[1], replicas[2], replicas[0]) for key, replicas in made.items()})
    await stage.elect_preferred({key: replicas[1] for key, replicas in made.items()})
    await stage.load.settled()
    await stage.heal()
    assert await check_nothing_lost(stage)
