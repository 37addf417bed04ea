"""The role goes from a broker to aiocontroller and back, by choice and by SIGKILL; clients notice nothing."""

from __future__ import annotations

import pytest

from aiocontroller.lab.kafka.controllers import until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, take_over, under_load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


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
