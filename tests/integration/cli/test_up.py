"""``aiocontroller up`` and the commands for a second terminal, as processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from aiocontroller.java import JavaMissingError, find_java
from tests.integration.cli.program import aiocontroller


class Up:
    """One run of ``up --json``; its lines are read as they come."""

    def __init__(self, data: Path, *options: str) -> None:
        self.data = data
        self.errors = data.parent / "up.stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "aiocontroller", "up", "--json", "--data", str(data), *options],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.lines: list[dict[str, Any]] = []

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, f"ended with {self.process.wait()}: {self.errors.read_text()}"
        self.lines.append(json.loads(text))
        return self.lines[-1]

    def ended(self) -> list[dict[str, Any]]:
        """The rest of its lines, after it ended as it should: code 0, no process, no lock."""
        rest, _ = self.process.communicate(timeout=30)
        self.lines += [json.loads(text) for text in rest.splitlines()]
        assert self.process.returncode == 0, self.errors.read_text()
        assert not (self.data / "cluster.json").exists()
        assert not (self.data / "process.lock").exists()
        return self.lines


@pytest.fixture(autouse=True)
def java() -> None:
    try:
        find_java()
    except JavaMissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Up]]:
    running: list[Up] = []

    def start(*options: str) -> Up:
        running.append(Up(tmp_path / "data", *options))
        return running[-1]

    yield start
    for up in running:
        if up.process.poll() is None:
            up.process.kill()  # its children die with it
        up.process.wait()
        assert up.process.stdout is not None
        up.process.stdout.close()


def until(condition: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.1)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.zookeeper
@pytest.mark.timeout(240)
def test_a_tour(started: Callable[..., Up]) -> None:
    up = started("--topics", "2", "--partitions", "4")
    ready = up.line()
    assert ready["event"] == "ready"
    assert {"zookeeper", "bootstrap", "http"} <= set(ready)
    assert len(ready["bootstrap"].split(",")) == 3
    pids = json.loads((up.data / "cluster.json").read_text())["processes"]
    assert sorted(pids) == ["broker-1", "broker-2", "broker-3", "controller", "zookeeper"]

    def status() -> dict[str, Any]:
        found = json.loads(aiocontroller("status", "--data", str(up.data), "--json").stdout)
        assert isinstance(found, dict)
        return found

    before = status()
    assert before["partitions"] == {"total": 8, "offline": 0, "under_replicated": 0, "not_preferred": 0}
    assert before["controller"]["epoch"] == 1
    second = aiocontroller("up", "--data", str(up.data), code=1)
    assert f"process {up.process.pid} has the folder {up.data} already" in second.stderr

    done = aiocontroller("cluster", "kill-broker", "2", "--data", str(up.data))
    assert done.stdout.startswith("Broker 2 was killed")
    until(lambda: (s := status())["partitions"]["offline"] == 0 and s["brokers"][1]["leaders"] == 0)
    assert status()["brokers"][1]["live"] is False
    aiocontroller("cluster", "start-broker", "2", "--data", str(up.data), "--json")
    until(lambda: status()["partitions"]["under_replicated"] == 0)
    until(lambda: status()["partitions"]["not_preferred"] == 0)
    refused = aiocontroller("cluster", "start-broker", "2", "--data", str(up.data), code=1)
    assert "runs already" in refused.stderr

    up.process.send_signal(signal.SIGTERM)
    lines = up.ended()
    summary = lines[-1]
    assert summary["event"] == "summary"
    assert summary["partitions"]["total"] == 8
    assert summary["records"] > 0
    assert {row["event"] for row in summary["events"]} >= {"Startup", "BrokerChange"}
    assert any(line["event"] == "notice" and "killed" in line["text"] for line in lines)
    until(lambda: not any(alive(pid) for pid in pids.values()))
    gone = aiocontroller("status", "--data", str(up.data), code=1)
    assert "no cluster runs in" in gone.stderr


@pytest.mark.zookeeper
def test_it_ends_by_itself(started: Callable[..., Up]) -> None:
    up = started("--brokers", "1", "--topics", "1", "--partitions", "1", "--minutes", "0.15")
    assert up.line()["event"] == "ready"
    assert up.ended()[-1]["event"] == "summary"


@pytest.mark.zookeeper
@pytest.mark.parametrize("port", ["--zookeeper-port", "--controller-port", "--http-port"])
def test_taken_port_is_named_with_its_process(tmp_path: Path, port: str) -> None:
    """It printed the end of the log of the run before."""
    log = tmp_path / "data" / "controller" / "log"
    log.parent.mkdir(parents=True)
    log.write_text("the run before\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        done = aiocontroller("up", "--brokers", "1", port, str(taken), "--data", str(tmp_path / "data"), code=1)
    assert f"cannot listen on 127.0.0.1:{taken}: Address already in use by process {os.getpid()} (" in done.stderr
    assert "the run before" not in done.stderr


def test_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for command in (["up"], ["run", "--zookeeper", "127.0.0.1:1"]):
        done = aiocontroller(*command, "--data", str(tmp_path / "file"), code=2)
        assert str(tmp_path / "file") in done.stderr
        done = aiocontroller(*command, "--data", str(tmp_path / "file" / "below"), code=1)
        assert f"Error: the folder {tmp_path}/file/below cannot be used: Not a directory; name another" in done.stderr


@pytest.mark.zookeeper
def test_hung_children_are_killed_and_output_need_not_be_read(started: Callable[..., Up]) -> None:
    """Its children are suspended, and its output is a pipe without a reader: it ends within 10 s all the same."""
    up = started("--brokers", "2", "--topics", "1", "--partitions", "1", "--storm", "1")
    assert up.line()["event"] == "ready"
    pids = json.loads((up.data / "cluster.json").read_text())["processes"]
    for pid in pids.values():
        with contextlib.suppress(ProcessLookupError):  # the storm may have killed it
            os.kill(pid, signal.SIGSTOP)
    up.process.send_signal(signal.SIGTERM)
    began_s = time.monotonic()
    up.process.wait(60)
    assert time.monotonic() - began_s < 30  # 10, on a machine that has nothing else to do
    until(lambda: not any(alive(pid) for pid in pids.values()))


@pytest.mark.zookeeper
def test_what_up_writes_is_for_its_owner_only(started: Callable[..., Up]) -> None:
    up = started("--brokers", "1", "--topics", "1", "--partitions", "1")
    assert up.line()["event"] == "ready"
    up.process.send_signal(signal.SIGTERM)
    up.ended()
    found = [up.data, *up.data.rglob("*")]
    assert [str(path) for path in found if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


@pytest.mark.zookeeper
def test_a_signal_before_it_is_ready_ends_it_too(started: Callable[..., Up]) -> None:
    up = started()
    until(lambda: (up.data / "process.lock").exists())
    up.process.send_signal(signal.SIGINT)
    assert [line["event"] for line in up.ended()] == ["summary"]


def test_no_cluster_here_says_where_it_looked(tmp_path: Path) -> None:
    done = aiocontroller("cluster", "kill-broker", "1", cwd=tmp_path, code=1)
    assert str(tmp_path) in done.stderr
    assert "aiocontroller up" in done.stderr


def test_more_replicas_than_brokers_are_refused() -> None:
    done = aiocontroller("up", "--brokers", "2", "--replication-factor", "3", code=2)
    assert "expected at most the number of brokers, 2" in done.stderr
