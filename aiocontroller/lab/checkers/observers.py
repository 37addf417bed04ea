"""Observers of a running simulation: what brokers receive, what controllers record, and which requests are answered.

* Brokers: ZooKeeper must have held whatever LeaderAndIsr and UpdateMetadata say of a partition, and whatever an
  AlterPartition response without an error says.  The history also takes in the brokers' AlterPartition requests, and
  thus knows how an ISR may change.
* Journals: between two terms a controller does nothing; within a term its requests never go back to an older
  incarnation of a broker (I7, I12); no handler raises.
* Requests: each is answered once, as long as its process lives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.core.event_kinds import Event, Reply, Request
from aiocontroller.core.ids import LEADER_DURING_DELETE, NO_TOPIC_ID
from aiocontroller.journal.records import Record
from aiocontroller.lab.checkers.history import Leadership, Partition
from aiocontroller.lab.checkers.records import DataChecker
from aiocontroller.lab.cluster.broker_requests import LeaderAndIsrRequest, StopReplicaRequest, UpdateMetadataRequest
from aiocontroller.lab.cluster.partition import Fetcher, IsrChange
from aiocontroller.lab.cluster.partition import Partition as Replica
from aiocontroller.lab.cluster.replication import FetchAnswer
from aiocontroller.lab.cluster.simulated_broker import SimulatedBroker
from aiocontroller.zookeeper.znode_json import topic_id_to_text

ANSWER_WITHIN_S = 3.0
DOES = frozenset({"request", "partition", "isr", "write", "loaded", "reassigned", "topic_deleted", "finding", "audit"})
"""Journal kinds that only an active controller may write."""


def wrap(target: object, name: str, around: Callable[..., Any]) -> None:
    """Replace a method of one object; ``around`` gets the original and its arguments."""
    setattr(target, name, partial(around, getattr(target, name)))


class Witness(Protocol):
    """Receives what a broker's observer sees: a ``ZNodeHistory``, or a recorder for a later one."""

    def asked(self, partition: Partition, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None: ...

    def received(self, broker: int, partition: Partition, leadership: Leadership) -> None: ...

    def placed(self, broker: int, partition: Partition, replicas: tuple[int, ...]) -> None: ...

    def acknowledged(self, broker: int, partition: Partition, leadership: Leadership) -> None: ...

    def replica_deleted(
        self, broker: int, partition: Partition, leader_epoch: int, topic_id: bytes = NO_TOPIC_ID
    ) -> None: ...

    def probe(self, name: str) -> None: ...


class BrokerObserver:
    """Observes one broker; calls ``heard`` with the API's name for each control request that the broker accepts."""

    def __init__(self, history: Witness, broker: SimulatedBroker, heard: Callable[[int, str], None]) -> None:
        self._history = history
        self._broker = broker.config.id
        self._asked = "AlterPartition" if broker.protocol.isr_by_alter_partition else "a leader's write of its ISR"
        self._heard = heard
        self._replicas = replicas = broker.replicas
        wrap(replicas, "become_leader_or_follower", self._leader_and_isr)
        wrap(replicas, "stop_replicas", self._stop_replicas)
        wrap(replicas, "_ask", self._asks)
        wrap(replicas, "isr_change_answered", self._answered)
        wrap(broker.metadata, "update", self._metadata)

    def _leader_and_isr(self, original: Any, request: LeaderAndIsrRequest, now_ms: int) -> Any:
        for topic in request.topics:
            for s in topic.partitions:
                known = (s.leader, s.leader_epoch, s.isr, s.partition_epoch)
                self._history.received(self._broker, (topic.topic, s.partition), known)
                if s.leader == self._broker:  # followers do not use the replicas, and may be sent them a moment early
                    self._history.placed(self._broker, (topic.topic, s.partition), s.replicas)
        self._heard(self._broker, "LeaderAndIsr")
        return original(request, now_ms)

    def _stop_replicas(self, original: Any, request: StopReplicaRequest) -> Any:
        self._heard(self._broker, "StopReplica")
        deletes = {(topic, number): epoch for topic, number, epoch, delete in request.partitions if delete}
        ids = {partition: self._topic_id(*partition) for partition in deletes}
        answers = yield from original(request)
        for topic, number, code in answers:
            if not code and (topic, number) in deletes:
                self._history.replica_deleted(self._broker, (topic, number), deletes[topic, number], ids[topic, number])
        return answers

    def _topic_id(self, topic: str, number: int) -> bytes:
        replica = self._replicas.partition(topic, number)
        return NO_TOPIC_ID if replica is None else replica.topic_id

    def _metadata(self, original: Any, request: UpdateMetadataRequest) -> Any:
        for topic in request.topics:
            for s in topic.partitions:
                if s.leader != LEADER_DURING_DELETE:
                    known = (s.leader, s.leader_epoch, s.isr, s.partition_epoch)
                    self._history.received(self._broker, (topic.topic, s.partition), known)
        self._heard(self._broker, "UpdateMetadata")
        return original(request)

    def _asks(self, original: Any, partition: Replica, isr: tuple[int, ...]) -> None:
        name: Partition = (partition.topic, partition.partition)
        self._history.asked(name, partition.leader_epoch, isr, partition.partition_epoch)
        original(partition, isr)

    def _answered(
        self,
        original: Any,
        change: IsrChange,
        error_code: int,
        leader_epoch: int,
        isr: tuple[int, ...],
        partition_epoch: int,
    ) -> bool:
        self._history.probe(f"{self._asked} answered with {error_code}")
        if not error_code:
            replica = change.partition
            leadership = (self._broker, leader_epoch, isr, partition_epoch)
            if leader_epoch == replica.leader_epoch:  # otherwise the answer belongs to another leader's term
                self._history.acknowledged(self._broker, (replica.topic, replica.partition), leadership)
        return bool(original(change, error_code, leader_epoch, isr, partition_epoch))


class LogObserver:
    """Observes the logs of one broker with a disk; what a dead process still does is ignored."""

    def __init__(self, data: DataChecker, broker: SimulatedBroker, dead: Callable[[], bool]) -> None:
        self._data = data
        self._broker = broker.config.id
        self._replicas = broker.replicas
        self._dead = dead
        wrap(broker.replicas, "_make_leader", self._leads)
        wrap(broker.replicas, "raise_hw", self._raises)
        wrap(broker.replicas, "_apply_fetched", self._takes)
        wrap(broker.replicas, "fail_log_dir", self._fails)

    def _leads(self, original: Any, partition: Replica, now_ms: int) -> None:
        log = None if partition.stored is None else partition.stored.log
        if log is not None and not self._dead():
            name, topic_id = (partition.topic, partition.partition), _text(partition.topic_id)
            self._data.led(self._broker, name, partition.leader_epoch, log.runs, topic_id)
        original(partition, now_ms)

    def _raises(self, original: Any, partition: Replica) -> None:
        before = self._hw(partition)
        original(partition)
        self._raised(partition, before)

    def _takes(self, original: Any, fetcher: Fetcher, partition: Replica, answer: FetchAnswer) -> bool:
        before = self._hw(partition)
        changed = bool(original(fetcher, partition, answer))
        if partition.stored is not None and not self._dead():
            self._data.copied(self._broker, (partition.topic, partition.partition), partition.stored.log.end)
        self._raised(partition, before)
        return changed

    def _fails(self, original: Any, partitions: Iterable[Partition]) -> None:
        disk = self._replicas.disk
        names = list(partitions)
        for name in names:
            if disk is not None and (stored := disk.find(name)) is not None:
                self._data.damaged(self._broker, name, 0, stored.log.end)
        original(names)

    @staticmethod
    def _hw(partition: Replica) -> int:
        return 0 if partition.stored is None else partition.stored.log.hw

    def _raised(self, partition: Replica, before: int) -> None:
        if partition.stored is None or partition.stored.log.hw <= before or self._dead():
            return
        log, name = partition.stored.log, (partition.topic, partition.partition)
        topic_id = _text(partition.topic_id)
        self._data.raised(self._broker, name, partition.leader_epoch, log.runs, log.hw, topic_id)


def _text(topic_id: bytes) -> str:
    return "" if topic_id == NO_TOPIC_ID else topic_id_to_text(topic_id)


class RequestObserver:
    """Notes every request that is put into a queue."""

    def __init__(self, queue: EventQueue, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._asked: list[tuple[float, str, Reply]] = []
        wrap(queue, "append", self._append)

    def _append(self, original: Any, event: Event) -> None:
        if isinstance(event, Request):
            self._asked.append((self._monotonic(), type(event).__name__, event.reply))
        original(event)

    def unanswered(self) -> list[str]:
        """Return the requests that have waited for too long."""
        self._asked = [asked for asked in self._asked if not asked[2].answered]
        latest = self._monotonic() - ANSWER_WITHIN_S
        return [
            f"requests: {name} of {asked_s:.1f} s was never answered"
            for asked_s, name, _ in self._asked
            if asked_s < latest
        ]


def check_journal(records: Sequence[Record]) -> list[str]:
    """Check one controller process by its own records; return its violations."""
    wrong: list[str] = []
    is_active = False
    last_epoch = 0
    incarnations: dict[int, int] = {}
    for record in records:
        if record.kind == "elected":
            if is_active:
                wrong.append(f"I12: elected for epoch {record.controller_epoch} without having resigned")
            if (record.controller_epoch or 0) <= last_epoch:
                wrong.append(f"I2: elected for epoch {record.controller_epoch} after {last_epoch}")
            is_active, last_epoch, incarnations = True, record.controller_epoch or 0, {}
        elif record.kind == "resigned":
            is_active = False
        elif record.kind == "fault":
            wrong.append(f"bug: {record.event}: {record.detail}")
        elif record.kind in DOES:
            if not is_active:
                wrong.append(f"I12: {record.kind} while not active, after epoch {last_epoch}")
            if record.kind == "request":
                broker, epoch = record.broker or 0, record.broker_epoch or 0
                if epoch < incarnations.get(broker, 0):
                    wrong.append(f"I7: {record.api} to incarnation {epoch} of broker {broker}, which is over")
                incarnations[broker] = max(epoch, incarnations.get(broker, 0))
    return list(dict.fromkeys(wrong))
