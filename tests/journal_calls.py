"""Finds where the source writes journal records: all calls of ``journal.append`` and ``journal.append_partitions``."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from aiocontroller.journal.records import PartitionColumns


class Call(NamedTuple):
    module: str
    """Relative to the package."""
    line: int
    kinds: list[str]
    """The kinds that the first argument may name; empty if the source does not show them."""
    fields: set[str]


def calls(package: Path) -> Iterator[Call]:
    """Yield every call in the package, by module and line."""
    for path in sorted(package.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                for node in ast.walk(function):
                    if isinstance(node, ast.Call):
                        fields = _fields(node)
                        if fields is not None:
                            module = path.relative_to(package).as_posix()
                            yield Call(module, node.lineno, _kinds(node.args[0], function), fields)


def _fields(call: ast.Call) -> set[str] | None:
    """Return the fields that a call sets; None if it is not a call of a journal."""
    match = re.fullmatch(r"(.*\.)?_?journal\.append(_partitions)?", ast.unparse(call.func))
    if match is None:
        return None
    named = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
    return named | set(PartitionColumns._fields) if match[2] else named


def _kinds(argument: ast.expr, function: ast.AST) -> list[str]:
    """Return the argument's text, or all texts that the function assigns to the name."""
    if isinstance(argument, ast.Name):
        values = [
            node.value
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and any(ast.unparse(target) == argument.id for target in node.targets)
        ]
    else:
        values = [argument]
    return _texts(values)


def _texts(values: list[ast.expr]) -> list[str]:
    found = []
    for value in values:
        for node in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found
