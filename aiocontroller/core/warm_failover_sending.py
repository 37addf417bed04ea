"""What brokers have yet to be sent after a warm failover: everything, in slices.

A LeaderAndIsr of a slice goes to each replica's broker, an UpdateMetadata of several slices to all brokers: for each
UpdateMetadata a broker copies all that it knows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from aiocontroller.core.columns import take
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.core.request_batch import RequestBatch
from aiocontroller.core.states import ReplicaState

ROWS = 5_000
"""Partitions in one step, which takes some ten milliseconds."""
METADATA_ROWS = 25_000
"""Partitions in one UpdateMetadata."""
TOPICS = 250
"""Topics whose watches are armed in one step."""


class FullMetadata:
    """The rows that existed at the failover, and the topics on which no watch has been armed yet."""

    def __init__(self, rows: int, topics: Iterable[str], started_s: float) -> None:
        self.rows = rows
        self.started_s = started_s
        """As ``Clock.monotonic`` counts."""
        self.topics = deque(topics)
        self._row = 0
        self._metadata_row = 0

    @property
    def is_complete(self) -> bool:
        """Whether all brokers have been sent everything, and all topics are watched."""
        return not self.topics and self._metadata_row >= self.rows

    @property
    def left(self) -> int:
        """Partitions that are still to be sent, at most."""
        return self.rows - self._metadata_row

    def take_topics(self) -> list[str]:
        """The next topics to watch, at most TOPICS of them."""
        return [self.topics.popleft() for _ in range(min(TOPICS, len(self.topics)))]

    def fill(self, batch: RequestBatch, table: PartitionTable, brokers: Iterable[int]) -> None:
        """Add the next slice to the batch."""
        low, self._row = self._row, min(self._row + ROWS, self.rows)
        add_leader_and_isr(batch, table, _present(table, low, self._row))
        if self._row == self.rows or self._row - self._metadata_row >= METADATA_ROWS:
            unsent = _present(table, self._metadata_row, self._row)
            self._metadata_row = self._row
            batch.add_update_metadata_request_for_brokers(brokers, table.for_update_metadata(unsent))


def add_leader_and_isr(
    batch: RequestBatch, table: PartitionTable, rows: Sequence[int], *, to: int | None = None
) -> None:
    """Send the partitions' leadership, without metadata, to the brokers of replicas that are in use; or ``to`` one.

    Topics that are being deleted are left out: their replicas must not be created again.
    """
    rows = table.not_deleting(rows)
    pairs = list(zip(*take(rows, table.assignment_of, table.replica_states_of), strict=True))
    known = {pair: _in_use(table, *pair) for pair in dict.fromkeys(pairs)}
    own: dict[int, list[int]] = {}
    for row, pair in zip(rows, pairs, strict=True):
        for broker in known[pair]:
            own.setdefault(broker, []).append(row)
    for broker, those in sorted(own.items()) if to is None else [(to, own.get(to, []))]:
        batch.add_leader_and_isr_request_for_brokers((broker,), those, is_new=False, metadata=False)


def _in_use(table: PartitionTable, assignment: int, states: int) -> list[int]:
    usual = (ReplicaState.OnlineReplica, ReplicaState.NewReplica)
    replicas = zip(table.assignments.values[assignment].replicas, table.replica_states.values[states], strict=True)
    return [broker for broker, state in replicas if state in usual]


def _present(table: PartitionTable, low: int, high: int) -> Sequence[int]:
    rows = range(low, high)
    return rows if min(table.topic_of[low:high], default=0) >= 0 else [row for row in rows if table.topic_of[row] >= 0]
