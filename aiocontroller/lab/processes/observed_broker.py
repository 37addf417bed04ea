"""A simulated broker that records what the checkers need from it; a process of a storm.

    python -m aiocontroller.lab.processes.observed_broker (options of aiocontroller.lab.cluster.simulated_broker)

``DIR/observed-PID.jsonl`` holds one ``Observation`` per line: what the broker received, what it asked of its
controller, and which requests were answered without an error.  ``replay`` passes them to the history, which the
simulation fills directly.  SIGUSR1 makes a log directory fail that holds every second replica of the broker.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import msgspec

from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.lab.checkers.history import Leadership, Partition
from aiocontroller.lab.checkers.observers import BrokerObserver
from aiocontroller.lab.cluster import simulated_broker
from aiocontroller.lab.cluster.simulated_broker import SimulatedBroker


class Observation(msgspec.Struct, frozen=True, omit_defaults=True):
    """``what`` is ``asked``, ``received`` or ``acknowledged``; in ``asked`` the leader is the broker itself."""

    what: str
    broker: int
    topic: str
    partition: int
    leadership: Leadership


class ObservationLog:
    """Takes the place of the simulation's ``ZNodeHistory``; each line reaches the operating system before the next
    event."""

    def __init__(self, path: Path, broker: int) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 - closed by the process's end
        self._broker = broker
        self._encode = msgspec.json.Encoder().encode
        self._last_received: dict[Partition, Leadership] = {}

    def asked(self, partition: Partition, leader_epoch: int, isr: tuple[int, ...], partition_epoch: int) -> None:
        self._write("asked", self._broker, partition, (self._broker, leader_epoch, isr, partition_epoch))

    def received(self, broker: int, partition: Partition, leadership: Leadership) -> None:
        if self._last_received.get(partition) != leadership:  # UpdateMetadata repeats LeaderAndIsr
            self._last_received[partition] = leadership
            self._write("received", broker, partition, leadership)

    def placed(self, broker: int, partition: Partition, replicas: tuple[int, ...]) -> None:
        """Ignore the replicas: their order among the changes in ZooKeeper is unknown."""

    def acknowledged(self, broker: int, partition: Partition, leadership: Leadership) -> None:
        self._write("acknowledged", broker, partition, leadership)

    def replica_deleted(
        self, broker: int, partition: Partition, leader_epoch: int, topic_id: bytes = NO_TOPIC_ID
    ) -> None:
        """Ignore the deletion: its order among the changes in ZooKeeper is unknown."""

    def probe(self, name: str) -> None:
        """Ignore the probe: only simulations count coverage."""

    def _write(self, what: str, broker: int, partition: Partition, leadership: Leadership) -> None:
        try:
            self._file.write(self._encode(Observation(what, broker, *partition, leadership)) + b"\n")
        except OSError:
            pass  # a full disk is one of the faults


def observe(broker: SimulatedBroker) -> None:
    folder = broker.config.data_dir
    assert folder is not None
    history = ObservationLog(folder / f"observed-{os.getpid()}.jsonl", broker.config.id)
    BrokerObserver(history, broker, lambda number, api: None)
    failing: set[asyncio.Task[None]] = set()

    def fail_log_dir() -> None:
        replicas = sorted((p.topic, p.partition) for p in broker.replicas.partitions())
        task = asyncio.ensure_future(broker.fail_log_dir(replicas[::2]))
        failing.add(task)
        task.add_done_callback(failing.discard)

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, fail_log_dir)


if __name__ == "__main__":
    simulated_broker.main(prepare=observe)
