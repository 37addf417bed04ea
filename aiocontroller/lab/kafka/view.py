"""A client's view of a cluster, from one Metadata response of a broker that is known to run."""

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
    """Return the view; empty if the broker does not answer.  Blocks for up to _ANSWER_TIMEOUT_S.

    Each call uses a new client, since only a new client is sure to ask this broker.
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
    """Return the id of the controller; -1 if there is none or the broker does not answer."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "logger": _Silent()}
    try:
        return int(AdminClient(settings).list_topics(timeout=_ANSWER_TIMEOUT_S).controller_id)
    except KafkaException:
        return -1


def controller_address(bootstrap: str) -> str:
    """Return the controller's ``host:port`` for clients.  Raises KafkaException."""
    from confluent_kafka.admin import AdminClient

    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "logger": _Silent()}
    found = AdminClient(settings).list_topics(timeout=_ANSWER_TIMEOUT_S)
    controller = found.brokers[found.controller_id]
    return f"{controller.host}:{controller.port}"


def led_by(view: View, broker: int) -> frozenset[PartitionKey]:
    return frozenset(key for key, partition in view.items() if partition.leader == broker)


def moved_off(view: View, brokers: frozenset[int]) -> bool:
    """Return whether every partition has a leader, and none of these brokers leads or is in sync."""
    return bool(view) and all(p.leader >= 0 and p.leader not in brokers and not p.isr & brokers for p in view.values())


def whole(view: View) -> bool:
    return bool(view) and all(p.leader >= 0 and p.isr == frozenset(p.replicas) for p in view.values())


class _Silent:
    """Discards the messages of librdkafka, which reports every broker that is down."""

    def log(self, *_: object) -> None:
        pass
