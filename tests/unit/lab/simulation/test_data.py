"""Simulations whose brokers keep logs: seeds without a violation, the same again, and what a loss of power takes."""

from __future__ import annotations

import functools

import pytest

from aiocontroller.lab.checkers.records import DataChecker
from aiocontroller.lab.cluster.logs import Disk
from aiocontroller.lab.cluster.simulated_broker import SimulatedBroker
from aiocontroller.lab.scenarios.plan import Plan, draw
from aiocontroller.lab.scenarios.restarts import is_of_restarts
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.simulation.coverage import PROBES_OF_DATA
from aiocontroller.lab.simulation.process import Process
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import DATA_RULES, Simulation, simulate_plan
from aiocontroller.lab.simulation.zoo import attempt, invariant_of
from aiocontroller.lab.simulation.zoo_data import DATA_BUGS
from aiocontroller.lab.virtual_loop import run

WITH_DATA = [*[n for n in range(200, 260) if draw(n).data and not is_of_restarts(n)][:7], 85, 108, 881]
"""The last three, one of them of the family restarts, leave probes that few others do."""


@functools.cache
def simulated(seed: int) -> SimulationReport:
    return simulate_plan(draw(seed))


@pytest.mark.parametrize("seed", WITH_DATA)
def test_seed_with_data_violates_nothing(seed: int) -> None:
    assert not simulated(seed).violations


def test_these_seeds_leave_every_probe_of_data() -> None:
    reached = {mark for seed in WITH_DATA for mark in simulated(seed).marks}
    assert {f"probe/{name}" for name in PROBES_OF_DATA} - reached == set()


def test_the_same_seed_acknowledges_the_same_records() -> None:
    plan = draw(6).with_data()
    report = simulate_plan(plan)
    assert simulate_plan(plan) == report
    assert report.marks["probe/acks=all"] > 10


def test_a_seed_with_data_has_logs_and_clients() -> None:
    plans = [draw(seed) for seed in range(100)]
    assert 15 < sum(plan.data for plan in plans) < 35
    assert {plan.clients for plan in plans if plan.data} == {2}
    assert {plan.clients for plan in plans if not plan.data} == {0}


STORY = """
cluster brokers=3 controllers=1 data
create-topic orders 1,2,3 then=3
produce orders-0 20 all
{fault}
expect leader orders-0 {leader}
produce orders-0 5 all
start-broker 1 then=10
"""


def played(text: str) -> tuple[SimulationReport, Simulation, Plan]:
    plan = parse_scenario(text)
    made = Simulation(plan)
    return run(made.run()), made, plan


@pytest.mark.parametrize("fault", ["kill-broker 1", "power-cut 1"])
def test_a_broker_dies_and_comes_back(fault: str) -> None:
    report, made, _ = played(STORY.format(fault=fault, leader=2))
    assert not report.violations
    assert made.data is not None
    assert [each.epoch for each in made.data.acknowledged] == [0] * 20 + [1] * 5
    logs = made.data.logs(("orders", 0))
    assert {broker: runs[-1].end for broker, runs in logs.items()} == {1: 25, 2: 25, 3: 25}


ALONE = """
cluster brokers=2 controllers=1 data
create-topic orders 1 then=3
produce orders-0 20 all then=0.01
{fault} 1 then=5
start-broker 1 then=5
expect leader orders-0 1
produce orders-0 5 all
"""


@pytest.mark.parametrize("fault, excused", [("kill-broker", 0), ("power-cut", 1)])
def test_the_only_replica_loses_its_page_cache(fault: str, excused: int) -> None:
    report, made, _ = played(ALONE.format(fault=fault))
    assert not report.violations
    assert made.data is not None
    assert len(made.data.acknowledged) == 25
    assert (report.marks.get("probe/I13 excused: lost power or a lost disk", 0) > 0) == excused


def test_a_loss_that_nothing_excuses_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DataChecker, "damaged", lambda *_, **_named: None)
    report, _, _ = played(ALONE.format(fault="power-cut"))
    assert {violation.partition(" ")[0] for violation in report.violations} == {"I13", "I14"}


@pytest.mark.parametrize(
    "name, number",
    [("data: a leader is elected from outside the ISR", 3), ("data: a leader commits what it has alone", 2)],
)
def test_a_bug_of_the_zoo_is_found_by_the_records_alone(name: str, number: int) -> None:
    bug = next(bug for bug in DATA_BUGS if bug.name == name)
    seeds, complaint = attempt(bug, number, 15)
    assert seeds is not None
    assert invariant_of(complaint) in DATA_RULES


def test_a_write_by_hand_gives_records_up() -> None:
    text = """
cluster brokers=3 controllers=1 data clients=2
create-topic orders 1,2,3 then=3
produce orders-0 20 all
make-topic-anew orders then=5
"""
    assert not played(text)[0].violations


SHUTTING_DOWN = """
cluster seed={seed} brokers=3 controllers=1 settings=min.insync.replicas:2 releases=3.7,3.7,3.7 data clients=2
create-topic orders 3,2,1 then=2
create-topic events 1,2,3 1,2,3 then=2
power-cut 3 then=3.4
reboot-broker 2 then=0.005
stop-broker 1 then=0.1
start-broker 1 then=0
start-broker 3 then=5
"""
"""The only replica of orders-0 that holds everything is in its controlled shutdown, and its next process waits for the
disk, when one with a truncated log returns and leads: it is not one that the controller should have elected."""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_process_that_waits_for_its_disk_could_not_lead(seed: int) -> None:
    live: list[bool] = []
    made = Simulation(
        parse_scenario(SHUTTING_DOWN.format(seed=seed)),
        on_step=lambda step, at_s: live.append(1 in made.history.data.live()),
    )
    report = run(made.run())
    assert not report.violations
    assert report.marks["probe/I13 excused: lost power or a lost disk"] > 0
    assert live == [True] * 4 + [False] * 2 + [True] * 2


STARTED_TWICE = """
cluster brokers=1 controllers=1 data
create-topic orders 1 then=3
kill-controller 1 then=0.1
stop-broker 1 then=0.1
start-broker 1 then=0.1
kill-broker 1 then=0.1
start-broker 1 then=10
start-controller 1 then=10
"""
"""The first process is still stopping when the second, which waits for the disk, is killed and the third starts."""


def test_a_disk_has_one_user_although_another_was_killed_while_it_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy that two processes had at the same time lost what the first one acknowledged (seed 1796000002076 once)."""
    made = Simulation(parse_scenario(STARTED_TWICE))
    users: list[Process] = []
    mount = SimulatedBroker.mount

    def mounted(broker: SimulatedBroker, disk: Disk) -> None:
        assert not any(user.alive for user in users)
        mount(broker, disk)
        users.append(made.brokers[1][1])

    monkeypatch.setattr(SimulatedBroker, "mount", mounted)
    assert not run(made.run()).violations
    assert len(users) == 2
