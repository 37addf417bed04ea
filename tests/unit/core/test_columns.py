"""Rows in bulk are what a loop over them would take and put."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import hypothesis.strategies as st
from hypothesis import given

from aiocontroller.core.columns import put, take

ROWS = 12
PIDS: st.SearchStrategy[Sequence[int]] = st.lists(st.integers(0, ROWS - 1), unique=True) | st.builds(
    lambda start, length: range(start, min(start + length, ROWS)), st.integers(0, ROWS - 1), st.integers(0, ROWS)
)


@given(PIDS)
def test_take_is_row_by_row(rows: Sequence[int]) -> None:
    first, second = array("i", range(100, 100 + ROWS)), array("b", range(ROWS))
    assert [list(column) for column in take(rows, first, second)] == [[100 + p for p in rows], list(rows)]


@given(PIDS)
def test_put_is_row_by_row(rows: Sequence[int]) -> None:
    column, expected = array("i", [-1] * ROWS), [-1] * ROWS
    put(column, rows, (7 * row for row in rows))
    for row in rows:
        expected[row] = 7 * row
    assert list(column) == expected
