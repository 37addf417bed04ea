"""Forks as text."""

from __future__ import annotations

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.scenarios.forks import Fork, format_forks, parse_forks, recipe


def test_forks_are_read_and_written() -> None:
    forks = [Fork(1234, 3), Fork(2000, 1)]
    assert parse_forks("") == []
    assert parse_forks("1234:3,2000:1") == forks
    assert format_forks(forks) == "1234:3,2000:1"
    assert recipe(7, "") == "7"
    assert recipe(7, "1234:3,2000:1") == "7 --fork 1234:3 --fork 2000:1"


@pytest.mark.parametrize("text", ["x", "1234", "0:1", "5:0", "5:-1", "5:1:1", "9:1,8:1", "9:1,9:2"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="found the fork"):
        parse_forks(text)
