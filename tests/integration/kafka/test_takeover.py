"""The role goes from a broker to aiocontroller and back, by choice and by SIGKILL; clients notice nothing."""

from __future__ import annotations

import asyncio
import itertools
import random

import msgspec
import pytest

from aiocontroller.cli.role import post_command
from aiocontroller.cli.run import READY_FILE, ControllerReady
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, take_over, under_load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

ROUNDS = 30
UNFIT = "Controller moved to another broker when moving some replicas"


async def test_takeover_and_release_lose_nothing(stage: PlayedCluster, kafka: KafkaCluster) -> None:
    await under_load(stage, kafka, kind="librdkafka")
    ours = stage.controllers["aiocontroller"]
    before = await ours.zk.get_controller_epoch()  # type: ignore[attr-defined]
    assert before is not None
    controller = await take_over(stage)
    assert await controller.zk.get_controller_epoch() == (before[0] + 1, before[1] + 1)
    await stage.load.settled()
    await controller.give()
    assert await controller.holder() in stage.brokers
    await stage.load.settled()
    assert await check_nothing_lost(stage)


async def test_a_broker_takes_over_from_a_killed_aiocontroller_and_gives_back(
    stage: PlayedCluster, kafka: KafkaCluster
) -> None:
    controller = await take_over(stage)
    await under_load(stage, kafka, kind="librdkafka")
    epoch = await controller.epoch()
    await controller.kill()
    await until(controller.held_by_a_broker, "a broker holds /controller")
    assert await controller.epoch() == epoch + 1
    await stage.load.settled()
    await controller.take()
    assert await controller.epoch() == epoch + 2
    await stage.load.settled()
    assert await check_nothing_lost(stage)


@pytest.mark.slow_kafka
@pytest.mark.timeout(600)
async def test_a_broker_that_was_deposed_works_as_the_controller_again(
    stage: PlayedCluster, kafka: KafkaCluster
) -> None:
    """KAFKA-12315: a broker deposed while it stops replicas keeps half a batch, and fails in all its later terms."""
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    admin, over = AdminZkClient(ours.zk), asyncio.Event()

    async def delete_topics() -> None:
        while not over.is_set():
            topic = f"short-lived-{next(numbers)}"
            await admin.create_topic(topic, {0: (1, 2, 3), 1: (2, 3, 1)})
            while not await ours.zk.client.exists(paths.topic_partition_state(topic, 1)):
                await asyncio.sleep(0.01)
            await admin.delete_topics([topic])
            while topic in await ours.zk.get_all_topics_in_cluster(watch=False):
                await asyncio.sleep(0.01)

    await ours.take()
    ready = msgspec.json.decode((ours.folder / READY_FILE).read_bytes(), type=ControllerReady)
    numbers, chance = itertools.count(), random.Random(1)
    deleting = asyncio.create_task(delete_topics())
    try:
        for _ in range(ROUNDS):
            await asyncio.to_thread(post_command, ready, "release", {})
            await until(ours.held_by_a_broker, "a broker holds /controller")
            await asyncio.sleep(chance.uniform(0.5, 1.0))
            await asyncio.to_thread(post_command, ready, "takeover", {})
    finally:
        over.set()
        await deleting
        await ours.give()
    assert not [broker.id for broker in stage.brokers.values() if UNFIT in broker.log.read_text()]
