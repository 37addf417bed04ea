"""Measures the cost of a case besides time: processor seconds, memory, ZooKeeper's packets.  Zeros except on Linux."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper

_TICKS = os.sysconf("SC_CLK_TCK")


class Usage(NamedTuple):
    cpu_s: float
    """Of those of the subject's processes that were running all the time."""
    zookeeper_cpu_s: float
    zookeeper_packets: int
    """Requests that ZooKeeper received."""


class Meter:
    """Measures what has been used since it was created."""

    def __init__(self, pids: Iterable[int], servers: Iterable[EmbeddedZooKeeper]) -> None:
        self._subject = {pid: cpu_s(pid) for pid in pids}
        self._servers = [server for server in servers if server.pid is not None]
        self._zookeeper = {server.pid: cpu_s(server.pid) for server in self._servers if server.pid is not None}
        self._packets = sum(map(packets_received, self._servers))

    def read(self) -> Usage:
        return Usage(
            sum(max(0.0, cpu_s(pid) - before) for pid, before in self._subject.items()),
            sum(max(0.0, cpu_s(pid) - before) for pid, before in self._zookeeper.items()),
            sum(map(packets_received, self._servers)) - self._packets,
        )


def cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_rss_mib(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:")), 0.0)


def packets_received(server: EmbeddedZooKeeper) -> int:
    """Return the server's count, by its command ``srvr``."""
    host, port = server.address.split(":")
    try:
        with socket.create_connection((host, int(port)), timeout=5) as connection:
            connection.sendall(b"srvr")
            answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in answer.splitlines() if line.startswith("Received:")), 0)
