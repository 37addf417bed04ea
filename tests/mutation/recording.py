"""Which test runs which line, recorded and kept one file of tests at a time.

What is kept of a file holds until that file changes, or a module that its tests run; only then it is recorded anew.
"""

from __future__ import annotations

import hashlib
import itertools
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import coverage
import msgspec
import pytest

from tests.mutation.mutants import PACKAGE, ROOMS, ROOT, modules, source_of


class Part(msgspec.Struct):
    """Of one file.  Tests are numbers in ``tests``."""

    file: str
    digest: str
    suites_asked: list[str]
    """Tests of other suites are not here."""
    modules: dict[str, str]
    """Those that its tests run, and their digests."""
    tests: list[str] = []
    suites: list[list[str]] = []
    seconds: list[float] = []
    """Without the time that the test has waited for a core."""
    lines: dict[str, dict[int, list[int]]] = {}
    """Module -> line -> tests, ascending."""
    at_import: dict[str, list[int]] = {}
    """Module -> lines that run when it is imported, or while tests are collected."""
    left_out: dict[str, str] = {}
    """Test -> why."""


class Recording(msgspec.Struct):
    """All parts together; fields as there."""

    tests: list[str] = []
    suites: list[list[str]] = []
    seconds: list[float] = []
    lines: dict[str, dict[int, list[int]]] = {}
    at_import: dict[str, set[int]] = {}
    left_out: dict[str, str] = {}

    def add(self, part: Part) -> None:
        first = len(self.tests)
        self.tests += part.tests
        self.suites += part.suites
        self.seconds += part.seconds
        self.left_out |= part.left_out
        for module, numbers_of in part.lines.items():
            here = self.lines.setdefault(module, {})
            for line, numbers in numbers_of.items():
                here.setdefault(line, []).extend(first + number for number in numbers)
        for module, lines in part.at_import.items():
            self.at_import.setdefault(module, set()).update(lines)


def digest(module: str) -> str:
    return digest_of(source_of(module))


def kept(folder: Path, paths: Iterable[str], suites: Iterable[str]) -> tuple[Recording, list[str]]:
    """What is known of the files under ``paths``, and which of these have to be recorded."""
    recording, stale = Recording(), []
    digests = {module: digest(module) for module in modules()}
    for file in _files(paths):
        part = _read(folder, file)
        if part is not None and _holds(part, set(suites), digests):
            recording.add(part)
        else:
            stale.append(file)
    return recording, stale


def _holds(part: Part, suites: set[str], digests: dict[str, str]) -> bool:
    if part.digest != digest_of((ROOT / part.file).read_text()) or not suites <= set(part.suites_asked):
        return False
    return all(digests.get(module) == known for module, known in part.modules.items())


def own_seconds(pid: int | str = "self") -> float:
    """A clock that stands still while the process, of one thread, waits for a core."""
    try:
        waited_ns = int(Path(f"/proc/{pid}/schedstat").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        waited_ns = 0  # another system, or the process has ended
    return time.monotonic() - waited_ns / 1e9


class Recorder:
    """Made before the package is imported; records each file's tests and writes its part."""

    def __init__(self, folder: Path, files: Sequence[str], suites: Sequence[str]) -> None:
        self._folder = folder
        self._files = list(files)
        self._suites = list(suites)
        self._starts = _Starts()
        rooms = [f"{PACKAGE}/{room}/*" for room in ROOMS]
        self._coverage = coverage.Coverage(data_file=None, config_file=False, include=rooms)
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])  # a test may run none of our lines
        self._coverage.start()

    def record(self, plugin: Any, items: Sequence[pytest.Item], suites_of: Any) -> None:
        by_file: dict[str, list[pytest.Item]] = {file: [] for file in self._files}
        for item in items:
            file = item.path.relative_to(ROOT).as_posix()
            if file in by_file and not set(suites_of(item)).isdisjoint(self._suites):
                by_file[file].append(item)
        at_import = {module: sorted(lines) for module, lines in self._take().items()}
        left = [item for file in self._files for item in by_file[file]]
        following = dict(itertools.pairwise(left))
        for file, own in by_file.items():
            part = Part(file, digest_of((ROOT / file).read_text()), self._suites, {})
            for number, item in enumerate(own):
                seconds, why = self._run(plugin, item, following.get(item))
                part.tests.append(item.nodeid)
                part.suites.append(suites_of(item))
                part.seconds.append(round(seconds, 3))
                if why:
                    part.left_out[item.nodeid] = why
                for module, lines in self._take().items():
                    for line in lines:
                        part.lines.setdefault(module, {}).setdefault(line, []).append(number)
            part.modules = {module: digest(module) for module in part.lines}
            part.at_import = at_import
            write_part(self._folder, part)
        self._coverage.stop()

    def _run(self, plugin: Any, item: pytest.Item, following: pytest.Item | None) -> tuple[float, str]:
        plugin.failed.clear()
        self._starts.count = 0
        began = own_seconds()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        seconds = own_seconds() - began
        if plugin.failed:
            plugin.failed.clear()
            return seconds, "fails without any mutant"
        return seconds, "starts another interpreter" if self._starts.count else ""

    def _take(self) -> dict[str, list[int]]:
        """Module -> lines that have run since the last call."""
        self._coverage.stop()
        data = self._coverage.get_data()
        prefix = f"{PACKAGE}/"
        found = {file.removeprefix(prefix): data.lines(file) or [] for file in sorted(data.measured_files())}
        self._coverage.erase()
        self._coverage.start()
        return found


class _Starts:
    """Counts the interpreters that tests start."""

    def __init__(self) -> None:
        self.count = 0
        real = subprocess.Popen.__init__

        def counting(popen: Any, arguments: Any, *others: Any, **named: Any) -> None:
            words = [arguments] if isinstance(arguments, str) else [str(argument) for argument in arguments]
            self.count += sys.executable in words or any(name.endswith("python") for name in words[:1])
            real(popen, arguments, *others, **named)

        subprocess.Popen.__init__ = counting  # type: ignore[method-assign, assignment]


def _files(paths: Iterable[str]) -> list[str]:
    found: dict[str, None] = {}
    for path in paths:
        here = ROOT / path
        for file in sorted(here.rglob("test_*.py")) if here.is_dir() else [here]:
            found[file.relative_to(ROOT).as_posix()] = None
    return list(found)


def write_part(folder: Path, part: Part) -> None:
    _path(folder, part.file).write_bytes(msgspec.json.encode(part))


def _read(folder: Path, file: str) -> Part | None:
    path = _path(folder, file)
    return msgspec.json.decode(path.read_bytes(), type=Part) if path.exists() else None


def _path(folder: Path, file: str) -> Path:
    folder.joinpath("recording").mkdir(exist_ok=True)
    return folder / "recording" / f"{file.removesuffix('.py').replace('/', '.')}.json"


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
