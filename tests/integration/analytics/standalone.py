"""A real Spark cluster on loopback: a master, two workers, spark-submit; the same tables as on one machine.

    python -m tests.integration.analytics.standalone [--records 20000]

Prints what it compared; exit code 1 when a table differs.  Too long for every test run: a minute on two quiet cores.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pyspark

from aiocontroller.analytics.gold import SORTED_BY
from aiocontroller.cluster.java import find_java
from benchmarks.pipeline import write_journal

SPARK = Path(pyspark.__file__).parent
JOB = """
import sys
from aiocontroller.analytics import batch
from aiocontroller.analytics.session import spark_session
spark = spark_session()
print("master", spark.sparkContext.master)
batch.run(spark, [sys.argv[1]], sys.argv[2])
# Executors are listed with the driver among them.
print("executors", spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
spark.stop()
"""
SETTINGS = ("spark.executor.memory=1g", "spark.sql.shuffle.partitions=4", "spark.driver.host=127.0.0.1")


def environment() -> dict[str, str]:
    java_home = str(find_java().resolve().parent.parent)
    here = str(Path(__file__).resolve().parents[3])
    own = {"JAVA_HOME": java_home, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": here, "SPARK_LOCAL_IP": "127.0.0.1"}
    return {**os.environ, **own}


@contextlib.contextmanager
def daemon(log: Path, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as output:
        started = [str(SPARK / "bin/spark-class"), *command]
        process = subprocess.Popen(started, stdout=output, stderr=output, env=environment())
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def said(log: Path, pattern: str, timeout_s: float = 120) -> str:
    deadline = time.monotonic() + timeout_s
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{log}: {pattern!r} was not said within {timeout_s:g} s")
        time.sleep(0.2)
    return found[1]


def submit(master: str, job: Path, *arguments: str) -> str:
    settings = [part for setting in SETTINGS for part in ("--conf", setting)]
    command = [str(SPARK / "bin/spark-submit"), "--master", master, *settings, str(job), *arguments]
    done = subprocess.run(command, env=environment(), check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"spark-submit ended with {done.returncode}:\n{done.stderr[-5000:]}")
    return done.stdout


def say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=20_000)
    records = parser.parse_args().records
    with tempfile.TemporaryDirectory(prefix="aiocontroller-standalone-") as name, contextlib.ExitStack() as running:
        folder = Path(name)
        journals, job = folder / "journals", folder / "job.py"
        journals.mkdir()
        job.write_text(JOB)
        write_journal(journals, records, 500)
        log = folder / "master.log"
        options = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        running.enter_context(daemon(log, "org.apache.spark.deploy.master.Master", *options))
        master = said(log, r"Starting Spark master at (spark://\S+)")
        for number in (1, 2):
            own = (*options, "--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"worker-{number}"), master)
            worker = folder / f"worker-{number}.log"
            running.enter_context(daemon(worker, "org.apache.spark.deploy.worker.Worker", *own))
            said(worker, r"(Successfully registered with master)")
        say(submit(master, job, str(journals), str(folder / "cluster")))
        say(submit("local[2]", job, str(journals), str(folder / "local")))
        differ = 0
        for table in SORTED_BY:
            one, other = (pq.read_table(folder / where / "gold" / table) for where in ("cluster", "local"))
            # Not the schema's "not null": of an empty table Spark keeps what its plan happened to know.
            same = one.column_names == other.column_names and one.to_pylist() == other.to_pylist()
            differ += not same
            say(f"{table:<16} {one.num_rows:>8,} rows  {'the same' if same else 'DIFFERENT'}\n")
        return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
