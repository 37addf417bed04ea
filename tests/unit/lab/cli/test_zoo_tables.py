"""The tables of the zoo, on a terminal and in docs/chaos.md, whose bugs are those of the zoo."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path

import pytest
from click.testing import CliRunner

import aiocontroller
from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.cli.simulate import simulate
from aiocontroller.lab.cli.zoo_tables import HEADINGS, zoo_markdown, zoo_table
from aiocontroller.lab.simulation.zoo import Bug, Hunt
from aiocontroller.lab.simulation.zoo_data import ALL_BUGS
from aiocontroller.lab.simulation.zoo_eligible import ELIGIBLE_BUGS

PAGE = Path(aiocontroller.__file__).parents[1] / "docs" / "chaos.md"
BUGS = {
    name: Bug(name, source, list) for name, source in (("late", "design"), ("soon", "KIP-966"), ("never", "KAFKA-1"))
}
HUNTS = [
    Hunt("late", [3, 60, None], {"I13": 1, "I3": 1}, [1.0, 2.0, 6.0]),
    Hunt("never", [None, None, None], {}, [3.0, 3.0, 3.0]),
    Hunt("soon", [1, 2, 2], {"I13": 3}, [0.5, 0.5, 0.5]),
]


def test_a_page_has_the_bugs_that_are_found_soonest_first() -> None:
    assert zoo_markdown(HUNTS, BUGS).splitlines() == [
        "| bug | source | found | median | runs of each try | by |",
        "| --- | --- | --- | --- | --- | --- |",
        "| soon | KIP-966 | 3 of 3 | 2 | 1, 2, 2 | I13 |",
        "| late | design | 2 of 3 | 60 | 3, 60, – | I13, I3 |",
        "| never | KAFKA-1 | 0 of 3 | – | –, –, – | NOT FOUND |",
    ]


def test_a_terminal_has_them_in_the_order_of_the_zoo() -> None:
    lines = zoo_table(HUNTS, BUGS).splitlines()
    assert [line.split()[0] for line in lines] == ["bug", "late", "never", "soon"]
    assert lines[1].split() == ["late", "by", "hand", "design", "2", "of", "3", "60", "4.5", "I13,", "I3"]


def test_the_page_has_the_bugs_of_eligible_replicas_as_they_are() -> None:
    """Printed by ``simulate --zoo --restarts --markdown``, which hunts these and no others."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    at = lines.index(f"| {' | '.join(HEADINGS)} |")
    rows = [line.strip("| ").split(" | ") for line in takewhile(str.strip, lines[at + 2 :])]
    sources = {bug.name: bug.source for bug in ELIGIBLE_BUGS}
    assert rows
    assert [(row[0], row[1]) for row in rows] == [(row[0], sources[row[0]]) for row in rows]
    assert [bug for bug in ALL_BUGS if bug.restarts] == ELIGIBLE_BUGS


@pytest.mark.parametrize(
    "words, found",
    [
        (["--markdown"], "--markdown is for the table of --zoo"),
        (["--zoo", "--markdown", "--json"], "not together with --json"),
        (["--zoo", "--bug", "no such bug"], "found no such bug"),
        (["--zoo", "--restarts", "--bug", "writes carry no fence"], "found writes carry no fence"),
    ],
)
def test_words_that_do_not_go_together(words: list[str], found: str) -> None:
    error = CliRunner().invoke(simulate, words).exception
    assert isinstance(error, BadInputError)
    assert found in str(error)
