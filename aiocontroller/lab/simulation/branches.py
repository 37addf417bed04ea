"""Counts the branches of the program that seeds reach.

    python -m aiocontroller.lab.simulation.branches SEED …        prints JSON: mark -> how many of these seeds reach it

A mark is an arm of an ``if``, ``match`` or ``try``, or the body of a loop, in one of ``ROOMS``.  It is named by its
module, its function and its source, so that moving lines changes no name.  The modules are compiled with a marker in
each arm, at a tenth of the cost of a tracer; so this runs in a process of its own, before any of them is imported.
"""

from __future__ import annotations

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import msgspec

import aiocontroller

ROOMS = ("core", "controller", "zookeeper", "server")
PACKAGE = Path(aiocontroller.__file__).parent
REACHED = "__reached__"
LONGEST = 90
_Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Marker(ast.NodeTransformer):
    """Puts ``__reached__[n] = 1`` into each arm, and names the arms in order."""

    def __init__(self, module: str) -> None:
        self.marks: list[str] = []
        self._where = [module]
        self._named: Counter[str] = Counter()

    def _arm(self, source: str, arm: str) -> ast.stmt:
        name = f"{':'.join((self._where[0], '.'.join(self._where[1:])))}: {shortened(source)}: {arm}"
        self._named[name] += 1
        if self._named[name] > 1:
            name = f"{name} #{self._named[name]}"
        self.marks.append(name)
        [marker] = ast.parse(f"{REACHED}[{len(self.marks) - 1}] = 1").body
        return marker

    def _scope(self, node: _Scope) -> ast.AST:
        self._where.append(node.name)
        self.generic_visit(node)
        self._where.pop()
        return node

    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _scope

    def visit_If(self, node: ast.If) -> ast.AST:
        test = ast.unparse(node.test)
        if test == "TYPE_CHECKING":
            return node
        yes, no = self._arm(f"if {test}", "yes"), self._arm(f"if {test}", "no")
        self.generic_visit(node)
        node.body.insert(0, yes)
        node.orelse.insert(0, no)
        return node

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> ast.AST:
        kind = f"while {ast.unparse(node.test)}" if isinstance(node, ast.While) else f"for {ast.unparse(node.target)}"
        body = self._arm(kind, "body")
        self.generic_visit(node)
        node.body.insert(0, body)
        return node

    visit_For = visit_AsyncFor = visit_While = _loop

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        caught = self._arm(f"except {'' if node.type is None else ast.unparse(node.type)}", "caught")
        self.generic_visit(node)
        node.body.insert(0, caught)
        return node

    def visit_match_case(self, node: ast.match_case) -> ast.AST:
        case = self._arm(f"case {ast.unparse(node.pattern)}", "matches")
        self.generic_visit(node)
        node.body.insert(0, case)
        return node


def shortened(source: str) -> str:
    flat = " ".join(source.split())
    return flat if len(flat) <= LONGEST else f"{flat[: LONGEST - 1]}…"


def marked(path: Path) -> tuple[ast.Module, list[str]]:
    """Return the module with its markers, and the names of its marks."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    marker = Marker(path.relative_to(PACKAGE).as_posix())
    marker.visit(tree)
    return ast.fix_missing_locations(tree), marker.marks


def modules() -> Iterator[Path]:
    for room in ROOMS:
        yield from sorted((PACKAGE / room).rglob("*.py"))


def all_marks() -> list[str]:
    return [mark for path in modules() for mark in marked(path)[1]]


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, reached: dict[str, bytearray]) -> None:
        super().__init__(fullname, path)
        self._reached = reached

    def get_code(self, fullname: str) -> CodeType:
        tree, _ = marked(Path(self.path))
        return compile(tree, self.path, "exec")

    def exec_module(self, module: Any) -> None:
        setattr(module, REACHED, self._reached[self.path])
        super().exec_module(module)


class Instrument(importlib.abc.MetaPathFinder):
    """Compiles the modules of ``ROOMS`` with markers, as soon as it is in ``sys.meta_path``."""

    def __init__(self) -> None:
        self._marks = {str(path): marked(path)[1] for path in modules()}
        self._reached = {path: bytearray(len(marks)) for path, marks in self._marks.items()}

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        found = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if found is None or found.origin not in self._marks:
            return None
        loader = _Loader(fullname, found.origin, self._reached)
        places = found.submodule_search_locations
        return importlib.util.spec_from_file_location(
            fullname, found.origin, loader=loader, submodule_search_locations=places
        )

    def take(self) -> list[str]:
        """Return the marks that were reached since the last call."""
        found = []
        for path, reached in self._reached.items():
            found += [mark for mark, once in zip(self._marks[path], reached, strict=True) if once]
            reached[:] = bytes(len(reached))
        return found


def count(seeds: Sequence[int]) -> Counter[str]:
    """Return how many of these seeds reach each mark.  What importing reaches does not count."""
    loaded = [name for name in sys.modules if name.split(".")[:1] == ["aiocontroller"] and name.split(".")[1:2]]
    early = [name for name in loaded if name.split(".")[1] in ROOMS]
    if early:
        raise RuntimeError(f"{early[0]} is imported already: its branches cannot be counted")
    instrument = Instrument()
    sys.meta_path.insert(0, instrument)
    from aiocontroller.lab.simulation.campaign import quiet
    from aiocontroller.lab.simulation.simulation import simulate

    quiet()
    instrument.take()
    counts: Counter[str] = Counter()
    for seed in seeds:
        report = simulate(seed)
        if report.violations:
            raise RuntimeError(f"seed {seed}: {report.violations[0]}")
        counts.update(instrument.take())
    return counts


if __name__ == "__main__":
    found = count([int(word) for word in sys.argv[1:]])
    sys.stdout.buffer.write(msgspec.json.encode(dict(sorted(found.items()))) + b"\n")
