"""A client of simulated brokers with logs: it refreshes metadata, produces, retries, and reads.

It produces a few records at a time to a random partition, waits for the answer, and sends failed records again to the
leader that the newest metadata names.  A retry is a new batch: there are no sequence numbers, so records may be
duplicated, and only acknowledged ones count.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import msgspec

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.lab.cluster.broker_links import PRIVATE_HEADER
from aiocontroller.lab.cluster.client_requests import PRODUCE, READ, Produce, Produced, Read, Records
from aiocontroller.lab.cluster.replication import ALL
from aiocontroller.net.ports import World
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.frames import decode_response_header, encode_request_header
from aiocontroller.wire.primitives import INT32

log = logging.getLogger(__name__)

METADATA_VERSION = 7
"""The first version with leader epochs."""
TIMEOUT_S = 1.5
ACKNOWLEDGED_WITHIN_MS = 1_200
REFRESH_S = 3.0
TRIES = 3
PAUSES_S = (0.05, 0.1, 0.3)
ACKS = (ALL, ALL, ALL, 1, 0)
READS = 0.2
"""The share of reads among all operations."""

Partition = tuple[str, int]
Address = tuple[str, int]
Answer = TypeVar("Answer", Produced, Records)


class Leader(NamedTuple):
    broker: int
    epoch: int
    address: Address


class Acknowledged(NamedTuple):
    """``number`` acknowledged records from offset ``base`` on, which ``leader`` appended in ``epoch``."""

    partition: Partition
    acks: int
    epoch: int
    leader: int
    base: int
    number: int
    topic_id: bytes


class DataClient:
    """``bootstrap`` returns the addresses of brokers.  ``acknowledged`` is called for each acknowledgement, and
    ``was_read`` for each read with the partition, the first offset and the answer."""

    def __init__(
        self,
        world: World,
        bootstrap: Callable[[], Sequence[Address]],
        acknowledged: Callable[[Acknowledged], None],
        was_read: Callable[[Partition, int, Records], None] = lambda partition, start, records: None,
    ) -> None:
        self._world = world
        self._bootstrap = bootstrap
        self._acknowledged = acknowledged
        self._was_read = was_read
        self._leaders: dict[Partition, Leader] = {}
        self._refreshed_s = float("-inf")
        self._connections: dict[Address, BrokerConnection] = {}

    async def run(self) -> None:
        """Produce and read until cancelled."""
        chance, clock = self._world.random, self._world.clock
        while True:
            await clock.sleep(PAUSES_S[chance.randrange(len(PAUSES_S))])
            if clock.monotonic() - self._refreshed_s > REFRESH_S:
                await self._refresh()
            known = list(self._leaders)
            if not known:
                continue
            partition = known[chance.randrange(len(known))]
            if chance.random() < READS:
                await self.read(partition, 0)
            else:
                await self.produce(partition, ACKS[chance.randrange(len(ACKS))], 1 + chance.randrange(3))

    async def produce(self, partition: Partition, acks: int, count: int) -> Produced | None:
        """Produce ``count`` records, in up to TRIES tries; returns the last answer, None if there was none."""
        answer = None
        request = Produce(*partition, acks, count, ACKNOWLEDGED_WITHIN_MS)
        for _ in range(TRIES):
            leader = self._leaders.get(partition)
            if leader is not None:
                answer = await self._request(leader.address, PRODUCE, request, Produced)
                if answer is not None and not answer.error:
                    record = Acknowledged(
                        partition, acks, answer.leader_epoch, leader.broker, answer.base, count, answer.topic_id
                    )
                    self._acknowledged(record)
                    return answer
            await self._world.clock.sleep(PAUSES_S[0])
            await self._refresh()
        return answer

    async def read(self, partition: Partition, start: int) -> Records | None:
        leader = self._leaders.get(partition)
        if leader is None:
            return None
        answer = await self._request(leader.address, READ, Read(*partition, leader.epoch, start), Records)
        if answer is None or answer.error:
            await self._refresh()
        else:
            self._was_read(partition, start, answer)
        return answer

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    async def _refresh(self) -> None:
        """Ask one broker for the leaders of all partitions."""
        self._refreshed_s = self._world.clock.monotonic()
        addresses = self._bootstrap()
        if not addresses:
            return
        address = addresses[self._world.random.randrange(len(addresses))]
        header = encode_request_header(ApiKey.METADATA, METADATA_VERSION, 0, "data-client")
        asked = cold.request(ApiKey.METADATA, METADATA_VERSION, topics=None)
        frame = await self._exchange(address, header + cold.encode_request(ApiKey.METADATA, METADATA_VERSION, asked))
        if frame is None:
            return
        _, body = decode_response_header(ApiKey.METADATA, METADATA_VERSION, frame)
        found = cold.decode_response(ApiKey.METADATA, METADATA_VERSION, body)
        live = {broker.node_id: (str(broker.host), int(broker.port)) for broker in found.brokers}
        self._leaders = {
            (str(topic.name), partition.partition_index): Leader(
                partition.leader_id, partition.leader_epoch, live[partition.leader_id]
            )
            for topic in found.topics
            for partition in topic.partitions
            if partition.leader_id in live
        }

    async def _request(
        self, address: Address, key: int, request: msgspec.Struct, answer_type: type[Answer]
    ) -> Answer | None:
        frame = await self._exchange(address, PRIVATE_HEADER.pack(key, 0, 0) + msgspec.msgpack.encode(request))
        return None if frame is None else msgspec.msgpack.decode(frame[INT32.size :], type=answer_type)

    async def _exchange(self, address: Address, frame: bytes) -> bytes | None:
        """Send a frame and return the answer; None if the broker does not answer in time."""
        connection = self._connections.get(address)
        try:
            if connection is None or not connection.open:
                _, connection = await self._world.network.connect(BrokerConnection, *address, timeout_s=TIMEOUT_S)
                self._connections[address] = connection
            async with asyncio.timeout(TIMEOUT_S):
                return await connection.request([frame])
        except (OSError, FrameError, TimeoutError) as error:
            log.debug("%s: %r", address, error)
            lost = self._connections.pop(address, None)
            if lost is not None:
                lost.close()
            return None
