"""The logs of simulated brokers' replicas, as runs of records, and the disks that keep them.  Pure.

A log is a list of runs; each has the leader epoch of its records, the leader that appended them, and the offset after
its last record.  The leader is part of a record's identity: if a bug lets two brokers lead in one epoch, offset and
epoch do not tell their records apart.  A run may be empty: as in Kafka, a leader (but not a follower) notes the
beginning of its epoch in its log (Kafka's ``LeaderEpochFileCache``).

Retention deletes records from the beginning of a log, up to its high watermark.  A run of its own, ``deleted``, stands
for them: it has no epoch and no leader, and agrees with whatever other logs have there.

A ``Disk`` outlives its broker's process.  A killed process loses nothing, since the operating system has what it wrote;
``power_cut`` loses what was not flushed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

NO_EPOCH = -1
NO_OFFSET = -1
NO_LEADER = -1


class Run(NamedTuple):
    epoch: int
    leader: int
    end: int


def deleted(end: int) -> Run:
    """Return the run that stands for the records before this offset."""
    return Run(NO_EPOCH, NO_LEADER, end)


class EpochEnd(NamedTuple):
    """Kafka's answer to OffsetsForLeaderEpoch; (-1, -1) for an epoch that is unknown to the log."""

    epoch: int
    end: int


UNKNOWN_END = EpochEnd(NO_EPOCH, NO_OFFSET)


class Log:
    """One replica's records.

    ``hw`` is the high watermark; ``checkpoint`` is the high watermark with which a new process begins; ``flushed`` is
    the end of the part that survives a power loss.
    """

    __slots__ = ("checkpoint", "flushed", "hw", "runs")

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        self.runs = list(runs)
        self.hw = 0
        self.flushed = 0
        self.checkpoint = 0

    def __repr__(self) -> str:
        return f"<{shown(self.runs)}, hw {self.hw}>"

    @property
    def end(self) -> int:
        return self.runs[-1].end if self.runs else 0

    @property
    def start(self) -> int:
        """The offset of the first record; ``end`` if there is none."""
        return first_offset(self.runs)

    @property
    def epoch(self) -> int:
        """The last epoch in the log; -1 if there is none."""
        return self.runs[-1].epoch if self.runs else NO_EPOCH

    def begin(self, epoch: int, leader: int) -> None:
        """Note that a leader's epoch begins here.  An epoch that is not newer than the last one has no effect."""
        if epoch > self.epoch:
            self.runs.append(Run(epoch, leader, self.end))

    def append(self, epoch: int, leader: int, count: int) -> int:
        """Append records; returns the first one's offset.  ValueError for an epoch below the last one."""
        if epoch < self.epoch:
            raise ValueError(f"append: found epoch {epoch}, expected at least {self.epoch}")
        base = self.end
        self._extend(Run(epoch, leader, base + count))
        return base

    def _extend(self, run: Run) -> None:
        if self.runs and self.runs[-1][:2] == run[:2]:
            self.runs[-1] = run
        else:
            self.runs.append(run)

    def between(self, start: int, end: int) -> list[Run]:
        """Return the records from offset ``start`` up to ``end``, exclusive, without empty runs."""
        return between(self.runs, max(start, self.start), end)

    def copy_from(self, start: int, runs: Sequence[Run]) -> None:
        """Append a leader's records from offset ``start`` on; ValueError if that is not our end."""
        if start != self.end:
            raise ValueError(f"copied records: found offset {start}, expected {self.end}")
        for run in runs:
            self._extend(run)

    def end_for(self, epoch: int) -> EpochEnd:
        """Return the largest known epoch up to this one, and its end offset, like Kafka's ``endOffsetFor``."""
        if epoch == NO_EPOCH or epoch > self.epoch:
            return UNKNOWN_END
        if epoch == self.epoch:
            return EpochEnd(epoch, self.end)
        found = EpochEnd(epoch, self.start)  # an epoch older than all known ones ends where the first one begins
        for run in self.runs:
            if run.epoch > epoch:
                break
            if run.epoch == NO_EPOCH:
                continue
            found = EpochEnd(run.epoch, run.end)
        return found

    def truncate(self, offset: int) -> None:
        """Remove the records from this offset on, and the epochs that begin there or later."""
        kept: list[Run] = []
        start = 0
        for run in self.runs:
            if start >= offset:
                break
            kept.append(run._replace(end=min(run.end, offset)))
            start = run.end
        self.runs = kept
        self.hw, self.flushed = min(self.hw, self.end), min(self.flushed, self.end)
        self.checkpoint = min(self.checkpoint, self.end)

    def delete_before(self, offset: int) -> None:
        """Delete the records before this offset, but none that is not committed.

        The epoch at the first offset stays known, even if it has no records any more.  What is deleted need not be
        flushed.
        """
        offset = min(offset, self.hw)
        if offset <= self.start:
            return
        kept: list[Run] = []
        begins = 0
        for run in self.runs:
            if begins <= offset:
                kept.clear()
            if run.epoch != NO_EPOCH:
                kept.append(run)
            begins = run.end
        self.runs = [deleted(offset), *kept]
        self.flushed = max(self.flushed, offset)

    def start_at(self, offset: int) -> None:
        """Delete everything, and start again at this offset, where the leader's log begins."""
        self.runs = [deleted(offset)]
        self.hw = self.flushed = self.checkpoint = offset

    def truncation(self, diverging: EpochEnd) -> tuple[int, bool]:
        """Return the offset to which a follower truncates after this answer, and whether that completes truncation.

        After Kafka's ``getOffsetTruncationState`` (KIP-279).
        """
        if diverging.end == NO_OFFSET:
            return self.hw, True
        if diverging.epoch == NO_EPOCH:
            return min(diverging.end, self.end), True
        ours = self.end_for(diverging.epoch)
        if ours == UNKNOWN_END:
            return min(diverging.end, self.end), True
        if ours.epoch != diverging.epoch:
            return min(ours.end, self.end), False
        return min(ours.end, diverging.end, self.end), True

    def diverges_at(self, other: Log) -> int | None:
        """Return the first offset at which the two logs have different records; None if one continues the other."""
        return diverges_at(self.runs, other.runs)

    # -- what a disk does ------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Flush the records, and checkpoint the high watermark."""
        self.flushed, self.checkpoint = self.end, self.hw

    def reopened(self) -> Log:
        """Return a copy of the log as a new process finds it; the dead process keeps the original."""
        found = Log(self.runs)
        found.hw = found.checkpoint = max(min(self.checkpoint, self.end), self.start)
        found.flushed = self.flushed
        return found


