"""A run forks into several futures at a rare mark, and each of them replays from its recipe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.cli.simulate import simulate as command
from aiocontroller.lab.scenarios.forks import parse_forks
from aiocontroller.lab.scenarios.plan import Plan, draw
from aiocontroller.lab.scenarios.scenario import format_scenario, parse_scenario
from aiocontroller.lab.simulation import course, simulation
from aiocontroller.lab.simulation.branching import Branching
from aiocontroller.lab.simulation.campaign import HASH_SEEDS, Summary, digest_elsewhere, replay, run_course, shrink_seed
from aiocontroller.lab.simulation.chance import Lookout
from aiocontroller.lab.simulation.course import Course
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.results import Results, merge
from aiocontroller.lab.simulation.simulation import Simulation, simulate, simulate_plan
from aiocontroller.lab.virtual_loop import run

SEED = 14
FUTURES = 2
FIRST = 137
"""From here on, and at ``SEED``, are seeds without logs and with few steps: each test runs several, or one several
times."""


@cache
def first_reached(seed: int) -> dict[str, int]:
    """Return the marks of a seed in their order, and the await points before them."""
    report = run(Simulation(draw(seed), lookout=Lookout(())).run())
    return dict(sorted(report.rare.items(), key=lambda item: item[1]))


def all_but_one(seed: int) -> set[str]:
    """Let one mark be rare, which the seed reaches about in the middle."""
    marks = list(first_reached(seed))
    return set(marks) - {marks[len(marks) // 2]}


@cache
def branched(seed: int = SEED) -> list[SimulationReport]:
    return Branching(draw(seed), all_but_one(seed), FUTURES).run()


def test_a_rare_mark_has_several_futures() -> None:
    *futures, itself = branched()
    assert itself.same(simulate(SEED))
    assert [parse_forks(future.forks)[-1].branch for future in futures] == list(range(1, FUTURES + 1))
    assert len({future.digest for future in (*futures, itself)}) == FUTURES + 1
    assert all(future.steps != itself.steps for future in futures), "other steps are taken"
    [fork, *_] = {parse_forks(future.forks)[-1].at_await for future in futures}
    assert fork in {number + 1 for number in first_reached(SEED).values()}


@pytest.mark.parametrize("future", range(FUTURES))
def test_a_future_replays_from_its_recipe(future: int) -> None:
    report = branched()[future]
    again = simulate_plan(msgspec.structs.replace(draw(SEED), forks=report.forks))
    assert report.same(again)
    assert digest_elsewhere(SEED, HASH_SEEDS[future], report.forks) == report.digest


def test_a_future_forks_again() -> None:
    """And a recipe of two forks replays, too."""
    first = branched()[0]
    plan = msgspec.structs.replace(draw(SEED), forks=first.forks)
    seen = run(Simulation(plan, lookout=Lookout(())).run())
    late = max((mark for mark in seen.rare if seen.rare[mark] < seen.awaits * 2 / 3), key=seen.rare.__getitem__)
    *futures, itself = Branching(plan, set(seen.rare) - {late}, 1).run()
    assert itself.same(first)
    assert [len(parse_forks(future.forks)) for future in futures] == [2]
    assert futures[0].same(simulate_plan(msgspec.structs.replace(plan, forks=futures[0].forks)))
    assert futures[0].digest != first.digest


WHAT_REMAINS = """
import os
from pathlib import Path
from tests.unit.lab.simulation.test_branching import SEED, Branching, all_but_one, draw

def left():
    return sorted(os.listdir("/proc/self/fd")), Path(f"/proc/self/task/{os.getpid()}/children").read_text()

before = left()
Branching(draw(SEED), all_but_one(SEED), 1).run()
assert left() == before, (before, left())
"""


def test_nothing_of_a_future_remains() -> None:
    """In a process of its own: here, earlier tests' descriptors come and go."""
    subprocess.run([sys.executable, "-c", WHAT_REMAINS], check=True, timeout=300)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def hang() -> None:
    time.sleep(1_000)


def fail() -> None:
    raise SystemExit("the simulation's own end")


@pytest.mark.parametrize("end, found", [(kill, "ended with code -9"), (hang, "longer than 2 s"), (fail, "own end")])
def test_a_future_without_an_end_is_a_result(
    monkeypatch: pytest.MonkeyPatch, end: Callable[[], None], found: str
) -> None:
    report = Simulation._report

    def ended(self: Simulation, taken: dict[str, int]) -> SimulationReport:
        if self.chance.forks:
            end()
        return report(self, taken)

    monkeypatch.setattr(simulation.Simulation, "_report", ended)
    future, itself = Branching(draw(SEED), all_but_one(SEED), 1, longest_s=2 if end is hang else 600).run()
    assert not future.ok
    assert found in future.violations[0]
    assert future.recipe == branched()[0].recipe
    assert itself.ok


