"""A recording broker for measurements: it answers at once, keeps each request with its time, and decodes nothing.

There are two exceptions.  A StopReplica's answer must name each deleted partition; otherwise a deletion never ends.
And while a reassignment is measured (``follow``), a leader that receives new replicas requests to add them to its ISR,
as if they had caught up at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import cast

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.lab.cluster.broker_requests import decode_stop_replica, run_to_end
from aiocontroller.lab.cluster.broker_responses import (
    encode_leader_and_isr_response,
    encode_stop_replica_response,
    encode_update_metadata_response,
)
from aiocontroller.lab.cluster.controller_requests import encode_controlled_shutdown
from aiocontroller.lab.cluster.generations import NEWEST, generation
from aiocontroller.lab.cluster.simulated_settings import Settings
from aiocontroller.lab.recording_brokers.isr import IsrAsker
from aiocontroller.lab.recording_brokers.recording_broker import SURVEYED
from aiocontroller.net.ports import Listener
from aiocontroller.net.real import real_world
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.wire.frames import FrameReader, decode_request_header, encode_request_header, response_frame
from aiocontroller.wire.messages import encode_api_versions_response
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, Delete
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znodes import BrokerInfo, encode_broker

OFFERED = {
    api: SUPPORTED[api]
    for api in (
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.API_VERSIONS,
        ApiKey.DESCRIBE_CONFIGS,
    )
}
SESSION_TIMEOUT_S = 60

_SETTINGS = Settings(generation(NEWEST), policy=False)


class TimedBroker:
    def __init__(self, zookeeper: str, broker_id: int) -> None:
        self.id = broker_id
        self.epoch = 0
        self.heard: list[tuple[float, bytes]] = []
        """Each recorded request: (time at which its last byte arrived, request without its length)."""
        self.follow: IsrAsker | None = None
        self.alive = False
        self.connections: set[_Connection] = set()
        self._zookeeper = zookeeper
        self._world = real_world()
        self._client: ZooKeeperClient | None = None
        self._listener: Listener | None = None

    async def start(self) -> None:
        self._listener = await self._world.network.serve(lambda: _Connection(self), "127.0.0.1", 0)
        self._client = ZooKeeperClient(self._zookeeper, world=self._world, session_timeout_s=SESSION_TIMEOUT_S)
        await self._client.start(30)
        self.epoch = await KafkaZkClient(self._client).register_broker(self._info())
        self.alive = True

    async def kill(self) -> None:
        """End the broker and its registration at once, as if its session had just expired."""
        assert self._client is not None
        assert self._listener is not None
        self.alive = False
        self._listener.close()
        for connection in list(self.connections):
            connection.close()
        await self._client.close()

    async def bounce(self) -> None:
        """Register a new incarnation in one multi, so that no watcher can see the time without a registration."""
        assert self._client is not None
        path = paths.broker_id(self.id)
        await self._client.multi([Delete(path), Create(path, encode_broker(self._info()), ephemeral=True)])
        broker = await KafkaZkClient(self._client).get_broker(self.id, watch=False)
        assert isinstance(broker, Broker)
        self.epoch = broker.epoch

    async def shut_down(self, host: str, port: int) -> float:
        """Ask the controller at this address for a controlled shutdown; returns the seconds until its answer."""
        _, connection = await self._world.network.connect(BrokerConnection, host, port, timeout_s=10)
        header = encode_request_header(ApiKey.CONTROLLED_SHUTDOWN, 3, 1, "benchmark")
        started = time.monotonic()
        await connection.request([header, encode_controlled_shutdown(3, self.id, self.epoch)])
        connection.close()
        return time.monotonic() - started

    def answer(self, frame: bytes) -> list[bytes]:
        api, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        correlation_id = int.from_bytes(frame[4:8], "big")
        match api:
            case ApiKey.API_VERSIONS:
                body = [encode_api_versions_response(version, OFFERED)]
            case ApiKey.DESCRIBE_CONFIGS:
                header, rest = decode_request_header(frame)
                body = [_SETTINGS.encode_describe_configs_response(header.api_version, rest, self.id)]
            case ApiKey.LEADER_AND_ISR:
                body = encode_leader_and_isr_response(version, 0, {})
            case ApiKey.UPDATE_METADATA:
                body = encode_update_metadata_response(version, 0)
            case _:
                header, rest = decode_request_header(frame)
                stopped = run_to_end(decode_stop_replica(header.api_version, bytes(rest))).partitions
                body = encode_stop_replica_response(version, 0, [(topic, index, 0) for topic, index, _, _ in stopped])
        return response_frame(api, min(version, 4) if api == ApiKey.API_VERSIONS else version, correlation_id, *body)

    def hear(self, frame: bytes) -> None:
        self.heard.append((time.monotonic(), frame))
        if self.follow is not None and int.from_bytes(frame[:2], "big") == ApiKey.LEADER_AND_ISR:
            self.follow.grow(self.id, self.epoch, frame)

    def take(self) -> Iterator[tuple[float, bytes]]:
        """Yield and discard the recorded requests one by one, oldest first."""
        heard, self.heard = self.heard, []
        heard.reverse()
        while heard:
            yield heard.pop()

    def _info(self) -> BrokerInfo:
        assert self._listener is not None
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", self._listener.port)
        return BrokerInfo(Broker(self.id, -1, (endpoint,)), time.time_ns() // 1_000_000)


class _Connection(asyncio.Protocol):
    def __init__(self, broker: TimedBroker) -> None:
        self._broker = broker
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._broker.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker.connections.discard(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            if int.from_bytes(frame[:2], "big") not in SURVEYED:
                self._broker.hear(frame)
            assert self._transport is not None
            self._transport.writelines(self._broker.answer(frame))
