"""Campaigns that go round by round: what is rare, and where neighbours of earlier runs are drawn."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import msgspec
import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.scenarios.forks import parse_forks, recipe
from aiocontroller.lab.scenarios.plan import draw
from aiocontroller.lab.simulation import course
from aiocontroller.lab.simulation.campaign import run_course, run_zoo
from aiocontroller.lab.simulation.course import FIRST_NEIGHBOUR, LEADS, ROUND, Course, Task
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.results import Results
from aiocontroller.lab.simulation.simulation import simulate_plan

AT = 500
"""The await points before a mark."""


def made_up(task: Task, *marks: str) -> SimulationReport:
    reached = ("common", *marks)
    rare = {mark: AT for mark in reached if mark not in task.common}
    return SimulationReport(task.seed, [], 1.0, 2, 3, 4, 2 * AT, {}, dict.fromkeys(reached, 1), "", task.forks, rare)


def played(steered: Course, reports: Callable[[Task], SimulationReport]) -> list[list[Task]]:
    rounds = []
    while tasks := steered.round():
        rounds.append(tasks)
        steered.learn([reports(task) for task in tasks])
    return rounds


def seed_7_is_rare(task: Task) -> SimulationReport:
    return made_up(task, *(["rare"] if task.recipe == "7" else []))


def random_marks(task: Task) -> SimulationReport:
    chance = random.Random(task.recipe)
    return made_up(task, *(f"mark {n}" for n in range(20) if chance.random() < 1 / (n + 2) ** 2))


def test_neighbours_repeat_the_run_that_reached_a_rare_mark_up_to_shortly_before_it() -> None:
    first, second = played(Course(range(1, 1 + 2 * ROUND), steer=50), seed_7_is_rare)
    assert [task.recipe for task in first] == [str(seed) for seed in range(1, ROUND + 1)]
    assert [task.recipe for task in second[:ROUND]] == [str(seed) for seed in range(ROUND + 1, 2 * ROUND + 1)]
    neighbours = second[ROUND:]
    assert len(neighbours) == ROUND
    assert {task.common for task in second} == {frozenset({"common"})}
    for task in neighbours:
        [fork] = parse_forks(task.forks)
        assert task.seed == 7
        assert AT - fork.at_await in LEADS
        assert fork.branch > FIRST_NEIGHBOUR
    assert len({task.recipe for task in neighbours}) == ROUND


@pytest.mark.parametrize("steer, neighbours", [(0, 0), (20, ROUND // 4), (75, 3 * ROUND)])
def test_a_share_of_the_runs_are_neighbours(steer: int, neighbours: int) -> None:
    second = played(Course(range(1, 1 + 2 * ROUND), steer=steer), seed_7_is_rare)[1]
    assert len(second) == ROUND + neighbours


def test_a_mark_that_many_runs_have_reached_is_not_rare_any_more() -> None:
    def reports(task: Task) -> SimulationReport:
        return made_up(task, *(["rare"] if task.seed == 7 else []))

    second, third = played(Course(range(1, 1 + 3 * ROUND), steer=50), reports)[1:]
    assert (len(second), len(third)) == (2 * ROUND, ROUND)
    assert "rare" in third[0].common


def test_a_neighbour_that_reaches_something_rare_after_its_fork_has_neighbours() -> None:
    def reports(task: Task) -> SimulationReport:
        if task.recipe == "7":
            return made_up(task, "rare")
        is_first = task.forks.endswith(f":{FIRST_NEIGHBOUR + 1}")
        found = made_up(task, *(["rarer"] if is_first else []))
        return msgspec.structs.replace(found, rare={"rarer": AT + 9, "before the fork": 1}) if is_first else found

    third = played(Course(range(1, 1 + 3 * ROUND), steer=50), reports)[2]
    forks = [parse_forks(task.forks) for task in third if task.forks]
    assert {len(each) for each in forks} == {1, 2}
    assert {each[0].branch for each in forks if len(each) == 2} == {FIRST_NEIGHBOUR + 1}
    assert all(each[0].at_await < each[1].at_await <= AT + 9 for each in forks if len(each) == 2)


def test_rounds_follow_from_the_options_and_earlier_rounds() -> None:
    """A longer campaign begins with all the runs of a shorter one."""
    whole = played(Course(range(1, 1 + 4 * ROUND), steer=50), random_marks)
    assert whole == played(Course(range(1, 1 + 4 * ROUND), steer=50), random_marks)
    assert whole != played(Course(range(2, 2 + 4 * ROUND), steer=50), random_marks)
    shorter = played(Course(range(1, 1 + 3 * ROUND + 8), steer=50), random_marks)
    assert shorter[:3] == whole[:3]
    assert 8 < len(shorter[3]) <= 16
    assert set(shorter[3]) < set(whole[3])


# -- on simulations ----------------------------------------------------------------------------------------------------


@cache
def steered(jobs: int) -> dict[str, SimulationReport]:
    size, course.ROUND = course.ROUND, 2
    arrived: list[SimulationReport] = []
    try:
        summary, _ = run_course(Course(range(2, 6), steer=50), jobs, lambda _, report: arrived.append(report))
    finally:
        course.ROUND = size
    assert (summary.seeds, summary.forked, summary.failures) == (4, 2, {})
    return {report.recipe: report for report in arrived}


def test_a_steered_campaign_is_the_same_on_any_number_of_processes() -> None:
    one, two = steered(1), steered(2)
    assert set(one) == set(two)
    assert all(report.same(two[name]) and report.rare == two[name].rare for name, report in one.items())


def test_neighbours_replay_from_their_recipes() -> None:
    neighbours = [report for report in steered(1).values() if report.forks]
    for report in neighbours:
        assert report.same(simulate_plan(msgspec.structs.replace(draw(report.seed), forks=report.forks)))
        assert report.digest != steered(1)[recipe(report.seed, "")].digest


def test_results_know_whether_a_campaign_is_steered(tmp_path: Path) -> None:
    with Results(tmp_path / "results", 1, 3, steer=50):
        pass
    with pytest.raises(BadInputError, match="--steer 50"):
        Results(tmp_path / "results", 1, 3)


def test_the_zoo_counts_processor_seconds_with_and_without_steering() -> None:
    for options in ({}, {"branch": 1, "steer": 50}):
        [hunt] = run_zoo(1, only=["the ISR is emptied"], tries=1, most=30, **options)
        assert hunt.found == 1
        assert hunt.cpu_s_per_find == round(hunt.cpu_s[0], 1) > 0
