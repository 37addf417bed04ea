"""Where brokers find the controller: the requests that only the active controller answers, and ApiVersions.

A connection may have several requests outstanding; answers leave in the order of the requests, as Kafka's protocol
demands.  Each request becomes an event with a reply handle, or an answer at once; nothing is decided here.

A frame that is too long, cut short, or of an API or version that was not offered ends its connection with a log line;
the others do not notice.  So does every API that the controller does not serve, since ApiVersions did not offer it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from aiocontroller.controller.kafka_controller import KafkaController
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import AllocateProducerIds, AlterPartitionReceived, ControlledShutdown, Reply, Request
from aiocontroller.server import controller_apis
from aiocontroller.wire.apis import ApiKey, check_supported
from aiocontroller.wire.errors import UnsupportedApiError
from aiocontroller.wire.frames import (
    FrameError,
    FrameReader,
    RequestHeader,
    decode_request_header,
    response_frame,
)

log = logging.getLogger(__name__)

MAX_OUTSTANDING = 64
"""Requests of one connection that wait for their answers before it is no longer read."""


class KafkaListener:
    """Makes the protocol objects of its connections."""

    def __init__(self, shell: ControllerShell, controller: KafkaController) -> None:
        self.shell = shell
        self.controller = controller

    def connection(self) -> KafkaConnection:
        return KafkaConnection(self)

    def submit(self, event: Request) -> None:
        self.shell.queue.append(event)


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("frame", "header")

    def __init__(self, header: RequestHeader) -> None:
        self.header = header
        self.frame: list[bytes] | None = None


class KafkaConnection(asyncio.Protocol):
    def __init__(self, listener: KafkaListener) -> None:
        self._listener = listener
        self._reader = FrameReader()
        self._slots: deque[Slot] = deque()
        self._transport: asyncio.Transport | None = None
        self._peer = "?"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._peer = str(transport.get_extra_info("peername"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._slots.clear()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._request(frame)
        except (FrameError, UnsupportedApiError) as error:
            log.warning("Closing the connection from %s: %s", self._peer, error)
            if self._transport is not None:
                self._transport.close()

    def _request(self, frame: bytes) -> None:
        header, body = decode_request_header(frame)
        slot = Slot(header)
        self._slots.append(slot)
        if len(self._slots) >= MAX_OUTSTANDING and self._transport is not None:
            self._transport.pause_reading()
        if header.api_key == ApiKey.API_VERSIONS:
            self._answer(slot, *controller_apis.api_versions(header.api_version))
            return
        check_supported(header.api_key, header.api_version, controller_apis.OFFERED)
        SERVED[ApiKey(header.api_key)](self, slot, bytes(body))

    def _answer(self, slot: Slot, version: int, body: bytes) -> None:
        slot.frame = response_frame(slot.header.api_key, version, slot.header.correlation_id, body)
        transport = self._transport
        if transport is None:
            return
        while self._slots and self._slots[0].frame is not None:
            transport.writelines(self._slots.popleft().frame or [])
        if len(self._slots) < MAX_OUTSTANDING:
            transport.resume_reading()

    def _submit(self, slot: Slot, make: Callable[[Reply], Request], encode: Callable[[int, Any], bytes]) -> None:
        version = slot.header.api_version

        def answer(result: Any) -> None:
            self._answer(slot, version, encode(version, result))

        self._listener.submit(make(Reply(answer)))

    # -- the APIs --------------------------------------------------------------------------------------------------

    def _alter_partition(self, slot: Slot, body: bytes) -> None:
        version = slot.header.api_version
        broker, broker_epoch, partitions = controller_apis.decode_alter_partition(version, body)
        self._submit(
            slot,
            lambda reply: AlterPartitionReceived(
                broker=broker, broker_epoch=broker_epoch, version=version, partitions=partitions, reply=reply
            ),
            controller_apis.encode_alter_partition,
        )

    def _controlled_shutdown(self, slot: Slot, body: bytes) -> None:
        broker, broker_epoch = controller_apis.decode_controlled_shutdown(slot.header.api_version, body)
        self._submit(
            slot,
            lambda reply: ControlledShutdown(broker=broker, broker_epoch=broker_epoch, reply=reply),
            controller_apis.encode_controlled_shutdown,
        )

    def _allocate_producer_ids(self, slot: Slot, body: bytes) -> None:
        broker, broker_epoch = controller_apis.decode_allocate_producer_ids(slot.header.api_version, body)
        self._submit(
            slot,
            lambda reply: AllocateProducerIds(broker=broker, broker_epoch=broker_epoch, reply=reply),
            controller_apis.encode_allocate_producer_ids,
        )


Serve = Callable[[KafkaConnection, Slot, bytes], None]

SERVED: dict[ApiKey, Serve] = {
    ApiKey.ALTER_PARTITION: KafkaConnection._alter_partition,
    ApiKey.CONTROLLED_SHUTDOWN: KafkaConnection._controlled_shutdown,
    ApiKey.ALLOCATE_PRODUCER_IDS: KafkaConnection._allocate_producer_ids,
}
