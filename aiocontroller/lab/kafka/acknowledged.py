"""Records that the whole ISR has acknowledged, and how many of them can be read later."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.kafka.controllers import until
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

QUIET = {"log_level": 0}
"""Keeps librdkafka from logging that brokers are dead."""
WITHIN_S = 60
RECORDS_OF_A_BATCH = 5
"""Small enough that a log whose end is cut off loses some of its batches, not all."""


def write_acknowledged(bootstrap: str, topic: str, counts: Mapping[int, int]) -> None:
    """Write this many records to each partition; TimeoutError unless the whole ISR acknowledges all of them."""
    from confluent_kafka import Producer

    producer = Producer(
        {
            **QUIET,
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "message.timeout.ms": WITHIN_S * 1000,
            "batch.num.messages": RECORDS_OF_A_BATCH,
        }
    )
    failed: list[Any] = []
    for partition, count in counts.items():
        for number in range(count):
            producer.produce(
                topic,
                str(number).encode(),
                partition=partition,
                on_delivery=lambda error, _: failed.append(error) if error else None,
            )
    left = producer.flush(WITHIN_S)
    if left or failed:
        raise TimeoutError(f"{left} records of {topic} were not acknowledged: {failed[:3]}")


async def readable_records(bootstrap: str, topic: str, partition: int) -> int:
    """Return the high watermark, once it is available; TimeoutError if it is not in time, or stays 0."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    def ask() -> int:
        consumer = Consumer({**QUIET, "bootstrap.servers": bootstrap, "group.id": "ends"})
        try:
            return int(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1])
        except KafkaException:
            return 0
        finally:
            consumer.close()

    return int(await until(lambda: asyncio.to_thread(ask), f"{topic}-{partition} can be read"))


async def states_of(zk: KafkaZkClient, topic: str) -> list[LeaderAndIsr]:
    """Return the states of the topic's partitions in their order, without those that cannot be read."""
    found = (await zk.get_topic_assignments([topic], watch=False)).found
    numbers = sorted(found[0].partitions) if found else []
    states = await zk.get_topic_partition_states([topic] * len(numbers), numbers)
    return [state for state in states if isinstance(state, LeaderAndIsr)]
