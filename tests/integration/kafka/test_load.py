"""The load harness itself: it notices losses, and can play all events of storms and benchmarks."""

from __future__ import annotations

import asyncio
import random

import pytest
from kafka import KafkaAdminClient, TopicPartition

from aiocontroller.lab.cluster.load.clients import kept_its_word
from aiocontroller.lab.kafka.events import play
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, under_load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
DELETED = 5


def delete_first_records(bootstrap: str, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.delete_records({TopicPartition(topic, 0): DELETED})
    finally:
        admin.close()


async def test_records_that_are_gone_are_found_to_be_lost(stage: PlayedCluster, kafka: KafkaCluster) -> None:
    """They were acknowledged, and read at once, but are gone when everything is read again."""
    await under_load(stage, kafka, kind="librdkafka")
    await stage.load.settled()
    await asyncio.sleep(1)  # the live consumers have read them by now; if not, they count as lost there, too
    (topic,) = stage.topics
    await asyncio.to_thread(delete_first_records, stage.bootstrap, topic)
    verdicts = await stage.load.finish()
    assert verdicts["librdkafka"].lost >= DELETED
    assert not kept_its_word(verdicts)


async def test_events_are_played_and_felt(stage: PlayedCluster, kafka: KafkaCluster) -> None:
    chance = random.Random(1)
    await under_load(stage, kafka)
    stage.controller = stage.controllers["aiocontroller"]
    felt = {event: await play(stage, event, chance) for event in ("takeover", "controlled shutdown", "leader move")}
    led = [sum(stall.led for stall in f.stalls) for f in felt.values()]
    assert led == [0, 2, 1]  # of six partitions on three brokers
    assert [len(f.stalls) for f in felt.values()] == [6, 6, 6]
    assert all(f.errors == () and all(stall.longest_ms > 0 for stall in f.stalls) for f in felt.values())
    stage.controller = stage.controllers["kafka"]
    await stage.controllers["aiocontroller"].give()
    felt_by_kafka = await play(stage, "takeover", chance)
    assert felt_by_kafka.subject == "kafka"
    assert await check_nothing_lost(stage)
