"""What happens inside pytest: tests are recorded once, then run again and again, each time with another mutant.

    python -m pytest -p tests.mutation.plugin tests/unit/core …    with MUTATION_JOB naming a Job, as JSON

``recording.py`` runs every test once and keeps how long it took and which lines of the package it ran; tests that fail
are left out from then on, and so are tests that start another interpreter, which would not have the mutant.

A mutant costs no start of pytest: the process that has collected everything forks, and the child gives the functions
in memory the mutated code.  That cannot reach what ran when modules were imported; such mutants get an interpreter of
their own, whose import hook compiles the mutated source.  The tree on disk is never touched.
"""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.util
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import hypothesis
import msgspec
import pytest

from tests.mutation.mutants import PACKAGE, Mutant, modules, mutants_of, mutated, source_of
from tests.mutation.recording import Recorder

ENVIRONMENT = "MUTATION_JOB"
_EXAMPLES = 40


class Job(msgspec.Struct):
    kind: str
    """``record``, ``serve`` (forks for each mutant) or ``once`` (one mutant in this interpreter)."""
    folder: str
    worker: int = 0
    mutant: Mutant | None = None
    tests: list[str] = []
    files: list[str] = []
    """Those that ``record`` records, of ``suites``."""
    suites: list[str] = []
    current: str = ""
    """Where ``once`` writes which test it is at, at last the one that has noticed."""
    zookeeper: str = ""
    """``host:port`` of the server that all tests share; empty where they start their own."""


def suites_of(item: pytest.Item) -> list[str]:
    path = item.path.relative_to(PACKAGE.parent).as_posix()
    found = []
    if item.get_closest_marker("conformance"):
        found.append("conformance")
    if path.startswith("tests/mutation/"):
        found.append("differential")
    elif path.startswith("tests/unit/lab/"):
        found.append("simulation")
    elif path.startswith("tests/unit/"):
        found.append("unit")
    elif not path.startswith("tests/conformance/"):
        found.append("integration")
    return found


def _job() -> Job:
    return msgspec.json.decode(Path(os.environ[ENVIRONMENT]).read_bytes(), type=Job)


class Plugin:
    """Hooks.  One of three does the work, by the kind of job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.failed: list[str] = []
        self.recorder = Recorder(Path(job.folder), job.files, job.suites) if job.kind == "record" else None
        if job.kind == "once":
            assert job.mutant is not None
            sys.meta_path.insert(0, Importer(job.mutant))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if self.job.zookeeper:
            share_zookeeper(self.job.zookeeper, self.job.worker, 0)
        for item in session.items:
            _with_fewer_examples(item)
        if self.recorder is not None:
            self.recorder.record(self, session.items, suites_of)
        elif self.job.kind == "serve":
            from tests.mutation.running import serve

            serve(self, session)
        else:
            items = {item.nodeid: item for item in session.items}
            self.run([items[name] for name in self.job.tests if name in items], Path(self.job.current))
            session.testsfailed = len(self.failed)
        return True

    def run(self, items: Sequence[pytest.Item], current: Path) -> bool:
        """Run them until one fails; its name stays in ``current``, as does that of one that never ends."""
        for item, following in itertools.zip_longest(items, items[1:]):
            current.write_text(item.nodeid)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if self.failed:
                return True
        return False


def _with_fewer_examples(item: pytest.Item) -> None:
    """Properties need not be certain here: a mutant is asked about by many tests."""
    case = getattr(item, "cls", None)
    for owner, name in ((getattr(item, "obj", None), "_hypothesis_internal_use_settings"), (case, "settings")):
        found = getattr(owner, name, None)
        if isinstance(found, hypothesis.settings):
            fewer = hypothesis.settings(found, max_examples=min(found.max_examples, _EXAMPLES))
            setattr(getattr(owner, "__func__", owner), name, fewer)


def share_zookeeper(address: str, worker: int, number: int) -> None:
    """The fixture's server is the one at ``address``; each run has chroots of its own."""
    from tests import conftest

    class Shared:
        def __init__(self, _: Path) -> None:
            self.address = address
            self.port = int(address.rsplit(":", 1)[1])

        def start(self) -> None:
            pass

        stop = start

    vars(conftest)["EmbeddedZooKeeper"] = Shared
    unique = (os.getpid() * 100 + worker) * 100_000 + number * 1000
    conftest._chroots = itertools.count(unique)


