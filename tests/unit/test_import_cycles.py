"""No module of the package imports itself through others: neither at import nor later inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Graph = dict[str, set[str]]


def names(root: Path) -> dict[str, Path]:
    """Return module -> file."""
    found = {}
    for path in sorted((root / "aiocontroller").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(tree: ast.AST, modules: Mapping[str, Path], *, late: bool) -> Iterator[str]:
    """Yield the modules that a file imports; imports only for types do not count."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            yield from (found for each in child.orelse for found in imports(each, modules, late=late))
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not late:
            continue
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if alias.name in modules)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            deeper = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from (name for name in deeper if name in modules)
            if child.module in modules and any(name not in modules for name in deeper):
                yield child.module
        else:
            yield from imports(child, modules, late=late)


def graph(root: Path, *, late: bool) -> Graph:
    modules = names(root)
    return {name: set(imports(ast.parse(path.read_text()), modules, late=late)) for name, path in modules.items()}


def components(edges: Graph) -> list[list[str]]:
    """Return the cycles by Tarjan's algorithm: components of several modules, or of one that imports itself."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            component = stack[stack.index(node) :]
            del stack[-len(component) :]
            if len(component) > 1 or node in edges[node]:
                found.append(sorted(component))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return found


@pytest.mark.parametrize("late", [False, True], ids=["at import", "also inside functions"])
def test_no_modules_import_each_other(late: bool) -> None:
    edges = graph(ROOT, late=late)
    assert sum(map(len, edges.values())) > 1000, "imports are found"
    assert components(edges) == []


def test_cycles_are_found(tmp_path: Path) -> None:
    package = tmp_path / "aiocontroller"
    package.mkdir()
    files = {
        "__init__": "",
        "one": "from aiocontroller import two",
        "two": "import aiocontroller.three\nfrom aiocontroller.five import x",
        "three": "def later():\n    from aiocontroller.one import y",
        "four": "if TYPE_CHECKING:\n    from aiocontroller.five import z",
        "five": "import aiocontroller.four",
    }
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    assert components(graph(tmp_path, late=False)) == []
    loop = ["aiocontroller.one", "aiocontroller.three", "aiocontroller.two"]
    assert components(graph(tmp_path, late=True)) == [loop]
    (package / "four.py").write_text("try:\n    from aiocontroller.five import z\nfinally:\n    pass")
    assert components(graph(tmp_path, late=False)) == [["aiocontroller.five", "aiocontroller.four"]]
