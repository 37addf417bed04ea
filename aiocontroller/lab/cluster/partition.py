"""A replica on a simulated broker, and what its leader knows of followers; after Kafka's ``Partition``."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.lab.cluster.logs import StoredLog
from aiocontroller.lab.cluster.replication import NEVER_MS, Leading


class ReportVerdict(IntEnum):
    """A leader's answer to a follower's report; Kafka's error codes of Fetch."""

    OK = 0
    NOT_LEADER = 6
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 76

    @property
    def retriable(self) -> bool:
        """Whether a later report may be accepted, because the leader may not have received its LeaderAndIsr yet."""
        return self in (ReportVerdict.NOT_LEADER, ReportVerdict.UNKNOWN_LEADER_EPOCH)


class Partition:
    """A replica hosted here.  ``pending_isr`` is the requested ISR until the controller answers."""

    __slots__ = (
        "controller_epoch",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "leader_since_ms",
        "leading",
        "partition",
        "partition_epoch",
        "pending_isr",
        "replicas",
        "stored",
        "topic",
        "topic_id",
        "truncating",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = NO_TOPIC_ID
        self.stored: StoredLog | None = None
        """Its log; None without a disk."""
        self.leading: Leading | None = None
        """Its log and those of its followers, while it leads."""
        self.truncating = False
        """Before 2.7: whether the follower must still ask for the end of its last epoch before it fetches."""
        self.controller_epoch = 0
        self.leader = -1
        self.leader_epoch = -1
        self.isr: tuple[int, ...] = ()
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.is_leader = False
        self.leader_since_ms = 0
        self.pending_isr: tuple[int, ...] | None = None

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class IsrChange(NamedTuple):
    """A change requested from the controller or ZooKeeper, with the partition's epochs at that time."""

    partition: Partition
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int


class Follower:
    """A follower's state as known to this broker as a leader."""

    __slots__ = ("candidates", "id", "last_seen_ms", "lost", "reported")

    def __init__(self, broker: int) -> None:
        self.id = broker
        self.last_seen_ms = NEVER_MS
        self.reported: dict[Partition, int] = {}
        """The leader epoch of its last report, by partition."""
        self.candidates: dict[Partition, None] = {}
        """Partitions whose ISR it may be about to join."""
        self.lost: dict[tuple[str, int], None] = {}
        """Reported partitions that were stopped here.  A real follower continues to fetch; this one is asked to report
        again once the partition is led here again, perhaps in the same leader epoch."""


class Fetcher:
    """The partitions that this broker, as a follower, fetches from one leader."""

    __slots__ = ("followed", "leader", "stopped", "unreported")

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.followed: dict[Partition, None] = {}
        self.unreported: dict[Partition, None] = {}
        self.stopped: dict[tuple[str, int], None] = {}


def judge(partition: Partition | None, leader_epoch: int) -> ReportVerdict:
    if partition is None:
        return ReportVerdict.NOT_LEADER
    if leader_epoch < partition.leader_epoch:
        return ReportVerdict.FENCED_LEADER_EPOCH
    if leader_epoch > partition.leader_epoch:
        return ReportVerdict.UNKNOWN_LEADER_EPOCH
    return ReportVerdict.OK if partition.is_leader else ReportVerdict.NOT_LEADER
