"""Scenarios as transcripts: a command, ``----``, what came out, an empty line.

``REWRITE=1 scripts/test tests/transcripts`` writes what comes out now into the files: then read the difference.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import pytest

from aiocontroller.lab import virtual_loop
from tests.transcripts.recorded_cluster import RecordedCluster

pytestmark = pytest.mark.timeout(60, method="thread")  # a signal would be lost in the loop's callbacks

SCRIPTS = sorted((Path(__file__).parents[1] / "scripts").glob("*.txt"))


class Step(NamedTuple):
    comment: list[str]
    """Lines above the command: they begin with # and are kept."""
    command: str
    output: list[str]


def parse(text: str) -> list[Step]:
    steps = []
    for block in text.strip("\n").split("\n\n"):
        lines = block.splitlines()
        comment = [line for line in lines if line.startswith("#")]
        command, *rest = lines[len(comment) :] or [""]
        steps.append(Step(comment, command, rest[1:]))
    return steps


def show(steps: list[Step]) -> str:
    blocks = ["\n".join([*s.comment, *([s.command, "----", *s.output] if s.command else [])]) for s in steps]
    return "\n\n".join(blocks) + "\n"


async def play(steps: list[Step]) -> list[Step]:
    async with RecordedCluster() as cluster:
        return [s._replace(output=await cluster.play(s.command)) if s.command else s for s in steps]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_transcript(script: Path) -> None:
    written = script.read_text(encoding="utf-8")
    steps = parse(written)
    played = show(virtual_loop.run(play(steps)))
    if os.environ.get("REWRITE"):
        script.write_text(played, encoding="utf-8")
        return
    assert played == written
