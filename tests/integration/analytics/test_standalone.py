"""A real Spark cluster on loopback: a master and two workers compute the tables that DuckDB computes in one process."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from aiocontroller.analytics.gold import SORTED_BY
from aiocontroller.analytics.job import Job, perform
from aiocontroller.analytics.journal_files import HERE_BELOW_BYTES
from aiocontroller.analytics.session import _java_home
from aiocontroller.java import JavaMissingError, find_java
from benchmarks.pipeline import write_journal
from tests.integration.analytics.test_recorded import RECORDED

START_S, RUN_S = 180, 1200
"""Generous: five Javas start at the same time, on a busy machine."""
pytestmark = [pytest.mark.timeout(RUN_S + 4 * START_S), pytest.mark.slow, pytest.mark.standalone]
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEFAULTS = {
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.extraJavaOptions": JAVA_OPTIONS,
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
}


@contextlib.contextmanager
def daemon(log: Path, environment: dict[str, str], *command: str) -> Iterator[None]:
    import pyspark

    spark_class = str(Path(pyspark.__file__).parent / "bin/spark-class")
    with log.open("wb") as output:
        process = subprocess.Popen([spark_class, *command], stdout=output, stderr=output, env=environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def said(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_S
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        assert time.monotonic() < deadline, f"{pattern!r} was not said within {START_S} s:\n{log.read_text()[-3000:]}"
        time.sleep(0.2)
    return found[1]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    try:
        home = _java_home(find_java())
    except JavaMissingError as error:
        pytest.skip(str(error))
    (tmp_path / "conf").mkdir()
    lines = (f"{name} {value}\n" for name, value in DEFAULTS.items())
    (tmp_path / "conf" / "spark-defaults.conf").write_text("".join(lines))
    own = {
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[3]),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return {**os.environ, **own}


@pytest.fixture
def master(tmp_path: Path, environment: dict[str, str]) -> Iterator[str]:
    options = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with contextlib.ExitStack() as running:
        log = tmp_path / "master.log"
        running.enter_context(daemon(log, environment, "org.apache.spark.deploy.master.Master", *options))
        master = said(log, r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            own = (*options, "--cores", "1", "--memory", "600m", "--work-dir", str(tmp_path / f"worker-{number}"))
            log = tmp_path / f"worker-{number}.log"
            running.enter_context(daemon(log, environment, "org.apache.spark.deploy.worker.Worker", *own, master))
            said(log, r"(Successfully registered with master)")
        yield master


def test_master_and_two_workers_compute_the_same_tables(
    tmp_path: Path, environment: dict[str, str], master: str
) -> None:
    journals = tmp_path / "in" / "journals"
    journals.mkdir(parents=True)
    assert write_journal(journals, 40_000, 500) > HERE_BELOW_BYTES, "workers decode none"
    shutil.copytree(RECORDED / "3.9" / "logs", tmp_path / "in" / "logs")
    (tmp_path / "manifest.toml").write_text('[[files]]\nglob = "logs/*"\ncluster = "recorded"\ntime_zone = "UTC"\n')
    told = [str(tmp_path / "in"), "--manifest", str(tmp_path / "manifest.toml")]
    command = [sys.executable, "-m", "aiocontroller", "analyze", *told, "--master", master, "--json"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "cluster")], env=environment, cwd=tmp_path, capture_output=True, text=True,
        timeout=RUN_S, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-5000:]
    assert f"computed by Spark on {master}: " in done.stderr
    for number in (1, 2):
        assert list((tmp_path / f"worker-{number}").glob("app-*/*/stderr")), f"worker {number} ran no executor"
    perform(Job((told[0],), str(tmp_path / "here"), manifest=told[2], engine="duckdb"), lambda words: None)
    for table in SORTED_BY:
        cluster, here = (pq.read_table(tmp_path / where / "gold" / table) for where in ("cluster", "here"))
        assert cluster.column_names == here.column_names, table
        assert cluster.to_pylist() == here.to_pylist(), table
    assert pq.read_table(tmp_path / "here/gold/windows").num_rows > 0
