"""Every public number of time or of bytes has its unit in its name or in its docstring, outside the laboratory."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "aiocontroller"
SOURCES = [path for path in sorted(PACKAGE.rglob("*.py")) if path.relative_to(PACKAGE).parts[0] != "lab"]

OF_TIME = re.compile(
    r"(^|_)(timeout|delay|interval|deadline|duration|within|linger|backoff|pause|period|elapsed|lifetime|throttle"
    r"|latency|lag|age|expiry|timestamp|now|since|until|after|time)(_|$)",
    re.IGNORECASE,
)
OF_SIZE = re.compile(r"(^|_)(size|memory)(_|$)", re.IGNORECASE)
SUFFIX = re.compile(r"(^|_)(s|ms|us|ns|bytes|hours|days|seconds|zxid)(_|$)", re.IGNORECASE)
"""A zxid counts transactions: ``since_zxid`` is not a time."""
IN_WORDS = re.compile(r"\b(milli|micro|nano)?seconds?\b|(?<!')\b[mµn]?s\b|\bbytes?\b|\bnumber of\b", re.IGNORECASE)
NUMBER = re.compile(r"(Annotated\[)?\b(int|float)\b(, .*\])?( \| None)?")

NO_NUMBERS_OF_TIME = {"recovery_state_after", "INVALID_TRANSACTION_TIMEOUT"}

Named = tuple[int, str, str]
"""A line, a name, and the docstrings that may state its unit."""


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_numbers_of_time_and_bytes_have_units(path: Path) -> None:
    assert [f"line {line}: {name}" for line, name in without_unit(path.read_text())] == []


@pytest.mark.parametrize(
    "source, expected",
    [
        ("def wait(timeout: float | None = None): ...", ["timeout"]),
        ("def wait(timeout_s: float): ...", []),
        ('def wait(timeout: float):\n    """In seconds."""', []),
        ('def wait(timeout: float):\n    """Wait as long as a user would."""', ["timeout"]),
        ("def lag() -> float: ...", ["lag"]),
        ("def read(size: int): ...", ["size"]),
        ('def read(size: int):\n    """Read ``size`` bytes."""', []),
        ("def plan(after: str, timeouts: dict[int, int]): ...", []),
        ('class A:\n    age: int\n    """In ms."""\n    delay: int = 3', ["delay"]),
        ('class A:\n    """Times are seconds."""\n    def __init__(self, now: float): ...', []),
        ("RETRY_AFTER = 2.5", ["RETRY_AFTER"]),
        ('RETRY_AFTER = 2\n"""Seconds."""', []),
        ("class A:\n    def set(self, timeout_s): self.timeout = timeout_s", ["timeout"]),
    ],
)
def test_numbers_without_units_are_found(source: str, expected: list[str]) -> None:
    assert [name for _, name in without_unit(source)] == expected


def without_unit(source: str) -> list[tuple[int, str]]:
    """(line, name) of each number that has no unit."""
    return [
        (line, name)
        for line, name, words in numbers(ast.parse(source), "")
        if (OF_TIME.search(name) or OF_SIZE.search(name)) and not SUFFIX.search(name) and not IN_WORDS.search(words)
        if name not in NO_NUMBERS_OF_TIME
    ]


def numbers(scope: ast.Module | ast.ClassDef, words: str) -> Iterator[Named]:
    """Public constants, fields, parameters, results, and the attributes that take a name with a unit."""
    for statement, after in zip(scope.body, [*scope.body[1:], None], strict=True):
        if isinstance(statement, ast.ClassDef) and is_public(statement.name):
            yield from numbers(statement, ast.get_docstring(statement) or "")
        elif isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from of_function(statement, words)
        elif isinstance(statement, ast.AnnAssign) and is_number(statement.annotation):
            yield from named(statement.target, f"{words} {docstring_of_value(after)}")
        elif isinstance(statement, ast.Assign) and is_numeric(statement.value):
            yield from named(statement.targets[0], docstring_of_value(after))


def of_function(function: ast.FunctionDef | ast.AsyncFunctionDef, words: str) -> Iterator[Named]:
    words = f"{words if function.name == '__init__' else ''} {ast.get_docstring(function) or ''}"
    arguments = function.args
    if is_public(function.name) or function.name == "__init__":
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if is_number(argument.annotation):
                yield argument.lineno, argument.arg, words
        if is_number(function.returns):
            yield function.lineno, function.name, words
    for statement, after in zip(function.body, [*function.body[1:], None], strict=True):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
            given = ast.unparse(statement.value).rpartition(".")[2]
            if given.isidentifier() and SUFFIX.search(given):
                yield from named(statement.targets[0], docstring_of_value(after))


def named(target: ast.expr, words: str) -> Iterator[Named]:
    name = target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
    if is_public(name):
        yield target.lineno, name, words


def is_public(name: str) -> bool:
    return not name.startswith("_")


def is_number(annotation: ast.expr | None) -> bool:
    return annotation is not None and NUMBER.fullmatch(ast.unparse(annotation)) is not None


def is_numeric(value: ast.expr) -> bool:
    """Whether the value is a literal number, or computed from literal numbers."""
    return all(
        isinstance(part, ast.BinOp | ast.operator)
        or (isinstance(part, ast.Constant) and type(part.value) in (int, float))
        for part in ast.walk(value)
    )


def docstring_of_value(statement: ast.stmt | None) -> str:
    """Return the string that follows a constant, a field or an attribute."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return str(statement.value.value)
    return ""