def test_steps_with_arguments_stay() -> None:
    plan = parse_scenario("cluster\ncreate-topic a 1,2\nheal\nkill-broker 1\nwait\nwait\n")
    other = plan.redrawn(1, "7 1:1")
    assert other == plan.redrawn(1, "7 1:1") != plan.redrawn(1, "7 1:2")
    assert (other.steps[0], other.steps[2]) == (plan.steps[0], plan.steps[2])
    assert all(one != another for one, another in zip(other.steps[3:], plan.steps[3:], strict=True))
    assert {step.kind for step in other.steps} <= {step.kind for step in plan.steps}


# -- recipes on the command line ---------------------------------------------------------------------------------------


def test_a_recipe_is_replayed_like_a_seed() -> None:
    report = branched()[0]
    result = replay(SEED, report.forks)
    assert result.same
    assert result.report.same(report)
    with pytest.raises(BadInputError, match="only"):
        replay(SEED, "1000000:1")


def test_a_recipe_shrinks_to_the_steps_that_were_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that a fork has drawn are left out one by one, as the others."""
    report = branched()[0]
    played = Simulation(msgspec.structs.replace(draw(SEED), forks=report.forks))
    run(played.run())
    wrong = played.plan.steps[-3]
    assert wrong not in draw(SEED).steps
    found = Simulation._report

    def complaining(self: Simulation, taken: dict[str, int]) -> SimulationReport:
        return msgspec.structs.replace(found(self, taken), violations=["I1"] * (wrong in self.plan.steps))

    monkeypatch.setattr(simulation.Simulation, "_report", complaining)
    shrunk = shrink_seed(SEED, report.forks)
    assert shrunk is not None
    assert shrunk[0].steps == (wrong,)
    assert parse_scenario(format_scenario(shrunk[0])) == shrunk[0]


def test_the_steps_that_were_taken_are_the_same_run() -> None:
    report = branched()[0]
    played = Simulation(msgspec.structs.replace(draw(SEED), forks=report.forks))
    run(played.run())
    assert played.plan.steps != draw(SEED).steps
    fixed: Plan = msgspec.structs.replace(played.plan, steps_stay=True)
    assert simulate_plan(fixed).same(report)


@pytest.mark.parametrize(
    "words, found",
    [
        (["--fork", "5:1"], "--fork needs --seed"),
        (["--seed", "1", "--fork", "5"], "found the fork '5'"),
        (["--seed", "1", "--fork", "5:1", "--crash-points"], "--fork needs --seed N, and neither"),
        (["--seed", "1", "--branch", "2"], "--branch, --steer and --restarts are for campaigns"),
    ],
)
def test_words_that_do_not_go_together(words: list[str], found: str) -> None:
    error = CliRunner().invoke(command, words).exception
    assert isinstance(error, BadInputError)
    assert found in str(error)


# -- campaigns ---------------------------------------------------------------------------------------------------------


def campaign(jobs: int, earlier: Sequence[SimulationReport] = ()) -> tuple[Summary, list[SimulationReport]]:
    arrived: list[SimulationReport] = []
    size, course.ROUND = course.ROUND, 2
    try:
        summary, _ = run_course(
            Course(range(FIRST, FIRST + 3), futures=2), jobs, lambda _, report: arrived.append(report), earlier=earlier
        )
    finally:
        course.ROUND = size
    return summary, arrived


@cache
def whole() -> list[SimulationReport]:
    summary, reports = campaign(1)
    assert (summary.seeds, summary.forked, summary.failures) == (3, len(reports) - 3, {})
    return reports


def test_a_campaign_forks_where_a_seed_reaches_what_earlier_rounds_have_not() -> None:
    assert [report.recipe for report in whole()[:2]] == [str(FIRST), str(FIRST + 1)]
    assert [bool(report.forks) for report in whole()[2:]] == [True] * (len(whole()) - 3) + [False]
    assert len(whole()) >= 5


def test_a_campaign_is_the_same_on_any_number_of_processes() -> None:
    on_two = {report.recipe: report for report in campaign(2)[1]}
    assert len(on_two) == len(whole())
    assert all(report.same(on_two[report.recipe]) for report in whole())


def test_a_run_whose_own_report_is_missing_forks_again() -> None:
    earlier, rest = whole()[:3], whole()[3:]
    assert earlier[-1].forks
    summary, again = campaign(1, earlier)
    assert [one.same(other) for one, other in zip(again, rest, strict=True)] == [True] * len(rest)
    assert summary.seeds + summary.forked == len(whole())


def test_results_know_whether_runs_fork(tmp_path: Path) -> None:
    file = tmp_path / "results"
    with Results(file, 1, 3, branch=2) as results:
        for report in branched():
            results.add(report)
    with pytest.raises(BadInputError, match="--branch 2"):
        Results(file, 1, 3)
    with Results(file, 1, None, branch=2) as again:
        assert list(again.reports) == branched()
    merged = merge([file, file])
    assert (merged.seeds, len(merged.reports)) == (3, len(branched()))
