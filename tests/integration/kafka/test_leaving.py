"""The migration that docs/leaving.md lets the reader try, typed as it stands there, prints what stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from aiocontroller.lab.cluster.real_kafka import DEFAULT_VERSION, kafka_missing
from tests.integration.cli.test_up import Up, java, started  # noqa: F401  # fixtures

PAGE = Path(__file__).parents[3] / "docs" / "leaving.md"
READING = ("migration check", "migration status", "topics list")
"""Commands that are repeated until they print what stands there, as a reader does who waits."""
WITHIN_S = 90.0
CODES = {"migration check": (0, 3), "migration rollback": (0, 1)}
"""Exit codes of commands that may find something or refuse: what they print is compared."""


class Typed(NamedTuple):
    command: str
    shown: str


def typed() -> tuple[str, list[Typed]]:
    """Return the command of the first terminal, and those of the second one with the output that the page shows."""
    section = PAGE.read_text(encoding="utf-8").partition("\n## Try it on one machine\n")[2].partition("\n## ")[0]
    first, *blocks = re.findall(r"^    .+\n(?:    .+\n|\n(?=    ))*", section, re.MULTILINE)
    lines = [line.removeprefix("    ") for block in blocks for line in block.rstrip("\n").split("\n")]
    commands: list[Typed] = []
    for line in lines:
        if line.startswith("$ "):
            commands.append(Typed(line.removeprefix("$ "), ""))
        else:
            commands[-1] = Typed(commands[-1].command, f"{commands[-1].shown}{line}\n")
    return first.strip(), commands


def agrees(shown: str, printed: str) -> bool:
    """Whether this was printed; ``…`` stands for anything within a line, and alone for any number of lines."""
    parts = re.split(r"^…\n", shown, flags=re.MULTILINE)
    pattern = r"(?:.*\n)*".join(".*".join(map(re.escape, part.split("…"))) for part in parts)
    return re.fullmatch(re.sub(r"(?:\\ )+", " +", pattern), printed) is not None


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "250"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
        check=False,
    )
    codes = next((codes for words, codes in CODES.items() if words in command), (0,))
    assert done.returncode in codes, (command, done.stdout)
    return done.stdout


def test_what_stands_for_anything_and_what_does_not() -> None:
    assert agrees("a … c\n…\nd  e\n", "a b b c\nx\ny\nd e\n")
    assert agrees("…\nd.\n", "d.\n")
    assert not agrees("…\nd.\n", "d.\ne\n")
    assert not agrees("a … c\n", "a b\nc\n")
    assert not agrees("d.\n", "dx\n")


@pytest.mark.kafka
@pytest.mark.slow_kafka
@pytest.mark.timeout(1500)
def test_the_reader_gets_what_the_page_shows(
    kafka_version: str,
    started: Callable[..., Up],  # noqa: F811
    tmp_path: Path,
) -> None:
    if kafka_version != DEFAULT_VERSION:
        pytest.skip("3.9 is the release to migrate from")
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    up, commands = typed()
    assert len(commands) > 20
    assert up.startswith("scripts/up --kafka 3.9")
    ready = started(*up.split()[1:]).line()
    assert ready["event"] == "ready", json.dumps(ready)
    (tmp_path / ".aiocontroller").symlink_to("data")  # where commands look for the cluster
    for command, shown in commands:
        line = command.replace("BROKER", ready["bootstrap"].partition(",")[0])
        deadline = time.monotonic() + WITHIN_S
        while not agrees(shown, printed := run(line, tmp_path)):
            waits = any(words in command for words in READING) and time.monotonic() < deadline
            assert waits, f"$ {command}\n{printed}\nThe page shows:\n{shown}"
            time.sleep(0.5)
