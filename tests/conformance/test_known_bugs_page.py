"""docs/known-bugs.md is true: the tests that it names exist, and each line says something."""

from __future__ import annotations

import re

from tests.named_tests import ROOT, is_a_test

PAGE = ROOT / "docs" / "known-bugs.md"
_TEST = re.compile(r"`(tests/[^`]+)`")


def lines() -> list[str]:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [row for row in rows if not row.startswith(("| bug", "| in Kafka", "| situation", "| ---"))]


def test_every_test_named_exists() -> None:
    named = [name for line in lines() for name in _TEST.findall(line)]
    assert len(named) > 50
    assert [name for name in named if not exists(name)] == []


def test_every_line_has_an_answer() -> None:
    assert len(lines()) > 50
    assert [line for line in lines() if not line.strip().strip("|").split("|")[-1].strip()] == []


def exists(name: str) -> bool:
    """A test, or a whole file of them."""
    return is_a_test(name) if "::" in name else (ROOT / name).is_file()
