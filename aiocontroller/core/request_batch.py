"""What a decision makes the controller tell the brokers (Kafka's ``AbstractControllerBrokerRequestBatch``).

Rules, Kafka's:
 * per broker the order is LeaderAndIsr, then UpdateMetadata, then StopReplica;
 * a partition stands once in a request: *is new* and *delete* stick once said within a batch;
 * whoever gets a LeaderAndIsr, all registered brokers get the partition by UpdateMetadata;
 * an UpdateMetadata without partitions still carries the broker list;
 * only registered brokers (also those shutting down) are written to.

A batch is a value that is made, filled and taken by one step.  It cannot be left half full for the next term
(KAFKA-12315), because no next step ever sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from aiocontroller.core.columns import ascend
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import EPOCH_DURING_DELETE, NO_EPOCH
from aiocontroller.core.partitions import NO_ISR


class LeaderAndIsrRequest(NamedTuple):
    broker: int
    pids: list[int]
    """Ascending."""
    new: frozenset[int]
    """Those whose replica on the broker may be created."""


class UpdateMetadataRequest(NamedTuple):
    """One for all ``brokers``: the content is the same but for the broker epoch."""

    brokers: list[int]
    pids: list[int]


class StopReplicaRequest(NamedTuple):
    broker: int
    partitions: list[tuple[int, int, bool]]
    """(pid, leader epoch, delete), ascending."""


class Requests(NamedTuple):
    leader_and_isr: list[LeaderAndIsrRequest]
    update_metadata: UpdateMetadataRequest | None
    stop_replica: list[StopReplicaRequest]


class Acknowledgements:
    """Counts the requests of a batch that brokers have not answered yet; tells once when none is left."""

    def __init__(self) -> None:
        self._open = 0
        self._callback: Callable[[], None] | None = None

    def one(self) -> Callable[[], None]:
        self._open += 1
        return self._answered

    def when_all(self, callback: Callable[[], None]) -> None:
        """Call back when every request has been answered or given up; at once where there is none."""
        self._callback = callback
        self._tell()

    def _answered(self) -> None:
        self._open -= 1
        self._tell()

    def _tell(self) -> None:
        if self._open == 0 and self._callback is not None:
            callback, self._callback = self._callback, None
            callback()


class Sent(NamedTuple):
    """What of a batch brokers have not acknowledged yet."""

    control: Acknowledgements
    """LeaderAndIsr and StopReplica."""
    metadata: Acknowledgements
    """UpdateMetadata, after which a broker knows the leaders."""


class RequestBatch:
    """May go out in several pieces, so that brokers hear of thousands of partitions while others are being written.

    Each piece is whole: LeaderAndIsr, UpdateMetadata and StopReplica of what was added since the last.
    """

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.sent = Sent(Acknowledgements(), Acknowledgements())
        """Of all pieces."""
        self._told: dict[int, list[Sequence[int]]] = {}
        """Broker -> pids that it hears of in earlier pieces, ascending ones for each."""
        self._clear()

    def __len__(self) -> int:
        """About how many partitions wait to be told: one that was added twice counts twice."""
        return sum(map(len, self._update_metadata_pids))

    def _clear(self) -> None:
        self._leader_and_isr: dict[int, list[Sequence[int]]] = {}
        self._new: dict[int, set[int]] = {}
        self._update_metadata_brokers: dict[int, None] = {}
        self._update_metadata_pids: list[Sequence[int]] = []
        self._stop_replica: dict[int, dict[int, bool]] = {}
        self._since = self._context.table.changes

    def __bool__(self) -> bool:
        return bool(self._leader_and_isr or self._update_metadata_brokers or self._stop_replica)

    def add_leader_and_isr_request_for_brokers(
        self, brokers: Iterable[int], pids: Sequence[int], *, is_new: bool
    ) -> None:
        """The partitions' leadership to each of the brokers, and to all metadata; those without any are left out."""
        known = self._context.table.with_leadership(pids)
        if not known:
            return
        for broker in brokers:
            if broker in self._context.brokers:
                self._leader_and_isr.setdefault(broker, []).append(known)
                if is_new:
                    self._new.setdefault(broker, set()).update(known)
        self.add_update_metadata_request_for_brokers(self._context.brokers, known)

    def add_leader_and_isr_requests(
        self,
        pids: Sequence[int],
        recipients: Sequence[tuple[int, ...]],
        *,
        is_new: bool = False,
        unless_told: bool = False,
    ) -> None:
        """Each partition's leadership to its own recipients, in parallel columns.

        ``unless_told``: nothing about it has changed since an earlier piece of this batch, if it was in one.
        """
        told = self._told_of(pids) if unless_told and pids else {}
        by_recipients: dict[tuple[int, ...], list[int]] = {}
        for pid, brokers in zip(pids, recipients, strict=True):
            by_recipients.setdefault(brokers, []).append(pid)
        for brokers, group in by_recipients.items():
            if told:
                for broker in brokers:
                    known = told.get(broker, ())
                    untold = [pid for pid in group if pid not in known]
                    self.add_leader_and_isr_request_for_brokers((broker,), untold, is_new=is_new)
            else:
                self.add_leader_and_isr_request_for_brokers(brokers, group, is_new=is_new)

    def _told_of(self, pids: Sequence[int]) -> dict[int, set[int]]:
        """What of earlier pieces may be about these partitions, by broker."""
        low, high = min(pids), max(pids)
        near = {b: [own for own in pieces if own[0] <= high and low <= own[-1]] for b, pieces in self._told.items()}
        return {broker: set[int]().union(*pieces) for broker, pieces in near.items() if pieces}

    def add_update_metadata_request_for_brokers(self, brokers: Iterable[int], pids: Sequence[int]) -> None:
        self._update_metadata_brokers.update((b, None) for b in brokers if b in self._context.brokers)
        if pids:
            self._update_metadata_pids.append(pids)

    def add_stop_replica_request_for_brokers(
        self, brokers: Iterable[int], pids: Sequence[int], *, delete: bool
    ) -> None:
        for broker in brokers:
            if broker in self._context.brokers:
                wanted = self._stop_replica.setdefault(broker, {})
                for pid in pids:
                    wanted[pid] = wanted.get(pid, False) or delete

    def take(self) -> Requests:
        """Everything that was added since the last time, ordered."""
        requests = Requests(
            [
                LeaderAndIsrRequest(broker, pids, frozenset(self._new.get(broker, ())))
                for broker, wanted in sorted(self._leader_and_isr.items())
                if (pids := self._replicas_of(broker, _ascending(wanted)))
            ],
            UpdateMetadataRequest(sorted(self._update_metadata_brokers), _ascending(self._update_metadata_pids))
            if self._update_metadata_brokers
            else None,
            [
                StopReplicaRequest(
                    broker, [(pid, self._stop_epoch(pid), delete) for pid, delete in sorted(wanted.items())]
                )
                for broker, wanted in sorted(self._stop_replica.items())
            ],
        )
        for told in requests.leader_and_isr:
            self._told.setdefault(told.broker, []).append(told.pids)
        self._clear()
        return requests

    def _replicas_of(self, broker: int, pids: list[int]) -> list[int]:
        """Without those that were taken away from the broker since they were added."""
        table = self._context.table
        if table.changes == self._since:
            return pids
        return [pid for pid in pids if table.topic_of[pid] >= 0 and broker in table.replicas(pid)]

    def _stop_epoch(self, pid: int) -> int:
        table = self._context.table
        if table.topic(pid).deleting:
            return EPOCH_DURING_DELETE
        return NO_EPOCH if table.isr_of[pid] == NO_ISR else table.leader_epoch[pid]


