"""Checks that the tests which pages of the documentation cite exist."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def is_a_test(name: str) -> bool:
    """Whether ``path::function`` or ``path::Class::function`` is a test; the path is relative to the checkout."""
    path, *inside = name.split("::")
    return bool(inside) and inside[-1].startswith("test_") and "::".join(inside) in functions(path)


@cache
def functions(path: str) -> frozenset[str]:
    """Return the names of a file's functions and methods (``Class::method``); empty if there is no such file."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    return frozenset(_functions(ast.parse(file.read_text()).body, ""))


def _functions(body: list[ast.stmt], prefix: str) -> list[str]:
    found = []
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(prefix + node.name)
        elif isinstance(node, ast.ClassDef):
            found.extend(_functions(node.body, f"{prefix}{node.name}::"))
    return found
