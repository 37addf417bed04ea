"""Reads and writes many rows of ``array`` columns at a time, without a Python step for each.

Each operation in a Python loop over partitions costs a tenth of a microsecond; slices, ``itemgetter``, ``map`` and
``compress`` run in C and cost a tenth of that.  So hot passes work on whole columns: take the rows, decide once for
each distinct combination, put the results.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import itemgetter, lt


def take(pids: Sequence[int], *columns: Sequence[int]) -> list[Sequence[int]]:
    """The rows of each column, in the order of the pids; a slice where the pids are a range."""
    n = len(pids)
    if n < 2:
        return [[column[pid] for pid in pids] for column in columns]
    if _is_range(pids):
        return [column[pids[0] : pids[0] + n] for column in columns]
    rows = itemgetter(*pids)
    return [rows(column) for column in columns]


def put(column: array[int], pids: Sequence[int], values: Iterable[int]) -> None:
    """Set the rows; ``values`` has one for each pid."""
    if len(pids) > 1 and _is_range(pids):
        column[pids[0] : pids[0] + len(pids)] = array(column.typecode, values)
        return
    deque(map(column.__setitem__, pids, values), maxlen=0)


def in_range(pids: Sequence[int]) -> Sequence[int]:
    """The pids as a range if they are contiguous, so that their rows are slices; else unchanged."""
    return range(pids[0], pids[-1] + 1) if pids and _is_range(pids) else pids


def _is_range(pids: Sequence[int]) -> bool:
    first, n = pids[0], len(pids)
    return isinstance(pids, range) or (pids[-1] - first == n - 1 and list(pids) == list(range(first, first + n)))


def ascend(pids: Sequence[int]) -> bool:
    """Each greater than the one before."""
    return isinstance(pids, range) or all(map(lt, pids, islice(pids, 1, None)))
