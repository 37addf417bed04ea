"""The last in-sync replica loses the end of its log in a power failure; an eligible replica has everything and leads.

A short form of ``aiocontroller storm power-loss`` follows: Kafka's own controller and KRaft lose records there.
"""

from __future__ import annotations

import asyncio
import io
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from rich.console import Console

from aiocontroller.lab.cluster.processes import Child
from aiocontroller.lab.cluster.real_kafka import (
    DEFAULT_VERSION,
    RealKafkaBroker,
    RealKafkaCluster,
    archive_classes,
    kafka_missing,
)
from aiocontroller.lab.storms.kafka import KAFKAS, OURS
from aiocontroller.lab.storms.power_loss import CONTROLLERS, KRAFT, storm
from aiocontroller.lab.storms.unclean import Options
from aiocontroller.net.ports import World
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.controller.harness import Cluster, running, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(420)]

SETTINGS = {"replica.lag.time.max.ms": "1500", "zookeeper.session.timeout.ms": "18000"}
"""The default: a broker that needs more than half of it to stop is not eligible, and machines are busy."""
TOPIC = "orders"
FIRST, THEN = 300, 100


def produce(bootstrap: str, first: int, count: int) -> None:
    """Produce records that the whole ISR, of at least two replicas, acknowledges."""
    failed: list[object] = []

    def answered(error: object, _: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "message.timeout.ms": 60_000, "linger.ms": 0})
    for number in range(first, first + count):
        producer.produce(TOPIC, b"%d" % number, partition=0, on_delivery=answered)
        producer.poll(0)
    assert producer.flush(90) == 0
    assert failed == []


def consume(bootstrap: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "power-loss"})
    try:
        place = TopicPartition(TOPIC, 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=60)
        consumer.assign([place])
        found: list[int] = []
        while len(found) < end:
            message = consumer.poll(60)
            assert message is not None, f"found {len(found)} records, expected {end}"
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
        return found
    finally:
        consumer.close()


def lose_power(broker: RealKafkaBroker) -> None:
    """Kill the broker, and cut off what its operating system had not written: the last third of its log."""
    broker.kill()
    (segment,) = (broker.data_dir / "logs" / f"{TOPIC}-0").glob("*.log")
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(size * 2 // 3)


async def reach(cluster: Cluster, leader: int, *isr: int) -> None:
    async def reached() -> bool:
        (state,) = await cluster.states(TOPIC, 1)
        return state is not None and state.leader == leader and set(state.isr) == set(isr)

    await until(reached, f"broker {leader} leads with ISR {isr}", 90)


async def test_nothing_is_lost_while_an_eligible_replica_lives(world: World, zk_connect: str, tmp_path: Path) -> None:
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    folder = tmp_path / "controller"
    folder.mkdir()
    command = [sys.executable, "-m", "aiocontroller", "run", "--zookeeper", zk_connect, "--listen", "127.0.0.1:0"]
    child = Child("aiocontroller", [*command, "--http-port", "0", "--data", str(folder)], log=folder / "log")
    brokers = RealKafkaCluster(3, zk_connect, tmp_path, overrides=SETTINGS)
    one, two, three = (brokers.brokers[number] for number in (1, 2, 3))
    try:
        async with running(world, zk_connect) as cluster:
            await child.wait_until_async((folder / "controller.json").exists, 60)
            await brokers.start_async()
            await AdminZkClient(cluster.zk).create_topic(TOPIC, {0: (1, 2, 3)}, configs={"min.insync.replicas": "2"})
            await reach(cluster, 1, 1, 2, 3)
            await asyncio.to_thread(produce, one.address, 0, FIRST)
            await three.stop_async()
            await reach(cluster, 1, 1, 2)
            await asyncio.to_thread(produce, one.address, FIRST, THEN)
            await two.stop_async()
            await reach(cluster, 1, 1)
            lose_power(one)
            await reach(cluster, -1, 1)
            await two.start_async()
            await reach(cluster, 2, 2)
            await one.start_async()
            await reach(cluster, 2, 1, 2)
            assert await asyncio.to_thread(consume, two.address) == [*range(FIRST + THEN)]
    finally:
        brokers.kill()
        child.kill()


TRIALS = 3


@pytest.mark.slow_kafka
@pytest.mark.timeout(900)
async def test_a_storm_loses_nothing_here_what_the_others_lose(tmp_path: Path) -> None:
    if missing := kafka_missing():
        pytest.skip(missing)
    archive_classes()
    report = await storm(Options(3, TRIALS, DEFAULT_VERSION, {}), tmp_path, Console(file=io.StringIO()))
    assert report.unfinished == ""
    lost = {name: [trial.lost > 0 for trial in report.of(name)] for name in CONTROLLERS}
    assert lost == {OURS: [False] * TRIALS, KAFKAS: [True] * TRIALS, KRAFT: [True] * TRIALS}
    assert len({sum(trial.acknowledged for trial in report.of(name)) for name in CONTROLLERS}) == 1
