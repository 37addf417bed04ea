"""Reads docs/kafka-map.md: what of Kafka's is where here.

Table rows are ``| Kafka's name | ours | note |``.  Under a heading that is the name of a test class of Kafka's, ours
are tests, ``path::function``, or ``path`` for the function of the same name as each of Kafka's; under the others they
are functions or classes, ``module.name``, or ``module.*`` for those of the same names.  Names stand in backticks;
several are separated by commas.  A row without any must have a note that says why.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.named_tests import functions

PAGE = Path(__file__).parents[2] / "docs" / "kafka-map.md"
_NAMES = re.compile(r"`([^`]+)`")


class Row(NamedTuple):
    heading: str
    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    note: str

    @property
    def about_a_test(self) -> bool:
        return self.heading.endswith("Test")


@cache
def rows() -> tuple[Row, ...]:
    heading, found = "", []
    for line in PAGE.read_text().splitlines():
        if line.startswith("#"):
            heading = line.lstrip("#").strip().strip("`")
        elif line.startswith("| `"):
            theirs, ours, note = (cell.strip() for cell in line.strip().strip("|").split("|"))
            found.extend(of_each_name(Row(heading, tuple(_NAMES.findall(theirs)), tuple(_NAMES.findall(ours)), note)))
    return tuple(found)


def of_each_name(row: Row) -> list[Row]:
    """The row; one for each of Kafka's names where ours are those of the same names in a file, module or class."""
    match row.ours:
        case (place,) if row.about_a_test and "::" not in place:
            return [row._replace(theirs=(name,), ours=(f"{place}::{_test_of(place, name)}",)) for name in row.theirs]
        case (place,) if place.endswith(".*"):
            return [row._replace(theirs=(name,), ours=(place[:-1] + _here(name),)) for name in row.theirs]
        case _:
            return [row]


def _test_of(path: str, scenario: str) -> str:
    """The function of that file that is called like the scenario, but for capitals and underscores."""
    return next((name for name in functions(path) if name.replace("_", "") == scenario.lower()), scenario)


def _here(name: str) -> str:
    """Kafka's name, or the same in snake_case if it is a function's."""
    return name if name[0].isupper() else re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def scenarios_by_test() -> dict[str, list[str]]:
    """Test of ours -> Kafka's scenarios, ``Class.test``, in the page's order."""
    found: dict[str, list[str]] = {}
    for row in rows():
        if row.about_a_test:
            for test in row.ours:
                found.setdefault(test, []).extend(f"{row.heading}.{name}" for name in row.theirs)
    return found
