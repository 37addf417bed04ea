"""What systemd hears of ``aiocontroller run``: from the wait for ZooKeeper to the end."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.cli.test_stopping import BLOCKED_LOOP, Controller

WITHIN_S = 150.0


class Manager:
    def __init__(self, server: socket.socket) -> None:
        self._server = server
        self.received: list[str] = []

    def hear(self) -> list[str]:
        """All that was said."""
        while True:
            try:
                self.received += self._server.recv(10_000).decode().splitlines()
            except BlockingIOError:
                return self.received

    def until(self, condition: Callable[[list[str]], bool]) -> None:
        deadline_s = time.monotonic() + WITHIN_S
        while not condition(self.hear()):
            assert time.monotonic() < deadline_s, self.received
            time.sleep(0.02)


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    monkeypatch.setenv("WATCHDOG_USEC", "200000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(path)
        server.setblocking(False)
        yield Manager(server)


@pytest.fixture
def controllers() -> Iterator[list[Controller]]:
    running: list[Controller] = []
    yield running
    for controller in running:
        controller.process.kill()
        controller.process.wait()


def test_it_waits_is_ready_is_active_and_ends(
    zk_connect: str, tmp_path: Path, manager: Manager, controllers: list[Controller]
) -> None:
    controller = Controller(tmp_path, "", "--zookeeper", zk_connect)
    controllers.append(controller)
    manager.until(lambda received: any(line.startswith("STATUS=active, epoch 1") for line in received))
    assert manager.received.count("READY=1") == 1
    waiting = manager.received.index(f"STATUS=waiting for ZooKeeper at {zk_connect}")
    assert waiting < manager.received.index("READY=1")
    heard = manager.received.count("WATCHDOG=1")
    manager.until(lambda received: received.count("WATCHDOG=1") >= heard + 5)
    assert "STOPPING=1" not in manager.received
    assert controller.ends() == 0
    assert manager.hear().count("STOPPING=1") == 1


def test_without_zookeeper_it_is_not_ready_and_alive(
    tmp_path: Path, manager: Manager, controllers: list[Controller]
) -> None:
    controller = Controller(tmp_path, "", "--zookeeper", "127.0.0.1:1")
    controllers.append(controller)
    manager.until(lambda received: received.count("WATCHDOG=1") >= 5)
    assert "READY=1" not in manager.received
    assert controller.ends() == 0


def test_a_loop_that_hangs_is_not_alive(
    zk_connect: str, tmp_path: Path, manager: Manager, controllers: list[Controller]
) -> None:
    controller = Controller(tmp_path, BLOCKED_LOOP, "--zookeeper", zk_connect)
    controllers.append(controller)
    controller.until(controller.mark.exists)
    heard = manager.hear().count("WATCHDOG=1")
    time.sleep(1)  # five intervals of the watchdog; a busy machine can only make it say less
    assert manager.hear().count("WATCHDOG=1") - heard <= 1


def test_json_log_lines(tmp_path: Path, controllers: list[Controller]) -> None:
    controller = Controller(tmp_path, "", "--zookeeper", "127.0.0.1:1", "--log-format", "json")
    controllers.append(controller)
    controller.until(lambda: controller.says('"message":"Waiting for ZooKeeper at 127.0.0.1:1"'))
    assert controller.ends() == 0
