"""The two who are compared: Kafka's own controller, in two brokers that hold no partitions, and ours."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from aiocontroller.cluster.processes import Child
from aiocontroller.cluster.real_kafka import RealKafkaBroker

START_TIMEOUT_S = 120.0
_SETTINGS = {
    "auto.leader.rebalance.enable": "false",  # elections are the scenario's
    "unclean.leader.election.enable": "false",
    "zookeeper.session.timeout.ms": "30000",  # a busy machine must not cost a failover
}


class Subject:
    """Something that can be the controller of the cluster in ``zookeeper`` (``host:port/chroot``)."""

    name: str
    registered: frozenset[int]
    """Ids under which it registers as brokers."""

    async def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def address(self, controller: int) -> tuple[str, int]:
        """Where the instance with this id takes requests."""
        raise NotImplementedError

    @property
    def ids(self) -> frozenset[int]:
        """Every id under which it may appear in requests."""
        raise NotImplementedError


class KafkasOwn(Subject):
    """Two, so that one can take over from the other."""

    name = "Kafka"
    registered = frozenset((1001, 1002))
    ids = registered

    def __init__(self, zookeeper: str, folder: Path) -> None:
        settings = {
            **_SETTINGS,
            "reserved.broker.max.id": "2000",
            "auto.create.topics.enable": "false",
            "zookeeper.connection.timeout.ms": "60000",
        }
        self._brokers = {
            n: RealKafkaBroker(n, zookeeper, folder / f"kafka-{n}", overrides=settings, heap_mb=384)
            for n in sorted(self.registered)
        }

    async def start(self) -> None:
        children = [broker.launch() for broker in self._brokers.values()]
        waits = zip(self._brokers.values(), children, strict=True)
        await asyncio.gather(*(child.wait_until_async(broker.answers, START_TIMEOUT_S) for broker, child in waits))

    def stop(self) -> None:
        for broker in self._brokers.values():
            broker.kill()

    def address(self, controller: int) -> tuple[str, int]:
        return "127.0.0.1", self._brokers[controller].port


class Ours(Subject):
    """One: it stands again when ``/controller`` goes."""

    name = "aiocontroller"
    registered: frozenset[int] = frozenset()
    ids = frozenset((1_000_001,))

    def __init__(self, zookeeper: str, folder: Path) -> None:
        self._zookeeper = zookeeper
        self._folder = folder / "ours"
        self._child: Child | None = None

    async def start(self) -> None:
        (identity,) = self.ids
        command = [sys.executable, "-m", "aiocontroller", "run", "--zookeeper", self._zookeeper, "--id", str(identity)]
        command += ["--http-port", "0", "--data", str(self._folder)]
        for key, value in _SETTINGS.items():
            command += ["--property", f"{key}={value}"]
        self._child = Child("aiocontroller", command, log=self._folder / "log")
        await self._child.wait_until_async((self._folder / "controller.json").exists, START_TIMEOUT_S)

    def stop(self) -> None:
        if self._child is not None:
            self._child.kill()

    def address(self, controller: int) -> tuple[str, int]:
        assert controller in self.ids
        (listener,) = json.loads((self._folder / "controller.json").read_text())["listeners"]
        host, port = listener.rsplit("/", 1)[1].rsplit(":", 1)
        return host, int(port)
