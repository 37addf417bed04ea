"""Simulations whose standbys keep a copy of the cluster: at each failover the copy is what ZooKeeper had."""

from __future__ import annotations

import functools

import pytest

from aiocontroller.lab.scenarios.plan import draw
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import Simulation, simulate_plan
from aiocontroller.lab.simulation.zoo import attempt, injected, invariant_of
from aiocontroller.lab.simulation.zoo_standby import STANDBY_BUGS
from aiocontroller.lab.virtual_loop import run

WARM = "probe/failover of a warm standby, with its copy"
SEEDS = [seed for seed in range(1, 40) if draw(seed).warm][:10]


@functools.cache
def simulated(seed: int) -> SimulationReport:
    return simulate_plan(draw(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_seed_with_a_warm_standby_violates_nothing(seed: int) -> None:
    assert not simulated(seed).violations


def test_these_seeds_fail_over_with_copies() -> None:
    assert sum(simulated(seed).marks.get(WARM, 0) for seed in SEEDS) > 15


def test_the_same_seed_is_the_same_run() -> None:
    assert simulate_plan(draw(SEEDS[0])) == simulated(SEEDS[0])


def test_two_thirds_of_the_seeds_with_several_controllers_are_warm() -> None:
    plans = [draw(seed) for seed in range(300)]
    several = [plan for plan in plans if plan.controllers > 1]
    assert 0.55 < sum(plan.warm for plan in several) / len(several) < 0.73
    assert not any(plan.warm for plan in plans if plan.controllers == 1)


STORY = """
cluster brokers=3 controllers=2 warm
create-topic a 1,2,3 then=3
kill-broker 1 then=0.2
kill-controller active then=8
expect leader a-0 2
start-broker 1 then=5
"""


def played(text: str) -> SimulationReport:
    return run(Simulation(parse_scenario(text)).run())


def test_controller_and_broker_die_together() -> None:
    report = played(STORY)
    assert not report.violations
    assert report.marks[WARM] == 1


def test_controller_that_has_released_the_role_keeps_no_copy() -> None:
    """Seed 95044: it stands for no election, so I18 asks it for none."""
    report = played(STORY.replace("kill-controller active then=8", "release-controller then=12"))
    assert not report.violations


@pytest.mark.parametrize("bug", STANDBY_BUGS[:2], ids=lambda bug: bug.name)
def test_bug_of_a_copy_is_found_by_the_copy(bug) -> None:  # type: ignore[no-untyped-def]
    """At a failover, or at the end."""
    seeds, complaint = attempt(bug, 2, 12)
    assert seeds is not None
    assert invariant_of(complaint) in ("copy", "I18")
    assert "the copy has" in complaint


def test_bugs_are_taken_out_again() -> None:
    for bug in STANDBY_BUGS:
        with injected(bug):
            pass
    assert not played(STORY).violations
