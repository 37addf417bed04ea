"""The AlterPartition requests of recording brokers, which grow and shrink ISRs.

``IsrAsker`` keeps one connection for each broker and at most one request in flight on it, as brokers do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr
from aiocontroller.lab.cluster.broker_requests import IntArrays, decode_leader_and_isr, run_to_end
from aiocontroller.lab.cluster.controller_requests import decode_alter_partition_response, encode_alter_partition
from aiocontroller.lab.cluster.partition import IsrChange, Partition
from aiocontroller.net.real import real_world
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import decode_request_header, decode_response_header, encode_request_header

VERSION = 3


def isr_change(
    topic: str, topic_id: bytes, partition: int, state: LeaderAndIsr, partition_epoch: int, isr: tuple[int, ...]
) -> IsrChange:
    replica = Partition(topic, partition)
    replica.topic_id = topic_id
    return IsrChange(replica, state.leader_epoch, isr, partition_epoch)


class IsrAsker:
    """Sends requests to the controller at ``host:port``; ``refused`` counts partitions that it did not change."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._world = real_world()
        self._connections: dict[int, BrokerConnection] = {}
        self._waiting: dict[int, list[IsrChange]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._arrays = IntArrays()
        self._epochs: dict[int, int] = {}
        self.asked = 0
        self.refused = 0

    async def ask(self, broker: int, broker_epoch: int, changes: Sequence[IsrChange]) -> tuple[float, list[int]]:
        """Send one request; returns (seconds until its answer, new partition epochs, -1 for each refused change)."""
        connection = self._connections.get(broker)
        if connection is None or not connection.open:
            _, connection = await self._world.network.connect(BrokerConnection, *self._address, timeout_s=10)
            self._connections[broker] = connection
        header = encode_request_header(ApiKey.ALTER_PARTITION, VERSION, 1, "benchmark")
        body = encode_alter_partition(VERSION, broker, broker_epoch, changes)
        started = time.monotonic()
        frame = await connection.request([header, body])
        seconds = time.monotonic() - started
        _, rest = decode_response_header(ApiKey.ALTER_PARTITION, VERSION, frame)
        answer = decode_alter_partition_response(VERSION, rest)
        if answer.error_code:
            raise RuntimeError(f"AlterPartition of broker {broker} was answered with code {answer.error_code}")
        epochs = {(p.topic, p.partition): p.partition_epoch if p.error_code == 0 else -1 for p in answer.partitions}
        found = [epochs.get((c.partition.topic_id, c.partition.partition), -1) for c in changes]
        self.asked += len(changes)
        self.refused += found.count(-1)
        return seconds, found

    def grow(self, broker: int, broker_epoch: int, frame: bytes) -> None:
        """Request ISRs that include the replicas being added, for the partitions that ``broker`` leads.

        ``frame`` is a LeaderAndIsr that the broker received, without its length.
        """
        header, rest = decode_request_header(frame)
        request = run_to_end(decode_leader_and_isr(header.api_version, bytes(rest), self._arrays))
        waiting = self._waiting.setdefault(broker, [])
        for topic in request.topics:
            for state in topic.partitions:
                if state.leader == broker and set(state.adding) - set(state.isr):
                    assert topic.topic_id != NO_TOPIC_ID
                    replica = Partition(topic.topic, state.partition)
                    replica.topic_id = topic.topic_id
                    isr = (*state.isr, *(r for r in state.adding if r not in state.isr))
                    waiting.append(IsrChange(replica, state.leader_epoch, isr, state.partition_epoch))
        self._epochs[broker] = broker_epoch
        if waiting and broker not in self._tasks:
            self._tasks[broker] = asyncio.get_running_loop().create_task(self._drain(broker))

    async def _drain(self, broker: int) -> None:
        try:
            while waiting := self._waiting.pop(broker, None):
                await self.ask(broker, self._epochs[broker], waiting)
        finally:
            del self._tasks[broker]

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        for connection in self._connections.values():
            connection.close()
