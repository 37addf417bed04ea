"""A real Spark cluster on loopback: a master and two workers compute the tables that DuckDB computes in one process."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aiocontroller.analytics.gold import SORTED_BY
from aiocontroller.analytics.job import Job, perform
from aiocontroller.analytics.journal_files import HERE_BELOW_BYTES
from aiocontroller.java import JavaMissingError
from benchmarks._spark_master import START_S, standalone
from benchmarks._spark_master import environment as environment_of
from benchmarks.pipeline import write_journal
from tests.integration.analytics.test_recorded import RECORDED

RUN_S = 1200
pytestmark = [pytest.mark.timeout(RUN_S + 4 * START_S), pytest.mark.slow, pytest.mark.standalone]
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    options = {"executor_extraJavaOptions": JAVA_OPTIONS, "driver_extraJavaOptions": JAVA_OPTIONS}
    try:
        return environment_of(tmp_path, executor_memory="512m", driver_memory="1g", **options)
    except JavaMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def master(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    with standalone(tmp_path, environment, workers=2, memory="600m") as url:
        yield url


def test_master_and_two_workers_compute_the_same_tables(
    tmp_path: Path, environment: dict[str, str], master: str
) -> None:
    journals = tmp_path / "in" / "journals"
    journals.mkdir(parents=True)
    assert write_journal(journals, 40_000, 500) > HERE_BELOW_BYTES, "workers decode none"
    shutil.copytree(RECORDED / "3.9" / "logs", tmp_path / "in" / "logs")
    (tmp_path / "manifest.toml").write_text('[[files]]\nglob = "logs/*"\ncluster = "recorded"\ntime_zone = "UTC"\n')
    arguments = [str(tmp_path / "in"), "--manifest", str(tmp_path / "manifest.toml")]
    command = [sys.executable, "-m", "aiocontroller", "analyze", *arguments, "--master", master, "--json"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "cluster")], env=environment, cwd=tmp_path, capture_output=True, text=True,
        timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert f"computed by Spark on {master}: " in done.stderr
    for number in (1, 2):
        assert list((tmp_path / f"worker-{number}").glob("app-*/*/stderr")), f"worker {number} ran no executor"
    perform(Job((arguments[0],), str(tmp_path / "here"), manifest=arguments[2], engine="duckdb"), lambda words: None)
    for table in SORTED_BY:
        cluster, here = (pq.read_table(tmp_path / where / "gold" / table) for where in ("cluster", "here"))
        assert cluster.column_names == here.column_names, table
        assert cluster.to_pylist() == here.to_pylist(), table
    assert pq.read_table(tmp_path / "here/gold/windows").num_rows > 0
