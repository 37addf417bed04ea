"""Simulated logs lose their beginnings: followers that come late begin where their leaders' logs begin."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.lab.cluster import replica_manager, replication
from aiocontroller.lab.cluster.logs import Log, first_offset
from aiocontroller.lab.cluster.replication import FetchAnswer
from aiocontroller.lab.scenarios.plan import RETAINED, RETENTION_SHARE, draw, restarts
from aiocontroller.lab.scenarios.scenario import parse_scenario
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import Simulation
from aiocontroller.lab.virtual_loop import run

LATE = """
cluster brokers=4 controllers=1 retained={retained} data releases=3.9,3.9,3.9,{last}
create-topic orders 1,2,3 then=3
produce orders-0 20 all
kill-broker 3 then=4
produce orders-0 30 all then=4
{late}
produce orders-0 5 all then=4
"""
RETURNS = "start-broker 3 then=6"
MOVES = "reassign orders-0 1,2,4 then=6"
BEGINS = "probe/a follower begins where its leader's log begins"

DELETED = "probe/old records deleted"


def played(text: str) -> tuple[SimulationReport, dict[int, list[Any]]]:
    made = Simulation(parse_scenario(text))
    report = run(made.run())
    assert made.data is not None
    return report, made.data.logs(("orders", 0))


@pytest.mark.parametrize("last", ["3.9", "2.4"])
@pytest.mark.parametrize("late", [RETURNS, MOVES])
@pytest.mark.parametrize("retained", [0, 3])
def test_a_replica_that_comes_late_begins_where_its_leader_does(retained: int, late: str, last: str) -> None:
    report, logs = played(LATE.format(retained=retained, late=late, last=last))
    assert not report.violations
    assert report.marks[BEGINS] == 1
    assert {(first_offset(runs), runs[-1].end) for runs in logs.values()} == {(55 - retained, 55)}


def test_logs_keep_everything_unless_they_are_told() -> None:
    report, logs = played(LATE.format(retained=3, late=RETURNS, last="3.9").replace("retained=3", ""))
    assert not report.violations
    assert not [mark for mark in report.marks if mark in (DELETED, BEGINS)]
    assert {first_offset(runs) for runs in logs.values()} == {0}


def test_a_follower_that_begins_later_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it lacks looks as if it had been deleted, and nobody has deleted so much."""
    original = replication.take_answer

    def take(log: Log, answer: FetchAnswer) -> tuple[bool, bool]:
        if answer.log_start > log.end:
            log.start_at(answer.hw)
            return True, False
        return original(log, answer)

    monkeypatch.setattr(replica_manager, "take_answer", take)
    report, _ = played(LATE.format(retained=3, late=RETURNS, last="3.9"))
    assert any(violation.startswith("I14") for violation in report.violations)


def test_retention_deletes_in_a_third_of_the_seeds_with_logs() -> None:
    plans = [plan for seed in range(900) if (plan := draw(seed)).data]
    share = sum(plan.retained >= 0 for plan in plans) / len(plans)
    assert RETENTION_SHARE * 0.7 < share < RETENTION_SHARE * 1.3
    assert {plan.retained for plan in plans} == {-1, *RETAINED}
    assert {restarts(seed).retained for seed in range(60)} == {-1, *RETAINED}
    assert {plan.retained for plan in map(draw, range(300)) if not plan.data} == {-1}
