"""Real clients that know only the controller's address: it directs them to the same nodes as a broker would.

While it is the controller, and after a release, beside real brokers of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from aiocontroller.core.events import Release, TakeOver
from aiocontroller.core.request_content import Released
from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, RealKafkaCluster, kafka_missing
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from tests.integration.controller.harness import Cluster, running, until
from tests.integration.kafka.command_line import CommandLine
from tests.integration.kafka.test_operating import ask

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
US = 1_000_001
RECORDS = [b"%d" % n for n in range(20)]


class Stage(NamedTuple):
    cluster: Cluster
    service: Service
    brokers: RealKafkaCluster

    @property
    def address(self) -> str:
        at = self.service.endpoints[0]
        return f"{at.host}:{at.port}"


@pytest.fixture
async def stage(world: World, zk_connect: str, tmp_path: Path) -> AsyncIterator[Stage]:
    if kafka_missing():
        pytest.skip(kafka_missing())
    settings = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2", "num.partitions": "3"}
    brokers = RealKafkaCluster(2, zk_connect, tmp_path, overrides=settings)
    await brokers.start_async()
    try:
        async with running(world, zk_connect) as cluster:
            service = await cluster.add_controller()
            await until(lambda: service.controller.election.holder)
            assert await ask(service, lambda reply: TakeOver(reply=reply)) == []
            await until(lambda: len(service.shell.context.live) == 2)
            yield Stage(cluster, service, brokers)
    finally:
        brokers.kill()


def produce(address: str, topic: str, transactional: bool) -> None:
    """Produce idempotently to a topic that need not exist; each record is acknowledged."""
    failed: list[str] = []
    settings = {"bootstrap.servers": address, "enable.idempotence": True, "allow.auto.create.topics": True}
    producer = Producer(settings | ({"transactional.id": str(uuid.uuid4())} if transactional else {}))
    if transactional:
        producer.init_transactions(60)
        producer.begin_transaction()
    for record in RECORDS:
        producer.produce(topic, record, on_delivery=lambda error, _: failed.append(str(error)) if error else None)
    if transactional:
        producer.commit_transaction(60)
    assert producer.flush(60) == 0
    assert failed == []


def consume(address: str, topic: str) -> None:
    """Consume as a group, whose coordinator is found through us."""
    group = {"group.id": str(uuid.uuid4()), "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": address} | group)
    consumer.subscribe([topic])
    found = []
    while len(found) < len(RECORDS):
        message = consumer.poll(60)
        assert message is not None, f"{len(found)} of {len(RECORDS)} records came"
        if message.error() is None:
            found.append(message.value())
    consumer.commit(asynchronous=False)
    consumer.close()
    assert sorted(found) == sorted(RECORDS)


async def with_aiokafka(address: str, topic: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=address, enable_idempotence=True) as producer:
        for record in RECORDS:
            await producer.send_and_wait(topic, record)
    group = {"group_id": str(uuid.uuid4()), "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(topic, bootstrap_servers=address, **group) as consumer:
        found = [(await asyncio.wait_for(anext(consumer), 60)).value for _ in RECORDS]
    assert sorted(found) == sorted(RECORDS)


def nodes(address: str) -> tuple[int, list[int]]:
    """Return the controller, and all nodes."""
    admin = AdminClient({"bootstrap.servers": address})
    cluster = admin.describe_cluster(request_timeout=20).result(30)
    return cluster.controller.id, sorted(node.id for node in cluster.nodes)


async def test_clients_that_know_only_the_controller(stage: Stage, tmp_path: Path) -> None:
    address = stage.address
    assert await asyncio.to_thread(nodes, address) == (US, [1, 2, US])
    for topic, transactional in (("plain", False), ("in-transactions", True)):
        await asyncio.to_thread(produce, address, topic, transactional)
        await asyncio.to_thread(consume, address, topic)
    await with_aiokafka(address, "of-aiokafka")
    tools = CommandLine(DEFAULT_VERSION, address, tmp_path)
    listed = await asyncio.to_thread(tools.run, "topics", "--list")
    assert {"plain", "in-transactions", "of-aiokafka", "__consumer_offsets"} <= set(listed.splitlines())
    described = await asyncio.to_thread(tools.run, "topics", "--describe", "--topic", "plain")
    assert described.count("Leader: ") == 3


async def test_clients_of_an_inactive_controller(stage: Stage, tmp_path: Path) -> None:
    address, epoch = stage.address, stage.service.shell.context.epoch
    await asyncio.to_thread(produce, address, "before", False)
    assert await ask(stage.service, lambda reply: Release(reply=reply)) == Released(epoch)
    await until(lambda: not stage.service.controller.election.active)

    async def one_of_the_brokers() -> bool:
        try:
            controller, found = await asyncio.to_thread(nodes, address)
        except KafkaException:
            return False  # it timed out while there was no controller
        return controller in (1, 2) and found == [1, 2]

    await until(one_of_the_brokers, "Kafka's own controller is named", 60)
    await asyncio.to_thread(consume, address, "before")
    await asyncio.to_thread(produce, address, "before", True)
    tools = CommandLine(DEFAULT_VERSION, address, tmp_path)
    assert "before" in (await asyncio.to_thread(tools.run, "topics", "--list")).splitlines()
