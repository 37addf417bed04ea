"""What follows from decisions that ZooKeeper has accepted, as values.

A state machine goes in four steps: *plan* (core) -> *write* (ZooKeeper) -> *commit* (core) -> *effects* (core).  The
last is a pure function of what was written, since ZooKeeper may have refused a part: which states partitions enter,
which brokers are told what, which replicas stop.  The controller carries the effects out and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import PartitionState


class Entered(NamedTuple):
    """Partitions that the journal records, and the state that they enter; None if they stay in theirs."""

    rows: Sequence[int]
    state: PartitionState | None
    why: str


class Told(NamedTuple):
    """Partitions whose leadership is sent, each to its own recipients (parallel columns)."""

    rows: Sequence[int]
    recipients: Sequence[tuple[int, ...]]
    is_new: bool = False
    unless_told: bool = False
    """Skip partitions that were in an earlier piece of the batch."""


class Effects(NamedTuple):
    """In the order in which they are carried out."""

    entered: tuple[Entered, ...] = ()
    told: tuple[Told, ...] = ()
    metadata: Sequence[int] = ()
    """Partitions without leadership, which all brokers are told of by UpdateMetadata."""
    stopped: Mapping[int, Sequence[int]] = {}
    """Broker -> partitions whose replicas it stops, and keeps."""

    def add_to(self, batch: RequestBatch, brokers: Mapping[int, object]) -> None:
        """Add the requests; ``brokers`` are all that are registered."""
        for told in self.told:
            batch.add_leader_and_isr_requests(
                told.rows, told.recipients, is_new=told.is_new, unless_told=told.unless_told
            )
        if self.metadata:
            batch.add_update_metadata_request_for_brokers(brokers, self.metadata)
        for broker, rows in self.stopped.items():
            batch.add_stop_replica_request_for_brokers((broker,), rows, delete=False)
