"""The state of the audit: what is still to be compared, what is suspected, what was found.  ``audit`` compares.

A *pass* compares everything once, a slice at a time, so that no event waits for more than a few milliseconds.  *Urgent*
topics (foreign writes, suspicions to be confirmed) come before the rest of the pass.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.core.audit import (
    IN_TOPIC_ZNODE,
    Above,
    AuditFinding,
    DifferenceKind,
    Key,
    is_isr_written_by_its_leader,
)
from aiocontroller.core.events import Audit
from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.journal.journal import Journal
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Clock

AUDIT = "audit"
SLICE = 200
"""Partitions compared in one event."""
CONFIRM_S = 1.0
"""Delay before a suspicion is checked again: events in the queue, or about to arrive, explain most of them."""
BUSY_S = 0.5
MOST_WAITS = 20
"""How many times in a row a slice may be postponed."""
MOST_REPAIRS = 3
"""Repairs of the same finding within a pass; after that it waits for the next pass."""
MOST_URGENT = 10_000
"""Urgent topics; beyond this number, a full pass starts instead."""
LATEST = 10
"""Latest findings shown by ``/status``."""


class Piece(NamedTuple):
    """Partitions ``start`` to ``end`` (exclusive) of a topic; the first piece includes the topic's own znode."""

    topic: str
    start: int
    end: int

    def compares(self, finding: AuditFinding) -> bool:
        """Whether comparing the piece would find this difference again, if it still exists."""
        if finding.partition < 0 or finding.kind in IN_TOPIC_ZNODE:
            return self.start <= 0
        return self.start <= finding.partition < self.end


class _Names:
    """Topics still to be compared, in order; part of the first may be done already."""

    def __init__(self) -> None:
        self.names: deque[str] = deque()
        self.offset = 0

    def take(self, table: PartitionTable, is_held_back: Callable[[str], bool]) -> list[Piece]:
        """The next pieces, about ``SLICE`` partitions in all, without topics that are deleted or being deleted."""
        pieces: list[Piece] = []
        room = SLICE
        while self.names and room > 0:
            topic = table.topic_by_name.get(self.names[0])
            start = self.offset
            if topic is None or (topic.deleting and not is_held_back(topic.name)) or start > len(topic.rows):
                self._next()
                continue
            end = min(start + room, len(topic.rows))
            pieces.append(Piece(topic.name, start, end))
            room -= max(end - start, 1)
            if end < len(topic.rows):
                self.offset = end
            else:
                self._next()
        return pieces

    def _next(self) -> None:
        self.names.popleft()
        self.offset = 0


