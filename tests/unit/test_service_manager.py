"""What is sent to systemd, and when nothing is sent."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from aiocontroller.net.real import real_world
from aiocontroller.service_manager import MAX_STATUS_CHARS, ServiceManager


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        path = str(tmp_path / "notify")
        server.bind(path)
        server.settimeout(20)
        yield server, path


def test_a_message_arrives_at_a_path(listening: tuple[socket.socket, str]) -> None:
    server, path = listening
    manager = ServiceManager.from_environ({"NOTIFY_SOCKET": path})
    assert manager is not None
    manager.say("READY=1", "STATUS=\udc80 of 3")
    assert server.recv(100) == b"READY=1\nSTATUS=\\udc80 of 3"
    manager.close()


def test_a_message_arrives_at_an_abstract_name() -> None:
    name = f"aiocontroller-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind("\0" + name)
        server.settimeout(20)
        manager = ServiceManager(f"@{name}")
        manager.say("STOPPING=1")
        assert server.recv(100) == b"STOPPING=1"
        manager.close()


def test_a_manager_that_is_gone_is_no_error(tmp_path: Path) -> None:
    manager = ServiceManager(str(tmp_path / "nobody"))
    manager.say("READY=1")
    manager.close()


def test_a_manager_that_does_not_read_holds_nobody_back(listening: tuple[socket.socket, str]) -> None:
    manager = ServiceManager(listening[1])
    for _ in range(5_000):
        manager.say("WATCHDOG=1")
    manager.close()


@pytest.mark.parametrize("address", [None, "", "relative", "vsock:2:1"])
def test_without_an_address_there_is_no_manager(address: str | None) -> None:
    assert ServiceManager.from_environ({} if address is None else {"NOTIFY_SOCKET": address}) is None


@pytest.mark.parametrize(
    "usec, pid, every_s",
    [
        ("2000000", None, 0.5),
        ("2000000", str(os.getpid()), 0.5),
        ("2000000", "1", 1.0),
        ("30000000", None, 1.0),
        ("0", None, 1.0),
        ("soon", None, 1.0),
        (None, None, 1.0),
    ],
)
def test_it_reports_several_times_per_watchdog_interval(usec: str | None, pid: str | None, every_s: float) -> None:
    given = {"NOTIFY_SOCKET": "/run/x", "WATCHDOG_USEC": usec, "WATCHDOG_PID": pid}
    manager = ServiceManager.from_environ({name: value for name, value in given.items() if value is not None})
    assert manager is not None
    assert manager.every_s == every_s
    manager.close()


def test_a_status_is_said_once_and_the_watchdog_always(listening: tuple[socket.socket, str]) -> None:
    server, path = listening
    manager = ServiceManager(path, watchdog_s=0.04)
    statuses = iter(["waiting\nfor ZooKeeper", "active", "active", "x" * 2 * MAX_STATUS_CHARS])

    async def main() -> None:
        with anyio.move_on_after(20):
            async with anyio.create_task_group() as tasks:

                async def stop_at_the_end() -> str:
                    await manager.report(real_world().clock, lambda: next(statuses, "end"))
                    return ""

                tasks.start_soon(stop_at_the_end)
                while next_message() != "WATCHDOG=1\nSTATUS=end":
                    await anyio.sleep(0.001)
                tasks.cancel_scope.cancel()

    sent: list[str] = []

    def next_message() -> str:
        server.setblocking(False)
        try:
            sent.append(server.recv(10_000).decode())
        except BlockingIOError:
            return ""
        return sent[-1]

    anyio.run(main)
    cut = "WATCHDOG=1\nSTATUS=" + "x" * MAX_STATUS_CHARS
    wanted = ["WATCHDOG=1\nSTATUS=waiting for ZooKeeper", "WATCHDOG=1\nSTATUS=active", "WATCHDOG=1", cut]
    assert sent == [*wanted, "WATCHDOG=1\nSTATUS=end"]
    manager.close()
