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


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_core_imports_only_data_tools(path: Path) -> None:
    strange = [
        f"line {line}: {module}"
        for line, module in imported_modules(tree(path))
        if module.split(".")[0] not in CORE_MAY_IMPORT and not module.startswith("aiocontroller.core")
    ]
    assert strange == []


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_core_knows_neither_time_nor_chance(path: Path) -> None:
    """A plain search, comments included, so that a reader's grep finds nothing either."""
    words = ("asyncio.sleep", "time.time", "random")
    lines = enumerate(path.read_text().splitlines(), 1)
    assert [f"line {n}: {line.strip()}" for n, line in lines if any(word in line for word in words)] == []
    colour = ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith
    assert [node.lineno for node in ast.walk(tree(path)) if isinstance(node, colour)] == []


@pytest.mark.parametrize("path", CORE, ids=name_of)
def test_core_emits_nothing_in_the_order_of_a_set(path: Path) -> None:
    """Finds loops over a set that is written in place; sets with names are left to the tests with equal seeds."""
    makes_set = {"set", "frozenset"}
    found = []
    for node in ast.walk(tree(path)):
        iterated = []
        if isinstance(node, ast.For):
            iterated = [node.iter]
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            iterated = [g.iter for g in node.generators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("list", "tuple"):
            iterated = node.args
        for value in iterated:
            by_call = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in makes_set
            if by_call or isinstance(value, ast.Set | ast.SetComp):
                found.append(f"line {value.lineno}: {ast.unparse(value)[:80]}; sort it")
    assert found == []


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
