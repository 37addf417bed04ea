"""``LoadClient.java`` with librdkafka: ``python -m … BOOTSTRAP TOPIC PARTITIONS INTERVAL_MS`` runs until SIGTERM.

``tally.py`` has the output format.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

CATCH_UP_S = 60.0


def now_us() -> int:
    return time.monotonic_ns() // 1000


class LibrdkafkaClient:
    def __init__(self, bootstrap: str, topic: str, partitions: int, interval_ms: int) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.partitions = partitions
        self.interval_s = interval_ms / 1000
        self.stopping = threading.Event()
        self.produced = threading.Event()
        self.acknowledged = [-1] * partitions

    def run(self) -> None:
        threads = [threading.Thread(target=self.consume, args=(who,)) for who in ("plain", "group")]
        for thread in threads:
            thread.start()
        self.produce()
        self.produced.set()
        for thread in threads:
            thread.join()
        self.consume("readback")
        self.line("end")
        sys.stdout.flush()

    def line(self, text: str) -> None:
        sys.stdout.write(text + "\n")

    def error(self, who: str, partition: int, error: object) -> None:
        self.line(f"e {who} {partition} {now_us()} {str(error).replace(chr(10), ' ')}")

    def produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "message.timeout.ms": 120_000,  # as Java's delivery.timeout.ms
                "error_cb": self.global_error,
            }
        )
        due = time.monotonic()
        sequence = 0
        while not self.stopping.is_set():
            for partition in range(self.partitions):
                self.send(producer, partition, sequence)
            sequence += 1
            due = max(due + self.interval_s, time.monotonic())
            while (left := due - time.monotonic()) > 0:
                producer.poll(left)
            sys.stdout.flush()
        unanswered = producer.flush(130)
        if unanswered:
            self.error("producer", -1, f"{unanswered} records without an answer")

    def global_error(self, error: KafkaError) -> None:
        """Print fatal errors only: librdkafka recovers from the others by itself."""
        if error.fatal():
            self.error("producer", -1, error)

    def send(self, producer: Producer, partition: int, sequence: int) -> None:
        sent = now_us()

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self.error("producer", partition, error)
                return
            self.acknowledged[partition] = max(self.acknowledged[partition], sequence)
            self.line(f"a {partition} {sequence} {sent} {now_us()}")

        try:
            producer.produce(self.topic, str(sequence).encode(), partition=partition, on_delivery=delivered)
        except BufferError as error:
            self.error("producer", partition, error)

    def consume(self, who: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"group-of-{self.topic}" if who == "group" else "unused",
            "enable.auto.commit": who == "group",
            "auto.offset.reset": "earliest",
            "fetch.min.bytes": 100_000,  # otherwise consumers would send a request for every record
            "error_cb": lambda error: self.error(who, -1, error) if error.fatal() else None,
        }
        consumer = Consumer(settings)
        if who == "group":
            consumer.subscribe([self.topic])
        else:
            consumer.assign([TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in range(self.partitions)])
        highest = [-1] * self.partitions
        deadline = float("inf")
        while time.monotonic() < deadline:
            self.emit(consumer.consume(5000, 0.2), who, highest)
            if self.produced.is_set():
                deadline = min(deadline, time.monotonic() + CATCH_UP_S)
                if all(read >= wanted for read, wanted in zip(highest, self.acknowledged, strict=True)):
                    break
        consumer.close()

    def emit(self, messages: Iterable[Message], who: str, highest: list[int]) -> None:
        """Print consecutive numbers as one line."""
        runs: dict[int, tuple[int, int]] = {}
        for message in messages:
            if message.error() is not None:
                self.error(who, -1, message.error())
                continue
            partition, value = message.partition(), message.value()
            assert partition is not None and value is not None
            sequence = int(value)
            highest[partition] = max(highest[partition], sequence)
            first, last = runs.get(partition, (sequence, sequence - 1))
            if sequence != last + 1:
                self.line(f"c {who} {partition} {first} {last} {now_us()}")
                first = sequence
            runs[partition] = (first, sequence)
        for partition, (first, last) in runs.items():
            self.line(f"c {who} {partition} {first} {last} {now_us()}")


def main() -> None:
    # Standard error goes to the same file: flush whole lines, so that the two do not interleave.
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1 << 24)
    bootstrap, topic, partitions, interval_ms = sys.argv[1:]
    client = LibrdkafkaClient(bootstrap, topic, int(partitions), int(interval_ms))
    signal.signal(signal.SIGTERM, lambda *_: client.stopping.set())
    client.run()


if __name__ == "__main__":
    main()
