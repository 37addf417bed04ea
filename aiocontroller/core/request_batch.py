"""Collects the requests to brokers that follow from a decision (Kafka's ``AbstractControllerBrokerRequestBatch``).

Rules, Kafka's:
 * per broker the order is LeaderAndIsr, then UpdateMetadata, then StopReplica;
 * a partition appears once in a request: *is new* and *delete*, once set, stay set within a batch;
 * a partition sent to any broker by LeaderAndIsr goes to all registered brokers by UpdateMetadata;
 * an UpdateMetadata without partitions still carries the broker list;
 * requests go only to registered brokers, including those shutting down.

A single step creates, fills and takes a batch.  It cannot be left half full for the next term (KAFKA-12315), because no
later step ever sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from aiocontroller.core.columns import ascend
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Debt
from aiocontroller.core.ids import EPOCH_DURING_DELETE, NO_EPOCH
from aiocontroller.core.partitions import NO_ISR


class LeaderAndIsrRequest(NamedTuple):
    """Partitions whose leadership one broker is sent."""

    broker: int
    rows: list[int]
    """Ascending."""
    new: frozenset[int]
    """The rows whose replica on the broker may be created."""


class UpdateMetadataRequest(NamedTuple):
    """One request for all ``brokers``: only the broker epoch differs."""

    brokers: list[int]
    rows: list[int]


class StopReplicaRequest(NamedTuple):
    """Replicas that one broker is to stop, or to stop and delete."""

    broker: int
    partitions: list[tuple[int, int, bool]]
    """(row, leader epoch, delete), ascending."""
    debts: Sequence[tuple[Debt, int]] = ()
    """Removed replicas to delete, with leader epochs."""


class Requests(NamedTuple):
    """What a batch sends, in Kafka's order."""

    leader_and_isr: list[LeaderAndIsrRequest]
    update_metadata: UpdateMetadataRequest | None
    stop_replica: list[StopReplicaRequest]


NO_BROKER = -1
"""The broker of something to be waited for that no single broker answers."""


class Acknowledgements:
    """Counts a batch's requests that brokers have not answered yet; calls back once when none is left."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """Number of the request -> its broker."""
        self._requests = 0
        self._callback: Callable[[], None] | None = None

    def one(self, broker: int = NO_BROKER) -> Callable[[], None]:
        """One more request; call the result when it has been answered or given up."""
        self._requests += 1
        self._open[self._requests] = broker
        return partial(self._answered, self._requests)

    def forgo(self, brokers: Container[int]) -> None:
        """Stop waiting for these brokers' answers; their requests stay in the queues."""
        for request in [request for request, broker in self._open.items() if broker in brokers]:
            del self._open[request]
        self._notify()

    def when_all(self, callback: Callable[[], None]) -> None:
        """Call back when every request has been answered or given up; at once if there are none."""
        self._callback = callback
        self._notify()

    def _answered(self, request: int) -> None:
        self._open.pop(request, None)
        self._notify()

    def _notify(self) -> None:
        if not self._open and self._callback is not None:
            callback, self._callback = self._callback, None
            callback()


class Sent(NamedTuple):
    """The requests of a batch that brokers have not acknowledged yet."""

    control: Acknowledgements
    """LeaderAndIsr and StopReplica."""
    metadata: Acknowledgements
    """The UpdateMetadata requests, after which a broker knows the leaders."""


