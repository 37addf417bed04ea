"""Passages in which one broker becomes sick: which plans have them, and what is in them."""

from __future__ import annotations

from collections import Counter

from aiocontroller.lab.scenarios.plan import SICKNESS_SHARES, Plan, ScenarioStep, draw
from aiocontroller.lab.scenarios.restarts import is_of_restarts
from aiocontroller.lab.scenarios.scenario import format_scenario, parse_scenario
from aiocontroller.lab.scenarios.sick_brokers import FEWEST_BROKERS, TOPICS, draw_passages

PLANS = [draw(seed) for seed in range(1200) if not is_of_restarts(seed)]
SICK = [plan for plan in PLANS if plan.sickness != "off"]


def begun(plan: Plan) -> list[int]:
    """Where its passages create their topics."""
    return [at for at, step in enumerate(plan.steps) if step.kind == "create_topic" and step.arguments[:1] in TOPIC]


TOPIC = {(topic,) for topic in TOPICS}


def test_a_share_of_the_seeds_judges_sickness_in_each_mode() -> None:
    assert SICKNESS_SHARES[False] < SICKNESS_SHARES[True]
    for data, share in SICKNESS_SHARES.items():
        plans = [plan for plan in PLANS if plan.data is data]
        sick = Counter(plan.sickness for plan in plans)
        assert share * 0.7 < 1 - sick["off"] / len(plans) < share * 1.3
        assert sick["act"] > sick["advise"] > 0


def test_each_large_enough_cluster_has_one_or_two_passages() -> None:
    for plan in SICK:
        assert len(begun(plan)) in ((1, 2) if plan.brokers >= FEWEST_BROKERS else (0,))
    assert not any(begun(plan) for plan in PLANS if plan.sickness == "off")


def test_nothing_interferes_until_the_broker_is_sick() -> None:
    for plan in SICK:
        for at in begun(plan):
            before = plan.steps[at - plan.controllers - 2 : at + 2]
            assert [step.kind for step in before] == [
                *("heal", "start_broker", *["start_controller"] * plan.controllers, "create_topic", "wait")
            ]
            assert plan.steps[at + 2].kind in ("sick_disk", "lag")


def sicknesses(*, data: bool) -> set[str]:
    """Which links are slow, or that a disk is."""
    passages = [each for seed in range(60) for each in draw_passages(seed, 3, 2, data=data)]
    return {
        how(tuple(ScenarioStep(kind, 0, pause_s, arguments) for kind, pause_s, arguments in each)) for each in passages
    }


def how(passage: tuple[ScenarioStep, ...]) -> str:
    lags = [step.arguments for step in passage if step.kind == "lag"]
    if not lags:
        return "disk"
    if lags[0][1] == "active":
        return "answers"
    return "network out" if len({one for one, _, _ in lags}) == 1 else "network in"


def test_brokers_are_sick_in_every_way_that_shows() -> None:
    assert sicknesses(data=True) == {"disk", "network in", "network out", "answers"}
    assert sicknesses(data=False) == {"answers"}


def test_a_scenario_holds_these_plans() -> None:
    for plan in SICK[:40]:
        assert parse_scenario(format_scenario(plan)) == plan
