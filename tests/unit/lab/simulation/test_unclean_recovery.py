"""Simulated brokers die one after the other: the best log that is left leads, and another choice is a violation."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.core import log_evidence
from aiocontroller.lab.checkers.best_logs import BestLogs, Reported
from aiocontroller.lab.scenarios.plan import draw
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.simulation import simulation
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import Simulation
from aiocontroller.lab.simulation.zoo import injected
from aiocontroller.lab.simulation.zoo_eligible import ELIGIBLE_BUGS
from aiocontroller.lab.virtual_loop import run

DEATHS = """
cluster brokers=3 controllers=1 data
create-topic orders 1,2,3 then=3
produce orders-0 20 all
kill-broker 1 then=15
produce orders-0 15 all
kill-broker 2 then=15
produce orders-0 10 all
kill-broker 3 then=15
start-broker 1
start-broker 2 then=10
{election}
start-broker 3 then=10
"""
"""The logs of brokers 1, 2 and 3 end at 20, 35 and 45; broker 3 was alone in the ISR."""


def played(text: str) -> tuple[SimulationReport, Simulation]:
    made = Simulation(parse_scenario(text))
    return run(made.run()), made


@pytest.mark.parametrize("election", ["allow-unclean orders true then=5", "elect-unclean orders-0 then=5"])
def test_the_best_log_leads(election: str) -> None:
    report, made = played(DEATHS.format(election=f"{election}\nexpect leader orders-0 2"))
    assert not report.violations
    assert report.marks["probe/unclean election by evidence"] == 1
    assert made.data is not None
    assert {broker: runs[-1].end for broker, runs in made.data.logs(("orders", 0)).items()} == {1: 35, 2: 35, 3: 35}


def test_another_choice_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    def worst(evidence: Any, candidates: Any, awaited: Any = ()) -> Any:
        return min((b for b in candidates if b in evidence.ends), key=lambda b: evidence.ends[b][:2], default=None)

    monkeypatch.setattr(log_evidence.Evidence, "best", worst)
    report, _ = played(DEATHS.format(election="allow-unclean orders true then=5"))
    assert {violation.partition(" ")[0] for violation in report.violations} == {"I15"}


TRUNCATED = """
cluster seed={seed} brokers=3 controllers=1 settings=min.insync.replicas:2 releases=3.9,3.9,3.9 data clients=2
create-topic orders 1,2,3 then=3
kill-broker 3 then=3.4
stop-broker 2 then=0.1
power-cut 1 then=3.4
alter-topic-configs orders min.insync.replicas:2 then=1
start-broker 2 then=2
start-broker 1 then=2
start-broker 3 then=5
"""
"""Broker 1 was alone in the ISR, and has lost records with its power; broker 2 has them all, and the controller cannot
know that, since the topic's settings have changed."""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_truncated_log_of_the_isr_gives_way_to_a_better_one(seed: int) -> None:
    report, made = played(TRUNCATED.format(seed=seed))
    assert not report.violations
    assert report.marks["probe/records lost with the power"] == 1
    assert made.history.states["orders", 0].leader == 2
    assert not any("excused" in mark for mark in report.marks)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_truncated_log_that_leads_although_a_better_one_lives_is_a_violation(seed: int) -> None:
    with injected(next(bug for bug in ELIGIBLE_BUGS if "an unproven member" in bug.name)):
        report, made = played(TRUNCATED.format(seed=seed))
    assert made.history.states["orders", 0].leader == 1
    assert {violation.partition(" ")[0] for violation in report.violations} == {"I13", "I14"}


@pytest.mark.parametrize("seed", [1, 2])
def test_where_no_eligible_replicas_are_kept_it_leads_as_under_kafka(seed: int) -> None:
    kept = "controllers=1 controller-settings=1/aiocontroller.eligible.leader.replicas:false"
    report, made = played(TRUNCATED.format(seed=seed).replace("controllers=1", kept))
    assert not report.violations
    assert made.history.states["orders", 0].leader == 1
    assert report.marks["probe/I13 excused: lost power or a lost disk"] > 0


