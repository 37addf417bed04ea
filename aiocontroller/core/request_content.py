"""What requests to the controller carry, and their results: values of the events in ``core.events``."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, NamedTuple

import msgspec


class Released(msgspec.Struct, frozen=True):
    """The answer to ``Release``."""

    epoch: int
    """The epoch of the term that ended; 0 if this process was not the controller."""
    left: tuple[str, ...] = ()
    """Partitions that still name this controller as a replica."""
    owed: tuple[Mapping[str, Any], ...] = ()
    """Brokers that have yet to delete replicas: ``broker``, ``replicas`` (a count), ``topics``."""
    unfit: tuple[str, ...] = ()
    """One sentence for each broker to be restarted before it becomes the controller (``controller.deposing``)."""


class ReplicaLog(msgspec.Struct, frozen=True):
    """How far one replica's log reaches, or why that is not known."""

    broker: int
    in_isr: bool
    epoch: int | None = None
    """The epoch of its last record; None: it has no records with epochs, or the broker cannot tell."""
    end_offset: int | None = None
    start_offset: int | None = None
    error: str | None = None


class PartitionRecovery(msgspec.Struct, frozen=True):
    """What ``RecoverPartitions`` found or did for one partition."""

    topic: str
    partition: int
    result: str
    """``led``: it has a leader already; ``would elect`` in a dry run; ``elected``; ``failed``."""
    leader: int | None = None
    """The leader, or the broker that would lead."""
    logs: tuple[ReplicaLog, ...] = ()
    lost_at_most: int | None = None
    """Records that other logs hold and the leader's lacks; None if the leader's is not known."""
    unknown: tuple[int, ...] = ()
    """Brokers that may have held more and have not answered."""
    detail: str = ""
    readable: bool | None = None
    """False: there is a leader, but clients read nothing until as many replicas as ``min.insync.replicas`` are in sync.
    None: not known, or there is no leader."""


class AlterPartition(msgspec.Struct, frozen=True, gc=False):
    """The ISR change that a leader requests for one partition; ``topic`` is a name or a 16-byte id."""

    topic: str | bytes
    partition: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    recovery_state: int = 0


class ElectionType(IntEnum):
    """Kafka's byte values in ElectLeaders."""

    PREFERRED = 0
    UNCLEAN = 1


class ScramUpsertion(msgspec.Struct, frozen=True):
    """A SCRAM credential to add or replace; ``repr`` shows no secret."""

    user: str
    mechanism: int
    """Kafka's number: 1 for SCRAM-SHA-256, 2 for SCRAM-SHA-512."""
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        """Leaves out the secrets, which must not get into logs."""
        return f"ScramUpsertion({self.user!r}, mechanism={self.mechanism})"


class NewTopic(msgspec.Struct, frozen=True):
    """A topic of a CreateTopics request; -1 for partitions or replication factor means the brokers' default; with an
    assignment both are -1."""

    name: str
    partitions: int
    replication_factor: int
    assignment: dict[int, tuple[int, ...]]
    configs: dict[str, str | None]


class NewPartitions(msgspec.Struct, frozen=True):
    """A topic of a CreatePartitions request."""

    topic: str
    count: int
    """The total number of partitions that the topic should have."""
    assignment: tuple[tuple[int, ...], ...] | None
    """Replicas of each new partition; None: placed by the controller."""


class TopicSetting(NamedTuple):
    """One setting of a topic; ``source`` is Kafka's ``ConfigSource``."""

    name: str
    value: str | None
    source: int
    sensitive: bool


class TopicResult(msgspec.Struct, frozen=True):
    """How one topic of a request fared."""

    error_code: int
    message: str = ""
    name: str | None = None
    topic_id: bytes = bytes(16)
    partitions: int = -1
    replication_factor: int = -1
    config_error_code: int = 0
    """Why the answer leaves out the partitions, replicas and configuration of a topic that was created."""
    configs: tuple[TopicSetting, ...] = ()
    times: int = 1
    """How often the answer lists the topic: twice if the request named it twice; not for CreatePartitions."""
