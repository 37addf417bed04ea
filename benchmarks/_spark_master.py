"""A Spark cluster on loopback: a standalone master with workers of one core each, as processes of their own."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from aiocontroller.analytics.session import _java_home
from aiocontroller.java import find_java

START_S: Final = 180
"""Generous: several Javas start at the same time, on a busy machine."""


def environment(folder: Path, **settings: str) -> dict[str, str]:
    """Return the environment of the cluster and its drivers, with Spark's settings (``_`` stands for ``.``) written to
    ``folder``.  Raises ``JavaMissingError``."""
    home = _java_home(find_java())
    conf = folder / "conf"
    conf.mkdir()
    options = {"driver_host": "127.0.0.1", "ui_showConsoleProgress": "false", **settings}
    (conf / "spark-defaults.conf").write_text(
        "".join(f"spark.{name.replace('_', '.')} {value}\n" for name, value in options.items())
    )
    own = {
        "JAVA_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "SPARK_CONF_DIR": str(conf),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    return {**os.environ, **own}


@contextlib.contextmanager
def standalone(folder: Path, own: Mapping[str, str], workers: int, memory: str) -> Iterator[str]:
    """Yield the master's URL; logs and the workers' folders (``worker-1``, …) are in ``folder``."""
    options = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with contextlib.ExitStack() as running:
        log = folder / "master.log"
        running.enter_context(_daemon(log, own, "org.apache.spark.deploy.master.Master", *options))
        master = _wait_for_line(log, r"Starting Spark master at (spark://\S+)")
        for number in range(1, workers + 1):
            each = (*options, "--cores", "1", "--memory", memory, "--work-dir", str(folder / f"worker-{number}"))
            log = folder / f"worker-{number}.log"
            running.enter_context(_daemon(log, own, "org.apache.spark.deploy.worker.Worker", *each, master))
            _wait_for_line(log, r"(Successfully registered with master)")
        yield master


def _daemon(log: Path, own: Mapping[str, str], *command: str) -> contextlib.AbstractContextManager[None]:
    import pyspark

    return running([str(Path(pyspark.__file__).parent / "bin/spark-class"), *command], log, own)


@contextlib.contextmanager
def running(command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a process within the block, with its output in ``log``; it has 30 s to end before it is killed."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_for_line(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + START_S
    while (found := re.search(pattern, log.read_text(errors="replace"))) is None:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{pattern!r} was not said within {START_S} s:\n{log.read_text()[-3000:]}")
        time.sleep(0.2)
    return found[1]
