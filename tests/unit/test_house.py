"""Rules of this project that no linter has: what the core may import, how long a function or file may be."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "aiocontroller"
SOURCES = sorted(PACKAGE.rglob("*.py"))
CORE = sorted((PACKAGE / "core").rglob("*.py"))

CORE_MAY_IMPORT = {
    "__future__", "abc", "array", "bisect", "collections", "dataclasses", "enum", "functools", "hashlib", "heapq",
    "itertools", "json", "math", "msgspec", "operator", "re", "struct", "types", "typing", "aiocontroller.core",
}  # fmt: skip
NOT_IN_CORE = {"__import__", "breakpoint", "compile", "eval", "exec", "hash", "input", "open", "print"}
"""Builtins; ``hash`` of a text differs between processes."""
IN_ORDER = {
    "chain", "deque", "dict", "enumerate", "extend", "fromkeys", "iter", "join", "list", "map", "tuple", "zip",
}  # fmt: skip
"""Functions and methods that keep their arguments' order."""
MAX_FUNCTION_LINES = 70
MAX_FILE_LINES = 600


def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def imported_modules(module: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute in this project"
            yield node.lineno, node.module or ""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def reaches_outside(module: ast.Module) -> list[str]:
    """Return what is more than data: other modules, builtins that do I/O or run text, and ``await``."""
    found = [
        (line, name)
        for line, name in imported_modules(module)
        if name.split(".")[0] not in CORE_MAY_IMPORT and not f"{name}.".startswith("aiocontroller.core.")
    ]
    colour = ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith
    for node in ast.walk(module):
        if isinstance(node, colour):
            found.append((node.lineno, type(node).__name__))
        elif isinstance(node, ast.Name) and node.id in NOT_IN_CORE:
            found.append((node.lineno, node.id))
    return [f"line {line}: {name}" for line, name in found]


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_core_does_no_io(path: Path) -> None:
    assert reaches_outside(tree(path)) == []


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_core_knows_neither_time_nor_chance(path: Path) -> None:
    """A plain search, comments included, so that a reader's grep finds nothing either."""
    words = ("asyncio.sleep", "time.time", "random")
    lines = enumerate(path.read_text().splitlines(), 1)
    assert [f"line {n}: {line.strip()}" for n, line in lines if any(word in line for word in words)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import time as t",
        "from os import environ as settings",
        "from aiocontroller import net",
        "from aiocontroller.corelike import a",
        "def f():\n    import socket",
        "def f(): return open('file')",
        "write = print",
        "clock = __import__('time')",
        "key = hash('text')",
        "async def f(): ...",
    ],
)
def test_io_in_core_is_found(text: str) -> None:
    assert len(reaches_outside(ast.parse(text))) == 1


def of_sets(module: ast.Module) -> list[str]:
    """Return where something is made in the order of a set, by a loop or otherwise.

    A set is what is written as one, what is computed from one by an operator or method, and a name that its function
    binds to nothing else.
    """
    found = []
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    for scope in (module, *functions):
        sets = names_of_sets(scope)
        for node in ast.walk(scope):
            found += [value for value in iterated(node) if is_set(value, sets)]
    return list(dict.fromkeys(f"line {value.lineno}: {ast.unparse(value)[:80]}; sort it" for value in found))


def iterated(node: ast.AST) -> list[ast.expr]:
    """Return what a node takes in order; what is only summed, sorted or put into another set has no order."""
    if isinstance(node, ast.For):
        return [node.iter]
    if isinstance(node, ast.ListComp | ast.DictComp):
        return [generator.iter for generator in node.generators]
    if isinstance(node, ast.List | ast.Tuple):
        return [each.value for each in node.elts if isinstance(each, ast.Starred)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if called in IN_ORDER:
            return node.args
    return []


def is_set(value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Name):
            return value.func.id in ("set", "frozenset")
        combines = ("union", "intersection", "difference", "symmetric_difference", "copy")
        return isinstance(value.func, ast.Attribute) and value.func.attr in combines and is_set(value.func.value, names)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        return is_set(value.left, names) or is_set(value.right, names)
    return isinstance(value, ast.Set | ast.SetComp) or (isinstance(value, ast.Name) and value.id in names)


def names_of_sets(scope: ast.AST) -> set[str]:
    """Return the names to which the scope assigns sets, and nothing else."""
    bound: dict[str, list[bool]] = {}
    for _ in range(2):  # a name may be bound to a set of another name
        sets = {name for name, kinds in bound.items() if all(kinds)}
        bound = {}
        for node in ast.walk(scope):
            if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr) and node.value is not None:
                for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                    if isinstance(target, ast.Name):
                        bound.setdefault(target.id, []).append(is_set(node.value, sets))
            elif isinstance(node, ast.For | ast.comprehension):
                for name in ast.walk(node.target):
                    if isinstance(name, ast.Name):
                        bound.setdefault(name.id, []).append(False)
            elif isinstance(node, ast.arg):
                bound.setdefault(node.arg, []).append(False)
    return {name for name, kinds in bound.items() if all(kinds)}


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_core_emits_nothing_in_the_order_of_a_set(path: Path) -> None:
    """Sets that come from elsewhere are left to the tests with equal seeds."""
    assert of_sets(tree(path)) == []


