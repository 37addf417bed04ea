"""Counts what became of a load client's records, from the lines that the client prints.  Pure.

    a PARTITION SEQUENCE SENT ACKNOWLEDGED         a record was acknowledged (µs of the monotonic clock)
    c CONSUMER PARTITION FIRST LAST TIME           a consumer read the numbers FIRST to LAST, in a row
    e WHO PARTITION TIME MESSAGE                   an error that the client reported to its user (partition -1: none)
    end                                            everything was read back; the client is done

The consumers: ``plain`` reads along without a group, ``group`` reads along as the member of a group, and ``readback``
reads everything once more at the end.  A group guarantees at-least-once delivery, so records that it reads again are
counted separately and are not errors.
"""

from __future__ import annotations

import bisect
import itertools
from array import array
from collections.abc import Iterable

import msgspec

EXACT_CONSUMERS = ("plain", "readback")
"""Consumers that keep their own position: they must see each record once and in order."""
CONSUMERS = (*EXACT_CONSUMERS, "group")


class LoadVerdict(msgspec.Struct, frozen=True):
    """Counts of records, summed over partitions and, for the second to fourth field, over consumers."""

    acknowledged: int
    lost: int
    """Acknowledged but missing from the readback, or skipped by a consumer that read along."""
    doubled: int
    reordered: int
    redelivered: int
    """Read again by the group after a rebalance."""
    errors: tuple[str, ...]
    """Errors reported to users, each as ``WHO: MESSAGE``."""

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.errors)


class ClientError(msgspec.Struct, frozen=True):
    who: str
    partition: int
    at_us: int
    message: str


class Reading:
    """One consumer's view of one partition."""

    def __init__(self) -> None:
        self.times_read = bytearray()
        """Counts by sequence number, up to 255."""
        self.highest = -1
        self.doubled = 0
        self.reordered = 0

    def read(self, first: int, last: int) -> None:
        missing = last + 1 - len(self.times_read)
        if missing > 0:
            self.times_read.extend(bytes(missing))
        for sequence in range(first, last + 1):
            if self.times_read[sequence]:
                self.doubled += 1
            elif sequence < self.highest:
                self.reordered += 1
            self.times_read[sequence] = min(255, self.times_read[sequence] + 1)
            self.highest = max(self.highest, sequence)


class Tally:
    """One client's records."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.ended = False
        self.errors: list[ClientError] = []
        self.noise: list[str] = []
        """Other lines, such as a failing runtime's output."""
        self._sequences = [array("q") for _ in range(partitions)]
        self._times_us = [array("q") for _ in range(partitions)]
        self._sent_us = [array("q") for _ in range(partitions)]
        self._readings = {who: [Reading() for _ in range(partitions)] for who in CONSUMERS}

    def feed(self, lines: Iterable[str]) -> None:
        for line in lines:
            kind, _, rest = line.partition(" ")
            if kind == "a":
                partition, sequence, sent, acknowledged = map(int, rest.split())
                self._sequences[partition].append(sequence)
                self._sent_us[partition].append(sent)
                self._times_us[partition].append(acknowledged)
            elif kind == "c":
                who, numbers = rest.split(" ", 1)
                partition, first, last, _ = map(int, numbers.split())
                self._readings[who][partition].read(first, last)
            elif kind == "e":
                who, where, at, message = rest.split(" ", 3)
                self.errors.append(ClientError(who, int(where), int(at), message))
            elif line == "end":
                self.ended = True
            else:
                self.noise.append(line)

    def acknowledged_since(self, since_us: int) -> set[int]:
        """Return the partitions that have acknowledged a record that was sent after this moment."""
        found = set()
        for partition in range(self.partitions):
            sent = self._sent_us[partition]
            if sent and sent[-1] > since_us:
                found.add(partition)
        return found

    def longest_gap_us(self, partition: int, since_us: int, until_us: int) -> int:
        """Return the longest time between two consecutive acknowledgements of the partition, in this interval.

        A gap counts if it overlaps the interval; one that starts before ``since_us`` counts in full, and one that has
        not ended counts up to ``until_us``.
        """
        times = self._times_us[partition]
        begin = max(0, bisect.bisect_right(times, since_us) - 1)
        end = bisect.bisect_left(times, until_us)
        inside = [*times[begin:end], until_us]
        if begin == end:
            return until_us - since_us
        return max(later - earlier for earlier, later in itertools.pairwise(inside))

    def flows_after_us(self, partition: int, since_us: int, until_us: int, gap_us: int) -> int:
        """Return the time from ``since_us`` to the end of the last gap of more than ``gap_us`` in this interval.

        0 if there was none; a gap that has not ended counts up to ``until_us``.
        """
        times = self._times_us[partition]
        begin = max(0, bisect.bisect_right(times, since_us) - 1)
        inside = [*(times[begin : bisect.bisect_left(times, until_us)] or [since_us]), until_us]
        ends = [later for earlier, later in itertools.pairwise(inside) if later - earlier > gap_us]
        return max(0, ends[-1] - since_us) if ends else 0

    def latencies_us(self, since_us: int, until_us: int) -> list[int]:
        """Return the times from sending to acknowledgement of the acknowledged records sent in this interval."""
        found: list[int] = []
        for sent, acknowledged in zip(self._sent_us, self._times_us, strict=True):
            span = slice(bisect.bisect_left(sent, since_us), bisect.bisect_left(sent, until_us))
            found += (ended - began for began, ended in zip(sent[span], acknowledged[span], strict=True))
        return found

    def lost_between(self, since_us: int, until_us: int) -> int:
        """Count the records acknowledged in this interval that a consumer never read, summed over consumers.

        Valid once everything has been read back.
        """
        lost = 0
        for who in CONSUMERS:
            for partition, reading in enumerate(self._readings[who]):
                read, times_us = reading.times_read, self._times_us[partition]
                span = slice(bisect.bisect_left(times_us, since_us), bisect.bisect_left(times_us, until_us))
                lost += sum(s >= len(read) or not read[s] for s in self._sequences[partition][span])
        return lost

    def verdict(self) -> LoadVerdict:
        lost = self.lost_between(0, 1 << 62)
        exact = [reading for who in EXACT_CONSUMERS for reading in self._readings[who]]
        return LoadVerdict(
            acknowledged=sum(map(len, self._sequences)),
            lost=lost,
            doubled=sum(reading.doubled for reading in exact),
            reordered=sum(reading.reordered for reading in exact),
            redelivered=sum(reading.doubled for reading in self._readings["group"]),
            errors=tuple(f"{error.who}: {error.message}" for error in self.errors),
        )
