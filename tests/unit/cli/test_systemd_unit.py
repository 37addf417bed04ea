"""The unit file that is printed: systemd takes it, and hostile names do not get into it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from aiocontroller.cli import systemd_unit
from aiocontroller.cli.root import root
from aiocontroller.core.errors import BadInputError


@pytest.fixture(autouse=True)
def program(monkeypatch: pytest.MonkeyPatch) -> str:
    path = "/bin/true"
    monkeypatch.setattr(sys, "argv", [path])
    return path


def printed(*options: str) -> str:
    result = CliRunner().invoke(root, ["systemd-unit", *options])
    if result.exception is not None:
        raise result.exception
    return result.stdout


def test_it_runs_this_installation() -> None:
    lines = printed("--config", "/srv/c.properties", "--user", "kafka", "--state", "ac", "--log-format", "json")
    ours = "/bin/true run --config /srv/c.properties --data /var/lib/ac --log-format json"
    assert f"ExecStart={ours}" in lines.splitlines()
    assert "User=kafka" in lines.splitlines()


def test_a_check_that_takes_all_memory_does_not_end_the_controller() -> None:
    """By default systemd stops a whole unit of which one process was killed for memory."""
    assert "OOMPolicy=continue" in printed().splitlines()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path) -> None:
    unit = tmp_path / "aiocontroller.service"
    unit.write_text(printed("--user", "root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], check=False, capture_output=True, text=True, timeout=50
    )
    about_ours = [line for line in (done.stdout + done.stderr).splitlines() if unit.name in line]
    assert not about_ours, about_ours


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_systemd_calls_its_exposure_low(tmp_path: Path) -> None:
    """Of 10 in tenths; a unit without these lines has 96."""
    unit = tmp_path / "aiocontroller.service"
    unit.write_text(printed())
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=20", str(unit)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "option, value",
    [
        ("--user", "kafka\nExecStartPre=/bin/evil"),
        ("--user", ""),
        ("--state", "../../etc"),
        ("--config", "relative.properties"),
        ("--config", "/a b"),
        ("--config", "/a%n"),
        ("--config", "/a\nUser=root"),
    ],
)
def test_a_value_that_systemd_would_read_otherwise_is_refused(option: str, value: str) -> None:
    with pytest.raises(BadInputError, match=option):
        printed(option, value)


def test_a_program_below_a_home_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(systemd_unit, "RUNTIME", (Path("/usr/bin/python3"),))
    assert "ProtectHome=yes" in printed().splitlines()
    monkeypatch.setattr(sys, "argv", ["/home/kafka/.venv/bin/aiocontroller"])
    assert "ProtectHome=read-only" in printed().splitlines()


def test_so_can_what_a_link_below_a_home_leads_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(systemd_unit, "RUNTIME", (Path("/usr/bin/python3"),))
    monkeypatch.setattr(systemd_unit, "HOMES", (f"{tmp_path}/home/",))
    monkeypatch.setattr(systemd_unit, "HIDDEN", ("/tmp/hidden/",))
    (tmp_path / "opt").symlink_to(tmp_path / "home" / "opt")
    for config in (tmp_path / "opt" / "c.properties", tmp_path / "x" / ".." / "home" / "c.properties"):
        assert "ProtectHome=read-only" in printed("--config", str(config)).splitlines()
    assert "ProtectHome=yes" in printed().splitlines()
    monkeypatch.setattr(systemd_unit, "RUNTIME", (tmp_path / "home",))
    assert "ProtectHome=read-only" in printed().splitlines(), "the interpreter of a virtual environment"


@pytest.mark.parametrize("folder", ["/tmp", "/var/tmp", "/dev/shm", "/etc/../tmp"])
def test_what_the_service_would_not_see_is_refused(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadInputError, match=r"--config: .* is in a folder that is hidden from a service"):
        printed("--config", f"{folder}/c.properties")
    monkeypatch.setattr(sys, "argv", [f"{folder}/bin/aiocontroller"])
    with pytest.raises(BadInputError, match=r"the path of this program: .* hidden from a service"):
        printed()


def test_a_module_that_prints_it_is_run_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/srv/lib/aiocontroller/__main__.py"])
    assert f"ExecStart={sys.executable} -m aiocontroller run --config " in printed()