STOPPED = """
cluster seed={seed} brokers=3 controllers=1 recovery=Balanced \
settings=min.insync.replicas:2 releases=3.9,3.9,3.9 data clients=2
create-topic orders 1,2,3 then=3
kill-broker 3 then=3.4
stop-broker 2 then=0.1
power-cut 1 then=3.4
start-broker 1 then=2
stop-broker 1 then=3.4
start-broker 1 then=2
expect leader orders-0 none
start-broker 2 then=2
expect leader orders-0 2
start-broker 3 then=5
"""
"""Broker 1, whose log has lost records, stops cleanly while the partition waits for broker 2."""


@pytest.mark.parametrize("seed", [1, 2])
def test_a_truncated_log_is_not_proven_by_a_clean_stop(seed: int) -> None:
    report, _ = played(STOPPED.format(seed=seed))
    assert not report.violations
    assert report.marks["probe/records lost with the power"] == 1
    assert not any("excused" in mark for mark in report.marks)


EXPIRED = """
cluster brokers=3 controllers=1 releases=3.9,3.9,3.9 data
create-topic orders 1,3 then=3
produce orders-0 20 all
kill-broker 1 then=4
start-broker 1 then=4
expire-broker 1 then=0
expire-broker 3 then=4
"""
"""Broker 3 leads.  Both sessions end before the controller looks: the partition has no leader, and both are asked."""


def test_what_a_log_gains_after_it_was_reported_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker whose session has expired appends until it learns of another leader (seed 7027 once)."""
    grown = []

    def reported(self: BestLogs, partition: tuple[str, int], known: Reported) -> None:
        original(self, partition, known)
        leading = next(p for p in made.brokers[3][0].replicas.partitions() if p.topic == "orders").leading
        assert leading is not None
        grown.append(leading.log.append(leading.epoch, 3, 2))

    original = BestLogs.reported
    monkeypatch.setattr(BestLogs, "reported", reported)
    made = Simulation(parse_scenario(EXPIRED))
    report = run(made.run())
    assert len(grown) == 1
    assert not report.violations
    assert made.history.states["orders", 0].leader == 1


# -- strategies, and an operator's choice ------------------------------------------------------------------------------


def test_an_operator_has_the_best_log_lead() -> None:
    report, _ = played(DEATHS.format(election="recover orders-0 then=5\nexpect leader orders-0 2"))
    assert not report.violations
    assert report.marks["probe/unclean election by evidence"] == 1
    assert report.marks["probe/recover: elected"] == 1


def test_an_operator_has_a_worse_log_lead() -> None:
    report, made = played(DEATHS.format(election="recover orders-0 leader=1 then=5\nexpect leader orders-0 1"))
    assert not report.violations
    assert report.marks["probe/an operator's leader"] == 1
    assert made.data is not None
    assert {runs[-1].end for runs in made.data.logs(("orders", 0)).values()} == {20}


@pytest.mark.parametrize("waited_s, leader", [(4, "none"), (12, "2")])
def test_aggressive_waits_for_the_isr_until_its_deadline(waited_s: int, leader: str) -> None:
    """The controller counts from when a replica lives, 10 s before the wait begins."""
    story = DEATHS.replace("controllers=1", "controllers=1 recovery=Aggressive")
    report, _ = played(story.format(election=f"wait then={waited_s}\nexpect leader orders-0 {leader} within=0"))
    assert not report.violations


def test_who_leads_before_the_deadline_violates_i4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulation, "RECOVERY_WITHIN_S", 3.0)
    story = DEATHS.replace("controllers=1", "controllers=1 recovery=Aggressive")
    made = Simulation(parse_scenario(story.format(election="wait then=12")))
    made.history.unclean.after_s = 60.0
    # what only broker 3 holds is lost then, and nothing excuses that
    assert {violation.partition(" ")[0] for violation in run(made.run()).violations} == {"I4", "I13", "I14"}


def test_balanced_waits_for_the_isr() -> None:
    story = DEATHS.replace("controllers=1", "controllers=1 recovery=Balanced")
    report, made = played(story.format(election="wait then=60\nexpect leader orders-0 none"))
    assert not report.violations
    assert made.data is not None
    assert {runs[-1].end for runs in made.data.logs(("orders", 0)).values()} == {45}


def test_half_of_the_seeds_with_logs_have_a_strategy() -> None:
    plans = [plan for seed in range(600) if (plan := draw(seed)).data]
    for strategy in ("Balanced", "Aggressive"):
        assert 0.15 < sum(plan.recovery == strategy for plan in plans) / len(plans) < 0.35
    assert sum("recover" in {step.kind for step in plan.steps} for plan in plans) > 10
