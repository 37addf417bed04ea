"""A broker that only listens: it registers in ZooKeeper like Kafka's, answers at once, and keeps what it receives."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple, cast

from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.net.ports import Listener, World
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.wire.frames import (
    FrameError,
    FrameReader,
    UnsupportedApiError,
    decode_request_header,
    response_frame,
)
from aiocontroller.wire.primitives import UNLIMITED
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znodes import BrokerInfo

SERVED: dict[ApiKey, tuple[int, int]] = {
    api: SUPPORTED[api]
    for api in (
        ApiKey.API_VERSIONS,
        ApiKey.LEADER_AND_ISR,
        ApiKey.UPDATE_METADATA,
        ApiKey.STOP_REPLICA,
        ApiKey.DESCRIBE_CONFIGS,
    )
}
SURVEYED = frozenset({ApiKey.API_VERSIONS, ApiKey.DESCRIBE_CONFIGS})
"""Requests that controllers send at their own times, independently of events: they are not recorded."""


class Received(NamedTuple):
    api: ApiKey
    version: int
    request: Any


class RecordingBroker:
    """``served`` may be set to older versions; ``errors`` go into LeaderAndIsr answers; ``respond`` may be replaced."""

    def __init__(
        self,
        world: World,
        zookeeper: str,
        broker_id: int,
        *,
        rack: str | None = None,
        settings: dict[str, str | None] | None = None,
        defaults: dict[str, str] | None = None,
    ) -> None:
        self.id = broker_id
        self.world = world
        self.rack = rack
        self.served = dict(SERVED)
        self.received: list[Received] = []
        self.errors: dict[tuple[str, int], int] = {}
        """(topic, partition) -> error code in LeaderAndIsr answers."""
        self.stop_replica_errors: list[int] = []
        """Error codes for all partitions of the next StopReplica answers, one request each."""
        self.stop_replica_omits = 0
        """The number of next StopReplica answers that omit all partitions."""
        self.settings: dict[str, str | None] = {"authorizer.class.name": "", **(settings or {})}
        """The settings that it reports as set."""
        self.defaults = defaults or {}
        """The settings that it reports as defaults."""
        self.settings_error = 0
        """The error code of its DescribeConfigs answers."""
        self.unanswered: set[ApiKey] = set()
        """APIs whose requests are recorded but never answered."""
        self.client = ZooKeeperClient(zookeeper, world=world, session_timeout_s=6.0)
        self.zk = KafkaZkClient(self.client)
        self.epoch = 0
        self.topic_ids: dict[Any, str] = {}
        self.connections = 0
        """The number of connections accepted so far."""
        self._listener: Listener | None = None
        self._connections: set[_Connection] = set()

    async def start(self, port: int = 0) -> None:
        await self.listen(port)
        await self.client.start(10)
        await self.register()

    async def listen(self, port: int = 0) -> None:
        self._listener = await self.world.network.serve(lambda: _Connection(self), "127.0.0.1", port)

    def deafen(self) -> None:
        """Refuse new connections and close the existing ones; the registration stays."""
        assert self._listener is not None
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the existing connections."""
        for connection in list(self._connections):
            connection.close()

    async def register(self) -> None:
        self.epoch = await self.zk.register_broker(self.info)

    @property
    def info(self) -> BrokerInfo:
        endpoint = Endpoint("PLAINTEXT", "127.0.0.1", self.port)
        return BrokerInfo(Broker(self.id, 0, (endpoint,), self.rack), 0)

    @property
    def port(self) -> int:
        assert self._listener is not None
        return self._listener.port

    async def stop(self) -> None:
        """End at once, including the registration."""
        if self._listener is not None:
            self.deafen()
        await self.client.close()

    def of(self, api: ApiKey) -> list[Any]:
        return [r.request for r in self.received if r.api == api]

    def take(self) -> list[Received]:
        taken, self.received = self.received, []
        return taken

    def respond(self, api: ApiKey, version: int, request: Any) -> bytes:
        match api:
            case ApiKey.API_VERSIONS:
                keys = [{"api_key": k, "min_version": lo, "max_version": hi} for k, (lo, hi) in self.served.items()]
                return _encode(api, version, error_code=0, api_keys=keys)
            case ApiKey.LEADER_AND_ISR:
                return self._leader_and_isr(version, request)
            case ApiKey.STOP_REPLICA:
                code = self.stop_replica_errors.pop(0) if self.stop_replica_errors else 0
                errors = [
                    {"topic_name": topic, "partition_index": number, "error_code": code}
                    for topic, number in _stopped(version, request)
                ]
                if self.stop_replica_omits:
                    self.stop_replica_omits -= 1
                    errors = []
                return _encode(api, version, error_code=0, partition_errors=errors)
            case ApiKey.DESCRIBE_CONFIGS:
                return self._describe_configs(version, request)
            case _:
                return _encode(api, version, error_code=0)

    def _describe_configs(self, version: int, request: Any) -> bytes:
        (asked,) = request.resources
        configs = [{"name": n, "value": self.settings[n]} for n in asked.configuration_keys if n in self.settings]
        for name in (n for n in asked.configuration_keys if n in self.defaults):
            synonym = {"name": name, "value": self.defaults[name], "source": 5}
            configs.append({"name": name, "value": self.defaults[name], "synonyms": [synonym]})
        result = {"resource_type": asked.resource_type, "resource_name": asked.resource_name, "configs": configs}
        return _encode(ApiKey.DESCRIBE_CONFIGS, version, results=[{"error_code": self.settings_error, **result}])

    def _leader_and_isr(self, version: int, request: Any) -> bytes:
        if version < 5:
            flat = [
                {
                    "topic_name": t.topic_name,
                    "partition_index": p.partition_index,
                    "error_code": self.errors.get((t.topic_name, p.partition_index), 0),
                }
                for t in request.topic_states
                for p in t.partition_states
            ]
            return _encode(ApiKey.LEADER_AND_ISR, version, error_code=0, partition_errors=flat)
        topics = [
            {
                "topic_id": t.topic_id,
                "partition_errors": [
                    {
                        "partition_index": p.partition_index,
                        "error_code": self.errors.get((t.topic_name, p.partition_index), 0),
                    }
                    for p in t.partition_states
                ],
            }
            for t in request.topic_states
        ]
        return _encode(ApiKey.LEADER_AND_ISR, version, error_code=0, topics=topics)


