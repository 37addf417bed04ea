"""A producer in the test's process, for clusters other than those of `conftest`, and a check of its records."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def create_topic(bootstrap: str, name: str, partitions: int, replication_factor: int, within_s: float = 150) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    configs = {"min.insync.replicas": "2"}
    (future,) = admin.create_topics([NewTopic(name, partitions, replication_factor, config=configs)]).values()
    future.result(within_s)


class Load:
    """Idempotent, acks=all; each record is its sequence number within its partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: float = 200) -> None:
        self.topic = topic
        self.partitions = partitions
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.longest_gap_s = 0.0
        self.errors: list[str] = []
        self._bootstrap = bootstrap
        self._pause_s = 1 / per_second
        self._last_ack: dict[int, float] = {}
        self._stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": 120_000,
                "error_cb": lambda error: self.errors.append(str(error)) if error.fatal() else None,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(120)
        assert self._producer.flush(60) == 0, "records were left without an answer"

    def acknowledged_since(self, moment: float) -> set[int]:
        """Return the partitions that acknowledged a record after ``moment``, by ``time.monotonic()``."""
        return {p for p, at in self._last_ack.items() if at > moment}

    def _run(self) -> None:
        sequence = 0
        while not self._stop.is_set():
            for partition in range(self.partitions):
                self._producer.produce(
                    self.topic, str(sequence).encode(), partition=partition, on_delivery=self._delivered
                )
            sequence += 1
            self._producer.poll(0)
            self._stop.wait(self._pause_s)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        partition, now = message.partition(), time.monotonic()
        assert partition is not None
        if error is not None:
            self.errors.append(f"partition {partition}: {error}")
            return
        value = message.value()
        assert value is not None
        self.acknowledged[partition].append(int(value))
        self.longest_gap_s = max(self.longest_gap_s, now - self._last_ack.get(partition, now))
        self._last_ack[partition] = now

    def check_nothing_lost(self) -> int:
        """Check that every acknowledged record is there, once and in order; return their number."""
        assert not self.errors, self.errors[:5]
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "checker", "enable.auto.commit": False})
        consumer.assign([TopicPartition(self.topic, p, 0) for p in range(self.partitions)])
        wanted = {p: sequences[-1] for p, sequences in self.acknowledged.items()}
        found: dict[int, list[int]] = defaultdict(list)
        deadline = time.monotonic() + 150
        while any(not found[p] or found[p][-1] < last for p, last in wanted.items()):
            assert time.monotonic() < deadline, "could not read everything back"
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None, message.error()
                found[message.partition()].append(int(message.value()))
        consumer.close()
        for partition, sequences in self.acknowledged.items():
            assert found[partition] == sorted(set(found[partition])), f"partition {partition}: doubled or out of order"
            assert not set(sequences) - set(found[partition]), f"partition {partition}: acknowledged records are lost"
        return sum(map(len, self.acknowledged.values()))
