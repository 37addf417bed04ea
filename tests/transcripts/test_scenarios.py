"""Scenario files: each ends without a violation; and the pages of the headline scenarios show what comes out.

``REWRITE=1 scripts/test tests/transcripts`` writes what comes out now into the pages: then read the difference.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from aiocontroller.lab.processes.steps import ProcessSteps
from aiocontroller.lab.scenarios.arguments import StepArgumentError
from aiocontroller.lab.scenarios.plan import BY_HAND, DATA_FAULTS, DETECTION_FAULTS, KINDS, ROLLS, SETTING_CHANGES, draw
from aiocontroller.lab.scenarios.scenario import ScenarioError, format_scenario, parse_scenario
from aiocontroller.lab.scenarios.shapes import NO_WORDS
from aiocontroller.lab.scenarios.verbs import VERBS, Verb, _by_name, played_by, verb_of
from aiocontroller.lab.simulation.playing import play
from aiocontroller.lab.simulation.steps.steps import Steps
from aiocontroller.lab.storms.processes import WEIGHTS
from tests.scenario_places import verbs_by_place

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "tests" / "scenarios").glob("*.txt"))
PAGES = sorted((ROOT / "docs" / "scenarios").glob("*.md"))
BLOCK = re.compile(r"```text\n.*?```", re.DOTALL)


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.stem)
def test_scenario(file: Path) -> None:
    """What it expects comes about, nothing is violated; and its page, if it has one, says what happens."""
    text = file.read_text(encoding="utf-8")
    report, lines = play(parse_scenario(text, file.name))
    assert report.violations == [], f"again: aiocontroller simulate --scenario {file.relative_to(ROOT)}"
    page = ROOT / "docs" / "scenarios" / f"{file.stem}.md"
    if not page.exists():
        return
    written = page.read_text(encoding="utf-8")
    run = "\n".join(lines) + "\n"
    shown = BLOCK.sub(lambda _: f"```text\n{run}```", written)
    if os.environ.get("REWRITE"):
        page.write_text(shown, encoding="utf-8")
        return
    assert shown == written


def test_every_page_has_its_file_and_is_listed() -> None:
    assert {page.stem for page in PAGES} <= {file.stem for file in FILES}
    listed = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if f"scenarios/{page.name}" not in listed] == []


def test_places_play_verbs_of_the_one_table_and_no_others() -> None:
    playing = verbs_by_place()
    assert {letter: verbs - VERBS.keys() for letter, verbs in playing.items()} == {letter: set() for letter in playing}
    assert VERBS.keys() - set().union(*playing.values()) == set()


def test_a_second_meaning_of_a_verb_is_refused() -> None:
    verbs = [Verb("stop-broker", NO_WORDS, "a controlled shutdown"), Verb("stop-broker", NO_WORDS, "gone at once")]
    with pytest.raises(ValueError, match="stop-broker: found two meanings, 'a controlled shutdown' and 'gone at once'"):
        _by_name(verbs)


def test_every_kind_that_is_drawn_is_a_verb_and_is_played() -> None:
    drawn = {verb_of(kind) for kind in (*KINDS, *DETECTION_FAULTS, *BY_HAND, *ROLLS, *SETTING_CHANGES, *DATA_FAULTS)}
    assert drawn - set(played_by(Steps)) == set()
    assert {verb_of(kind) for kind in WEIGHTS} - set(played_by(ProcessSteps)) == set()


@pytest.mark.parametrize("seed", range(1, 30))
def test_a_drawn_plan_survives_being_written(seed: int) -> None:
    plan = draw(seed)
    assert parse_scenario(format_scenario(plan, ["a remark"])) == plan


def test_an_expectation_that_fails_is_a_violation() -> None:
    text = "cluster brokers=2\ncreate-topic t 1,2\nexpect leader t-0 2\n"
    report, _ = play(parse_scenario(text))
    assert report.violations == ["expected leader t-0 2, found 1"]


@pytest.mark.parametrize(
    "text, named",
    [
        ("kill-brokr 1", "line 1: found 'kill-brokr', expected a verb"),
        ("\ncluster brokers=many", "line 2: found 'brokers=many', expected such as seed=1, brokers=3"),
        ("wait 1 then=soon", "line 1: found 'wait 1 then=soon', expected numbers in seed= and then="),
    ],
)
def test_a_line_that_makes_no_sense_is_named(text: str, named: str) -> None:
    with pytest.raises(ScenarioError, match=re.escape(named)):
        parse_scenario(text)


@pytest.mark.parametrize(
    "line, named",
    [
        ("kill-broker 9", "found 9, expected one of 1, 2, 3"),
        ("wait long", "found 'long', expected a number of seconds"),
        ("create-topic t 1;2", "found '1;2', expected broker ids such as 1,2,3"),
        ("expect weather fine", "expect weather fine: found no such form"),
        ("reassign t-0", "reassign t-0 seed=1 then=1: "),
        ("rewrite-controller-epoch high", "rewrite-controller-epoch high seed=1 then=1: "),
        ("heal everything", "heal everything seed=1 then=1: found 'everything', expected nothing more"),
        ("fill-disk active", "fill-disk active seed=1 then=1: found a verb that simulations do not play"),
    ],
)
def test_a_word_that_makes_no_sense_is_named(line: str, named: str) -> None:
    with pytest.raises(StepArgumentError, match=re.escape(named)):
        play(parse_scenario(line))
