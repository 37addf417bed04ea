"""The rules of the guard by themselves, and what operators read about them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from aiocontroller.controller import rules_of_office
from aiocontroller.controller.rules_of_office import Kind

ROOT = Path(__file__).parents[3]


def templates() -> Iterator[tuple[str, list[str]]]:
    """(kind, the constant parts) of each reason in the source."""
    source = Path(rules_of_office.__file__).read_text()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Reason":
            kind, text = node.args
            assert isinstance(kind, ast.Attribute)
            parts = text.values if isinstance(text, ast.JoinedStr) else [text]
            yield kind.attr, [str(p.value) for p in parts if isinstance(p, ast.Constant)]


def test_every_reason_is_in_the_operators_list() -> None:
    told = " ".join((ROOT / "docs" / "operating.md").read_text().split())
    found = list(templates())
    assert len(found) > 12
    for kind, parts in found:
        for part in parts:
            # a pair of parentheses may hold what is filled in
            for piece in re.split(r"[()]", part):
                words = " ".join(piece.split())
                assert len(words) < 12 or words in told, f"{kind}: {words!r} is not in docs/operating.md"


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_is_given_as_a_reason(kind: Kind) -> None:
    assert kind.name in {kind for kind, _ in templates()}
