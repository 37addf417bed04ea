"""A broker that asks: one TCP connection to a controller, one request at a time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.service import Service
from aiocontroller.wire import messages
from aiocontroller.wire.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    decode_alter_partition_response,
    encode_alter_partition_request,
)
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import decode_response_header, request_frame


class Asking:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    async def request(self, api: ApiKey, version: int, body: bytes) -> bytes:
        self._correlation_id += 1
        self._writer.writelines(request_frame(api, version, self._correlation_id, "broker", body))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        correlation_id, answer = decode_response_header(api, version, await self._reader.readexactly(size))
        assert correlation_id == self._correlation_id
        return bytes(answer)

    async def alter_partition(
        self, version: int, broker: int, broker_epoch: int, *changes: AlterPartition
    ) -> AlterPartitionResponse:
        body = encode_alter_partition_request(version, AlterPartitionRequest(broker, broker_epoch, changes))
        return decode_alter_partition_response(version, await self.request(ApiKey.ALTER_PARTITION, version, body))

    async def controlled_shutdown(
        self, broker: int, broker_epoch: int = -1, *, version: int = 3
    ) -> messages.ControlledShutdownResponse:
        body = messages.encode_controlled_shutdown_request(version, broker, broker_epoch)
        answer = await self.request(ApiKey.CONTROLLED_SHUTDOWN, version, body)
        return messages.decode_controlled_shutdown_response(version, answer)

    def close(self) -> None:
        self._writer.close()


@asynccontextmanager
async def asking(service: Service) -> AsyncIterator[Asking]:
    endpoint = service.endpoints[0]
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port)
    client = Asking(reader, writer)
    try:
        yield client
    finally:
        client.close()
        await writer.wait_closed()


def change(
    topic: str | bytes, partition: int, state: LeaderAndIsr, isr: tuple[int, ...], **fields: int
) -> AlterPartition:
    """Return what the leader of ``state`` sends to get this ISR; ``fields`` override those of the state."""
    values = {
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "recovery_state": state.recovery_state,
    } | fields
    return AlterPartition(topic, partition, isr=isr, **values)
