"""A broker is killed and registers anew: the controller sees one change, or a death and a birth."""

from __future__ import annotations

import random
from collections.abc import Iterable

from aiocontroller.lab.scenarios.plan import ScenarioStep
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.simulation.bounces import AS_ONE_CHANGE, AS_TWO_CHANGES
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import Simulation
from aiocontroller.lab.virtual_loop import run

STORY = """
cluster brokers=3 controllers=1{more}
create-topic orders 2,1,3 then=2
{steps}
"""


def played(steps: str, more: str = "") -> tuple[SimulationReport, list[str]]:
    """Return the report, and what the journals say of brokers from the last steps on."""
    told: list[str] = []
    begins: list[int] = []

    def brokers() -> Iterable[str]:
        records = (record for journal in made.journals for record in journal.records)
        return [f"{record.detail} {record.broker}" for record in records if record.kind == "broker"]

    def on_step(step: ScenarioStep | None, at_s: float) -> None:
        if step is not None and step.kind == "create_topic":
            begins.append(len(list(brokers())))
        elif step is None:
            told.extend(list(brokers())[begins[0] :])

    made = Simulation(parse_scenario(STORY.format(steps=steps, more=more)), on_step)
    report = run(made.run())
    assert not report.violations
    return report, told


def test_a_named_broker_is_never_seen_missing() -> None:
    for more in ("", " data clients=1"):
        report, told = played("bounce-broker 2 then=3\nbounce-broker 3 1 then=3", more)
        assert sorted(told) == ["bounced 1", "bounced 2", "bounced 3"]
        assert report.marks[f"probe/{AS_ONE_CHANGE}"] == 3
        assert f"probe/{AS_TWO_CHANGES}" not in report.marks


def test_a_drawn_broker_is_seen_missing_half_of_the_time() -> None:
    report, told = played("\n".join(f"bounce-broker seed={seed} then=3" for seed in range(12)))
    kinds = [line.split()[0] for line in told]
    assert report.marks[f"probe/{AS_ONE_CHANGE}"] == kinds.count("bounced")
    assert report.marks[f"probe/{AS_TWO_CHANGES}"] == kinds.count("dead") == kinds.count("added")
    assert kinds.count("bounced") + kinds.count("dead") == 12
    assert 3 <= kinds.count("bounced") <= 9


def test_what_no_controller_sees_does_not_count() -> None:
    report, _ = played("kill-controller 1\nbounce-broker 2 then=4\nstart-controller 1 then=4")
    assert not [mark for mark in report.marks if "a bounce seen" in mark]


def test_a_broker_that_dies_again_before_it_has_registered_does_not_count() -> None:
    seed = next(seed for seed in range(100) if _draws_broker_2_seen(random.Random(seed)))
    report, told = played(f"bounce-broker seed={seed} then=0.01\nkill-broker 2 then=5\nstart-broker 2 then=3")
    assert told == ["dead 2", "added 2"]
    assert not [mark for mark in report.marks if "a bounce seen" in mark]


def _draws_broker_2_seen(chance: random.Random) -> bool:
    return chance.choice([1, 2, 3]) == 2 and chance.random() >= 0.5
