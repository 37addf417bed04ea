"""The README's tour, typed as it stands there, as fast as a shell can."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.integration.cli.test_up import Up, java, started, until  # noqa: F401  # fixtures

README = Path(__file__).parents[3] / "README.md"
ACTIVATE = ". .venv/bin/activate"
DESCRIBE = "aiocontroller topics describe orders"


def tour() -> list[str]:
    text = README.read_text(encoding="utf-8")
    section = text[text.index("## A tour from a second terminal") : text.index("Every command has `--help`")]
    first, *commands = re.findall(r"^    (.+?)(?: +# .*)?$", section, re.MULTILINE)
    assert first == ACTIVATE
    return commands


class Row(NamedTuple):
    """Of ``topics describe``."""

    partition: int
    leader: int
    epoch: int
    replicas: str
    isr: str

    def names(self, broker: int) -> bool:
        return self.leader == broker or str(broker) in self.isr.split(",")


def described(output: str) -> list[Row]:
    found = (row.split() for row in output.splitlines() if re.match(r" +\d+ ", row))
    return [Row(int(at), int(leader), int(epoch), *lists) for at, leader, epoch, *lists in found if len(lists) == 2]


def run(command: str, folder: Path) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.mark.zookeeper
@pytest.mark.timeout(240)
def test_the_tour_shows_what_it_says(started: Callable[..., Up], tmp_path: Path) -> None:  # noqa: F811
    assert started().line()["event"] == "ready"
    (tmp_path / ".aiocontroller").symlink_to("data")  # where commands look for the cluster
    tables = []
    for command in tour():
        rows = described(run(command, tmp_path))
        if "start-broker" in command:  # a person takes as long to type
            until(lambda: all(len(row.isr) == len(row.replicas) for row in described(run(DESCRIBE, tmp_path))))
        if DESCRIBE in command:
            tables.append(rows)
        if len(tables) == 2 and DESCRIBE in command:  # broker 2 was killed
            until(lambda: all(not row.names(2) and row.epoch >= 1 for row in described(run(DESCRIBE, tmp_path))))
    assert [row.epoch for row in tables[0]] == [0] * 6
    assert tables[2][0].replicas == "2,1"
