"""What clients are told of a cluster: one Metadata answer, from a broker that is known to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

PartitionKey = tuple[str, int]
_ANSWER_TIMEOUT_S = 5.0


class PartitionView(NamedTuple):
    leader: int
    """-1: none"""
    replicas: tuple[int, ...]
    isr: frozenset[int]


View = Mapping[PartitionKey, PartitionView]


def look(bootstrap: str, topics: Sequence[str]) -> View:
    """Blocks for at most some seconds; empty when the broker does not answer.

    The client is a new one each time, for only then it is sure to ask this broker.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "logger": _Silent()}
    admin = AdminClient(settings)
    try:
        found = admin.list_topics(timeout=_ANSWER_TIMEOUT_S).topics
    except KafkaException:
        return {}
    return {
        (topic, number): PartitionView(partition.leader, tuple(partition.replicas), frozenset(partition.isrs))
        for topic in topics
        if topic in found
        for number, partition in sorted(found[topic].partitions.items())
    }


def controller_named_by(bootstrap: str) -> int:
    """-1: none, or no answer."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "logger": _Silent()}
    try:
        return int(AdminClient(settings).list_topics(timeout=_ANSWER_TIMEOUT_S).controller_id)
    except KafkaException:
        return -1


def led_by(view: View, broker: int) -> frozenset[PartitionKey]:
    return frozenset(key for key, partition in view.items() if partition.leader == broker)


def moved_off(view: View, brokers: frozenset[int]) -> bool:
    """Whether every partition has a leader, and none of these brokers leads or is in sync."""
    return bool(view) and all(p.leader >= 0 and p.leader not in brokers and not p.isr & brokers for p in view.values())


def whole(view: View) -> bool:
    return bool(view) and all(p.leader >= 0 and p.isr == frozenset(p.replicas) for p in view.values())


class _Silent:
    """librdkafka reports every broker that is away."""

    def log(self, *_: object) -> None:
        pass
