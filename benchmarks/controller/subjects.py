"""The subjects that compete: two instances of aiocontroller, or two Kafka 3.9 brokers without partitions."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from aiocontroller.lab.cluster.processes import Child
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

KAFKA_HEAP_MB = 3000
START_TIMEOUT_S = 120.0
_SHIPPED_FLAGS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""The options that kafka-run-class.sh gives a broker's JVM."""


class Subject:
    """Two candidates for ``/controller``, by their ids; ``zookeeper`` is the address that they use."""

    name: str
    ids: tuple[int, int]
    silent_s = 0.0001
    """How long it may be silent between reading, deciding and sending, for each partition of the cluster."""

    def __init__(self, zookeeper: str, folder: Path, properties: Sequence[str] = ()) -> None:
        self.zookeeper = zookeeper
        self.folder = folder
        self.properties = properties

    async def start(self) -> None:
        for number in self.ids:
            await self.start_one(number)

    async def start_one(self, number: int) -> None:
        raise NotImplementedError

    def kill_one(self, number: int) -> None:
        """SIGKILL."""
        raise NotImplementedError

    def running(self, number: int) -> bool:
        raise NotImplementedError

    def address(self, number: int) -> tuple[str, int]:
        """Return the address on which that candidate accepts brokers' requests."""
        raise NotImplementedError

    def pids(self) -> list[int]:
        raise NotImplementedError

    def stop(self) -> None:
        for number in self.ids:
            self.kill_one(number)

    async def active(self, zk: KafkaZkClient) -> int:
        """Return the id of the active candidate."""
        holder = await zk.get_controller(watch=False)
        number = getattr(holder, "controller_id", -1)
        assert number in self.ids, f"/controller is held by {number}, who is none of {self.ids}"
        return int(number)


class Ours(Subject):
    name = "aiocontroller"
    ids = (1_000_001, 1_000_002)

    def __init__(self, zookeeper: str, folder: Path, properties: Sequence[str] = ()) -> None:
        super().__init__(zookeeper, folder, properties)
        self._children: dict[int, Child] = {}

    async def start_one(self, number: int) -> None:
        folder = self.folder / f"ours-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        ready = folder / "controller.json"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "aiocontroller", "run", "--zookeeper", self.zookeeper]
        command += ["--id", str(number), "--http-port", "0", "--data", str(folder)]
        for line in ("auto.leader.rebalance.enable=false", *self.properties):
            command += ["--property", line]
        child = self._children[number] = Child(f"aiocontroller {number}", command, log=folder / "log")
        await child.wait_until_async(ready.exists, START_TIMEOUT_S)

    def kill_one(self, number: int) -> None:
        if number in self._children:
            self._children[number].kill()

    def running(self, number: int) -> bool:
        return number in self._children and self._children[number].running

    def address(self, number: int) -> tuple[str, int]:
        found = json.loads((self.folder / f"ours-{number}" / "controller.json").read_text())
        listener = found["listeners"][0] if isinstance(found["listeners"], list) else found["listeners"]
        host, port = str(listener).rsplit("/", 1)[1].rsplit(":", 1)
        return host, int(port)

    def pid_of(self, number: int) -> int:
        return self._children[number].pid

    def pids(self) -> list[int]:
        return [child.pid for child in self._children.values() if child.running]


class Kafka(Subject):
    """As shipped: Kafka's own flags for the JVM, ``zookeeper.max.in.flight.requests`` 10."""

    name = "kafka"
    silent_s = 0.00025
    ids = (1001, 1002)
    in_flight = 10

    def __init__(self, zookeeper: str, folder: Path, properties: Sequence[str] = ()) -> None:
        super().__init__(zookeeper, folder, properties)
        overrides = {
            "auto.leader.rebalance.enable": "false",
            "reserved.broker.max.id": "2000",
            "zookeeper.max.in.flight.requests": str(self.in_flight),
        }
        self._brokers = {
            number: RealKafkaBroker(
                number,
                zookeeper,
                folder / f"kafka-{number}",
                overrides=overrides,
                heap_mb=KAFKA_HEAP_MB,
                jvm=_SHIPPED_FLAGS,
            )
            for number in self.ids
        }

    async def start_one(self, number: int) -> None:
        await self._brokers[number].start_async(START_TIMEOUT_S)

    def kill_one(self, number: int) -> None:
        self._brokers[number].kill()

    def running(self, number: int) -> bool:
        return self._brokers[number].running

    def address(self, number: int) -> tuple[str, int]:
        return "127.0.0.1", self._brokers[number].port

    def pids(self) -> list[int]:
        return [broker.pid for broker in self._brokers.values() if broker.pid is not None]


class Kafka1000(Kafka):
    """With ``zookeeper.max.in.flight.requests`` 1000, as an operator can set it."""

    name = "kafka, in-flight 1000"
    in_flight = 1000


SUBJECTS: dict[str, type[Subject]] = {"aiocontroller": Ours, "kafka": Kafka, "kafka-1000": Kafka1000}
