"""Other versions of the program: what they are taken from, and what is refused."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from aiocontroller.lab.kafka.programs import (
    LOCKED,
    THIS,
    Program,
    ProgramMissingError,
    chosen,
    installed,
    of_revision,
)


def git(root: Path, *arguments: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "commit.gpgsign=false", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", "-C", root, *who, *arguments], check=True, capture_output=True)


def commit(root: Path, says: str, locked: str) -> None:
    package = root / "aiocontroller"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(f"import click, sys; print({says!r}, sys.argv[1:])\n")
    (root / LOCKED).parent.mkdir(exist_ok=True)
    (root / LOCKED).write_text(locked)
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", says)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Three commits, the first of which is tagged and has other libraries; the others differ in a remark."""
    root = tmp_path / "checkout"
    root.mkdir()
    git(root, "init", "-q")
    commit(root, "first", "a==1")
    git(root, "tag", "v1")
    commit(root, "second", "a==2 --hash=sha256:1  # via b")
    commit(root, "third", "a==2  # via c")
    return root


def output_of(program: Program, folder: Path) -> str:
    command = [*program.command, "run", "--x"]
    env = {**os.environ, **program.env}
    return subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True).stdout


def test_an_earlier_commit_runs_its_own_sources_wherever_it_is_started(checkout: Path, tmp_path: Path) -> None:
    program = of_revision("HEAD~1", tmp_path / "sources", checkout)
    assert output_of(program, checkout) == "second ['run', '--x']\n"
    assert (
        program.name.split(" of ")[0]
        == subprocess.run(
            ["git", "-C", checkout, "rev-parse", "--short", "HEAD~1"], capture_output=True, text=True, check=True
        ).stdout.strip()
    )
    assert output_of(of_revision("HEAD", tmp_path / "sources", checkout), checkout) == "third ['run', '--x']\n"


def test_a_commit_with_other_libraries_is_refused(checkout: Path, tmp_path: Path) -> None:
    with pytest.raises(ProgramMissingError, match=r"^v1 locks other libraries than this checkout"):
        of_revision("v1", tmp_path / "sources", checkout)


@pytest.mark.parametrize("revision", ["nosuch", "HEAD~99", "--help", "a b"])
def test_what_is_no_commit_is_named(checkout: Path, tmp_path: Path, revision: str) -> None:
    with pytest.raises(ProgramMissingError, match=rf"^{revision}: found no such commit"):
        of_revision(revision, tmp_path / "sources", checkout)


def test_without_a_checkout_there_are_no_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    (tmp_path / "installed").mkdir()
    with pytest.raises(ProgramMissingError, match="is no checkout"):
        of_revision("HEAD", tmp_path / "sources", tmp_path / "installed")


def test_an_installed_program_is_named_by_its_path(tmp_path: Path) -> None:
    program = tmp_path / "aiocontroller"
    program.write_text("#!/bin/sh\necho aiocontroller, version 0.0.9\n")
    program.chmod(0o755)
    assert chosen(str(program), tmp_path) == Program(
        f"{program}, aiocontroller, version 0.0.9", (str(program),), THIS.env
    )


def test_a_program_that_is_another_one_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "x"
    program.write_text("#!/bin/sh\necho something else\n")
    with pytest.raises(ProgramMissingError, match="Permission denied"):
        installed(program)
    program.chmod(0o755)
    with pytest.raises(ProgramMissingError, match="found 'something else\\\\n', expected the program aiocontroller"):
        chosen(str(program), tmp_path)
