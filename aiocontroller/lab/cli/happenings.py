"""Describes the effect of an event in one sentence: "broker 2 died: 19 leaders moved, in 43 ms".

In a controller's journal, an event's decisions, writes and requests come before the record of the event itself.
"""

from __future__ import annotations

from aiocontroller.core.text import plural
from aiocontroller.journal.chronicle import BROKERS, SUSPICIONS, microseconds
from aiocontroller.journal.records import Record

Partition = tuple[str | None, int | None]


class Happenings:
    """Collects the records of one process until the record of the event that caused them."""

    def __init__(self) -> None:
        self._leaders: dict[Partition, int | None] = {}
        self._clear()

    def _clear(self) -> None:
        self._causes: list[str] = []
        self._facts: list[str] = []
        self._created: dict[str | None, int] = {}
        self._led: set[Partition] = set()
        self._offline: set[Partition] = set()
        self._preferred = False
        self._isrs: dict[Partition, str] = {}

    def take(self, record: Record) -> str | None:
        """Return the sentence if the record ends an event; it is empty if the event had no effect."""
        if record.kind != "event":
            self._heed(record)
            return None
        if record.event == "TopicDeletion":
            self._offline.clear()  # on their way to be deleted
        sentence = self._sentence()
        self._clear()
        return f"{sentence}, in {microseconds(record.processing_us or 0)}" if sentence else ""

    def _heed(self, record: Record) -> None:
        where: Partition = (record.topic, record.partition)
        match record.kind:
            case "broker" if record.detail in BROKERS:
                self._causes.append(BROKERS[record.detail].format(record.broker))
            case "partition" if record.to_state == "OfflinePartition":
                self._offline.add(where)
            case "partition" if record.to_state == "OnlinePartition":
                self._offline.discard(where)
                before = self._leaders.get(where)
                self._leaders[where] = record.leader
                if record.from_state == "NewPartition":
                    self._created[record.topic] = self._created.get(record.topic, 0) + 1
                elif before != record.leader or record.from_state == "OfflinePartition":
                    self._led.add(where)
                    self._preferred = str(record.detail).startswith("PreferredReplica")
            case "isr":
                self._isrs[where] = ",".join(map(str, record.isr or ()))
            case "topic_deleted":
                self._facts.append(f"topic {record.topic} deleted")
            case "reassigned":
                replicas = ",".join(map(str, record.replicas or ()))
                where_to = f"{record.topic}-{record.partition} reassigned to {replicas}"
                back = f"reassignment of {record.topic}-{record.partition} cancelled: replicas are {replicas}"
                self._facts.append(back if record.detail == "cancelled" else where_to)
            case "elected":
                self._causes.append(f"controller {record.node} took the role, epoch {record.controller_epoch}")
            case "loaded":
                partitions = plural(record.partitions or 0, "partition")
                self._facts.append(f"loaded {plural(record.count or 0, 'topic')} with {partitions}")
            case "resigned":
                self._causes.append(f"controller {record.node} lost the role, epoch {record.controller_epoch}")
            case "suspicion" if record.event in SUSPICIONS:
                who = f"{record.state} {record.broker}"
                self._causes.append(SUSPICIONS[record.event].format(who, record.detail))
            case "setting":
                self._facts.append(f"setting {record.detail}")
            case "finding":
                self._facts.append(f"the audit repaired {record.event}")
            case "fault":
                self._causes.append(f"{record.event} failed: {record.detail}")

    def _sentence(self) -> str:
        outcome = [f"topic {topic} created with {plural(n, 'partition')}" for topic, n in self._created.items()]
        if len(outcome) > 1:
            outcome = [f"{len(outcome)} topics created with {sum(self._created.values())} partitions"]
        outcome += self._facts
        if self._led:
            moved = plural(len(self._led), "leader") + (" moved" if self._causes or self._preferred else " elected")
            outcome.append(moved + (" to preferred replicas" if self._preferred else ""))
        if self._offline:
            outcome.append(f"{plural(len(self._offline), 'partition')} offline")
        if len(self._isrs) == 1:
            outcome += [f"ISR of {topic}-{number} is {isr}" for (topic, number), isr in self._isrs.items()]
        elif self._isrs:
            outcome.append(f"{len(self._isrs)} ISRs changed")
        causes = " and ".join(self._causes)
        return ": ".join(filter(None, (causes, ", ".join(outcome))))