def _ascending(added: Sequence[Sequence[int]]) -> list[int]:
    """All that was added, each once.  Where that was one piece, it usually is that already."""
    if len(added) == 1 and ascend(added[0]):
        return list(added[0])
    return sorted(set[int]().union(*added))


LEADERS_FIRST_UP_TO = 1_000
"""Partitions of a batch.  Larger ones go in Kafka's order: there all are busy for long, whoever hears first."""


def leaders_first(requests: Requests, leader: Sequence[int]) -> tuple[Requests, Requests] | None:
    """The requests in two parts: what leaders hear about the partitions that they lead, and everything else.

    Departure from Kafka, which tells all at once.  A follower that hears first fetches from a broker that does not lead
    yet, is refused, and stays away for ``replica.fetch.backoff.ms``, one second, in which ``acks=all`` waits.  Measured
    with real brokers: a leader's move stalls producers for 1.1 to 2.3 s so, and for 0.1 s where the leader heard first.

    ``leader`` is the table's column.  None where the batch has no order to it: it is large, or no leader is told.
    """
    if any(len(request.pids) > LEADERS_FIRST_UP_TO for request in requests.leader_and_isr):
        return None
    told = {pid for request in requests.leader_and_isr for pid in request.pids}
    if len(told) > LEADERS_FIRST_UP_TO:
        return None
    to_leaders, to_followers = [], []
    for broker, pids, new in requests.leader_and_isr:
        led = [pid for pid in pids if leader[pid] == broker]
        if led:
            to_leaders.append(LeaderAndIsrRequest(broker, led, new.intersection(led)))
        if len(led) < len(pids):
            followed = [pid for pid in pids if leader[pid] != broker]
            to_followers.append(LeaderAndIsrRequest(broker, followed, new.intersection(followed)))
    if not to_leaders:
        return None
    first = Requests(to_leaders, UpdateMetadataRequest([], sorted(told)), [])
    return first, requests._replace(leader_and_isr=to_followers)
