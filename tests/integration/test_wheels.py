"""The two distributions, each built and installed: the controller alone, and the laboratory beside it.

They are installed into folders of their own and run without ``site``, so that the checkout's own installation is not
seen, only its dependencies.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

from aiocontroller.cli.root import COMMANDS, LABORATORY

ROOT = Path(__file__).parents[2]
HINT = 'Error: this command needs the laboratory: pip install "aiocontroller[lab]"\n'

pytestmark = pytest.mark.timeout(300)


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Those of the controller and the laboratory, from a copy: building leaves files behind."""
    copy, built = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "aiocontroller", copy / "aiocontroller", ignore=ignored)
    for project in (copy, copy / "aiocontroller" / "lab"):
        pip("wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", built, project)
    (controller,), (laboratory,) = built.glob("aiocontroller-*.whl"), built.glob("aiocontroller_lab-*.whl")
    return controller, laboratory


def installed(folder: Path, *wheels: Path) -> Path:
    pip("install", "--quiet", "--no-deps", "--no-index", "--target", folder, *wheels)
    return folder


@pytest.fixture(scope="module")
def plain(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("plain"), wheels[0])


@pytest.fixture(scope="module")
def both(wheels: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("both"), *wheels)


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``aiocontroller`` of this folder."""
    dependencies = sysconfig.get_path("purelib"), sysconfig.get_path("platlib")
    path = os.pathsep.join(map(str, (folder, *dict.fromkeys(dependencies))))
    return subprocess.run(
        [sys.executable, "-S", "-m", "aiocontroller", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def files_of(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def found_in(folder: Path) -> dict[str, Distribution]:
    return {found.name: found for found in distributions(path=[str(folder)])}


def test_each_file_is_in_one_of_the_wheels(wheels: tuple[Path, Path]) -> None:
    controller, laboratory = map(files_of, wheels)
    assert controller & laboratory == set()
    assert {name for name in controller if name.startswith("aiocontroller/lab/")} == set()
    files = {path.relative_to(ROOT) for path in (ROOT / "aiocontroller").rglob("*") if path.is_file()}
    expected = {path.as_posix() for path in files if not path.parent.name.endswith(("__pycache__", ".egg-info"))}
    builders = {"aiocontroller/lab/pyproject.toml", "aiocontroller/lab/setup.py"}
    assert expected - builders == controller | laboratory


def test_the_plain_install_is_the_controller_alone(plain: Path) -> None:
    assert not (plain / "aiocontroller" / "lab").exists()
    assert {entry.group for entry in found_in(plain)["aiocontroller"].entry_points} == {"console_scripts"}
    ran = run(plain, "run", "--help")
    assert ran.returncode == 0, ran.stderr
    assert "Usage: aiocontroller run" in ran.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_plain_install_has_help_for_every_command(plain: Path, name: str) -> None:
    ran = run(plain, name, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("name", sorted(LABORATORY))
def test_the_plain_install_says_what_the_laboratory_needs(plain: Path, name: str) -> None:
    ran = run(plain, name, *["kill-controller"] * (name == "cluster"))
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", HINT)


def test_the_laboratory_belongs_to_its_controller(both: Path) -> None:
    found = found_in(both)
    controller, laboratory = found["aiocontroller"], found["aiocontroller-lab"]
    assert laboratory.version == controller.version
    assert f"aiocontroller=={controller.version}" in (laboratory.requires or [])
    extra = [requirement for requirement in controller.requires or [] if "aiocontroller-lab" in requirement]
    assert extra == [f'aiocontroller-lab=={controller.version}; extra == "lab"']


def test_with_the_laboratory_beside_it_a_seed_runs(both: Path) -> None:
    ran = run(both, "simulate", "--seeds", "1", "--jobs", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no violation" in ran.stdout


def test_with_the_laboratory_beside_it_pytest_finds_the_plugin(both: Path) -> None:
    (entry,) = found_in(both)["aiocontroller-lab"].entry_points
    assert (entry.group, entry.name) == ("pytest11", "aiocontroller")
    assert (both / f"{entry.value.replace('.', '/')}.py").is_file()
