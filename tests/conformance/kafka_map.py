"""Reads docs/kafka-map.md: what of Kafka's is where here.

Table rows are ``| Kafka's name | ours | note |``.  Under a heading that is the name of a test class of Kafka's, ours
are tests, ``path::function``; under the others they are functions or classes, ``module.name``.  Names stand in
backticks; several are separated by commas.  A row without any must have a note that says why.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

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
            found.append(Row(heading, tuple(_NAMES.findall(theirs)), tuple(_NAMES.findall(ours)), note))
    return tuple(found)


def scenarios_by_test() -> dict[str, list[str]]:
    """Test of ours -> Kafka's scenarios, ``Class.test``, in the page's order."""
    found: dict[str, list[str]] = {}
    for row in rows():
        if row.about_a_test:
            for test in row.ours:
                found.setdefault(test, []).extend(f"{row.heading}.{name}" for name in row.theirs)
    return found
