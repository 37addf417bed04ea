"""Value types: partitions, replica assignments, leadership, brokers; and the sentinels that Kafka sends.

All are immutable values.  Names and meanings are those of Kafka's ``ControllerContext``, ``ReplicaAssignment`` and
``LeaderAndIsr``; where Kafka nests ``LeaderIsrAndControllerEpoch(LeaderAndIsr, epoch)``, one flat value serves here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

NO_LEADER = -1
"""No replica leads the partition."""
LEADER_DURING_DELETE = -2
"""Leader in UpdateMetadata that makes brokers forget the partition."""
EPOCH_DURING_DELETE = -2
"""Leader epoch in StopReplica that lets a deletion pass any epoch check."""
NO_EPOCH = -1
"""Leader epoch in StopReplica when no leadership is known."""
INITIAL_LEADER_EPOCH = 0
UNKNOWN_BROKER_EPOCH = -1
NO_TOPIC_ID = bytes(16)
"""The zero UUID: the topic has no id, or the message does not carry it."""

RECOVERED = 0
RECOVERING = 1
"""Leader recovery states (KIP-704): RECOVERING after an unclean election, until the leader says otherwise."""

MAX_BROKER_ID = 2**31 - 1
MAX_CONTROLLER_EPOCH = 2_000_000_000
"""No controller can have had a higher epoch.  A state with one is damaged; a term above it would exhaust the epochs."""
MAX_PARTITIONS_PER_TOPIC = 1 << 20
"""Partition numbers from here on are treated as damaged data."""


def of_different_topics(one: bytes, other: bytes) -> bool:
    """Whether two topic ids (16 bytes) belong to different topics; False if either is NO_TOPIC_ID."""
    return one != other and NO_TOPIC_ID not in (one, other)


class TopicPartition(NamedTuple):
    """A partition by topic and number; ``str`` gives ``orders-0``, as in logs."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReplicaAssignment(NamedTuple):
    """Broker ids of a partition's replicas, preferred leader first, and those that a reassignment adds or removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def being_reassigned(self) -> bool:
        """Whether a reassignment is in progress: replicas are yet to be added or removed."""
        return bool(self.adding or self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas as they were before the reassignment."""
        return tuple(r for r in self.replicas if r not in self.adding) if self.adding else self.replicas

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas as they will be after the reassignment."""
        return tuple(r for r in self.replicas if r not in self.removing) if self.removing else self.replicas

    def reassign_to(self, target: Sequence[int]) -> ReplicaAssignment:
        """The assignment with which a reassignment to ``target`` begins; it overrides one in progress."""
        full = tuple(dict.fromkeys((*target, *self.origin)))
        origin, wanted = set(self.origin), set(target)
        return ReplicaAssignment(
            full,
            tuple(r for r in full if r not in origin),
            tuple(r for r in full if r not in wanted),
        )


def distinct(assignments: Iterable[ReplicaAssignment]) -> Iterable[ReplicaAssignment]:
    """Each object once, in order, by identity: equal but not identical objects may be repeated.

    Assignments read from ZooKeeper are identical if they are equal, and comparing identities costs a fifth of hashing.
    """
    return {id(assignment): assignment for assignment in assignments}.values()


class Eligible(NamedTuple):
    """Replicas outside the ISR that may still hold every committed record (``core.eligible_replicas``)."""

    config_zxid: int
    """The zxid of the last change of the topic's settings before they left the ISR; 0 without settings."""
    replicas: tuple[tuple[int, int], ...]
    """(broker, its epoch when it left the ISR), at least one."""


class MinIsr(NamedTuple):
    """A topic's ``min.insync.replicas``, and the zxid of the last change of the topic's settings."""

    value: int
    config_zxid: int = 0


class LeaderAndIsr(msgspec.Struct, frozen=True, gc=False):
    """One partition's leadership, as its state znode holds it; ``partition_epoch`` is that znode's version."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    partition_epoch: int
    recovery_state: int = RECOVERED
    eligible: Eligible | None = None
    """Eligible leader replicas (KIP-966) as last written; some may no longer be eligible."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where a broker listens: listener name, host, port, security protocol by name (``PLAINTEXT``, ``SSL``, …)."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class Broker(msgspec.Struct, frozen=True):
    """A registered broker; ``epoch``, the czxid of its registration, identifies its incarnation."""

    id: int
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    features: tuple[tuple[str, int, int], ...] = ()
    """(name, min version, max version) of each supported feature, sorted by name."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener with this name, case-sensitive; None if the broker has no such listener."""
        return next((e for e in self.endpoints if e.listener == listener), None)


class TopicAssignment(msgspec.Struct, frozen=True):
    """A topic znode: its id (16 bytes, zero when it has none), each partition's replicas, and the znode's version."""

    topic: str
    topic_id: bytes
    partitions: dict[int, ReplicaAssignment]
    version: int = 0
