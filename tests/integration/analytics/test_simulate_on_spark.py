"""A campaign on Spark has the results that the same seeds have without it."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from aiocontroller.lab.simulation import course
from aiocontroller.lab.simulation.campaign import run_course, run_seeds
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import simulate

SEEDS = (3, 7, 18)


def test_seeds_have_the_same_results_on_spark(spark_itself: SparkSession) -> None:
    arrived: list[SimulationReport] = []
    summary, _ = run_seeds(SEEDS, 1, lambda _, report: arrived.append(report), spark="local[2]")
    assert arrived == [simulate(seed) for seed in SEEDS]
    assert (summary.seeds, summary.failures) == (3, {})


def test_runs_fork_on_spark(spark_itself: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(course, "ROUND", 1)
    here, there = list[SimulationReport](), list[SimulationReport]()
    run_course(course.Course(range(2, 4), futures=1), 1, lambda _, report: here.append(report))
    run_course(course.Course(range(2, 4), futures=1), 1, lambda _, report: there.append(report), spark="local[2]")
    assert any(report.forks for report in here)
    different = [(one, other) for one, other in zip(there, here, strict=True) if not one.same(other)]
    assert different == []