# -- mutated code, in memory -------------------------------------------------------------------------------------------


class NeedsInterpreterError(Exception):
    """The change is no function's that can be given other code."""


_Place = tuple[str, int]
"""Qualified name and first line of a function."""


def functions_of(code: CodeType) -> Iterator[CodeType]:
    """Of a module's code: every function in it, whatever encloses it."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & 1:  # CO_OPTIMIZED: a function, not the body of a class
                yield constant
            yield from functions_of(constant)


class Functions:
    """The package's functions in memory, by where they were written; made once, after everything is imported."""

    def __init__(self) -> None:
        self._live: dict[str, dict[_Place, list[FunctionType]]] = {}
        root = f"{PACKAGE}/"
        for found in gc.get_objects():
            if type(found) is FunctionType and found.__code__.co_filename.startswith(root):
                module = found.__code__.co_filename.removeprefix(root)
                self._live.setdefault(module, {}).setdefault(_place(found.__code__), []).append(found)

    def changes(self, mutant: Mutant) -> list[tuple[FunctionType, CodeType]]:
        """The functions that differ, and the mutated code of each.

        What is inside of a function is made anew by it each time; only what was made before, at import, is looked for.
        """
        before = _by_place_of(mutant.module)
        after = _by_place(compile(mutated(mutant), str(PACKAGE / mutant.module), "exec"))
        live = self._live.get(mutant.module, {})
        changed = [place for place in before if before[place] != after.get(place)]
        if not any("<locals>" not in qualified and (qualified, line) in live for qualified, line in changed):
            raise NeedsInterpreterError(mutant.key)
        found = []
        for place in changed:
            for function in live.get(place, ()):
                codes = after.get(place, [])
                if (
                    len(codes) != 1
                    or len(before[place]) != 1
                    or len(function.__code__.co_freevars) != len(codes[0].co_freevars)
                ):
                    raise NeedsInterpreterError(mutant.key)
                found.append((function, codes[0]))
        return found


def give(changes: Sequence[tuple[FunctionType, CodeType]]) -> None:
    for function, code in changes:
        function.__code__ = code


@cache
def _by_place_of(module: str) -> dict[_Place, list[CodeType]]:
    return _by_place(compile(ast.parse(source_of(module)), str(PACKAGE / module), "exec"))


def _by_place(code: CodeType) -> dict[_Place, list[CodeType]]:
    found: dict[_Place, list[CodeType]] = {}
    for each in functions_of(code):
        found.setdefault(_place(each), []).append(each)
    return found


def _place(code: CodeType) -> _Place:
    return code.co_qualname, code.co_firstlineno


class Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Compiles the mutated source where the module is imported."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._name = f"aiocontroller.{mutant.module.removesuffix('.py').replace('/', '.')}".removesuffix(".__init__")

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, PACKAGE / self._mutant.module, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(mutated(self._mutant), str(PACKAGE / self._mutant.module), "exec"), module.__dict__)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(_plugin, "mutation")


def find(keys: Sequence[str]) -> dict[str, Mutant]:
    wanted = set(keys)
    return {mutant.key: mutant for module in modules() for mutant in mutants_of(module) if mutant.key in wanted}


if ENVIRONMENT in os.environ:
    # A failing example is a kill: it need not be made smaller, nor kept.
    phases = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile("mutation", phases=phases, database=None, deadline=None, derandomize=True)
    hypothesis.settings.load_profile("mutation")
    _plugin = Plugin(_job())
