"""The journal as its writers see it: ``append`` is a plain call that costs about a microsecond and never fails.

Everything slow (encoding, writing, syncing) happens elsewhere and later.  Callers that append very many records at once
must ``await drain()`` now and then: that is the back-pressure.  Records are dropped only at the hard bound; they are
counted then, and the gap in ``seq`` shows which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from aiocontroller.journal.records import FORMAT_VERSION, PartitionColumns, Record, encode_records, partition_records
from aiocontroller.net.ports import Clock
from aiocontroller.net.tasks import Tasks

CLOSE_WITHIN_S = 4.0


class JournalStatistics(msgspec.Struct, frozen=True):
    """``pending`` records wait to be written; ``failures`` counts write attempts that the operating system refused."""

    appended: int = 0
    written: int = 0
    dropped: int = 0
    pending: int = 0
    written_bytes: int = 0
    failures: int = 0
    segments: int = 0
    deleted: int = 0
    """Number of files deleted by others while they were written."""
    expired: int = 0
    """Number of complete files deleted because the folder held more than its limit."""


class Listener(Protocol):
    """Receives what is appended."""

    def heard(self, kind: str, at_us: int, fields: Mapping[str, Any]) -> None:
        """One record; ``fields`` are those of ``Record``."""

    def heard_partitions(self, kind: str, count: int, entering: int, to_state: str | None, detail: str | None) -> None:
        """A record for each of ``count`` partitions; ``entering`` of them were in another state before."""


class Journal:
    """Numbers and timestamps records; subclasses store them."""

    listener: Listener | None = None
    """Receives every record as it is appended, whether it is stored or not."""
    enabled: bool = True
    """False if records are discarded, so that callers can skip building many of them."""

    def __init__(self, node: int, clock: Clock) -> None:
        self.node = node
        self.epoch = 0
        """The controller epoch for records from now on."""
        self._seq = 0
        self._wall_time_us = clock.wall_time_us

    def append(self, kind: str, **fields: Any) -> None:
        """Record something; ``fields`` are those of ``Record``.

        An unknown name is a bug and goes into ``detail``: failing over because of a record would be worse.
        (``tests/unit/journal`` checks the names at every call.)
        """
        self._notify(kind, self._wall_time_us, fields)
        self._seq += 1
        try:
            record = Record(FORMAT_VERSION, self._seq, self.epoch, self.node, self._wall_time_us(), kind, **fields)
        except TypeError:
            record = Record(FORMAT_VERSION, self._seq, self.epoch, self.node, self._wall_time_us(), kind, detail=fields)
        self._put(record)

    def append_partitions(self, kind: str, columns: PartitionColumns, *, detail: str | None = None) -> None:
        """Append one record for each partition, as ``append`` would, at a third of the cost."""
        if self.listener is not None and columns.partition:
            to_state = columns.to_state[0]
            entering = len(columns.partition) - list(columns.from_state).count(to_state)
            self.listener.heard_partitions(kind, len(columns.partition), entering, to_state, detail)
        first, now_us = self._seq + 1, self._wall_time_us()
        records = partition_records(kind, columns, first, self.epoch, self.node, now_us, detail)
        self._seq += len(records)
        self._put_all(records)

    def _notify(self, kind: str, wall_time_us: Callable[[], int], fields: Mapping[str, Any]) -> None:
        if self.listener is not None:
            self.listener.heard(kind, wall_time_us(), fields)

    def _put_all(self, records: Sequence[Record]) -> None:
        for record in records:
            self._put(record)

    def _put(self, record: Record) -> None:
        raise NotImplementedError

    @property
    def pending(self) -> int:
        """Number of records that are not durable yet."""
        return 0

    async def start(self, tasks: Tasks | None = None) -> None:
        """Start writing, by a task in this group; records appended before are kept."""

    async def drain(self) -> None:
        """Wait until few records are pending; returns at once if so."""

    async def flush(self) -> None:
        """Wait until all records appended so far are durable (or dropped and counted)."""

    async def close(self, within_s: float = CLOSE_WITHIN_S) -> None:
        """Flush and end; idempotent.  Later records, and those not written in this time, count as dropped."""

    def rescue(self, within_s: float) -> None:
        """Write pending records from a thread other than the loop's; nothing may be appended after that."""

    def statistics(self) -> JournalStatistics:
        """Return the counts so far."""
        return JournalStatistics(appended=self._seq)


class NullJournal(Journal):
    """Discards all records."""

    enabled = False

    def append(self, kind: str, **fields: Any) -> None:
        """Drop the record; it gets no number."""
        self._notify(kind, self._now_us, fields)

    def append_partitions(self, kind: str, columns: PartitionColumns, *, detail: str | None = None) -> None:
        """Drop the records, without looking at the columns."""

    def __init__(self, node: int = 0, clock: Clock | None = None) -> None:
        self.node = node
        self.epoch = 0
        self._seq = 0
        self._now_us = clock.wall_time_us if clock is not None else lambda: 0


class MemoryJournal(Journal):
    """Keeps the records for tests and the simulation; ``content()`` returns a file's content."""

    def __init__(self, node: int, clock: Clock) -> None:
        super().__init__(node, clock)
        self.records: list[Record] = []

    def _put(self, record: Record) -> None:
        self.records.append(record)

    def content(self) -> bytes:
        """The records as a file would hold them."""
        return encode_records(self.records)

    def of_kind(self, kind: str) -> list[Record]:
        """The records of one kind, in order."""
        return [r for r in self.records if r.kind == kind]

    def statistics(self) -> JournalStatistics:
        """Every record counts as written; none is dropped."""
        return JournalStatistics(appended=self._seq, written=len(self.records))