class RequestBatch:
    """Requests collected for brokers.  A batch may be taken in pieces, so that sending overlaps with further writes.

    Each piece is complete: LeaderAndIsr, UpdateMetadata and StopReplica for everything added since the last one.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.sent = Sent(Acknowledgements(), Acknowledgements())
        """Acknowledgements of all pieces."""
        self.held_back = False
        """Nothing is to be sent before the whole batch is: ZooKeeper does not yet hold what memory holds."""
        self._sent: dict[int, list[Sequence[int]]] = {}
        """Broker -> rows sent to it in earlier pieces, ascending within each piece."""
        self._clear()

    def __len__(self) -> int:
        """Approximate number of partitions waiting to be sent: one that was added twice counts twice."""
        return sum(map(len, self._update_metadata_rows))

    def _clear(self) -> None:
        self._leader_and_isr: dict[int, list[Sequence[int]]] = {}
        self._new: dict[int, set[int]] = {}
        self._update_metadata_brokers: dict[int, None] = {}
        self._update_metadata_rows: list[Sequence[int]] = []
        self._stop_replica: dict[int, dict[int, bool]] = {}
        self._debts: dict[int, dict[Debt, None]] = {}
        self._since = self._context.table.changes

    def __bool__(self) -> bool:
        return bool(self._leader_and_isr or self._update_metadata_brokers or self._stop_replica or self._debts)

    def add_leader_and_isr_request_for_brokers(
        self, brokers: Iterable[int], rows: Sequence[int], *, is_new: bool, metadata: bool = True
    ) -> None:
        """Send the partitions' leadership to the brokers, and metadata to all; skips partitions without leadership."""
        known = self._context.table.with_leadership(rows)
        if not known:
            return
        for broker in brokers:
            if broker in self._context.brokers:
                self._leader_and_isr.setdefault(broker, []).append(known)
                if is_new:
                    self._new.setdefault(broker, set()).update(known)
        if metadata:
            self.add_update_metadata_request_for_brokers(self._context.brokers, known)

    def add_leader_and_isr_requests(
        self,
        rows: Sequence[int],
        recipients: Sequence[tuple[int, ...]],
        *,
        is_new: bool = False,
        unless_sent: bool = False,
    ) -> None:
        """Send each partition's leadership to its own recipients, given in parallel columns.

        ``unless_sent`` skips partitions that were in an earlier piece of this batch: they have not changed since.
        """
        sent = self._sent_of(rows) if unless_sent and rows else {}
        by_recipients: dict[tuple[int, ...], list[int]] = {}
        for row, brokers in zip(rows, recipients, strict=True):
            by_recipients.setdefault(brokers, []).append(row)
        for brokers, group in by_recipients.items():
            if sent:
                for broker in brokers:
                    known = sent.get(broker, ())
                    unsent = [row for row in group if row not in known]
                    self.add_leader_and_isr_request_for_brokers((broker,), unsent, is_new=is_new)
            else:
                self.add_leader_and_isr_request_for_brokers(brokers, group, is_new=is_new)

    def _sent_of(self, rows: Sequence[int]) -> dict[int, set[int]]:
        """The rows of earlier pieces that may be among these partitions, by broker."""
        low, high = min(rows), max(rows)
        near = {b: [own for own in pieces if own[0] <= high and low <= own[-1]] for b, pieces in self._sent.items()}
        return {broker: set[int]().union(*pieces) for broker, pieces in near.items() if pieces}

    def add_update_metadata_request_for_brokers(self, brokers: Iterable[int], rows: Sequence[int]) -> None:
        """Send brokers the live brokers, and all of the batch's partitions together with these."""
        self._update_metadata_brokers.update((b, None) for b in brokers if b in self._context.brokers)
        if rows:
            self._update_metadata_rows.append(rows)

    def add_stop_replica_request_for_brokers(
        self, brokers: Iterable[int], rows: Sequence[int], *, delete: bool
    ) -> None:
        """Have brokers stop these replicas; a replica that any call asks to delete is deleted."""
        for broker in brokers:
            if broker in self._context.brokers:
                wanted = self._stop_replica.setdefault(broker, {})
                for row in rows:
                    wanted[row] = wanted.get(row, False) or delete

    def add_debts(self, debts: Iterable[Debt]) -> None:
        """Ask the debts' brokers for the deletions, if they are registered and have not been asked yet."""
        for debt in debts:
            if debt.broker in self._context.brokers and not debt.asked:
                self._debts.setdefault(debt.broker, {})[debt] = None

    def take(self) -> Requests:
        """Everything added since the last call, ordered."""
        requests = Requests(
            [
                LeaderAndIsrRequest(broker, rows, frozenset(self._new.get(broker, ())))
                for broker, wanted in sorted(self._leader_and_isr.items())
                if (rows := self._replicas_of(broker, _ascending(wanted)))
            ],
            UpdateMetadataRequest(sorted(self._update_metadata_brokers), _ascending(self._update_metadata_rows))
            if self._update_metadata_brokers
            else None,
            self._stop_replica_requests(),
        )
        for sent in requests.leader_and_isr:
            self._sent.setdefault(sent.broker, []).append(sent.rows)
        self._clear()
        return requests

    def _stop_replica_requests(self) -> list[StopReplicaRequest]:
        requests = []
        table = self._context.table
        for broker in sorted({*self._stop_replica, *self._debts}):
            debts = [(debt, self._debt_epoch(debt)) for debt in self._debts.get(broker, ()) if self._is_due(debt)]
            for debt, _ in debts:
                debt.asked = True
            settled = {table.row(debt.topic, debt.partition) for debt, _ in debts}
            settled |= self._context.held_back.get(broker, set())
            wanted = sorted(self._stop_replica.get(broker, {}).items())
            partitions = [(row, self._stop_epoch(row), delete) for row, delete in wanted if row not in settled]
            if partitions or debts:
                requests.append(StopReplicaRequest(broker, partitions, tuple(debts)))
        return requests

    def _is_due(self, debt: Debt) -> bool:
        return self._context.debts.holds(debt) and self._context.may_be_deleted(debt)

    def _debt_epoch(self, debt: Debt) -> int:
        """The present leader epoch if the topic still exists, so that brokers recognise older requests as stale."""
        topic = self._context.table.topic_by_name.get(debt.topic)
        row = self._context.table.row(debt.topic, debt.partition)
        return (
            self._stop_epoch(row)
            if topic is not None and topic.id == debt.topic_id and row >= 0
            else (EPOCH_DURING_DELETE)
        )

    def _replicas_of(self, broker: int, rows: list[int]) -> list[int]:
        """The rows without those since removed from the broker and those held back from it."""
        table = self._context.table
        held = self._context.held_back.get(broker)
        if held:
            rows = [row for row in rows if row not in held]
        if table.changes == self._since:
            return rows
        return [row for row in rows if table.topic_of[row] >= 0 and broker in table.replicas(row)]

    def _stop_epoch(self, row: int) -> int:
        table = self._context.table
        if table.topic(row).deleting:
            return EPOCH_DURING_DELETE
        return NO_EPOCH if table.isr_of[row] == NO_ISR else table.leader_epoch[row]


