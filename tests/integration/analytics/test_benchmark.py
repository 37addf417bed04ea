"""``scripts/bench pipeline``: the subjects find the same figures, and its table says how sure their times are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import _broker_logs, pipeline


def test_subjects_find_the_same_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(pipeline.INPUTS, "few", lambda folder: pipeline.write_journal(folder, 3_000, 100))
    found = pipeline.compared("few", tmp_path, ["duckdb", "query", "python"], 1, pipeline.Processors())
    assert found["figures"]["records"] == 3_000
    assert all(found["figures"][name] > 0 for name in pipeline.FIGURES)
    assert all(len(runs) == 1 and all(run["cpu_s"] > 0 for run in runs) for runs in found["runs"].values())
    table = capsys.readouterr().out.rpartition("all found")[2]
    for subject in found["runs"]:
        assert re.search(rf"^ +{subject} +[\d.]+ \([\d.]+–[\d.]+\) ± *\d+% +[\d.]+ \(", table, re.MULTILINE), table


@pytest.mark.parametrize("rounds, lines", [(1, 3_303), (2, 11_750)])
def test_twelve_logs_of_real_brokers_are_read_alike(
    rounds: int, lines: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(pipeline.INPUTS, "few logs", lambda folder: _broker_logs.write_logs(folder, rounds))
    found = pipeline.compared("few logs", tmp_path, ["duckdb", "query", "python"], 1, pipeline.Processors())
    files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert len(files) == 12
    assert sum(name.endswith(".gz") for name in files) == 2
    # Twenty-nine partitions lost their leader while it was recorded.
    assert found["figures"] | {"requests": 0, "failovers_ms": 0} == {
        "records": lines, "windows": 29 * rounds, "requests": 0, "failovers_ms": 0
    }  # fmt: skip
    assert found["figures"]["requests"] == 712 * rounds
    assert found["figures"]["failovers_ms"] > 5_000 * rounds
    again = tmp_path / "again"
    again.mkdir()
    assert _broker_logs.write_logs(again, rounds) == found["bytes"]


def test_ten_terms_have_ten_times_the_figures_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "FILE_RECORDS", 1_300)
    monkeypatch.setitem(pipeline.INPUTS, "100M", lambda folder: pipeline.write_terms(folder, 3_000))
    found = pipeline.compared("100M", tmp_path, ["duckdb", "query", "python"], 1, pipeline.Processors())
    assert found["figures"] == pipeline.expected_of_terms(tmp_path)
    assert found["figures"]["records"] == 30_000
    assert sorted(path.name for path in tmp_path.iterdir())[:3] == [
        f"journal-1-1-{pipeline.START_US}-00000{number}.jsonl.gz" for number in (1, 2, 3)
    ]
    monkeypatch.setitem(pipeline.EXPECTED, "100M", lambda folder: {"records": 30_001})
    with pytest.raises(AssertionError, match="the figures differ"):
        pipeline.compared("100M", tmp_path, ["python"], 1, pipeline.Processors())


def test_subjects_that_differ_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(subject: str, folder: Path, processors: Any) -> dict[str, Any]:
        return {"s": 1.0, "cpu_s": 1.0, "bytes": 0, "load": 0.0, "figures": {"records": len(subject)}}

    monkeypatch.setitem(pipeline.INPUTS, "few", lambda folder: 0)
    monkeypatch.setattr(pipeline, "one_run", run)
    with pytest.raises(AssertionError, match="the figures differ"):
        pipeline.compared("few", tmp_path, ["duckdb", "spark"], 1, pipeline.Processors())


def test_without_options_spark_computes_a_million_records_only(monkeypatch: pytest.MonkeyPatch) -> None:
    def planned(*options: str) -> list[tuple[str, list[str], int]]:
        return pipeline.plan(pipeline.parsed(options))

    usual = planned()
    assert [(name, runs) for name, _, runs in usual] == [("logs", 5), ("1M", 5), ("10M", 3), ("1M", 1)]
    assert [subjects for *_, subjects, _ in usual] == [["duckdb", "query", "python"]] * 3 + [["spark-1", "spark-2"]]
    assert planned("--runs", "2")[0][2] == 2
    assert planned("--inputs", "1M") == [("1M", list(pipeline.SUBJECTS), 5)]
    of_python = planned("--subjects", "python", "--runs", "1")
    assert of_python == [(name, ["python"], 1) for name in ("logs", "long-logs", "twelve", "1M", "10M")]
    assert planned("--inputs", "100M") == [("100M", ["spark-1", "spark-2"], 1)]
    assert planned("--inputs", "100M", "--subjects", "query", "--runs", "2") == [("100M", ["query"], 2)]


def test_noise_is_the_median_distance_from_the_median() -> None:
    assert pipeline.in_words([1.0, 2.0, 2.0, 2.2, 9.0]).split() == ["2.0", "(1.0–9.0)", "±10%"]
