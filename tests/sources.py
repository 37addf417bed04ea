"""The program's source as the tests of the house read it: every module of a room, and what its names stand for."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "aiocontroller"


def modules(*rooms: str, of: Path = PACKAGE) -> dict[str, ast.Module]:
    """Return path below the package -> its tree, for all modules of these rooms and their subfolders."""
    found = (path for room in rooms for path in sorted((of / room).rglob("*.py")))
    return {path.relative_to(of).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in found}


def imports(module: ast.AST) -> dict[str, str]:
    """Return local name -> what it stands for, as ``package.module.name``; imports inside functions count, too."""
    names = {}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            names.update((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    return names


def dotted(value: ast.AST, names: dict[str, str]) -> str:
    """Return ``a.b.c`` for such an expression, with its first name as it was imported; "" for another expression."""
    if isinstance(value, ast.Name):
        return names.get(value.id, value.id)
    if isinstance(value, ast.Attribute):
        of = dotted(value.value, names)
        return f"{of}.{value.attr}" if of else ""
    return ""