class _Connection(asyncio.Protocol):
    def __init__(self, broker: RecordingBroker) -> None:
        self._broker = broker
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not a subclass of it
        self._broker._connections.add(self)
        self._broker.connections += 1

    def connection_lost(self, exc: Exception | None) -> None:
        self._broker._connections.discard(self)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._take(data)
        except (FrameError, UnsupportedApiError):
            self.close()  # as Kafka's brokers do

    def _take(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            header, body = decode_request_header(frame)
            api = ApiKey(header.api_key)
            low, high = self._broker.served.get(api, (0, -1))
            if not low <= header.api_version <= high:
                self.close()
                return
            request = cold.decode_request(api, header.api_version, body, UNLIMITED)
            if api not in SURVEYED:
                self._broker.received.append(Received(api, header.api_version, request))
            if api in self._broker.unanswered:
                continue
            answer = self._broker.respond(api, header.api_version, request)
            assert self._transport is not None
            self._transport.writelines(response_frame(api, header.api_version, header.correlation_id, answer))


def _encode(api: ApiKey, version: int, **fields: Any) -> bytes:
    return cold.encode_response(api, version, cold.response(api, version, **fields))


def _stopped(version: int, request: Any) -> list[tuple[str, int]]:
    """Return each (topic, partition) of a StopReplica."""
    if version == 0:
        return [(p.topic_name, p.partition_index) for p in request.ungrouped_partitions]
    if version < 3:
        return [(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    return [(topic.topic_name, p.partition_index) for topic in request.topic_states for p in topic.partition_states]
