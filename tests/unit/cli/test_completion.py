"""What bash completes, asked as bash asks: by the script that we print."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from aiocontroller.cli.completion import SHELLS, completion, script
from aiocontroller.cli.root import COMMANDS

ASK = """
{script}
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); COMPREPLY=()
compopt() {{ :; }}  # it works only while a person types
_aiocontroller_completion aiocontroller
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A PATH on which ``aiocontroller`` is this checkout's."""
    program = tmp_path / "aiocontroller"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m aiocontroller "$@"\n')
    program.chmod(0o755)
    return f"{tmp_path}:{os.environ['PATH']}"


def completed(path: str, words: str, folder: Path) -> list[str]:
    """What bash offers after these words; the last one is incomplete."""
    asked = subprocess.run(
        ["bash", "--norc", "-c", ASK.format(script=script("bash"), words=words)],
        env={**os.environ, "PATH": path, "PYTHONPATH": str(Path(__file__).parents[3])},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (asked.returncode, asked.stderr) == (0, "")
    return asked.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on PATH")
@pytest.mark.parametrize(
    "words,offered",
    [
        ("aiocontroller sys", ["systemd-unit"]),
        ("aiocontroller topics d", ["delete", "describe"]),
        ("aiocontroller run --log-f", ["--log-format"]),
        ("aiocontroller run --log-format ''", ["text", "json"]),
        ("aiocontroller completion z", ["zsh"]),
    ],
)
def test_bash_completes(path: str, tmp_path: Path, words: str, offered: list[str]) -> None:
    assert completed(path, words, tmp_path) == offered


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on PATH")
def test_bash_completes_every_command(path: str, tmp_path: Path) -> None:
    assert completed(path, "aiocontroller ''", tmp_path) == list(COMMANDS)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash on PATH")
def test_a_command_that_there_is_not_prints_no_error_into_the_line(path: str, tmp_path: Path) -> None:
    assert completed(path, "aiocontroller nonsense x", tmp_path) == []


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.skipif(shutil.which("bash") is None, reason="click asks bash for its version")
def test_each_shell_has_a_script_that_the_shell_can_read(shell: str) -> None:
    printed = CliRunner().invoke(completion, [shell])
    assert printed.exit_code == 0
    assert "_AIOCONTROLLER_COMPLETE=" in printed.output
    if shutil.which(shell) is not None:
        read = subprocess.run([shell, "-n"], input=printed.output, capture_output=True, text=True, check=False)
        assert (read.returncode, read.stderr) == (0, "")


def test_another_shell_is_refused_by_name() -> None:
    refused = CliRunner().invoke(completion, ["tcsh"])
    assert refused.exit_code == 2
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in refused.output
