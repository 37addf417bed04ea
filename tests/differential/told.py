"""What a broker was told of a partition: the content of its requests, however they were grouped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from aiocontroller.core.ids import TopicPartition
from aiocontroller.wire.apis import ApiKey
from tests.recording_broker import Received

Ids = tuple[int, ...]


class Told(msgspec.Struct, frozen=True):
    """One partition of one request; None for what its kind of request does not carry.

    ``controller_epoch`` counts from the beginning of the scenario.  ``wrong`` names what fits no scenario: an id that
    is not the topic's, a broker epoch that is not the receiver's, a controller that is not in office.
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

    def __str__(self) -> str:
        flags = [name for name in ("is_new", "recovering", "delete") if getattr(self, name)]
        lists = [f"{n} {_ids(getattr(self, n))}" for n in ("adding", "removing", "offline") if getattr(self, n)]
        wrong = [f"WRONG: {self.wrong}"] if self.wrong else []
        if self.request == "StopReplica":
            return " ".join([self.request, f"epoch {self.leader_epoch}", *flags, *wrong])
        state = f"leader {self.leader} epoch {self.leader_epoch} isr {_ids(self.isr)} v{self.partition_epoch}"
        tail = [f"of {_ids(self.replicas)}", *lists, *flags, f"term {self.controller_epoch}", *wrong]
        return " ".join([self.request, state, *tail])


def _ids(ids: Ids) -> str:
    return "[" + ",".join(map(str, ids)) + "]"


class Receiver(msgspec.Struct):
    """What the receiver of a request knows, to judge it."""

    broker_epoch: int
    first_term: int
    controllers: frozenset[int]
    topic_ids: dict[str, bytes]


def told_by(received: Received, receiver: Receiver) -> Iterator[tuple[TopicPartition, Told]]:
    """Every partition of a request, in its order."""
    request = received.request
    wrong = list(_wrong(request, receiver))
    for topic in request.topic_states:
        in_topic = [*wrong, *_wrong_id(topic, receiver)]
        for partition in topic.partition_states:
            yield (
                TopicPartition(str(topic.topic_name), int(partition.partition_index)),
                _told(received.api, partition, receiver.first_term, ", ".join(in_topic)),
            )


def _wrong(request: Any, receiver: Receiver) -> Iterator[str]:
    if request.broker_epoch != receiver.broker_epoch:
        yield "the epoch of another incarnation of this broker"
    if request.controller_id not in receiver.controllers:
        yield f"controller {request.controller_id}"


def _wrong_id(topic: Any, receiver: Receiver) -> Iterator[str]:
    given = getattr(topic, "topic_id", None)
    known = receiver.topic_ids.get(topic.topic_name)
    if given is not None and known is not None and given.bytes != known:
        yield f"topic id {given}"


def _told(api: ApiKey, partition: Any, first_term: int, wrong: str) -> Told:
    if api is ApiKey.STOP_REPLICA:
        return Told("StopReplica", partition.leader_epoch, delete=partition.delete_partition, wrong=wrong)
    common: dict[str, Any] = {
        "leader_epoch": int(partition.leader_epoch),
        "leader": int(partition.leader),
        "isr": ids(partition.isr),
        "controller_epoch": int(partition.controller_epoch) - first_term,
        "replicas": ids(partition.replicas),
        "wrong": wrong,
    }
    if api is ApiKey.UPDATE_METADATA:
        offline = tuple(sorted(ids(partition.offline_replicas)))
        return Told("UpdateMetadata", partition_epoch=int(partition.zk_version), offline=offline, **common)
    return Told(
        "LeaderAndIsr",
        partition_epoch=int(partition.partition_epoch),
        adding=ids(partition.adding_replicas),
        removing=ids(partition.removing_replicas),
        is_new=bool(partition.is_new),
        recovering=bool(partition.leader_recovery_state),
        **common,
    )


def ids(values: Iterable[Any]) -> Ids:
    return tuple(map(int, values))
