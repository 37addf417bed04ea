"""``aiocontroller takeover`` and ``release``, said to a controller that runs as a process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.integration.cli.program import aiocontroller
from tests.integration.cli.test_status import register_broker


@pytest.fixture
def controller(zk_connect: str, kazoo: KazooClient, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Of a cluster without brokers, whose role another holds."""
    kazoo.create("/controller", b'{"version":1,"brokerid":1,"timestamp":"0"}')
    with running(zk_connect, tmp_path) as process:
        yield process


@contextlib.contextmanager
def running(zk_connect: str, tmp_path: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = ["run", "--zookeeper", zk_connect, "--listen", "127.0.0.1:0", "--http-port", "0", "--data", str(tmp_path)]
    command += options
    process = subprocess.Popen([sys.executable, "-m", "aiocontroller", *command], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 150
    while not (tmp_path / "controller.json").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield process
    process.kill()
    process.wait()


def test_commands_reach_a_controller_by_ipv6(zk_connect: str, tmp_path: Path) -> None:
    """Its address was http://::1:PORT, which no client understands; so it was for ``::``."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with running(zk_connect, tmp_path, "--property", "aiocontroller.http.host=::1"):
        assert json.loads((tmp_path / "controller.json").read_bytes())["http"].startswith("http://[::1]:")
        assert "last answer" in aiocontroller("brokers", "--data", str(tmp_path)).stdout


def test_role_is_taken_and_given_back(controller: subprocess.Popen[bytes], kazoo: KazooClient, tmp_path: Path) -> None:
    here = ("--data", str(tmp_path))
    assert stat.S_IMODE(os.stat(tmp_path / "controller.json").st_mode) == 0o600  # it holds the token
    done = aiocontroller("takeover", *here)
    assert done.stdout == "Controller 1000001 has taken the role (before: 1), epoch 1.\n"
    assert json.loads(kazoo.get("/controller")[0])["brokerid"] == 1_000_001
    assert "was already active, epoch 1" in aiocontroller("takeover", *here).stdout
    done = aiocontroller("release", *here)
    assert done.stdout == "Controller 1000001 has given the role back after epoch 1.\n"
    assert kazoo.exists("/controller") is None
    assert json.loads(aiocontroller("takeover", "--json", *here).stdout) == {
        "id": 1_000_001,
        "epoch": 2,
        "was_active": False,
        "before": None,
        "settings": [],
        "not_enforced": [],
        "unfit": [],
    }
    done = aiocontroller("release", "--exit", "--linger", "0.1", *here)
    assert "goes on answering for 0.1 s and then ends" in done.stdout
    assert controller.wait(20) == 0
    refused = aiocontroller("takeover", *here, code=1)
    assert refused.stderr == (
        f"Error: no controller runs in {tmp_path}: name its folder, 'aiocontroller run --data DIR', by --data DIR\n"
    )


def test_refusal_says_why(
    controller: subprocess.Popen[bytes], kazoo: KazooClient, tmp_path: Path, zk_connect: str
) -> None:
    register_broker(kazoo, 1_000_001)
    done = aiocontroller("takeover", "--data", str(tmp_path), code=1)
    assert done.stderr.startswith("Error: controller 1000001 does not: aiocontroller.id 1000001 is the id of a broker")
    assert json.loads(kazoo.get("/controller")[0])["brokerid"] == 1


def test_wrong_token_is_refused(controller: subprocess.Popen[bytes], kazoo: KazooClient, tmp_path: Path) -> None:
    ready = tmp_path / "controller.json"
    ready.write_text(ready.read_text().replace('"token":"', '"token":"x'))
    done = aiocontroller("takeover", "--data", str(tmp_path), code=1)
    assert "wrong token" in done.stderr
    assert json.loads(kazoo.get("/controller")[0])["brokerid"] == 1


def test_one_process_for_a_folder(controller: subprocess.Popen[bytes], tmp_path: Path, zk_connect: str) -> None:
    command = ["--zookeeper", zk_connect, "--listen", "127.0.0.1:0", "--http-port", "0"]
    second = aiocontroller("run", *command, "--data", str(tmp_path), code=1)
    assert second.stderr == (
        f"Error: process {controller.pid} has the folder {tmp_path} already: "
        "stop it, or give another folder by --data\n"
    )
    assert f"process {controller.pid} has the folder" in aiocontroller("up", "--data", str(tmp_path), code=1).stderr


@pytest.mark.parametrize("command", ["takeover", "release"])
def test_a_killed_controller_is_said_to_be_gone(
    controller: subprocess.Popen[bytes], tmp_path: Path, command: str
) -> None:
    controller.kill()
    controller.wait()
    done = aiocontroller(command, "--data", str(tmp_path), code=1)
    assert done.stderr == (
        f"Error: no controller runs in {tmp_path}: controller.json is left over from process {controller.pid}, "
        "which is gone\n"
    )


def test_files_are_for_their_owner_only(controller: subprocess.Popen[bytes], tmp_path: Path) -> None:
    found = [*tmp_path.rglob("*")]
    assert {"journal", "controller.json", "process.lock"} <= {path.name for path in found}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_file()} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in found if path.is_dir()} == {0o700}
