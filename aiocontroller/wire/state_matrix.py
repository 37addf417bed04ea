"""Packs the states of very many partitions at once, as a matrix of bytes with one line per partition.

Python packs a partition in 0.2 µs, looks it up in 0.1 µs and joins it in 0.02 µs for every receiving broker, and much
slower when caches are contended.  Numpy takes a tenth of that: the table's columns become columns of bytes, a request's
lines are gathered in one step, and the topics' headers are inserted between them.

If ISRs, replica lists or ends differ in length, lines are as wide as the longest, and a mask says which bytes count.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aiocontroller.core.partitions import PartitionTable

Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.int64]

NUMBERS = 4
"""Fields of four bytes each before the ISR: index, controller epoch, leader, leader epoch."""
NUMBER_BYTES = 4


class Used(NamedTuple):
    """The distinct values that a set of partitions uses."""

    leaders: Set[int]
    assignments: Set[int]
    """By id."""
    recovery_states: Set[int]


class Values:
    """Distinct byte strings, one per line; ``mask`` is None if all have the same length."""

    def __init__(self, values: Sequence[bytes]) -> None:
        lengths = np.fromiter(map(len, values), np.int64, len(values))
        self.width = int(lengths.max())
        padded = b"".join(value.ljust(self.width, b"\0") for value in values)
        self.bytes: Bytes = np.frombuffer(padded, np.uint8).reshape(len(values), self.width)
        self.mask: Mask | None = None
        if (lengths != self.width).any():
            self.mask = np.arange(self.width) < lengths[:, None]

    def at(self, places: Places) -> tuple[Bytes, Mask | None]:
        """The values in these places, and which of their bytes count; None for all."""
        return self.bytes[places], None if self.mask is None else self.mask[places]


class StateMatrix:
    """The cores of ascending ``rows``, all of which have leadership; ``topic_states`` says what a core is.

    ``isr`` and ``replicas`` give the bytes of an interned ISR and of an interned assignment, by id.
    """

    def __init__(
        self,
        table: PartitionTable,
        rows: Sequence[int],
        isr: Callable[[int], bytes],
        replicas: Callable[[int], bytes],
    ) -> None:
        self._rows = _integers(rows)
        self._is_range = rows[-1] - rows[0] == len(rows) - 1
        wanted = slice(rows[0], rows[-1] + 1) if self._is_range else self._rows

        def column(values: array[int]) -> npt.NDArray[np.int32]:
            # a copy, because an array with an exported buffer cannot grow
            return np.frombuffer(values, np.dtype(values.typecode))[wanted].astype(np.int32)

        numbers = np.empty((len(rows), NUMBERS), ">i4")
        for at, values in enumerate((table.index_of, table.controller_epoch, table.leader, table.leader_epoch)):
            numbers[:, at] = column(values)
        epochs = column(table.partition_epoch).astype(">i4")
        self._topics, self._assignments = column(table.topic_of), column(table.assignment_of)
        self._leaders, self._recovery_states = column(table.leader), column(table.recovery_state)
        isrs, isr_of = _distinct(column(table.isr_of), isr)
        others, others_of = _distinct(self._assignments, replicas)
        parts = (
            (numbers.view(np.uint8), None),
            isrs.at(isr_of),
            (epochs.view(np.uint8).reshape(-1, NUMBER_BYTES), None),
            others.at(others_of),
        )
        self._cores, self._mask = _beside(parts)

    def find(self, rows: Sequence[int]) -> Places | None:
        """The rows' places; None if one is missing."""
        wanted = _integers(rows)
        places = wanted - self._rows[0] if self._is_range else np.searchsorted(self._rows, wanted)
        return places if (self._rows.take(places, mode="clip") == wanted).all() else None

    def topics(self, places: Places) -> tuple[list[int], list[int]]:
        """The topic number and the start of each run of partitions of one topic."""
        topics = self._topics[places]
        starts = np.concatenate(([0], np.flatnonzero(topics[1:] != topics[:-1]) + 1))
        return topics[starts].tolist(), starts.tolist()

    def used(self, places: Places) -> Used:
        """The distinct leaders, assignments and recovery states in these places."""
        columns = self._leaders, self._assignments, self._recovery_states
        return Used(*({*np.unique(column[places]).tolist()} for column in columns))

    def states(self, places: Places, ends: bytes | Sequence[bytes], starts: Sequence[int]) -> list[memoryview]:
        """The states of these partitions, each with its end, split at the starts of the runs."""
        end, end_of = _ends(ends, len(places))
        cores = self._cores[places], None if self._mask is None else self._mask[places]
        states, mask = _beside((cores, end.at(end_of)))
        if mask is None:
            data = states.reshape(-1).data
            bounds = [start * states.shape[1] for start in starts]
        else:
            data = states[mask].data
            bounds = np.concatenate(([0], np.cumsum(mask.sum(axis=1))))[starts].tolist()
        return [data[start:stop] for start, stop in zip(bounds, [*bounds[1:], len(data)], strict=True)]


def _integers(rows: Sequence[int]) -> Places:
    return np.arange(rows.start, rows.stop) if isinstance(rows, range) else np.array(rows, np.int64)


def _distinct(ids: npt.NDArray[np.int32], value: Callable[[int], bytes]) -> tuple[Values, Places]:
    """The distinct values, and each row's index into them."""
    used = np.flatnonzero(np.bincount(ids))
    place = np.zeros(int(used[-1]) + 1, np.int64)
    place[used] = np.arange(len(used))
    return Values(list(map(value, used.tolist()))), place[ids]


def _ends(ends: bytes | Sequence[bytes], count: int) -> tuple[Values, Places]:
    if isinstance(ends, bytes):
        return Values([ends]), np.zeros(count, np.int64)
    place: dict[bytes, int] = {}
    of = np.fromiter((place.setdefault(end, len(place)) for end in ends), np.int64, count)
    return Values(list(place)), of


def _beside(parts: Sequence[tuple[Bytes, Mask | None]]) -> tuple[Bytes, Mask | None]:
    """The parts side by side; no mask if every byte counts."""
    lines = np.concatenate([part for part, _ in parts], axis=1)
    if all(mask is None for _, mask in parts):
        return lines, None
    masks = [np.ones(part.shape, np.bool_) if mask is None else mask for part, mask in parts]
    return lines, np.concatenate(masks, axis=1)
