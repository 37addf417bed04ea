"""A short storm of real processes; and whether one would tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from aiocontroller.java import JavaMissingError, find_java, zookeeper_class_path
from aiocontroller.lab.processes.cluster import Shape
from aiocontroller.lab.processes.page import page
from aiocontroller.lab.scenarios.plan import ScenarioStep
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.storms import soak as soaks
from aiocontroller.lab.storms.processes import Storm, draw_round

pytestmark = [pytest.mark.timeout(300), pytest.mark.zookeeper]


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        find_java(), zookeeper_class_path()
    except JavaMissingError as error:
        pytest.skip(str(error))


async def test_a_round_of_faults_violates_nothing(tmp_path: Path) -> None:
    verdict = await Storm(Shape(data_dir=tmp_path), seed=3, seconds=1).run()
    assert verdict.violations == [], f"again: aiocontroller storm processes --seed 3 --minutes 0.1; {tmp_path}"
    assert verdict.rounds == 1
    assert all(verdict.examined.values()), verdict.examined
    assert verdict.failovers >= 1
    shown = page(verdict)
    assert "no violation" in shown
    assert shown.count("<rect") > len(verdict.moments)


SPLIT = """
create-topic orders 1,2
expect leader orders-0 1
block 1 then=0
expect leader orders-0 3
"""


async def test_an_expectation_that_fails_is_a_violation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aiocontroller.lab.processes.steps.EXPECT_WITHIN_S", 1.0)
    steps = parse_scenario(SPLIT).steps
    verdict = await Storm(Shape(data_dir=tmp_path, brokers=2), seed=1, seconds=1, steps=steps).run()
    assert [violation.partition(", found")[0] for violation in verdict.violations] == ["expected leader orders-0 3"]


def test_rounds_are_drawn_from_seed_and_number_alone() -> None:
    assert draw_round(5, 2) == draw_round(5, 2)
    assert draw_round(5, 2) != draw_round(5, 3)
    assert all(isinstance(step, ScenarioStep) for step in draw_round(5, 2))


async def test_a_short_soak_measures_processes_that_live_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soaks, "PAUSING_S", 0.2)
    monkeypatch.setattr(soaks, "LEAST_ROUNDS", 4)
    verdict = await soaks.Soak(Shape(data_dir=tmp_path), 1, 1.0, progress=print).soak()
    wrong = [violation for violation in verdict.violations if " grew from " not in violation]  # nothing is warm yet
    assert wrong == [], f"again: aiocontroller storm soak --seed 1; {tmp_path}"
    assert verdict.rounds == 4
    assert len(verdict.courses) == len(soaks.rows(verdict)) == 2 * len(soaks.LIMITS)
    held = {course.what: course.largest for course in verdict.courses}
    assert 20 < held["memory_mib"] < 500
    assert held["descriptors"] > 5
    assert held["watches"] > 0
    assert held["tasks"] > 3


async def test_a_soak_notices_a_controller_that_was_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soaks, "SOAKING", {"wait": 1, "kill_controller": 10, "start_controller": 10})
    monkeypatch.setattr(soaks, "PAUSING_S", 0.2)
    verdict = await soaks.Soak(Shape(data_dir=tmp_path, brokers=1), 1, 1.0, progress=print).soak()
    assert any("has another process than at the start" in violation for violation in verdict.violations)
