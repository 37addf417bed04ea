"""What follows from decisions that ZooKeeper has accepted, as values.

A handler goes in four steps: *plan* (core) -> *write* (ZooKeeper) -> *apply* (core) -> *send*.  ZooKeeper may refuse a
part of a write; a pure function of the rest says, as a value, what follows: which states partitions and replicas enter,
which requests brokers get, which replicas stop.  ``core.apply`` brings it into the context, ``add_to`` into a batch of
requests.  The controller decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.debts import Debt
from aiocontroller.core.event_kinds import Request
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState, ReplicaState

Replicas = Mapping[int, Sequence[int]]
"""Broker id -> rows."""


class Entered(NamedTuple):
    """Partitions that the journal records, and the state that they enter; None if they stay in theirs."""

    rows: Sequence[int]
    state: PartitionState | None
    why: str | None = None


class LeaderAndIsrRequests(NamedTuple):
    """Partitions whose leadership is sent, each to its own recipients (parallel columns)."""

    rows: Sequence[int]
    recipients: Sequence[tuple[int, ...]]
    is_new: bool = False
    unless_sent: bool = False
    """Skip partitions that were in an earlier piece of the batch."""


class SharedLeaderAndIsrRequests(NamedTuple):
    """Partitions whose leadership is sent to the same brokers."""

    brokers: Sequence[int]
    rows: Sequence[int]
    is_new: bool = False


class Effects(NamedTuple):
    """What follows from a write, in the order in which it is carried out."""

    entered: tuple[Entered, ...] = ()
    leader_and_isr: Sequence[LeaderAndIsrRequests | SharedLeaderAndIsrRequests] = ()
    metadata: Sequence[int] = ()
    """Partitions without leadership, which all brokers get by UpdateMetadata."""
    stopped: Mapping[int, Sequence[int]] = {}
    """Replicas that stop, and are kept."""
    deleted: Mapping[int, Sequence[int]] = {}
    """Replicas that stop, and are deleted."""
    owed: Iterable[Debt] = ()
    """Removed replicas whose deletion is asked for."""
    assigned: Mapping[int, ReplicaAssignment] = {}
    """Rows and their new assignments, which the znodes hold or are about to hold."""
    replicas: Sequence[tuple[Replicas, ReplicaState]] = ()
    """Replicas, and the state that they enter; those that become NonExistentReplica leave their assignments."""
    isrs: Sequence[int] = ()
    """Partitions whose leader has changed the ISR, as the journal records it."""
    unclean_elections: int = 0
    answers: Sequence[tuple[Request, object]] = ()
    """Requests with their answers."""

    def add_to(self, batch: RequestBatch, brokers: Mapping[int, object]) -> None:
        """Add the requests; ``brokers`` are all that are registered."""
        for requests in self.leader_and_isr:
            if isinstance(requests, SharedLeaderAndIsrRequests):
                batch.add_leader_and_isr_request_for_brokers(requests.brokers, requests.rows, is_new=requests.is_new)
            else:
                batch.add_leader_and_isr_requests(
                    requests.rows, requests.recipients, is_new=requests.is_new, unless_sent=requests.unless_sent
                )
        if self.metadata:
            batch.add_update_metadata_request_for_brokers(brokers, self.metadata)
        for broker, rows in self.stopped.items():
            batch.add_stop_replica_request_for_brokers((broker,), rows, delete=False)
        for broker, rows in self.deleted.items():
            batch.add_stop_replica_request_for_brokers((broker,), rows, delete=True)
        batch.add_debts(self.owed)
