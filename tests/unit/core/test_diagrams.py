"""The drawn state machines and sequences are the ones that run."""

from __future__ import annotations

import re

from aiocontroller.core.states import PartitionState, ReplicaState
from tests.unit.generated_pages import ROOT, make


def test_the_pages_are_current() -> None:
    checked = make("_make_diagrams.py", "--check")
    assert checked.returncode == 0, checked.stderr


def test_every_state_is_on_the_page() -> None:
    page = (ROOT / "docs" / "state-machines.md").read_text(encoding="utf-8")
    for state in (*PartitionState, *ReplicaState):
        assert f"| {state.name} | {int(state)} |" in page


def test_the_sequences_show_what_their_text_promises() -> None:
    page = (ROOT / "docs" / "sequences.md").read_text(encoding="utf-8")
    sections = {text.partition("\n")[0]: text for text in page.split("\n## ")[1:]}
    dies = sections["A broker dies"]
    first = [
        dies.index(line) for line in ("C1->>Z: check the fence", "C1->>B2: LEADER", "B2-->>C1: done", "C1->>B3: LE")
    ]
    assert first == sorted(first), "the new leader answers before the other replica hears"
    wakes = sections["A deposed controller wakes up"]
    resigned = re.search(r"(C\d): resigned", wakes)
    assert resigned is not None
    old = resigned[1]
    refused = [
        wakes.index(f"{old}->>B2: LEADER"),
        wakes.index(f"B2-->>{old}: STALE_CONTROLLER_EPOCH"),
        resigned.start(),
    ]
    assert refused == sorted(refused), "the broker refuses what was decided before, and the controller resigns"
    early = sections["Early detection"]
    assert early.index("leader 2") < early.index("broker 1 is gone")
    assert sections["A reassignment"].index("ISR 1,2,4\n") < sections["A reassignment"].index("B3: STOP_REPLICA")


def test_unknown_arguments_are_refused() -> None:
    assert make("_make_diagrams.py", "--chek").returncode == 2
