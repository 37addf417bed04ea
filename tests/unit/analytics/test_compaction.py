"""Which batches are merged: few remain, none is written again often."""

from __future__ import annotations

import math

import pytest

from aiocontroller.analytics import compaction
from aiocontroller.analytics.compaction import MERGED_AT_ONCE, due


def test_few_batches_remain_and_none_is_written_again_often() -> None:
    parts: list[list[int]] = []
    held: dict[int, int] = {}
    written = batch = most = 0
    for added in range(1, 17_281):  # a day, one every five seconds
        parts, held[batch] = [*parts, [batch, 0]], 1
        batch += 1
        number, level = due(parts)
        if number:
            merged = [part for part, _ in parts[-number:]]
            held[batch] = sum(held.pop(part) for part in merged)
            written += held[batch]
            parts = [*parts[:-number], [batch, level]]
            batch += 1
        assert sum(held[part] for part, _ in parts) == added
        most = max(most, len(parts))
    levels = math.ceil(math.log(17_280, MERGED_AT_ONCE))
    assert most <= (MERGED_AT_ONCE - 1) * levels == 35
    assert written <= 17_280 * levels


@pytest.mark.parametrize(
    "levels, expected",
    [
        ([], (0, 0)),
        ([0], (0, 0)),
        ([1, 0], (0, 0)),
        ([0, 0], (2, 1)),
        ([2, 1, 0, 0], (4, 3)),
        ([3, 1, 0, 0], (3, 2)),
        ([1, 0, 0, 0], (4, 2)),  # a merge that was missed is made up for
    ],
)
def test_the_last_ones_of_one_level_are_merged(
    levels: list[int], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "MERGED_AT_ONCE", 2)
    assert due([[number, level] for number, level in enumerate(levels)]) == expected