class Auditor:
    """Lives as long as the process; ``forget`` is called at the end of each term."""

    def __init__(
        self,
        clock: Clock,
        queue: EventQueue,
        metrics: Metrics,
        interval_s: float,
        rate: int,
        *,
        brokers_write: Callable[[], bool],
    ) -> None:
        """A pass begins ``interval_s`` after the last one (0: never); ``rate`` is in partitions per second.

        ``brokers_write`` returns whether leaders may write ISRs themselves and notify the controller later.
        """
        self.brokers_write = brokers_write
        self._clock = clock
        self._queue = queue
        self._interval_s = interval_s
        self._rate = rate
        self._found = {
            kind: metrics.counter("aiocontroller", "Audit", "Findings", tags={"kind": kind}) for kind in DifferenceKind
        }
        self._passes = metrics.counter("aiocontroller", "Audit", "Passes")
        self.slices = metrics.timer("aiocontroller", "Audit", "SliceTimeMs")
        self.last_pass_us: int | None = None
        """When this process last completed a pass, and how long it took."""
        self.last_pass_s = 0.0
        self.latest: deque[tuple[int, AuditFinding]] = deque(maxlen=LATEST)
        self.forget()
        gauges: dict[str, Callable[[], float]] = {
            "LastPassTimestampMs": lambda: (self.last_pass_us or 0) // 1000,
            "LastPassDurationMs": lambda: self.last_pass_s * 1e3,
            "Coverage": lambda: self.coverage,
            "Suspicions": lambda: sum(map(len, self._suspicions.values())),
        }
        for name, read in gauges.items():
            metrics.gauge("aiocontroller", "Audit", name, read)

    def forget(self) -> None:
        """Called at the end of a term: the next term starts by reading everything."""
        self.running = False
        self.lists_due = False
        self.noted: dict[TopicPartition, Above] = {}
        """The state before each foreign write, which brokers may have received."""
        self._rest, self._urgent = _Names(), _Names()
        self._urgent_at_s = 0.0
        self._is_urgent: set[str] = set()  # membership only
        self._suspicions: dict[str, dict[Key, AuditFinding]] = {}
        """By topic; '' for suspicions about no topic."""
        self._repairs: Counter[Key] = Counter()
        self._waits = 0
        self._began_s = self._next_pass_s = self._last_slice_s = 0.0
        self._looked_at = self._found_in_pass = self._in_all = 0

    # -- when ------------------------------------------------------------------------------------------------------

    def begin_waiting(self) -> None:
        """Called when a term starts: schedules the first pass."""
        self._next_pass_s = self._clock.monotonic() + self._interval_s
        self.schedule()

    def schedule(self) -> None:
        """Schedule the next slice for the time it is due."""
        now_s = self._clock.monotonic()
        due: list[float] = []
        if self._urgent.names or self.lists_due:
            due.append(self._urgent_at_s)
        if self.running:
            due.append(now_s)
        elif self._interval_s:
            due.append(self._next_pass_s)
        if due:
            at_s = max(min(due), self._last_slice_s + SLICE / self._rate, now_s)
            self._queue.schedule(AUDIT, at_s - now_s, Audit())

    def postpone_if_busy(self) -> bool:
        """Postpone the slice if other events wait, a limited number of times; returns whether it was postponed."""
        if len(self._queue) and self._waits < MOST_WAITS:
            self._waits += 1
            self._queue.schedule(AUDIT, BUSY_S, Audit())
            return True
        self._waits = 0
        self._last_slice_s = self._clock.monotonic()
        return False

    def check_soon(self, topics: Iterable[str], *, lists: bool = False) -> None:
        """Compare these topics, or the lists of topics and brokers, before the rest of the pass."""
        waits = bool(self._urgent.names or self.lists_due)
        self._make_urgent(topics, lists=lists)
        if not waits:
            self.schedule()

    def _make_urgent(self, topics: Iterable[str], *, lists: bool = False) -> None:
        if not (self._urgent.names or self.lists_due):
            self._urgent_at_s = self._clock.monotonic() + CONFIRM_S
        self.lists_due = self.lists_due or lists
        for topic in topics:
            if topic in self._is_urgent:
                continue
            if len(self._is_urgent) >= MOST_URGENT:
                self._next_pass_s = 0.0  # so many that all topics may be affected
                return
            self._is_urgent.add(topic)
            self._urgent.names.append(topic)

    def note_foreign_write(self, partition: TopicPartition, known: LeaderAndIsr | None, found: LeaderAndIsr) -> None:
        """Note that memory adopts ``found`` instead of ``known``.

        Unless a leader may have written it, the topic is compared soon.
        """
        if known is None or not self.is_foreign_write(known, found):
            return
        before = self.noted.get(partition, Above(-1, -1))
        self.noted[partition] = Above(
            max(before.leader_epoch, known.leader_epoch), max(before.partition_epoch, known.partition_epoch)
        )
        self.check_soon((partition.topic,))

    def is_foreign_write(self, known: LeaderAndIsr | None, found: LeaderAndIsr) -> bool:
        """Whether a state differs from what memory holds, and no leader can have written it."""
        if found == known:
            return False
        return known is None or not (self.brokers_write() and is_isr_written_by_its_leader(known, found))

    # -- what ------------------------------------------------------------------------------------------------------

    @property
    def is_urgent(self) -> bool:
        """Whether a list or an urgent topic is to be compared now, before the pass goes on."""
        return bool(self._urgent.names or self.lists_due) and self._clock.monotonic() >= self._urgent_at_s

    @property
    def pass_is_due(self) -> bool:
        """Whether the next pass may begin."""
        return not self.running and bool(self._interval_s) and self._clock.monotonic() >= self._next_pass_s

    def begin_pass(self, topics: Sequence[str], partitions: int) -> None:
        """Begin a pass over these topics; ``partitions``: how many the cluster has."""
        self.running = True
        self._began_s = self._clock.monotonic()
        self._rest = _Names()
        self._rest.names.extend(topics)
        self._repairs.clear()
        self._suspicions.clear()
        self._looked_at = self._found_in_pass = 0
        self._in_all = partitions

    def take(self, table: PartitionTable, is_held_back: Callable[[str], bool] = lambda _: False) -> list[Piece]:
        """Return what to compare next: urgent topics, or else the next ones of the pass.

        A topic to be deleted is compared only while something that a repair may resolve holds its deletion back.
        """
        if self._urgent.names and self._clock.monotonic() >= self._urgent_at_s:
            pieces = self._urgent.take(table, is_held_back)
            self._is_urgent = set(self._urgent.names)
            return pieces
        pieces = self._rest.take(table, is_held_back)
        self._looked_at += sum(end - start for _, start, end in pieces)
        return pieces

    @property
    def is_through(self) -> bool:
        """Whether the pass has compared everything."""
        return self.running and not self._rest.names

    def end_pass(self, journal: Journal, wall_us: int) -> None:
        """Count and record the pass; ``wall_us``: its end, in microseconds of the Unix epoch."""
        now_s = self._clock.monotonic()
        self.running = False
        self._passes.inc()
        self.last_pass_s, self.last_pass_us = now_s - self._began_s, wall_us
        self._next_pass_s = now_s + self._interval_s
        journal.append(
            "audit",
            partitions=self._looked_at,
            count=self._found_in_pass,
            duration_us=int(self.last_pass_s * 1e6),
        )

    @property
    def coverage(self) -> float:
        """Fraction of the partitions that the current pass has compared; 1 between passes once one has completed."""
        if not self.running:
            return float(self.last_pass_us is not None)
        return min(self._looked_at / self._in_all, 1.0) if self._in_all else 1.0

    def is_suspected(self, topics: Iterable[str]) -> bool:
        """Whether any of these topics has a suspicion waiting for confirmation."""
        return not self._suspicions.keys().isdisjoint(topics)

    # -- what was seen ---------------------------------------------------------------------------------------------

    def judge(self, looked_at: Sequence[Piece], found: Sequence[AuditFinding]) -> list[AuditFinding]:
        """Return the findings that were suspected before.  New ones become suspicions; suspicions not found again are
        dropped.

        No pieces means that the lists were compared.
        """
        confirmed: list[AuditFinding] = []
        for piece in looked_at or [Piece("", 0, 0)]:
            topic, earlier = piece.topic, self._suspicions.pop(piece.topic, {})
            self._suspicions[topic] = {key: finding for key, finding in earlier.items() if not piece.compares(finding)}
            for finding in found:
                if looked_at and finding.topic != topic:
                    continue
                if finding.key in earlier:
                    confirmed.append(finding)
                elif self._repairs[finding.key] < MOST_REPAIRS:
                    self._suspicions[topic][finding.key] = finding
            if not self._suspicions[topic]:
                del self._suspicions[topic]
            elif looked_at:
                self._make_urgent((topic,))
            else:
                self._make_urgent((), lists=True)
        return list(dict.fromkeys(confirmed))

    def record(self, finding: AuditFinding, journal: Journal, wall_us: int) -> None:
        """Count and record a finding; ``wall_us``: when it was found, in microseconds of the Unix epoch."""
        self._repairs[finding.key] += 1
        self._found_in_pass += 1
        self._found[finding.kind].inc()
        self.latest.append((wall_us, finding))
        journal.append(
            "finding",
            event=str(finding.kind),
            topic=finding.topic or None,
            partition=finding.partition if finding.partition >= 0 else None,
            broker=finding.broker if finding.broker >= 0 else None,
            detail={"subject": finding.subject, "found": finding.found, "expected": finding.expected},
        )

    def status(self) -> dict[str, Any]:
        """The state of the audit, for ``/status``."""
        return {
            "running": self.running,
            "coverage": round(self.coverage, 4),
            "last_pass_us": self.last_pass_us,
            "last_pass_s": round(self.last_pass_s, 3),
            "suspicions": sum(map(len, self._suspicions.values())),
            "findings": {str(kind): counter.value for kind, counter in self._found.items() if counter.value},
            "latest": [
                {"at_us": at_us, "kind": str(f.kind), "subject": f.subject, "found": f.found, "expected": f.expected}
                for at_us, f in self.latest
            ],
        }
