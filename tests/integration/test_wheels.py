"""The three distributions, each built and installed: the controller alone, and laboratory and pipeline beside it.

They are installed into folders of their own and run without ``site``, so that the checkout's own installation is not
seen, only its dependencies.
"""

from __future__ import annotations

import os
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


def built(folder: Path, umask: int = 0o022, **environment: str) -> tuple[Path, Path, Path]:
    """The wheels of the controller, the laboratory and the pipeline."""
    ran = subprocess.run(
        [sys.executable, "scripts/_make_wheels.py", str(folder), "--all"],
        cwd=ROOT,
        env={**os.environ, **environment},
        umask=umask,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (controller,), (laboratory,) = folder.glob("aiocontroller-*.whl"), folder.glob("aiocontroller_lab-*.whl")
    (pipeline,) = folder.glob("aiocontroller_pipeline-*.whl")
    return controller, laboratory, pipeline


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    return built(tmp_path_factory.mktemp("wheels"))


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
    """Of packages."""
    return {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("aiocontroller/")}


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


def test_manual_and_completions_are_where_shells_look(plain: Path) -> None:
    share = ROOT / "distribution" / "share"
    files = [path.relative_to(share) for path in share.rglob("*") if path.is_file()]
    assert len(files) == 4
    for file in files:
        assert (plain / "share" / file).read_bytes() == (share / file).read_bytes()


def test_a_second_build_has_the_same_bytes(wheels: tuple[Path, ...], tmp_path: Path) -> None:
    """Under another umask, time zone, folder for temporary files and hash seed, by another user's settings."""
    elsewhere = tmp_path / "a folder"
    elsewhere.mkdir()
    again = built(
        tmp_path / "again", umask=0o077, TMPDIR=str(elsewhere), TZ="Asia/Kathmandu", PYTHONHASHSEED="7", LC_ALL="C"
    )
    for first, second in zip(wheels, again, strict=True):
        assert first.name == second.name
        assert first.read_bytes() == second.read_bytes(), first.name


def test_times_in_a_wheel_are_what_the_builder_says(tmp_path: Path) -> None:
    controller, *_ = built(tmp_path, SOURCE_DATE_EPOCH="1700000000")
    assert {each.date_time for each in zipfile.ZipFile(controller).infolist()} == {(2023, 11, 14, 22, 13, 20)}


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
