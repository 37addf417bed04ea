"""Versions of this program to run side by side: this version, an earlier commit, or an installed one.

An earlier commit's sources run on the libraries of this environment, so its lock file must be the same.  Any other
version must be installed in its own environment, and is named by the path of its program.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from aiocontroller.core.errors import AioControllerError

PREVIOUS = "315b01b2a8e969eb6023a626c90b74ceafc68a4c"
"""The commit used as the previous version until there is a release: the last one of 25 November 2026, which has no
page, no actions and no znodes of instances."""
LOCKED = "requirements/run.txt"
ROOT = Path(__file__).resolve().parents[3]


class ProgramMissingError(AioControllerError):
    """The version cannot be run here; the message gives the reason."""


class Program(NamedTuple):
    """How to start one version."""

    name: str
    """The name shown in reports."""
    command: tuple[str, ...]
    """The command line up to the name of a command of ``aiocontroller``."""
    env: Mapping[str, str]
    """Environment variables in addition to those of this process."""


THIS = Program("this version", (sys.executable, "-m", "aiocontroller"), {})


def chosen(text: str, folder: Path) -> Program:
    """Return the program that ``text`` names: the path of an installed ``aiocontroller``, or a commit of this checkout.

    Sources are put into ``folder``.  Raises ProgramMissingError.
    """
    return installed(Path(text)) if "/" in text and Path(text).exists() else of_revision(text, folder)


def installed(path: Path) -> Program:
    """Return an installed program, which has its own environment.  Raises ProgramMissingError."""
    try:
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise ProgramMissingError(f"{path}: {error.strerror}") from None
    if asked.returncode != 0 or not asked.stdout.startswith("aiocontroller"):
        raise ProgramMissingError(f"{path}: found {asked.stdout or asked.stderr!r}, expected the program aiocontroller")
    return Program(f"{path}, {asked.stdout.strip()}", (str(path.absolute()),), {})


def of_revision(revision: str, folder: Path, root: Path = ROOT) -> Program:
    """Return a commit of the checkout at ``root``, its sources put into ``folder``.  Raises ProgramMissingError."""
    commit = _git(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
    if not commit:
        raise ProgramMissingError(f"{revision}: found no such commit in {root}, and no program of this path")
    if _locked(_git(root, "show", f"{commit}:{LOCKED}")) != _locked((root / LOCKED).read_bytes()):
        raise ProgramMissingError(
            f"{revision} locks other libraries than this checkout ({LOCKED}): "
            "install it into an environment of its own, and name that environment's bin/aiocontroller"
        )
    sources = folder / commit[:12]
    with tarfile.open(fileobj=io.BytesIO(_git(root, "archive", "--format=tar", commit, "aiocontroller"))) as archive:
        archive.extractall(sources, filter="data")
    described = _git(root, "show", "--no-patch", "--format=%h of %cs", commit).decode().strip()
    # -P: do not import the package from the current folder
    return Program(described, (sys.executable, "-P", "-m", "aiocontroller"), {"PYTHONPATH": str(sources.absolute())})


def _locked(text: bytes) -> frozenset[bytes]:
    """Return the locked versions, without hashes and comments."""
    return frozenset(re.findall(rb"^[^\s#]+==[^\s;]+", text, re.MULTILINE))


def _git(root: Path, *arguments: str) -> bytes:
    """Return git's output; empty if it finds nothing.  Raises ProgramMissingError without git or a checkout."""
    try:
        asked = subprocess.run(["git", "-C", root, *arguments], capture_output=True, check=False)
    except OSError as error:
        raise ProgramMissingError(f"git: {error.strerror}") from None
    if b"not a git repository" in asked.stderr:
        raise ProgramMissingError(f"{root} is no checkout, so it has no earlier commits")
    return asked.stdout
