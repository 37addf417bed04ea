"""The three distributions, each built and installed: the controller alone, and laboratory and pipeline beside it.

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

from aiocontroller.cli.extras import EXTRAS, refusal
from aiocontroller.cli.root import COMMANDS, NEEDS

ROOT = Path(__file__).parents[2]

BUILDERS = ("pyproject.toml", "setup.py", "requirements.in")

pytestmark = pytest.mark.timeout(300)


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """Those of the controller, the laboratory and the pipeline, from a copy: building leaves files behind."""
    copy, built = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("wheels")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "aiocontroller", copy / "aiocontroller", ignore=ignored)
    for project in (copy, copy / "aiocontroller" / "lab", copy / "aiocontroller" / "analytics"):
        pip("wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", built, project)
    (controller,), (laboratory,) = built.glob("aiocontroller-*.whl"), built.glob("aiocontroller_lab-*.whl")
    (pipeline,) = built.glob("aiocontroller_pipeline-*.whl")
    return controller, laboratory, pipeline


def installed(folder: Path, *wheels: Path) -> Path:
    pip("install", "--quiet", "--no-deps", "--no-index", "--target", folder, *wheels)
    return folder


@pytest.fixture(scope="module")
def plain(wheels: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("plain"), wheels[0])


@pytest.fixture(scope="module")
def all_of_it(wheels: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("all"), *wheels)


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


def test_each_file_is_in_one_of_the_wheels(wheels: tuple[Path, ...]) -> None:
    controller, laboratory, pipeline = map(files_of, wheels)
    assert {name for name in controller if name.startswith(("aiocontroller/lab/", "aiocontroller/analytics/"))} == set()
    assert {name for name in laboratory if not name.startswith("aiocontroller/lab/")} == set()
    assert {name for name in pipeline if not name.startswith("aiocontroller/analytics/")} == set()
    files = {path.relative_to(ROOT) for path in (ROOT / "aiocontroller").rglob("*") if path.is_file()}
    expected = {path.as_posix() for path in files if not path.parent.name.endswith(("__pycache__", ".egg-info"))}
    builders = {f"aiocontroller/{folder}/{name}" for folder in ("lab", "analytics") for name in BUILDERS}
    assert expected - builders == controller | laboratory | pipeline


def test_the_plain_install_is_the_controller_alone(plain: Path) -> None:
    assert not (plain / "aiocontroller" / "lab").exists()
    assert not (plain / "aiocontroller" / "analytics").exists()
    assert {entry.group for entry in found_in(plain)["aiocontroller"].entry_points} == {"console_scripts"}
    ran = run(plain, "run", "--help")
    assert ran.returncode == 0, ran.stderr
    assert "Usage: aiocontroller run" in ran.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_the_plain_install_has_help_for_every_command(plain: Path, name: str) -> None:
    ran = run(plain, name, "--help")
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize("name", sorted(NEEDS))
def test_the_plain_install_says_what_a_command_needs(plain: Path, name: str) -> None:
    ran = run(plain, name, *["kill-controller"] * (name == "cluster"), *["journals"] * (name == "analyze"))
    assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", f"Error: {refusal(NEEDS[name])}\n")


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_belongs_to_its_controller(all_of_it: Path, extra: str) -> None:
    found = found_in(all_of_it)
    controller, beside = found["aiocontroller"], found[f"aiocontroller-{extra}"]
    assert beside.version == controller.version
    assert f"aiocontroller=={controller.version}" in (beside.requires or [])
    wanted = [requirement for requirement in controller.requires or [] if beside.name in requirement]
    assert wanted == [f'{beside.name}=={controller.version}; extra == "{extra}"']


def test_with_the_laboratory_beside_it_a_seed_runs(all_of_it: Path) -> None:
    ran = run(all_of_it, "simulate", "--seeds", "1", "--jobs", "1")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "no violation" in ran.stdout


def test_with_the_pipeline_beside_it_a_journal_is_analysed(all_of_it: Path) -> None:
    recorded = ROOT / "tests" / "truth" / "recorded" / "3.9-aiocontroller" / "logs"
    ran = run(all_of_it, "analyze", f"{recorded}/journal-*", "--engine", "duckdb", "--out", "tables")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert (all_of_it / "tables" / "gold").is_dir()


def test_with_the_laboratory_beside_it_pytest_finds_the_plugin(all_of_it: Path) -> None:
    (entry,) = found_in(all_of_it)["aiocontroller-lab"].entry_points
    assert (entry.group, entry.name) == ("pytest11", "aiocontroller")
    assert (all_of_it / f"{entry.value.replace('.', '/')}.py").is_file()
