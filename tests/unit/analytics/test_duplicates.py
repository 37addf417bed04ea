"""Which numbers were seen, and whether a few sums can tell that each came once."""

from __future__ import annotations

import functools
import operator
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from aiocontroller.analytics.duplicates import Seen, _each_once


class Row(SimpleNamespace):
    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)


def counted(*numbers: int) -> Row:
    xor = functools.reduce(operator.xor, numbers)
    return Row(n=len(numbers), first=min(numbers), last=max(numbers), seq_sum=sum(numbers), seq_xor=xor)


@pytest.mark.parametrize("numbers", [(1,), (1, 2, 3), (7, 5, 6), tuple(range(1, 100)), tuple(range(40, 77))])
def test_each_once(numbers: tuple[int, ...]) -> None:
    assert _each_once(counted(*numbers))


@pytest.mark.parametrize("numbers", [(1, 3), (1, 1, 2, 3), (1, 2, 2, 4), (1, 1, 4, 4), (5, 5)])
def test_a_gap_or_a_repetition_is_noticed(numbers: tuple[int, ...]) -> None:
    assert not _each_once(counted(*numbers))


def test_ranges_join_where_they_touch() -> None:
    seen = Seen({}).plus([("c", "p", 1, 5), ("c", "p", 9, 9), ("c", "q", 3, 4)]).plus([("c", "p", 6, 7)])
    assert seen.ranges == {"c": {"p": [[1, 7], [9, 9]], "q": [[3, 4]]}}
    assert seen.overlaps("c", "p", 7, 8)
    assert not seen.overlaps("c", "p", 8, 8)
    assert not seen.overlaps("d", "p", 1, 9)