@pytest.mark.parametrize(
    "text",
    [
        "for each in set(rows): f(each)",
        "found = [f(each) for each in {1, 2}]",
        "found = list({row for row in rows})",
        "def f(rows):\n    seen = set(rows)\n    for row in seen: g(row)",
        "def f(rows):\n    seen = set(rows)\n    kept = seen - gone\n    return [*kept]",
        "found = tuple(set(rows).union(more))",
        "text = ','.join({'a', 'b'})",
        "found.extend(set(rows))",
    ],
)
def test_the_order_of_a_set_is_found(text: str) -> None:
    assert of_sets(ast.parse(text))


@pytest.mark.parametrize(
    "text", ["for row in sorted(set(rows)): f(row)", "n = len({*rows})", "s = {f(r) for r in set(a)}"]
)
def test_a_set_without_order_may_be_used(text: str) -> None:
    assert not of_sets(ast.parse(text))


def test_functions_and_files_stay_short() -> None:
    long = []
    for path in SOURCES:
        lines = len(path.read_text().splitlines())
        if lines > MAX_FILE_LINES:
            long.append(f"{name_of(path)}: {lines} lines")
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    long.append(f"{name_of(path)}:{node.lineno} {node.name}: {length} lines")
    assert long == []


IN_PRODUCTION = [path for path in SOURCES if path.relative_to(PACKAGE).parts[0] not in ("lab", "analytics")]


def shared_names(sources: dict[str, ast.Module]) -> dict[str, list[str]]:
    """Return name -> the modules that define a class of this name, where others import at least two of them."""
    defined: dict[str, list[str]] = {}
    imported = set()
    for name, module in sources.items():
        for node in module.body:
            if isinstance(node, ast.ClassDef):
                defined.setdefault(node.name, []).append(name)
        for inner in ast.walk(module):
            if isinstance(inner, ast.ImportFrom):
                imported |= {(inner.module, alias.name) for alias in inner.names}
    found = {name: [m for m in modules if (m, name) in imported] for name, modules in defined.items()}
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_a_class_that_others_import_has_a_name_of_its_own() -> None:
    """A reader who meets ``Outcome`` in an import should know which; names of the laboratory may repeat."""
    sources = {".".join(path.relative_to(ROOT).with_suffix("").parts): tree(path) for path in IN_PRODUCTION}
    assert shared_names(sources) == {}


def test_shared_names_are_found() -> None:
    texts = {
        "a": "class Kind: pass",
        "b": "class Kind: pass",
        "c": "from a import Kind",
        "d": "from b import Kind as K",
    }
    assert shared_names({name: ast.parse(text) for name, text in texts.items()}) == {"Kind": ["a", "b"]}
    del texts["d"]
    assert shared_names({name: ast.parse(text) for name, text in texts.items()}) == {}


def test_each_module_says_what_it_is_for() -> None:
    assert [name_of(path) for path in SOURCES if not ast.get_docstring(tree(path))] == []


def test_lock_files_hold_hashes_and_no_address() -> None:
    for name in ("build.txt", "run.txt", "dev.txt"):
        text = (ROOT / "requirements" / name).read_text()
        assert "://" not in text, name
        pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
        assert pins, name
        assert all("==" in line and line.endswith("\\") for line in pins), name


def test_lock_files_name_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = {"run.txt": project["dependencies"] + extras["local"], "dev.txt": project["dependencies"] + extras["dev"]}
    for name, requirements in wanted.items():
        text = (ROOT / "requirements" / name).read_text()
        locked = {line.split("==")[0] for line in text.splitlines() if "==" in line and line[0].isalpha()}
        names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0] for requirement in requirements}
        assert names - locked == set(), f"{name} is stale: run scripts/lock"


def test_scripts_have_their_run_bit() -> None:
    for script in [
        ".ci/run",
        *(name_of(p) for p in sorted((ROOT / "scripts").iterdir()) if not p.name.startswith("_")),
    ]:
        if Path(script).suffix or (ROOT / script).is_dir():
            continue
        assert (ROOT / script).stat().st_mode & 0o111, script


def test_shell_scripts_parse() -> None:
    for script in [ROOT / ".ci/run", *sorted((ROOT / "scripts").iterdir())]:
        if script.is_file() and (script.name == "_env" or script.read_text().startswith("#!/usr/bin/env bash")):
            subprocess.run(["bash", "-n", str(script)], check=True)