LogName = tuple[str, int]
"""(topic, partition)"""


class StoredLog:
    """A log in its folder; ``topic_id`` is the id in its ``partition.metadata`` file, zero if there is none."""

    __slots__ = ("log", "topic_id")

    def __init__(self, log: Log, topic_id: bytes) -> None:
        self.log = log
        self.topic_id = topic_id


class Disk:
    """The log directories of one broker."""

    def __init__(self) -> None:
        self.logs: dict[LogName, StoredLog] = {}

    def find(self, name: LogName) -> StoredLog | None:
        return self.logs.get(name)

    def create(self, name: LogName, topic_id: bytes) -> StoredLog:
        stored = self.logs[name] = StoredLog(Log(), topic_id)
        return stored

    def delete(self, name: LogName) -> None:
        self.logs.pop(name, None)

    def flush(self) -> None:
        for stored in self.logs.values():
            stored.log.flush()

    def retain(self, records: int) -> None:
        """Delete old records where a log has more than this number."""
        for stored in self.logs.values():
            stored.log.delete_before(stored.log.end - records)

    def reopen(self) -> Disk:
        """Return the disk for the next process; whatever the previous process still writes is lost."""
        disk = Disk()
        disk.logs = {name: StoredLog(stored.log.reopened(), stored.topic_id) for name, stored in self.logs.items()}
        return disk

    def power_cut(self) -> dict[LogName, tuple[int, int]]:
        """Discard what was not flushed; returns the logs that lost records, with their new and old ends."""
        lost: dict[LogName, tuple[int, int]] = {}
        for name, stored in self.logs.items():
            before = stored.log.end
            stored.log.truncate(stored.log.flushed)
            if stored.log.end < before:
                lost[name] = (stored.log.end, before)
        return lost


# -- sequences of runs -------------------------------------------------------------------------------------------------


def between(runs: Iterable[Run], start: int, end: int) -> list[Run]:
    """Return the part from offset ``start`` up to ``end``, exclusive, without empty runs."""
    found: list[Run] = []
    begins = 0
    for run in runs:
        if max(begins, start) >= end:
            break
        if run.end > max(begins, start):
            found.append(run._replace(end=min(run.end, end)))
        begins = run.end
    return found


def first_offset(runs: Sequence[Run]) -> int:
    """Return the offset before which everything is deleted."""
    return runs[0].end if runs and runs[0].epoch == NO_EPOCH else 0


def end_of(runs: Sequence[Run]) -> int:
    return runs[-1].end if runs else 0


def are_the_same(ours: Sequence[Run], theirs: Sequence[Run]) -> bool:
    """Return whether two logs end at the same offset, and have the same records where neither has deleted them."""
    start, end = max(first_offset(ours), first_offset(theirs)), end_of(ours)
    return end == end_of(theirs) and between(ours, start, end) == between(theirs, start, end)


def with_beginning(runs: Sequence[Run], earlier: Sequence[Run]) -> list[Run]:
    """Return the runs with what an earlier log has of the part that they have deleted."""
    start = first_offset(runs)
    if start == 0 or end_of(earlier) < start:
        return list(runs)
    before, after = between(earlier, 0, start), list(runs[1:])
    if before and after and before[-1][:2] == after[0][:2]:
        before.pop()  # one run continues in the other
    return [*before, *after]


def spans(runs: Iterable[Run]) -> Iterator[tuple[int, Run]]:
    """Yield each non-empty run of records with its first offset."""
    begins = 0
    for run in runs:
        if run.end > begins and run.epoch != NO_EPOCH:
            yield begins, run
        begins = run.end


def diverges_at(ours: Iterable[Run], theirs: Iterable[Run]) -> int | None:
    """Return the first offset at which the two have different records; None if one continues the other."""
    left, right = list(spans(ours)), list(spans(theirs))
    i = j = 0
    while i < len(left) and j < len(right):
        (start, run), (start_there, run_there) = left[i], right[j]
        both = max(start, start_there)
        if both < min(run.end, run_there.end) and run[:2] != run_there[:2]:
            return both
        i += run.end <= run_there.end
        j += run_there.end <= run.end
    return None


def shown(runs: Sequence[Run]) -> str:
    """Return text such as ``0-4 of epoch 2 by broker 1, 5-5 of epoch 3 by broker 2``."""
    parts = [f"{start}-{run.end - 1} of epoch {run.epoch} by broker {run.leader}" for start, run in spans(runs)]
    start = first_offset(runs)
    return ", ".join(parts) or (f"nothing, and begins at {start}" if start else "nothing")
