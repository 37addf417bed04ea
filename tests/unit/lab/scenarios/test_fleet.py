"""What a seed draws of releases and protocols: only what an operator could have, and all of it at some time."""

from __future__ import annotations

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.cluster.generations import GENERATIONS, Protocol
from aiocontroller.lab.scenarios.fleet import PROTOCOLS, Fleet, draw_fleet
from aiocontroller.lab.scenarios.plan import ROLLS, draw
from aiocontroller.lab.scenarios.scenario import format_scenario, parse_scenario
from aiocontroller.lab.simulation.simulation import simulate_plan

SEEDS = range(300)


def test_no_seed_draws_a_broker_that_would_not_start() -> None:
    seen: set[str] = set()
    for seed in SEEDS:
        drawn = draw_fleet(seed, 3)
        fleet = Fleet(drawn.releases, drawn.protocol, 3)
        for roll in drawn.rolls:
            broker, release, protocol = roll.arguments
            assert Protocol.of(protocol)[:2] <= Protocol.of(GENERATIONS[release].protocol)[:2], f"seed {seed}: {roll}"
            fleet.brokers[int(broker)] = fleet.brokers[int(broker)]._replace(release=release, protocol=protocol)
        seen.update(version.protocol for version in fleet.brokers.values())
        seen.update(version.release for version in fleet.brokers.values())
        seen.add(drawn.protocol)
    assert seen >= {*GENERATIONS, *PROTOCOLS, ""}


def test_a_roll_is_part_of_the_plan_in_its_order() -> None:
    rolled = [plan for seed in SEEDS if (plan := draw(seed)).steps and any(s.kind in ROLLS for s in plan.steps)]
    assert len(rolled) > len(SEEDS) / 5
    for plan in rolled[:20]:
        assert parse_scenario(format_scenario(plan)) == plan
        drawn = draw_fleet(plan.seed, plan.brokers)
        assert [(s.kind, s.arguments) for s in plan.steps if s.kind in ROLLS] == list(drawn.rolls)


def test_what_is_no_fleet_is_refused() -> None:
    for releases, protocol, complaint in (
        ("2.8,3.9,3.9,3.9", "", "expected at most 3"),
        ("2.9", "", "found '2.9', expected one of 2.2"),
        ("2.4", "2.8", "release 2.4 does not know the protocol 2.8"),
        ("", "first", "found 'first'"),
    ):
        with pytest.raises(BadInputError, match=complaint):
            Fleet(releases, protocol, 3)


ROLLING = """
cluster brokers=3 controllers=2 releases=2.2,2.4,2.8 protocol=2.2
create-topic orders 1,2,3 2,3,1
expect isr orders-0 1,2,3
upgrade-broker 1 3.9 2.2
upgrade-broker 2 3.9 2.2
upgrade-broker 3 3.9 2.2
upgrade-broker 2 3.9 3.9
upgrade-broker 1 3.9 3.9
upgrade-broker 3 3.9 3.9 then=5
expect isr orders-0 1,2,3
expect isr orders-1 1,2,3
"""


def test_rolling_upgrade_of_binaries_and_protocol() -> None:
    report = simulate_plan(parse_scenario(ROLLING))
    assert report.ok, report.violations
    assert report.steps["upgrade_broker"] == 6
    expected = ["a broker's release is rolled", "a broker's protocol is rolled"]
    expected += ["an ISR written by its leader", "AlterPartition answered with 0", "brokers of several releases"]
    assert [name for name in expected if not report.marks.get(f"probe/{name}")] == []


@pytest.mark.parametrize(
    "steps",
    [
        "upgrade-broker 1 2.2 2.8",  # would not start
        "upgrade-broker 1 2.2 2.2",  # the others speak 2.8
    ],
)
def test_upgrade_that_does_not_fit_is_left_out(steps: str) -> None:
    report = simulate_plan(parse_scenario(f"cluster releases=2.8 protocol=2.8\n{steps}"))
    assert report.ok
    assert not [mark for mark in report.marks if "rolled" in mark]
