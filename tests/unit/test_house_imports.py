"""No module imports itself, by whatever way: late imports count, imports for type checkers do not."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2] / "aiocontroller"


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def imported(tree: ast.AST, known: dict[str, Path]) -> Iterator[str]:
    """The package's modules that are imported anywhere in the tree."""
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test):
        return
    if isinstance(tree, ast.Import):
        yield from (alias.name for alias in tree.names if alias.name in known)
    elif isinstance(tree, ast.ImportFrom) and tree.module is not None:
        for alias in tree.names:
            submodule = f"{tree.module}.{alias.name}"
            if submodule in known or tree.module in known:
                yield submodule if submodule in known else tree.module
    for child in ast.iter_child_nodes(tree):
        yield from imported(child, known)


def cycle(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_imports_have_no_cycles() -> None:
    known = modules()
    graph = {
        name: set(imported(ast.parse(path.read_text(encoding="utf-8")), known)) - {name} for name, path in known.items()
    }
    assert sum(map(len, graph.values())) > 1000
    assert cycle(graph) == []


def test_a_cycle_is_found() -> None:
    assert sorted(set(cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}))) == ["a", "b", "c"]
