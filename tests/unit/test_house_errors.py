"""A public function's docstring names the errors that the function itself raises, outside the laboratory."""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "aiocontroller"
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] != "lab"]
OF_BUGS = ("AssertionError", "NotImplementedError")


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_docstrings_name_errors(path: Path) -> None:
    assert list(unnamed_errors(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize(
    "source, expected",
    [
        ("def read():\n    raise ValueError(1)", ["read: ValueError"]),
        ('def read():\n    """ValueError if it is empty."""\n    raise ValueError(1)', []),
        ('def read():\n    """OSError without a file."""\n    raise FileNotFoundError', []),
        ("def read():\n    try:\n        raise errors.BadInputError('x') from None\n    finally:\n        pass",
         ["read: BadInputError"]),
        ("def read(error):\n    raise error", []),
        ("def read():\n    def inner():\n        raise ValueError(1)", []),
        ("def _read():\n    raise ValueError(1)", []),
        ("class A:\n    def __init__(self):\n        raise ValueError(1)", ["A.__init__: ValueError"]),
        ('class A:\n    """Raises ValueError."""\n    def __init__(self):\n        raise ValueError(1)', []),
        ("@click.command()\ndef read():\n    raise click.UsageError('help is no place for it')", []),
    ],
)  # fmt: skip
def test_errors_without_a_name_are_found(source: str, expected: list[str]) -> None:
    assert list(unnamed_errors(ast.parse(source))) == expected


def unnamed_errors(scope: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    """Yield ``function: error`` for errors that the docstring (of a constructor: its class's, too) does not name."""
    for node in scope.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from unnamed_errors(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_command(node):
            if node.name.startswith("_") and node.name != "__init__":
                continue
            words = ast.get_docstring(node) or ""
            if node.name == "__init__":
                words += ast.get_docstring(scope) or ""
            for name in dict.fromkeys(raised(node.body)):
                if not any(each in words for each in names_of(name)):
                    yield f"{prefix}{node.name}: {name}"


def raised(statements: list[ast.stmt]) -> Iterator[str]:
    """Yield the names of error classes that are raised, except in inner functions."""
    waiting: list[ast.AST] = list(reversed(statements))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise) and node.exc is not None:
            error = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            name = ast.unparse(error).rpartition(".")[2]
            if name[0].isupper() and name not in OF_BUGS:
                yield name
        waiting += reversed(list(ast.iter_child_nodes(node)))


def names_of(error: str) -> tuple[str, ...]:
    """Return the names that may stand for an error: for a builtin one also its bases, as OSError for TimeoutError."""
    known = getattr(builtins, error, None)
    bases = [base.__name__ for base in known.__mro__] if isinstance(known, type) else []
    return (error, *(name for name in bases if name not in ("object", "BaseException", "Exception")))


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether it is a command of click, whose docstring is its help."""
    return any(re.search(r"\w\.command\(", ast.unparse(each)) for each in function.decorator_list)
