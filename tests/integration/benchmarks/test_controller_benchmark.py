"""The benchmarks run, small, so that they never rot; what they print is not judged, that they are complete is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment
from aiocontroller.lab.cluster.real_kafka import kafka_missing
from aiocontroller.lab.recording_brokers.views import Views
from benchmarks.controller.__main__ import parse
from benchmarks.controller.cases import USUAL
from benchmarks.controller.figures import Measured, rows_of
from benchmarks.failovers import KINDS, histogram, percentile, schedule

ROOT = Path(__file__).parents[3]


def run(module: str, *arguments: str, timeout_s: float = 240) -> str:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.timeout(300)
def test_every_usual_case_runs_and_every_row_is_there(tmp_path: Path) -> None:
    rows_file, page = tmp_path / "rows.json", tmp_path / "page.html"
    arguments = (
        "--partitions",
        "500",
        "--topics",
        "10",
        "--runs",
        "1",
        "--json",
        str(rows_file),
        "--report",
        str(page),
    )
    cases = ("--cases", "failover", "first-failover", "broker-failure", "controlled-shutdown", "alter-partition")
    printed = run("benchmarks.controller", *arguments, *cases)
    rows: list[dict[str, Any]] = json.loads(rows_file.read_bytes())
    assert {row["case"] for row in rows} >= {"failover", "failover, fresh process", "broker failure", "broker startup"}
    for row in rows:
        assert set(row) == {"case", "partitions", "subject", "median_s", "min_s", "max_s", "runs", "ratio"}
        assert 0 < row["min_s"] <= row["median_s"] <= row["max_s"]
        assert row["ratio"] is None
    assert "AlterPartition p99" in printed
    assert "Plotly" in page.read_text()


def test_a_subject_that_fails_does_not_cost_what_was_measured() -> None:
    ours, theirs = Measured(), Measured()
    for seconds in (1.0, 3.0, 2.0):
        ours.seconds.setdefault("failover", []).append(seconds)
        ours.seconds.setdefault("broker failure", []).append(seconds)
    theirs.seconds["failover"] = [20.0]
    rows = rows_of({"aiocontroller": ours, "kafka": theirs}, 100)
    assert [(row.case, row.subject, row.median_s, row.runs, row.ratio) for row in rows] == [
        ("failover", "aiocontroller", 2.0, 3, 10.0),
        ("failover", "kafka", 20.0, 1, None),
        ("broker failure", "aiocontroller", 2.0, 3, None),
    ]
    assert rows_of({"aiocontroller": Measured(), "kafka": Measured()}, 100) == []


@pytest.mark.benchmark
@pytest.mark.kafka
@pytest.mark.timeout(300)
def test_kafka_is_measured_beside_us(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Only with ``-m benchmark``: on a machine that others use the ratios prove nothing."""
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)
    rows_file = tmp_path / "rows.json"
    arguments = ("--partitions", "10000", "--runs", "1", "--against", "kafka", "--json", str(rows_file))
    table = run("benchmarks.controller", *arguments, "--cases", "failover", "alter-partition")
    with capsys.disabled():
        sys.stdout.write("\n" + table)
    rows: list[dict[str, Any]] = json.loads(rows_file.read_bytes())
    assert [(row["case"], row["subject"]) for row in rows[:2]] == [("failover", "aiocontroller"), ("failover", "kafka")]
    for row in rows:
        assert (row["ratio"] is None) == (row["subject"] == "kafka")
        assert row["ratio"] is None or row["ratio"] > 0


@pytest.mark.timeout(300)
def test_a_storm_heals_between_its_failovers(tmp_path: Path) -> None:
    rows_file = tmp_path / "took.json"
    arguments = ("--failovers", "5", "--seed", "3", "--partitions", "300", "--topics", "3", "--against", "none")
    run("benchmarks.failovers", *arguments, "--json", str(rows_file))
    took = json.loads(rows_file.read_bytes())
    assert len(took) == 5
    assert len({t["kind"] for t in took}) == len(KINDS) - 1  # without an ensemble ZooKeeper has no leader to lose


@pytest.mark.timeout(300)
def test_a_standby_decides_when_controller_and_broker_die_together(tmp_path: Path) -> None:
    rows_file = tmp_path / "took.json"
    arguments = ("--only", "warm", "--broker-dies", "--failovers", "2", "--partitions", "300", "--topics", "3")
    run("benchmarks.standbys", *arguments, "--json", str(rows_file))
    took = json.loads(rows_file.read_bytes())
    assert [one["standby"] for one in took] == ["warm"] * 2
    for one in took:  # a decision is sent after it is made
        assert 0 < one["decided_ms"] <= one["last_s"] * 1000


@pytest.mark.timeout(300)
def test_a_failover_with_open_pages_and_one_without(tmp_path: Path) -> None:
    rows_file = tmp_path / "took.json"
    arguments = ("--only", "warm", "--pages", "20", "--failovers", "2", "--partitions", "300", "--topics", "3")
    printed = run("benchmarks.standbys", *arguments, "--json", str(rows_file))
    without, pages = json.loads(rows_file.read_bytes())
    assert (without["pages"], without["page_messages"], pages["pages"]) == (0, 0, 20)
    assert pages["page_messages"] >= 20  # the first message of each page
    for one in (without, pages):
        assert 0 < one["answer_p99_ms"] <= one["answer_most_ms"]
    assert "warm, 20 pages" in printed


@pytest.mark.timeout(300)
def test_the_best_logs_of_leaderless_partitions_lead(tmp_path: Path) -> None:
    """The benchmark ends with an error if another log leads."""
    rows_file = tmp_path / "took.json"
    printed = run("benchmarks.recovery", "--partitions", "250", "--rounds", "1", "--json", str(rows_file))
    [took] = json.loads(rows_file.read_bytes())
    assert took["partitions"] == 250
    assert 0 < took["asked_s"] < took["led_s"]
    assert "250 leaderless partitions on three brokers" in " ".join(printed.split())


@pytest.mark.parametrize(
    "partitions, cases, runs",
    [(999_900, USUAL, 3), (2_000_000, ("failover", "broker-failure", "controlled-shutdown"), 1)],
)
def test_the_largest_clusters_have_cases_of_their_own(partitions: int, cases: tuple[str, ...], runs: int) -> None:
    given = parse(["--partitions", str(partitions)])
    assert (tuple(given.cases), given.runs) == (cases, runs)


def test_a_schedule_is_the_seeds() -> None:
    assert schedule(7, 30, ensemble=True, brokers=10) == schedule(7, 30, ensemble=True, brokers=10)
    assert schedule(7, 30, ensemble=True, brokers=10) != schedule(8, 30, ensemble=True, brokers=10)
    assert {episode.kind for episode in schedule(7, 30, ensemble=True, brokers=10)} == set(KINDS)


def test_percentiles_are_values_that_occurred() -> None:
    values = [float(v) for v in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.9, 0.99, 1.0)] == [50, 90, 99, 100]
    assert percentile([3.0], 0.99) == 3.0
    assert sum(int(line.split()[-1]) for line in histogram(values) if "█" in line) == 100


def test_a_broker_that_received_nothing_is_named() -> None:
    views = Views([1, 2])
    states = {("t", 0): LeaderAndIsr(1, 0, (1, 2), 1, 0)}
    found = list(views.differences({1, 2}, states, {"t": {0: ReplicaAssignment((1, 2))}}))
    assert len(found) == 4  # both brokers' metadata, both replicas
    assert any("broker 2 did not receive t-0" in line for line in found)
    assert list(views.differences(set(), states, {"t": {0: ReplicaAssignment((1, 2))}})) == []
