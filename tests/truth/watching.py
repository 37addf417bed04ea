"""What really happens to a cluster: ZooKeeper, looked at every 20 ms, and a client that writes all the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

LOOK_EVERY_S = 0.02
WRITE_EVERY_S = 0.025
FELT_US = 300_000
"""A partition that acknowledges nothing for longer was out of order for its client."""


def now_us() -> int:
    return time.time_ns() // 1000


class Watcher:
    """Every change of partitions' states, of brokers' registrations and of the controller, between two looks."""

    def __init__(self, zk: KafkaZkClient) -> None:
        self._zk = zk
        self._partitions: list[tuple[str, int]] = []
        self.states: dict[tuple[str, int], list[Any] | None] = {}
        self.brokers: list[int] | None = None
        self.changes: list[list[Any]] = []
        """[earliest µs, latest µs, topic, partition, leader, isr], without a state: leader None."""
        self.registrations: list[list[Any]] = []
        """[earliest µs, latest µs, brokers]"""
        self.sessions: dict[int, int] = {}
        """Of each broker that is registered, the transaction that made its registration."""
        self.registered: list[list[Any]] = []
        """[earliest µs, latest µs, broker, that transaction, or None where the registration is gone]"""
        self.controllers: list[list[Any]] = []
        """[earliest µs, latest µs, controller, or None where there is none]"""
        self.slowest_us = 0

    def follow(self, topic: str, partitions: int) -> None:
        self._partitions += [(topic, number) for number in range(partitions)]

    def forget(self, topic: str) -> None:
        self._partitions = [(each, number) for each, number in self._partitions if each != topic]

    async def run(self) -> None:
        before_us = now_us()
        while True:
            begun = time.monotonic()
            with suppress(Exception):  # a ZooKeeper that stands still: the next look that works spans the gap
                await self._look(before_us)
                self.slowest_us = max(self.slowest_us, now_us() - before_us)
                before_us = now_us()
            await asyncio.sleep(max(0.0, LOOK_EVERY_S - (time.monotonic() - begun)))

    async def _look(self, before_us: int) -> None:
        wanted = list(self._partitions)
        topics, numbers = [topic for topic, _ in wanted], [number for _, number in wanted]
        found = await self._zk.get_topic_partition_states(topics, numbers) if wanted else []
        brokers = sorted(int(each) for each in await self._zk.client.get_children("/brokers/ids"))
        known = sorted({*brokers, *self.sessions})
        found_ids = await self._zk.client.exists_many([f"/brokers/ids/{each}" for each in known])
        stats = {each: found_ids.stat(n) for n, each in enumerate(known)}
        controller = getattr(await self._zk.get_controller(watch=False), "controller_id", None)
        at_us = now_us()
        for key, state in zip(wanted, found, strict=True):
            leadership = [state.leader, sorted(state.isr)] if isinstance(state, LeaderAndIsr) else None
            if self.states.get(key) != leadership:
                self.states[key] = leadership
                self.changes.append([before_us, at_us, *key, *(leadership or [None, []])])
        if brokers != self.brokers:
            self.brokers = brokers
            self.registrations.append([before_us, at_us, brokers])
        for broker, stat in stats.items():
            made = None if stat is None else int(stat.created_zxid)
            if self.sessions.get(broker) != made:
                self.registered.append([before_us, at_us, broker, made])
                self.sessions = {each: zxid for each, zxid in {**self.sessions, broker: made}.items() if zxid}
        if not self.controllers or self.controllers[-1][2] != controller:
            self.controllers.append([before_us, at_us, controller])


class Writer:
    """One client of librdkafka; a record for each partition at a time, acknowledged by its leader."""

    def __init__(self, bootstrap: str, topics: Sequence[str], partitions: int) -> None:
        from confluent_kafka import Producer

        settings = {"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0, "message.timeout.ms": 120_000}
        more = {"retry.backoff.ms": 50, "topic.metadata.refresh.interval.ms": 500, "log_level": 0}
        self._producer = Producer({**settings, **more})
        self._keys = [(topic, number) for topic in topics for number in range(partitions)]
        self._acknowledged: dict[tuple[str, int], int] = {}
        self._waiting: dict[tuple[str, int], int] = {}
        self.felt: list[list[Any]] = []
        """[last acknowledged µs, next acknowledged µs, topic, partition]"""

    async def run(self) -> None:
        while True:
            for key in self._keys:
                if self._waiting.get(key, 0) < 20:  # a partition without a leader must not fill the queue
                    self._waiting[key] = self._waiting.get(key, 0) + 1
                    self._producer.produce(key[0], b"x", partition=key[1], on_delivery=self._delivered)
            self._producer.poll(0)
            await asyncio.sleep(WRITE_EVERY_S)

    def _delivered(self, error: Any, message: Any) -> None:
        key = (message.topic(), message.partition())
        self._waiting[key] -= 1
        if error is not None:
            return
        at_us, before_us = now_us(), self._acknowledged.get(key)
        if before_us is not None and at_us - before_us > FELT_US:
            self.felt.append([before_us, at_us, *key])
        self._acknowledged[key] = at_us

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(5)
