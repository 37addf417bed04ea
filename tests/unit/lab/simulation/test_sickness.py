"""Simulations with sick brokers: seeds find and treat them and violate nothing; a verdict without a reason is seen."""

from __future__ import annotations

import functools

import pytest

from aiocontroller.core.sickness import DISK
from aiocontroller.lab.scenarios.plan import draw
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.simulation import sickness
from aiocontroller.lab.simulation.coverage import SICKNESS, everything
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import Simulation, simulate
from aiocontroller.lab.virtual_loop import run

PER_MODE = 4
MODES = [(mode, data) for mode in ("advise", "act") for data in (False, True)]
SEEDS = {
    each: [s for s in range(400) if (plan := draw(s)).brokers > 2 and (plan.sickness, plan.data) == each][:PER_MODE]
    for each in MODES
}

pytestmark = pytest.mark.timeout(600)  # a busy machine takes long for a seed


@functools.cache
def simulated(seed: int) -> SimulationReport:
    return simulate(seed)


@pytest.mark.parametrize("seed", [seed for seeds in SEEDS.values() for seed in seeds])
def test_seed_with_sickness_violates_nothing(seed: int) -> None:
    assert not simulated(seed).violations


@pytest.mark.parametrize("mode, data", MODES)
def test_seeds_find_sick_brokers_in_each_mode(mode: str, data: bool) -> None:
    """And treat them only if they are to."""
    seeds = SEEDS[mode, data]
    assert len(seeds) == PER_MODE
    marks = [mark for seed in seeds for mark in simulated(seed).marks if mark.startswith("sickness/")]
    assert any(mark.startswith("sickness/sick/") for mark in marks)
    assert ("sickness/relieved/None" in marks) == ("sickness/unlisted/None" in marks) == (mode == "act")


def test_the_report_knows_these_marks() -> None:
    known = set(everything())
    assert {f"sickness/{name}" for name in SICKNESS} < known
    assert {m for seeds in SEEDS.values() for s in seeds for m in simulated(s).marks if m.startswith("sick")} <= known


STORY = """
cluster brokers=3 controllers=1 data clients=2 sickness={mode} settings=min.insync.replicas:1
create-topic orders 1,2,3 2,3,1 3,1,2 then=8
sick-disk 2 2.5 seed=7 then=8
expect leader orders-1 {leader}
"""


def played(mode: str, leader: int) -> SimulationReport:
    return run(Simulation(parse_scenario(STORY.format(mode=mode, leader=leader))).run())


def test_a_sick_broker_leads_on_where_it_is_only_to_be_reported() -> None:
    report = played("advise", 2)
    assert not report.violations
    assert {mark: n for mark, n in report.marks.items() if mark.startswith("sickness/")} == {
        f"sickness/sick/{DISK}": 1,
        f"sickness/well again/{DISK}": 1,
    }


def test_a_sick_broker_is_relieved_and_taken_back() -> None:
    report = played("act", 3)
    assert not report.violations
    for event in (f"sick/{DISK}", "relieved/None", "unlisted/None", f"well again/{DISK}", "taken back/None"):
        assert report.marks[f"sickness/{event}"] == 1


def test_a_verdict_where_nothing_was_slow_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step and the slow disk count as no reason here."""
    monkeypatch.setattr(sickness, "SLOWING", frozenset())
    monkeypatch.setattr(sickness, "IN_FORCE", frozenset())
    monkeypatch.setattr(sickness, "QUIET_S", 5.0)
    [violation] = played("act", 3).violations
    assert violation.startswith("sickness: 2 sick (")
    assert violation.endswith("where nothing was slow")
