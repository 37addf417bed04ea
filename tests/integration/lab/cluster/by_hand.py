"""A controller made by hand: tells brokers whatever a test wants, grants what they ask for, and keeps it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.net.ports import World
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.wire.frames import (
    FrameReader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    response_frame,
)
from aiocontroller.wire.leader_and_isr import decode_leader_and_isr_response, encode_leader_and_isr
from aiocontroller.wire.stop_replica import StopReplicaPartition, decode_stop_replica_response, encode_stop_replica
from aiocontroller.wire.update_metadata import decode_update_metadata_response, encode_update_metadata
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.builders import table

CONTROLLER_ID = 1_000_001
ANSWER_WITHIN_S = 60.0


async def eventually(condition: Callable[[], Any], timeout_s: float = ANSWER_WITHIN_S) -> Any:
    """The first true answer; ``condition`` may be a coroutine function."""
    deadline = time.monotonic() + timeout_s
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        assert time.monotonic() < deadline, "the condition did not come true in time"
        await asyncio.sleep(0.02)


class ControllerByHand:
    """Says what the test tells it to; grants every AlterPartition and ControlledShutdown, and keeps them."""

    def __init__(self, world: World, zk: KafkaZkClient) -> None:
        self.world, self.zk = world, zk
        self.epoch = 1
        self.table: PartitionTable = table({})
        self.port = 0
        self.answer_with = 0
        self.altered: list[Any] = []
        self.shutdowns: list[int] = []
        self.asked: list[tuple[ApiKey, int, Any]] = []
        """Each request, with its version."""
        self.refused: dict[int, int] = {}
        """Partition -> the error that changes of its ISR get."""

    async def serve(self) -> None:
        listener = await self.world.network.serve(lambda: Served(self), "127.0.0.1", 0)
        self.port = listener.port
        self.close = listener.close

    async def brokers(self) -> list[Broker]:
        found, bad = await self.zk.get_all_brokers_in_cluster(watch=False)
        assert not bad
        return found

    async def send(self, api: ApiKey, version: int, broker: Broker, body: bytes) -> bytes:
        return await self._send(api, version, broker, body, version)

    async def send_as(self, api: ApiKey, version: int, broker: Broker, body: bytes, *, answered_in: int) -> Any:
        """Where the answer may have another version than the request: ApiVersions to an older broker."""
        return cold.decode_response(api, answered_in, await self._send(api, version, broker, body, answered_in))

    async def _send(self, api: ApiKey, version: int, broker: Broker, body: bytes, answered_in: int) -> bytes:
        endpoint = broker.endpoints[0]
        _, connection = await self.world.network.connect(BrokerConnection, endpoint.host, endpoint.port, timeout_s=5)
        try:
            async with asyncio.timeout(ANSWER_WITHIN_S):
                frame = await connection.request([encode_request_header(api, version, 7, "by-hand"), body])
        finally:
            connection.close()
        correlation_id, answer = decode_response_header(api, answered_in, frame)
        assert correlation_id == 7
        return bytes(answer)

    async def update_metadata(self, broker: Broker, *, epoch: int | None = None, version: int = 8) -> int:
        live = await self.brokers()
        me = Broker(CONTROLLER_ID, 0, (Endpoint("PLAINTEXT", "127.0.0.1", self.port),))
        body = encode_update_metadata(
            version,
            controller_id=CONTROLLER_ID,
            controller_epoch=self.epoch,
            broker_epoch=broker.epoch if epoch is None else epoch,
            table=self.table,
            rows=list(self.table.rows()),
            live_brokers=[*live, me],
            live={each.id for each in live},
        )
        return decode_update_metadata_response(version, await self.send(ApiKey.UPDATE_METADATA, version, broker, body))

    async def leader_and_isr(self, broker: Broker, *, epoch: int | None = None, version: int = 7) -> Any:
        body = encode_leader_and_isr(
            version,
            controller_id=CONTROLLER_ID,
            controller_epoch=self.epoch,
            broker_epoch=broker.epoch if epoch is None else epoch,
            table=self.table,
            rows=list(self.table.rows()),
        )
        answer = await self.send(ApiKey.LEADER_AND_ISR, version, broker, body)
        return decode_leader_and_isr_response(version, answer)

    async def stop_replica(
        self, broker: Broker, leader_epoch: int, *, delete: bool, version: int = 4, row: int = 0
    ) -> tuple[int, list[int]]:
        """The error code, and that of each partition."""
        (body,) = encode_stop_replica(
            version,
            controller_id=CONTROLLER_ID,
            controller_epoch=self.epoch,
            broker_epoch=broker.epoch,
            partitions=[StopReplicaPartition(*self.table.topic_partition(row), leader_epoch, delete)],
        )
        answer = decode_stop_replica_response(version, await self.send(ApiKey.STOP_REPLICA, version, broker, body))
        return answer.error_code, [code for *_, code in answer.partitions]

    async def send_all(self) -> None:
        for broker in await self.brokers():
            assert await self.update_metadata(broker) == 0
        for broker in await self.brokers():
            assert (await self.leader_and_isr(broker)).error_code == 0


class Served(asyncio.Protocol):
    def __init__(self, controller: ControllerByHand) -> None:
        self.controller, self.reader = controller, FrameReader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        for frame in self.reader.feed(data):
            header, body = decode_request_header(frame)
            key, version = header.api_key, header.api_version
            request = cold.decode_request(key, version, body)
            self.controller.asked.append((ApiKey(key), version, request))
            response = cold.response(key, version, **self.answer(ApiKey(key), version, request))
            encoded = cold.encode_response(key, version, response)
            self.transport.writelines(response_frame(key, version, header.correlation_id, encoded))

    def answer(self, key: ApiKey, version: int, request: Any) -> dict[str, Any]:
        if key is ApiKey.API_VERSIONS:
            keys = (ApiKey.API_VERSIONS, ApiKey.ALTER_PARTITION, ApiKey.CONTROLLED_SHUTDOWN)
            return {"api_keys": [{"api_key": k, "min_version": 0, "max_version": SUPPORTED[k].max} for k in keys]}
        if key is ApiKey.CONTROLLED_SHUTDOWN:
            self.controller.shutdowns.append(request.broker_id)
            return {}
        if self.controller.answer_with:
            return {"error_code": self.controller.answer_with}
        return {"topics": [self.grant(version, topic) for topic in request.topics]}

    def grant(self, version: int, topic: Any) -> dict[str, Any]:
        partitions = []
        for each in topic.partitions:
            isr = new_isr(version, each)
            if each.partition_index in self.controller.refused:
                refused = self.controller.refused[each.partition_index]
                partitions.append({"partition_index": each.partition_index, "error_code": refused})
                continue
            self.controller.altered.append((each.partition_index, each.leader_epoch, isr))
            partitions.append(
                {
                    "partition_index": each.partition_index,
                    "leader_id": 1,
                    "leader_epoch": each.leader_epoch,
                    "isr": isr,
                    "partition_epoch": each.partition_epoch + 1,
                }
            )
        name = {"topic_id": topic.topic_id} if version >= 2 else {"topic_name": topic.topic_name}
        return {**name, "partitions": partitions}


def new_isr(version: int, partition: Any) -> tuple[int, ...]:
    """The ISR that a partition of an AlterPartition asks for."""
    if version < 3:
        return tuple(partition.new_isr)
    return tuple(replica.broker_id for replica in partition.new_isr_with_epochs)
