"""The exercise of docs/writing-a-scenario.md: one file for the simulation, a transcript and the differential tests.

``test_scenarios.py`` plays it in the simulation, ``tests/differential`` beside Kafka's own controller.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiocontroller.lab import virtual_loop
from aiocontroller.lab.scenarios.plan import Plan
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.scenarios.verbs import played_by, verb_of
from aiocontroller.lab.simulation.playing import play
from aiocontroller.lab.simulation.steps.steps import Steps
from tests.differential import steps as differential
from tests.differential.scenarios import NAMED, SHARED
from tests.transcripts.recorded_cluster import RecordedCluster

pytestmark = pytest.mark.timeout(60, method="thread")  # a signal would be lost in the loop's callbacks

ROOT = Path(__file__).parents[2]
FILE = ROOT / "tests" / "scenarios" / "maintenance.txt"
PAGE = ROOT / "docs" / "writing-a-scenario.md"


async def transcript(plan: Plan) -> list[str]:
    """What is printed after all lines; the ``cluster`` line starts brokers and one controller."""
    lines = [" ".join((verb_of(step.kind), *step.arguments)) for step in plan.steps]
    ids = " ".join(str(broker) for broker in range(1, plan.brokers + 1))
    async with RecordedCluster() as cluster:
        return [
            answer
            for line in (f"start-broker {ids}", "start-controller", *lines)
            for answer in await cluster.play(line)
        ]


def violations(text: str) -> tuple[list[str], list[str]]:
    """In the simulation and in the transcript."""
    plan = parse_scenario(text)
    report, _ = play(plan)
    lines = virtual_loop.run(transcript(plan))
    return report.violations, [line for line in lines if line.startswith("VIOLATION")]


def test_every_place_plays_all_its_verbs_and_has_it() -> None:
    verbs = {verb_of(step.kind) for step in parse_scenario(FILE.read_text(encoding="utf-8")).steps}
    for place in (Steps, RecordedCluster, differential):
        assert verbs - set(played_by(place)) == set(), place
    assert [found.name for found in SHARED] == [FILE.stem]
    assert {found.name for found in SHARED} <= {found.name for found in NAMED}


def test_one_file_holds_in_the_simulation_and_as_a_transcript() -> None:
    assert violations(FILE.read_text(encoding="utf-8")) == ([], [])


@pytest.mark.parametrize(
    "right, wrong",
    [
        ("catch-up orders-1\nexpect isr", "expect isr"),
        ("reassign orders-0 2,3", "reassign orders-0 2,4"),
        ("expect leader orders-1 2", "expect leader orders-1 1"),
    ],
)
def test_a_wrong_line_is_noticed(right: str, wrong: str) -> None:
    text = FILE.read_text(encoding="utf-8")
    assert right in text
    changed = parse_scenario(text.replace(right, wrong))
    lines = virtual_loop.run(transcript(changed))
    assert [line for line in lines if line.startswith("VIOLATION")] != []


def test_the_page_shows_the_file() -> None:
    shown = re.findall(r"```text\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert FILE.read_text(encoding="utf-8") in shown
