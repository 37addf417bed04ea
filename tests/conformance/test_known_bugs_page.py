"""docs/known-bugs.md is true: the tests that it names exist, and each line says something."""

from __future__ import annotations

import re
from pathlib import Path

from tests.conformance.conftest import ROOT
from tests.conformance.test_kafka_map import functions

PAGE = ROOT / "docs" / "known-bugs.md"
_TEST = re.compile(r"`(tests/[^`]+)`")


def lines() -> list[str]:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    return [row for row in rows if not row.startswith(("| bug", "| in Kafka", "| ---"))]


def test_every_test_named_exists() -> None:
    named = [name for line in lines() for name in _TEST.findall(line)]
    assert len(named) > 50
    assert [name for name in named if not exists(name)] == []


def test_every_line_has_an_answer() -> None:
    assert len(lines()) > 50
    assert [line for line in lines() if not line.strip().strip("|").split("|")[-1].strip()] == []


def exists(name: str) -> bool:
    path, *inside = name.split("::")
    if not inside:
        return (ROOT / path).is_file()
    if len(inside) == 2:
        text = Path(ROOT / path).read_text()
        return f"class {inside[0]}" in text and f"def {inside[1]}(" in text
    return inside[0] in functions(path)
