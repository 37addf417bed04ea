"""Runs mutants one after the other, each in a fork of the process that has collected the tests."""

from __future__ import annotations

import fcntl
import gc
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FunctionType

import msgspec
import pytest

from tests.mutation.mutants import Mutant
from tests.mutation.plugin import ENVIRONMENT, Functions, NeedsInterpreterError, Plugin, give, share_zookeeper
from tests.mutation.recording import Recording, digest, kept, own_seconds

SUITES = ("unit", "conformance", "differential", "simulation", "integration")
"""From cheap to expensive."""
LAST_RESORT = {"integration"}
"""Asked only about what all others let live."""
SUITE_PATHS = {
    "unit": ["tests/unit/core", "tests/unit/controller", "tests/unit/zookeeper", "tests/unit/server"],
    "conformance": ["tests/conformance", "tests/unit/core", "tests/unit/controller", "tests/integration/controller"],
    "simulation": ["tests/unit/lab"],
    "differential": ["tests/mutation/replayed.py"],
    "integration": ["tests/integration/controller", "tests/integration/zookeeper", "tests/transcripts"],
}
_START_S = 60.0
"""How long an interpreter may take to begin with its tests."""
_GRACE_S = 5.0
_PATIENCE = 6
"""A test with a mutant may take so many times as long as without, and the grace; then it hangs."""


class Verdict(msgspec.Struct):
    """Of one suite: the test that noticed, if any, and how many of those that run the line have been asked."""

    killed_by: str | None
    asked: int
    covering: int
    seconds: float = 0.0


class Task(msgspec.Struct):
    mutant: Mutant
    verdicts: dict[str, Verdict]
    """Of suites that have been asked before."""


class Order(msgspec.Struct):
    """What a worker is to do, in ``order.json``."""

    tasks: list[Task]
    paths: list[str]
    """Of the tests."""
    suites: list[str]
    first_kill: bool
    seconds_per_suite: float
    seed: int
    until: float
    """By time.time(); 0 for no end."""


class Result(msgspec.Struct):
    key: str
    module: str
    line: int
    source: str
    """The module's digest: what was found holds for no other."""
    suites: dict[str, Verdict]

    @property
    def killers(self) -> list[str]:
        return [suite for suite, verdict in self.suites.items() if verdict.killed_by]


def unasked(suites: Sequence[str], verdicts: dict[str, Verdict], *, first_kill: bool) -> list[str]:
    """Which suites have to be asked still, about a mutant of which this is known."""
    killed = any(verdict.killed_by for verdict in verdicts.values())
    if killed and first_kill:
        return []
    return [suite for suite in suites if suite not in verdicts and not (killed and suite in LAST_RESORT)]


class Selection:
    """Which tests of a suite are asked about a mutant, the likeliest first, within a bound of time."""

    def __init__(self, recording: Recording, order: Order, known: set[str]) -> None:
        self._recording = recording
        self._order = order
        self._seconds = dict(zip(recording.tests, recording.seconds, strict=True))
        self._usable = [name in known and name not in recording.left_out for name in recording.tests]

    def runs_at_import(self, mutant: Mutant) -> bool:
        lines = self._recording.at_import.get(mutant.module, set())
        return not lines.isdisjoint(range(mutant.lines[0], mutant.lines[1] + 1))

    def tests(self, mutant: Mutant, suite: str) -> tuple[list[str], int]:
        """Names in order, and how many there would be."""
        recording = self._recording
        by_line = recording.lines.get(mutant.module, {})
        found = {n for line in range(mutant.lines[0], mutant.lines[1] + 1) for n in by_line.get(line, ())}
        own = f"/test_{Path(mutant.module).stem}.py::"
        if self.runs_at_import(mutant):
            found |= {n for numbers in by_line.values() for n in numbers}
            found |= {n for n, test in enumerate(recording.tests) if own in test}
        covering = sorted(n for n in found if suite in recording.suites[n] and self._usable[n])
        chance = random.Random(f"{self._order.seed} {mutant.key}")
        drawn = {n: chance.random() for n in covering}
        covering.sort(key=lambda n: (own not in recording.tests[n], recording.seconds[n] * drawn[n]))
        chosen: list[int] = []
        seconds = 0.0
        for n in covering:
            if chosen and seconds + recording.seconds[n] > self._order.seconds_per_suite:
                continue
            chosen.append(n)
            seconds += recording.seconds[n]
        return [recording.tests[n] for n in chosen], len(covering)

    def bound_s(self, test: str) -> float:
        """How long the test may take; of none, how long it takes until there is one."""
        return _GRACE_S + _PATIENCE * self._seconds[test] if test in self._seconds else _START_S


class Subject:
    """A mutant, or none, and what is known of it while its suites are asked."""

    def __init__(self, mutant: Mutant | None, changes: list[tuple[FunctionType, CodeType]] | None) -> None:
        self.mutant = mutant
        self.changes = changes
        """None where an interpreter of its own is needed."""
        self.survived: set[str] = set()
        """Tests that have not noticed it; a test may be in several suites."""


