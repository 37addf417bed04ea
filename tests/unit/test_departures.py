"""docs/departures.md is true: each deliberate difference from Kafka has a test that would fail without it."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest

from tests.named_tests import ROOT, is_a_test

PAGE = ROOT / "docs" / "departures.md"
COLUMNS = ["what", "Kafka 3.9", "here", "why", "test"]
LEAST_ROWS = 30
"""Far fewer would mean that the page is no longer understood."""
_NAMES = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    what: str
    kafka: str
    here: str
    why: str
    test: str

    @property
    def tests(self) -> list[str]:
        return _NAMES.findall(self.test)


def table() -> list[list[str]]:
    lines = [line.strip() for line in PAGE.read_text().splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def rows() -> list[Row]:
    _, _, *found = table()
    return [Row(*cells) for cells in found if len(cells) == len(COLUMNS)]


def test_the_page_is_understood() -> None:
    head, _, *found = table()
    assert head == COLUMNS
    assert [cells[0] for cells in found if len(cells) != len(COLUMNS)] == []
    assert len(found) >= LEAST_ROWS


def test_no_cell_is_empty() -> None:
    assert [row.what for row in rows() if not all(row)] == []


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.what)
def test_every_departure_has_a_test_that_exists(row: Row) -> None:
    assert row.tests
    assert [name for name in row.tests if not is_a_test(f"tests/{name}")] == []


def test_an_unknown_name_is_noticed() -> None:
    here = "tests/unit/test_departures.py"
    assert is_a_test(f"{here}::test_no_cell_is_empty")
    for name in (
        here,
        f"{here}::test_missing",
        f"{here}::rows",
        f"{here}::Row::test_no_cell_is_empty",
        "tests/no.py::x",
    ):
        assert not is_a_test(name)
