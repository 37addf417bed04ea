"""What ``scripts/_env`` does before it makes an environment (which Python, when again, and what it prints); how
``scripts/compare-seeds`` names the first difference of two runs; which tests run at the same time."""

from __future__ import annotations

import collections
import importlib.util
import itertools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.conftest import pytest_ignore_collect

ROOT = Path(__file__).resolve().parents[2]
PYTHON_3_9 = """#!/bin/sh
case "$2" in
  *print*) echo 3.9;;
  *) exit 1;;
esac
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the scripts and of the files that they read, without ``.venv``."""
    folder = tmp_path / "checkout"
    (folder / "scripts").mkdir(parents=True)
    for name in ("_env", "_make_env.py", "up", "test"):
        shutil.copy(ROOT / "scripts" / name, folder / "scripts")
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def bash(checkout: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    wanted = {**os.environ, **environment}
    return subprocess.run(
        ["bash", *command], check=False, capture_output=True, text=True, cwd=checkout, env=wanted, timeout=50
    )


def stamp(checkout: Path) -> str:
    done = bash(checkout, "-c", ". scripts/_env && stamp")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("script", ["up", "test"])
def test_python_that_is_too_old_or_missing_is_an_error(checkout: Path, script: str) -> None:
    """`PYTHON=python3.9` was ignored silently."""
    old = checkout / "python3.9"
    old.write_text(PYTHON_3_9)
    old.chmod(0o755)
    needs = "aiocontroller needs Python 3.11 or newer, with its venv module. Found "
    for python, found in ((str(old), "version 3.9"), ("/no/python", "not found"), ("false", "does not run")):
        done = bash(checkout, f"scripts/{script}", PYTHON=python)
        assert done.returncode == 1
        assert done.stderr.startswith(f"{needs}{python}: {found}.\n")
    assert not (checkout / ".venv").exists()


def test_python_is_looked_at_though_the_environment_is_there(checkout: Path) -> None:
    bin_ = checkout / ".venv" / "bin"
    bin_.mkdir(parents=True)
    (bin_ / "python").write_text("#!/bin/sh\necho Python 3.99.1\n")
    (bin_ / "python").chmod(0o755)
    (checkout / ".venv" / ".made-for-run").write_text(stamp(checkout))
    ensure = ". scripts/_env && ensure_env run && echo used"
    assert bash(checkout, "-c", ensure, PYTHON="").stdout == "used\n"
    assert bash(checkout, "-c", ensure, PYTHON="/no/python").returncode == 1
    done = bash(checkout, "-c", ensure, PYTHON=sys.executable)
    assert done.stdout == "used\n"
    assert done.stderr == (
        f"{checkout}/.venv was made with Python 3.99.1: remove it to have it made with PYTHON={sys.executable}.\n"
    )


def test_environment_depends_on_packages_and_not_on_tools(checkout: Path) -> None:
    before = stamp(checkout)
    project = checkout / "pyproject.toml"
    text = project.read_text()
    project.write_text(text.replace("line-length = 120", "line-length = 100"))
    assert stamp(checkout) == before
    for old, new in (
        ('"click>=8.1"', '"click>=8.2"'),
        ('aiocontroller = "aiocontroller.cli:main"', 'aiocontroller = "aiocontroller.cli:other"'),
        ('requires = ["setuptools>=77"]', 'requires = ["setuptools>=78"]'),
        ('include = ["aiocontroller*"]', 'include = ["aio*"]'),
    ):
        assert old in text
        project.write_text(text.replace(old, new))
        assert stamp(checkout) != before, new
    project.write_text(text)
    with (checkout / "requirements" / "run.txt").open("a") as lock:
        lock.write("# changed\n")
    assert stamp(checkout) != before


@pytest.mark.parametrize("script", ["up", "test"])
def test_checkout_that_cannot_be_written_to_is_named(checkout: Path, script: str) -> None:
    """It ended in a traceback."""
    if os.geteuid() == 0:
        (checkout / ".venv").write_text("no folder: root may write everywhere else")
        why = "File exists"
    else:
        checkout.chmod(0o555)
        why = "Permission denied"
    done = bash(checkout, f"scripts/{script}", PYTHON=sys.executable)
    checkout.chmod(0o755)
    assert done.returncode == 1
    assert done.stderr == (
        f"The environment cannot be made: {checkout}/.venv: {why}. The checkout {checkout} must be writable.\n"
    )


@pytest.mark.parametrize(
    "before, after, expected",
    [
        (b"1\n2\n3\n", b"1\n2\n4\n", ["both:   2", "before: 3", "after:  4"]),
        (b"1\n", b"1\n2\n", ["both:   1", "before: (no record)", "after:  2"]),
        (b"1\n2\n", b"", ["both:   ", "before: 1", "after:  (no record)"]),
        (b"1\n", b"1\n", ["the journals are the same: only writes to znodes differ"]),
    ],
)
def test_first_difference_of_two_journals(before: bytes, after: bytes, expected: list[str]) -> None:
    spec = importlib.util.spec_from_file_location("compare_seeds", ROOT / "scripts" / "_compare_seeds.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert [line[4:] for line in module.first_difference(before, after)] == expected


@pytest.mark.parametrize(
    "given, code, expected",
    [
        ((), 2, "usage: scripts/bench NAME [options]; the benchmarks are:"),
        (("--help",), 0, "usage: scripts/bench NAME [options]; the benchmarks are:"),
        (("controllers",), 2, "There is no benchmark controllers; the benchmarks are:"),
    ],
)
def test_bench_names_all_benchmarks(given: tuple[str, ...], code: int, expected: str) -> None:
    """``--help`` was taken for the name of a benchmark, and ended in Python's "No module named"."""
    done = bash(ROOT, "scripts/bench", *given)
    assert done.returncode == code
    lines = (done.stdout + done.stderr).splitlines()
    assert lines[0] == expected
    folder = ROOT / "benchmarks"
    files = {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob("*/__main__.py")}
    assert {line.strip() for line in lines[1:]} == {name for name in files if not name.startswith("_")}


@pytest.mark.parametrize("version", ["--help", "2.2", "3.9.1/../..", "latest"])
def test_kafka_jars_refuses_what_is_no_version_before_it_asks_maven(version: str, tmp_path: Path) -> None:
    found = subprocess.run(
        ["/bin/bash", ROOT / "scripts" / "kafka-jars", version, tmp_path / "jars"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert found.returncode == 2
    assert f"found '{version}', expected a full version of Kafka" in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_each_test_is_in_one_half_of_a_run() -> None:
    """`scripts/test` runs both halves at the same time."""
    tests = ROOT / "tests"
    halves: dict[Path, list[str]] = {file: [] for file in tests.rglob("test_*.py")}
    for half, file in itertools.product(("integration", "others"), halves):
        config = cast(pytest.Config, SimpleNamespace(getoption={"--kafka": None, "--half": half}.get))
        steps = (file, *file.parents)
        if not any(pytest_ignore_collect(step, config) for step in steps[: steps.index(tests)]):
            halves[file].append(half)
    assert {len(found) for found in halves.values()} == {1}
    sizes = collections.Counter(found[0] for found in halves.values())
    assert min(sizes.values()) > 100
