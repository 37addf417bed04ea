"""The drawn state machines are the ones that run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from aiocontroller.core.states import PartitionState, ReplicaState

ROOT = Path(__file__).parents[3]


def make_diagrams(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "scripts/_make_diagrams.py", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_page_is_current() -> None:
    checked = make_diagrams("--check")
    assert checked.returncode == 0, checked.stderr


def test_every_state_is_on_the_page() -> None:
    page = (ROOT / "docs" / "state-machines.md").read_text(encoding="utf-8")
    for state in (*PartitionState, *ReplicaState):
        assert f"| {state.name} | {int(state)} |" in page


def test_unknown_arguments_are_refused() -> None:
    assert make_diagrams("--chek").returncode == 2
