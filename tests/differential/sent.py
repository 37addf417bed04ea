"""What a broker was sent of a partition: the content of its requests, however they were grouped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from aiocontroller.core.ids import TopicPartition
from aiocontroller.lab.recording_brokers.recording_broker import Received
from aiocontroller.wire.apis import ApiKey

Ids = tuple[int, ...]
FIRST_WITH_STATES = 3
"""The first version of StopReplica that says of each partition whether it is deleted, and at which leader epoch."""
NO_EPOCH = -1
"""What earlier versions say of it."""


class Sent(msgspec.Struct, frozen=True):
    """One partition of one request; None for what its kind of request does not carry.

    ``controller_epoch`` counts from the beginning of the scenario.  ``wrong`` names what fits no scenario: an id that
    is not the topic's, a broker epoch that is not the receiver's, a controller that is not active, a live leader
    that leads no partition of its request.
    """

    request: str
    """``LeaderAndIsr``, ``UpdateMetadata`` or ``StopReplica``."""
    leader_epoch: int
    leader: int | None = None
    isr: Ids = ()
    partition_epoch: int | None = None
    controller_epoch: int | None = None
    replicas: Ids = ()
    adding: Ids = ()
    removing: Ids = ()
    offline: Ids = ()
    is_new: bool = False
    recovering: bool = False
    delete: bool = False
    wrong: str = ""
    version: int = -1
    """Of the request."""
    leads_at: str = ""
    """The leader's ``host:port`` by the live leaders of LeaderAndIsr, port 0 as in ``Live``; empty: none."""

    def __str__(self) -> str:
        flags = [name for name in ("is_new", "recovering", "delete") if getattr(self, name)]
        lists = [f"{n} {_ids(getattr(self, n))}" for n in ("adding", "removing", "offline") if getattr(self, n)]
        wrong = [f"WRONG: {self.wrong}"] if self.wrong else []
        request = f"{self.request} {self.version}" if self.version >= 0 else self.request
        if self.request == "StopReplica":
            return " ".join([request, f"epoch {self.leader_epoch}", *flags, *wrong])
        at = f" at {self.leads_at}" if self.leads_at else ""
        state = f"leader {self.leader}{at} epoch {self.leader_epoch} isr {_ids(self.isr)} v{self.partition_epoch}"
        tail = [f"of {_ids(self.replicas)}", *lists, *flags, f"term {self.controller_epoch}", *wrong]
        return " ".join([request, state, *tail])


def _ids(ids: Ids) -> str:
    return "[" + ",".join(map(str, ids)) + "]"


class Receiver(msgspec.Struct):
    """What the receiver of a request knows, to judge it."""

    broker_epoch: int
    first_term: int
    controllers: frozenset[int]
    topic_ids: dict[str, bytes]
    ports: Mapping[int, int]
    """broker -> port of its first listener, which is another in each cluster."""


def sent_by(received: Received, receiver: Receiver) -> Iterator[tuple[TopicPartition, Sent]]:
    """Every partition of a request, in its order."""
    request = received.request
    wrong = list(_wrong(request, receiver))
    if received.api is ApiKey.STOP_REPLICA and received.version < FIRST_WITH_STATES:
        yield from _stopped(received, ", ".join(wrong))
        return
    leaders = _live_leaders(received, receiver)
    for topic in request.topic_states:
        in_topic = [*wrong, *_wrong_id(topic, receiver)]
        for partition in topic.partition_states:
            yield (
                TopicPartition(str(topic.topic_name), int(partition.partition_index)),
                _sent(received, partition, receiver.first_term, leaders, ", ".join(in_topic)),
            )


def _stopped(received: Received, wrong: str) -> Iterator[tuple[TopicPartition, Sent]]:
    """A StopReplica that deletes all its partitions or none, and names no leader epochs."""
    delete = bool(received.request.delete_partitions)
    for topic in received.request.topics:
        for number in topic.partition_indexes:
            sent = Sent("StopReplica", NO_EPOCH, delete=delete, wrong=wrong, version=received.version)
            yield TopicPartition(str(topic.name), int(number)), sent


def _wrong(request: Any, receiver: Receiver) -> Iterator[str]:
    if request.broker_epoch != receiver.broker_epoch:
        yield "the epoch of another incarnation of this broker"
    if request.controller_id not in receiver.controllers:
        yield f"controller {request.controller_id}"
    yield from _wrong_leaders(request)


def _wrong_leaders(request: Any) -> Iterator[str]:
    """Live leaders that lead nothing in their request, or stand there twice."""
    listed = [int(leader.broker_id) for leader in getattr(request, "live_leaders", ())]
    if listed:
        leading = {int(partition.leader) for topic in request.topic_states for partition in topic.partition_states}
        for broker, times in sorted(Counter(listed).items()):
            if times > 1 or broker not in leading:
                yield f"live leader {broker}, {times} times"


def _live_leaders(received: Received, receiver: Receiver) -> dict[int, str]:
    """broker -> ``host:port``, of LeaderAndIsr."""
    found = {}
    for leader in getattr(received.request, "live_leaders", ()):
        broker, port = int(leader.broker_id), int(leader.port)
        found[broker] = f"{leader.host_name}:{0 if port == receiver.ports.get(broker) else port}"
    return found


def _wrong_id(topic: Any, receiver: Receiver) -> Iterator[str]:
    given = getattr(topic, "topic_id", None)
    known = receiver.topic_ids.get(topic.topic_name)
    if given is not None and known is not None and given.bytes != known:
        yield f"topic id {given}"


def _sent(received: Received, partition: Any, first_term: int, leaders: Mapping[int, str], wrong: str) -> Sent:
    api, _, _ = received
    common: dict[str, Any] = {"wrong": wrong, "version": received.version}
    if api is ApiKey.STOP_REPLICA:
        return Sent("StopReplica", partition.leader_epoch, delete=partition.delete_partition, **common)
    common |= {
        "leader_epoch": int(partition.leader_epoch),
        "leader": int(partition.leader),
        "isr": ids(partition.isr),
        "controller_epoch": int(partition.controller_epoch) - first_term,
        "replicas": ids(partition.replicas),
    }
    if api is ApiKey.UPDATE_METADATA:
        offline = tuple(sorted(ids(partition.offline_replicas)))
        return Sent("UpdateMetadata", partition_epoch=int(partition.zk_version), offline=offline, **common)
    return Sent(
        "LeaderAndIsr",
        leads_at=leaders.get(int(partition.leader), ""),
        partition_epoch=int(partition.partition_epoch),
        adding=ids(getattr(partition, "adding_replicas", ())),  # from version 3 on
        removing=ids(getattr(partition, "removing_replicas", ())),
        is_new=bool(partition.is_new),
        recovering=bool(getattr(partition, "leader_recovery_state", 0)),  # from version 6 on
        **common,
    )


def ids(values: Iterable[Any]) -> Ids:
    return tuple(map(int, values))