class Worker:
    def __init__(self, plugin: Plugin, session: pytest.Session) -> None:
        self._plugin = plugin
        self._job = plugin.job
        self._folder = Path(self._job.folder)
        self._items = {item.nodeid: item for item in session.items}
        self._order = msgspec.json.decode((self._folder / "order.json").read_bytes(), type=Order)
        recording, _ = kept(self._folder, self._order.paths, self._order.suites)
        self._selection = Selection(recording, self._order, set(self._items))
        self._functions = Functions()
        self._forks = 0
        gc.collect()
        gc.freeze()  # so that no child copies all of this memory when it collects

    def work(self) -> None:
        while (task := self._next()) is not None:
            mutant, verdicts = task.mutant, task.verdicts
            subject = self._subject(mutant)
            while suites := unasked(self._order.suites, verdicts, first_kill=self._order.first_kill):
                verdicts[suites[0]] = self._verdict(subject, suites[0])
                result = Result(mutant.key, mutant.module, mutant.lines[0], digest(mutant.module), verdicts)
                with (self._folder / "results.jsonl").open("ab") as file:
                    file.write(msgspec.json.encode(result) + b"\n")
            with (self._folder / "done").open("a") as done:
                done.write(".")

    def _next(self) -> Task | None:
        """The next that no worker has taken."""
        if self._order.until and time.time() > self._order.until:
            return None
        with (self._folder / "taken").open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            number = len(file.read())
            if number >= len(self._order.tasks):
                return None
            file.write(".")
        return self._order.tasks[number]

    def _subject(self, mutant: Mutant) -> Subject:
        if self._selection.runs_at_import(mutant):
            return Subject(mutant, None)
        try:
            return Subject(mutant, self._functions.changes(mutant))
        except NeedsInterpreterError:
            return Subject(mutant, None)

    def _verdict(self, subject: Subject, suite: str) -> Verdict:
        assert subject.mutant is not None
        tests, covering = self._selection.tests(subject.mutant, suite)
        began = time.monotonic()
        killer = self._ask(subject, tests)
        while killer in tests and self._ask(Subject(None, []), [killer]) is not None:
            tests.remove(killer)  # it fails without the mutant too: the machine is busy, or the test is not sound
            killer = self._ask(subject, tests)
        return Verdict(killer, len(tests), covering, round(time.monotonic() - began, 1))

    def _ask(self, subject: Subject, tests: Sequence[str]) -> str | None:
        """The test that notices; None if none does."""
        left = [name for name in tests if name not in subject.survived]
        if not left:
            return None
        with tempfile.NamedTemporaryFile("r") as current:
            if subject.mutant is not None and subject.changes is None:
                code = self._in_an_interpreter(subject.mutant, left, Path(current.name))
            else:
                code = self._in_a_fork(subject.changes or [], left, Path(current.name))
            killer = None if code == 0 else current.read() or left[0]
        subject.survived.update(left[: left.index(killer)] if killer in left else left if killer is None else ())
        return killer

    def _in_a_fork(
        self, changes: Sequence[tuple[FunctionType, CodeType]], tests: Sequence[str], current: Path
    ) -> int | None:
        """The exit code; None where it had to be ended."""
        self._forks += 1
        child = os.fork()
        if child == 0:
            os._exit(self._as_child(changes, tests, current))
        return wait_for(child, current, self._selection.bound_s)

    def _as_child(self, changes: Sequence[tuple[FunctionType, CodeType]], tests: Sequence[str], current: Path) -> int:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._job.zookeeper:
            share_zookeeper(self._job.zookeeper, self._job.worker, self._forks)
        give(changes)
        return int(self._plugin.run([self._items[name] for name in tests], current))

    def _in_an_interpreter(self, mutant: Mutant, tests: Sequence[str], current: Path) -> int | None:
        job = msgspec.structs.replace(self._job, kind="once", mutant=mutant, tests=[*tests], current=str(current))
        path = self._folder / f"once-{self._job.worker}.json"
        path.write_bytes(msgspec.json.encode(job))
        files = sorted({name.partition("::")[0] for name in tests})
        command = pytest_command(path, files)
        with (self._folder / f"once-{self._job.worker}.log").open("wb") as log:
            run = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, env=environment(path), cwd=Path.cwd()
            )
            code = wait_for(run.pid, current, self._selection.bound_s)
            run.returncode = -signal.SIGKILL if code is None else code
        return code


def serve(plugin: Plugin, session: pytest.Session) -> None:
    signal.signal(signal.SIGTERM, end)
    Worker(plugin, session).work()


_signals: list[object] = []


def end(*of_signal: object) -> None:
    """Handles SIGTERM, so that what was started ends, too.

    What it raises is lost if it comes within a fork, so ``wait_for`` calls it again.
    """
    _signals.extend(of_signal[:1])
    sys.exit("ended by a signal: the same command goes on from here")


def pytest_command(job: Path, paths: Sequence[str]) -> list[str]:
    """Without a bound of time, which a busy machine would meet: ``wait_for`` has one that does not depend on it."""
    return [
        *(sys.executable, "-m", "pytest", "-q", "-s", "--tb=native", "-p", "tests.mutation.plugin"),
        *("-p", "no:cacheprovider", "-o", "timeout=0", "-m", "not slow and not kafka and not benchmark", *paths),
    ]


def environment(job: Path) -> dict[str, str]:
    return {**os.environ, ENVIRONMENT: str(job), "PYTHONDONTWRITEBYTECODE": "1"}


def wait_for(child: int, current: Path, bound_s: Callable[[str], float]) -> int | None:
    """The exit code of what leads its group; None where it had to be ended.

    What it writes to ``current`` is the test that it is at, which may take ``bound_s`` of the child's own time.
    """
    test, began, before, ended = "", time.monotonic(), own_seconds(child), 0
    try:
        while True:
            if _signals:
                end()
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if (present := current.read_text()) != test:
                test, began, before = present, time.monotonic(), own_seconds(child)
            within_s = bound_s(test)
            if time.monotonic() > began + within_s and own_seconds(child) > before + within_s:
                return None
            time.sleep(0.02)
    finally:
        _end(child)
        if not ended:
            os.waitpid(child, 0)


def _end(group: int) -> None:
    """Whatever the tests have left behind."""
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        pass
