"""The manual page and the completions that wheels install are made from the commands."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from aiocontroller.cli.root import COMMANDS
from tests.unit.generated_pages import ROOT, make

SHARE = ROOT / "distribution" / "share"
MANUAL = SHARE / "man" / "man1" / "aiocontroller.1"


def test_they_are_current() -> None:
    checked = make("_make_man.py", "--check")
    assert checked.returncode == 0, checked.stderr


def test_unknown_arguments_are_refused() -> None:
    assert make("_make_man.py", "--chek").returncode == 2


def test_every_command_is_there_and_roff_is_plain_ascii() -> None:
    text = MANUAL.read_text(encoding="ascii")
    headings = {heading.replace("\\-", "-") for heading in re.findall(r'^\.SS "(.+)"$', text, re.MULTILINE)}
    for name in COMMANDS:
        assert any(f"{heading} ".startswith(f"aiocontroller {name} ") for heading in headings), name


@pytest.mark.skipif(shutil.which("groff") is None, reason="no groff on PATH")
def test_groff_has_no_warning() -> None:
    checked = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", str(MANUAL)], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("man") is None, reason="no man on PATH")
def test_man_shows_it_as_it_shows_others() -> None:
    shown = subprocess.run(
        ["man", "--warnings", "-l", str(MANUAL)],
        env={"PATH": "/usr/bin:/bin", "MANWIDTH": "120", "MAN_KEEP_FORMATTING": "", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    text = re.sub(".\b", "", shown.stdout)
    assert "aiocontroller - the controller of a ZooKeeper-mode Kafka cluster" in text
    assert "--log-format [text|json]" in text
    assert "EXIT STATUS" in text