def _ascending(added: Sequence[Sequence[int]]) -> list[int]:
    """Everything added, each row once, ascending.  A single piece usually is so already."""
    if len(added) == 1 and ascend(added[0]):
        return list(added[0])
    return sorted(set[int]().union(*added))


LEADERS_FIRST_UP_TO = 1_000
"""Limit in partitions.  Larger batches go in Kafka's order: they keep all brokers busy for long in any order."""


def leaders_first(
    requests: Requests, leader: Sequence[int], *, metadata_at_once: bool = False
) -> tuple[Requests, Requests] | None:
    """The requests in two parts: those to leaders about the partitions that they lead, and the rest.

    Departure from Kafka, which sends all at once.  A follower that gets its request before the leader fetches from a
    broker that does not lead yet, is refused, and backs off for ``replica.fetch.backoff.ms``, one second, while
    ``acks=all`` waits.  Measured with real brokers: moving a leader stalls producers for 1.1 to 2.3 s, and for 0.1 s
    if the leader gets its request first.

    ``metadata_at_once`` puts UpdateMetadata into the first part, for leaders that are gone: librdkafka asks for the new
    leader once, when its connection ends, and then only once a second.

    ``leader`` is the table's column.  None if the order does not matter: the batch is large or has no leader's request.
    """
    if any(len(request.rows) > LEADERS_FIRST_UP_TO for request in requests.leader_and_isr):
        return None
    sent = {row for request in requests.leader_and_isr for row in request.rows}
    if len(sent) > LEADERS_FIRST_UP_TO:
        return None
    to_leaders, to_followers = [], []
    for broker, rows, new in requests.leader_and_isr:
        led = [row for row in rows if leader[row] == broker]
        if led:
            to_leaders.append(LeaderAndIsrRequest(broker, led, new.intersection(led)))
        if len(led) < len(rows):
            followed = [row for row in rows if leader[row] != broker]
            to_followers.append(LeaderAndIsrRequest(broker, followed, new.intersection(followed)))
    if not to_leaders:
        return None
    only_rows, metadata = UpdateMetadataRequest([], sorted(sent)), requests.update_metadata
    now, later = (metadata, only_rows) if metadata_at_once else (only_rows, metadata)
    return Requests(to_leaders, now, []), requests._replace(leader_and_isr=to_followers, update_metadata=later)
