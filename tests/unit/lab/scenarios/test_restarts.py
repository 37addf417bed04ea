"""The family restarts: every twelfth seed, which draws all that it is for, and plans that scenarios can hold."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from click.testing import CliRunner

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.cli.simulate import simulate
from aiocontroller.lab.scenarios.plan import ELIGIBLE, Plan, draw, restarts
from aiocontroller.lab.scenarios.restarts import EVERY, is_of_restarts, next_of_restarts
from aiocontroller.lab.scenarios.scenario import format_scenario, parse_scenario
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import simulate_plan
from aiocontroller.lab.simulation.zoo import attempt, invariant_of
from aiocontroller.lab.simulation.zoo_eligible import ELIGIBLE_BUGS

SEEDS = range(1, 200)
SIMULATED = range(1, 10)
PLANS = [restarts(seed) for seed in SEEDS]


def test_every_twelfth_seed_is_of_the_family() -> None:
    of_it = [seed for seed in range(120) if is_of_restarts(seed)]
    assert len(of_it) * EVERY == 120
    assert [draw(seed) for seed in of_it] == [restarts(seed) for seed in of_it]
    assert all(draw(seed) != restarts(seed) for seed in range(120) if seed not in of_it)
    assert [next_of_restarts(seed) for seed in (0, 1, 2, 13, 14)] == [1, 1, 13, 13, 25]


def test_its_plans_are_drawn_once_and_for_all() -> None:
    assert [restarts(seed) for seed in SEEDS] == PLANS
    assert len({plan.steps for plan in PLANS}) == len(PLANS)


def test_a_scenario_holds_its_plans() -> None:
    for plan in PLANS[:40]:
        assert parse_scenario(format_scenario(plan)) == plan


def test_brokers_leave_and_return_in_every_order() -> None:
    kinds = Counter(step.kind for plan in PLANS for step in plan.steps)
    assert (
        min(kinds[kind] for kind in ("stop_broker", "kill_broker", "power_cut", "reboot_broker", "fail_log_dir")) > 20
    )
    assert min(kinds[kind] for kind in ("take_over", "expire_controller", "crash_at_await")) > 10
    returns = {tuple(_returns(plan)[:3]) for plan in PLANS}
    assert len([order for order in returns if len(set(order)) == 3]) == 6


def _returns(plan: Plan) -> list[str]:
    return [step.arguments[0] for step in plan.steps if step.kind == "start_broker" and len(step.arguments) == 1]


def test_some_have_a_controller_without_eligible_replicas() -> None:
    forgetful = [plan for plan in PLANS if plan.controller_settings]
    assert 0.2 < len(forgetful) / len(PLANS) < 0.6
    assert {plan.controller_settings for plan in forgetful} == {((f"{n}/{ELIGIBLE}", "false"),) for n in (2, 3)}


def test_all_numbers_of_replicas_in_sync_are_needed() -> None:
    changes = {step.arguments[1] for plan in PLANS for step in plan.steps if step.kind == "alter_topic_configs"}
    assert changes == {f"min.insync.replicas:{number}" for number in (1, 2, 3)}


@functools.cache
def simulated(seed: int) -> SimulationReport:
    return simulate_plan(restarts(seed))


@pytest.mark.parametrize("seed", SIMULATED)
def test_they_violate_nothing(seed: int) -> None:
    assert simulated(seed).violations == []


def test_they_reach_what_they_are_for() -> None:
    reached = Counter(mark for seed in SIMULATED for mark in simulated(seed).marks)
    assert reached["probe/an eligible replica leads"] >= 3
    assert reached["probe/I13 excused: lost power or a lost disk"] >= 3
    assert reached["probe/records lost with the power"] >= 6


@pytest.mark.parametrize(
    "name, invariant",
    [
        ("the ISR stays when an eligible replica leads", "I3"),
        ("data: replicas are entered as eligible after an unclean start", "I13"),
    ],
)
def test_they_find_bugs_that_show_only_where_brokers_are_back_before_one_look(name: str, invariant: str) -> None:
    """Of the first, an eligible replica and one that lost power; of the other, one that lost power."""
    bug = next(bug for bug in ELIGIBLE_BUGS if bug.name == name)
    seeds, complaint = attempt(bug, 1, 24)
    assert seeds is not None
    assert invariant_of(complaint) == invariant


def test_restarts_are_for_campaigns() -> None:
    done = CliRunner().invoke(simulate, ["--restarts", "--seed", "1"])
    assert isinstance(done.exception, BadInputError)
