"""One partition's story, in words, from the records of a journal: who led it, with which ISR, and why that changed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aiocontroller.journal.records import Record

_REASONS = {
    "initialized": "it was created",
    "OfflineReplica": "a replica went offline",
    "OfflinePartitionLeaderElectionStrategy": "its leader was gone",
    "PreferredReplicaPartitionLeaderElectionStrategy": "the preferred replica is to lead",
    "ControlledShutdownPartitionLeaderElectionStrategy": "its leader shuts down",
    "ReassignPartitionLeaderElectionStrategy": "its replicas move",
    "SickBroker": "a broker is sick",
    "audit": "the audit repaired it",
    "deletion": "its topic is being deleted",
}
_OUTSIDERS = {
    ", unclean": ", by an unclean election",
    ", eligible": ", from the eligible replicas",
    ", complete": ", from outside the ISR with a complete log",
}


class Chapter(msgspec.Struct, frozen=True):
    """What happened; ``at_us`` is in microseconds since 1970."""

    at_us: int
    controller: int
    epoch: int
    text: str


class PartitionStory:
    """Takes records in the order in which they were written; ``chapter_of`` returns a chapter for those that matter."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic
        self._partition = partition
        self._replicas: Sequence[int] = ()
        self._leader: int | None = None
        self._isr: Sequence[int] = ()
        self._state: str | None = None

    def chapter_of(self, record: Record) -> Chapter | None:
        """The chapter; None if the record has nothing new about the partition."""
        text = self._of_cluster(record) if record.topic is None else self._of_topic(record)
        return None if not text else Chapter(record.ts, record.node, record.epoch, text)

    def _of_cluster(self, record: Record) -> str | None:
        if record.kind == "elected":
            return f"controller {record.node} took the role, epoch {record.controller_epoch}"
        if record.kind == "broker" and record.broker in self._replicas:
            return f"broker {record.broker}: {record.detail}"
        return None

    def _of_topic(self, record: Record) -> str | None:
        if record.topic != self._topic:
            return None
        if record.kind == "topic_deleted":
            return f"topic {self._topic} deleted"
        if record.partition != self._partition:
            return None
        match record.kind:
            case "partition" | "isr":
                return self._changed(record)
            case "reassigned":
                self._replicas = record.replicas or ()
                done = "reassignment cancelled" if record.detail == "cancelled" else "reassignment complete"
                return f"{done}: replicas are {_ids(self._replicas)}"
            case "recovery":
                return f"{record.event}: {record.detail}"
            case "isr_request":
                refused = "" if record.code is None else f", refused with error {record.code}"
                return f"leader {record.broker} asks for the ISR {_ids(record.isr)}{refused}"
            case "finding":
                return f"the audit found {record.event}: {record.detail}"
        return None

    def _changed(self, record: Record) -> str | None:
        changes = []
        if record.replicas is not None and tuple(record.replicas) != tuple(self._replicas):
            if self._replicas:
                changes.append(f"replicas {_ids(record.replicas)}, before {_ids(self._replicas)}")
            self._replicas = record.replicas
        if record.to_state == "OfflinePartition" != self._state:
            changes.append("it has no leader")
        elif record.leader is not None and record.leader != self._leader:
            changes.append(f"leader {_leader(record.leader)}, before {_leader(self._leader)}")
        if record.isr is not None and list(record.isr) != list(self._isr):
            changes.append(f"in sync {_ids(record.isr)}, before {_ids(self._isr)}")
        self._state = record.to_state or self._state
        self._leader = record.leader if record.leader is not None else self._leader
        self._isr = self._isr if record.isr is None else record.isr
        if not changes:
            return None
        why = _reason("its leader asked for it" if record.kind == "isr" else record.detail)
        return (
            "; ".join(changes)
            + (f": {why}" if why else "")
            + ("" if record.leader_epoch is None else f" (leader epoch {record.leader_epoch})")
        )


def _reason(detail: object) -> str:
    text = str(detail or "")
    for ending, words in _OUTSIDERS.items():
        if text.endswith(ending):
            return _REASONS.get(text.removesuffix(ending), text.removesuffix(ending)) + words
    return _REASONS.get(text, text)


def _leader(broker: int | None) -> str:
    return "none" if broker is None or broker < 0 else str(broker)


def _ids(brokers: Sequence[int] | None) -> str:
    return ",".join(map(str, brokers or ())) or "none"
