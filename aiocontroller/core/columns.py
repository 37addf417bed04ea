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


def take(rows: Sequence[int], *columns: Sequence[int]) -> list[Sequence[int]]:
    """Each column's values at the rows, in their order; a slice where the rows are a range."""
    n = len(rows)
    if n < 2:
        return [[column[row] for row in rows] for column in columns]
    if _is_range(rows):
        return [column[rows[0] : rows[0] + n] for column in columns]
    take_from = itemgetter(*rows)
    return [take_from(column) for column in columns]


def put(column: array[int], rows: Sequence[int], values: Iterable[int]) -> None:
    """Set the rows; ``values`` has one for each row."""
    if len(rows) > 1 and _is_range(rows):
        column[rows[0] : rows[0] + len(rows)] = array(column.typecode, values)
        return
    deque(map(column.__setitem__, rows, values), maxlen=0)


def in_range(rows: Sequence[int]) -> Sequence[int]:
    """The rows as a range if they are contiguous, so that columns are sliced; else unchanged."""
    return range(rows[0], rows[-1] + 1) if rows and _is_range(rows) else rows


def ascending(numbers: Iterable[int]) -> Sequence[int]:
    """The numbers, at least one and each once, in ascending order; a range if they are contiguous."""
    found = sorted(numbers)
    first, last = found[0], found[-1]
    return range(first, last + 1) if last - first == len(found) - 1 else found


def _is_range(rows: Sequence[int]) -> bool:
    first, n = rows[0], len(rows)
    return isinstance(rows, range) or (rows[-1] - first == n - 1 and list(rows) == list(range(first, first + n)))


def ascend(rows: Sequence[int]) -> bool:
    """Whether each row is greater than the one before."""
    return isinstance(rows, range) or all(map(lt, rows, islice(rows, 1, None)))
