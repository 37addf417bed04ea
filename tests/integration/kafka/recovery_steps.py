"""Steps of tests in which logs are compared before a replica leads."""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
)

from aiocontroller.lab.kafka.acknowledged import states_of, write_acknowledged
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.kafka.conftest import take_over
from tests.integration.kafka.test_unclean_recovery import command, end_of

STRATEGY, TIMEOUT = "aiocontroller.unclean.recovery.strategy", "aiocontroller.unclean.recovery.timeout.ms"
CONFIGS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false"}
_numbers = itertools.count(1)


def with_strategy(stage: PlayedCluster, strategy: str, **more: str) -> None:
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    ours.properties = {**ours.properties, STRATEGY: strategy, **more}


async def in_isr(stage: PlayedCluster, topic: str, isr: Sequence[int]) -> bool:
    """Whether every partition has this ISR, in any order."""
    controller: Any = stage.controller
    states = await states_of(controller.zk, topic)
    return bool(states) and all(set(state.isr) == set(isr) for state in states)


async def led_by(stage: PlayedCluster, topic: str, *leaders: int) -> bool:
    """Whether every partition is led by one of these; -1 is no leader."""
    controller: Any = stage.controller
    states = await states_of(controller.zk, topic)
    return bool(states) and all(state.leader in leaders for state in states)


async def created(
    stage: PlayedCluster, replicas: Sequence[int] = (1, 2, 3), partitions: int = 1, **configs: str
) -> tuple[OurController, str]:
    """Create a topic under aiocontroller, led by the first of these replicas, with all of them in sync."""
    controller = await take_over(stage)
    topic = f"recovery-{next(_numbers)}"
    assignment = dict.fromkeys(range(partitions), tuple(replicas))
    dotted = {key.replace("_", "."): value for key, value in configs.items()}
    await AdminZkClient(controller.zk).create_topic(topic, assignment, configs=CONFIGS | dotted)
    await until(lambda: in_isr(stage, topic, tuple(replicas)), "every replica is in sync")
    return controller, topic


async def write(stage: PlayedCluster, topic: str, count: int, partitions: int = 1) -> None:
    """Write this many records to each partition, acknowledged by the ISR."""
    alive = ",".join(broker.address for broker in stage.brokers.values() if broker.running)
    await asyncio.to_thread(write_acknowledged, alive, topic, dict.fromkeys(range(partitions), count))


async def die(stage: PlayedCluster, topic: str, broker: int, *isr: int) -> None:
    """Kill the broker, and wait for this ISR; if it is the broker's alone, there is no leader."""
    stage.brokers[broker].kill()
    await until(lambda: in_isr(stage, topic, isr), f"the ISR is {isr}")
    if isr == (broker,):
        await until(lambda: led_by(stage, topic, -1), "nobody leads")


async def start(stage: PlayedCluster, *brokers: int) -> None:
    """Return when they answer: on a busy machine that is seconds after they have registered."""
    for broker in brokers:
        await stage.start(stage.brokers[broker])
        address = stage.brokers[broker].address
        await until(functools.partial(asyncio.to_thread, answers, address), f"broker {broker} answers")


def answers(address: str) -> bool:
    try:
        AdminClient({"bootstrap.servers": address}).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


async def readable(stage: PlayedCluster, topic: str, broker: int, end: int) -> None:
    async def reached() -> bool:
        return await asyncio.to_thread(end_of, stage.brokers[broker].address, topic) == end

    await until(reached, f"{topic} can be read up to {end}")


async def recovered(folder: Path, topic: str, *more: str) -> dict[str, Any]:
    """Return what ``recover`` says of partition 0."""
    code, out, err = await command("recover", "--topic", topic, "--json", *more, folder=folder)
    assert out, (code, err)
    found: dict[str, Any] = json.loads(out)["partitions"][0]
    return found


def read(bootstrap: str, topic: str, end: int, isolation: str = "read_uncommitted") -> list[bytes]:
    """Return what a consumer reads from partition 0 up to this offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "r", "isolation.level": isolation})
    try:
        place = TopicPartition(topic, 0, OFFSET_BEGINNING)
        consumer.assign([place])
        found: list[bytes] = []
        for _ in range(600):
            message = consumer.poll(0.1)
            if message is not None:
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
            [at] = consumer.position([place])
            if at.offset >= end:
                return found
        raise AssertionError(f"read up to {at.offset} of {end}")
    finally:
        consumer.close()
