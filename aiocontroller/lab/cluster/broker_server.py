"""The server of a simulated broker: its connections, the checks of each API, and the order of control requests.

Control requests (LeaderAndIsr, UpdateMetadata, StopReplica) are applied one at a time, from all connections, and each
lets the event loop run every ``STEP`` partitions.  The checks are Kafka's (``KafkaApis``): first the broker epoch (-1
passes, otherwise it must not be below our own), then the controller epoch, then each partition's state.

A frame that is too long, truncated, or of an API or version not offered closes its connection.  A bug also closes only
the connection: the broker goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from struct import Struct
from typing import Any, Protocol, TypeVar, cast

import msgspec

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import UNKNOWN_BROKER_EPOCH
from aiocontroller.lab.cluster.broker_links import (
    BROKER_STATUS,
    LISTENER,
    PRIVATE_HEADER,
    REPLICA_REPORT,
    ReplicaReport,
    ReportAnswer,
)
from aiocontroller.lab.cluster.broker_requests import (
    IntArrays,
    Steps,
    decode_leader_and_isr,
    decode_metadata_topics,
    decode_stop_replica,
    decode_update_metadata,
)
from aiocontroller.lab.cluster.broker_responses import (
    MetadataQuery,
    encode_leader_and_isr_response,
    encode_metadata_response,
    encode_stop_replica_response,
    encode_update_metadata_response,
)
from aiocontroller.lab.cluster.client_requests import PRODUCE, READ, ClientRequests
from aiocontroller.lab.cluster.log_answers import answer_fetch, answer_list_offsets
from aiocontroller.lab.cluster.logs import Log
from aiocontroller.lab.cluster.metadata_cache import MetadataCache
from aiocontroller.lab.cluster.partition import Follower
from aiocontroller.lab.cluster.replica_manager import ReplicaManager
from aiocontroller.lab.cluster.simulated_settings import Settings
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey, VersionRange, check_supported
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.frames import FrameReader, decode_request_header, encode_response_header
from aiocontroller.wire.primitives import INT16, INT32, NO_TAGS, array_length

log = logging.getLogger(__name__)

T = TypeVar("T")
_ZK_MIGRATION_READY = b"\x01\x03\x01\x01"
"""One tagged field, 3, of one byte: true."""
Spawn = Callable[[Coroutine[Any, Any, None]], object]

MAX_WAITING = 64
"""A connection with this many waiting requests is not read."""

_API = Struct(">hhh")


class ReplicaStatus(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    partition: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    is_leader: bool
    pending_isr: tuple[int, ...] | None


class CachedStatus(msgspec.Struct, frozen=True, array_like=True):
    """A partition in a broker's metadata cache."""

    topic: str
    partition: int
    leader: int
    leader_epoch: int


class BrokerStatus(msgspec.Struct, frozen=True):
    """One broker's state: ``replicas`` are those that it hosts, ``alive`` are the live brokers in its metadata cache,
    and ``metadata`` has all partitions of that cache, if requested."""

    id: int
    epoch: int
    controller_id: int
    controller_epoch: int
    alive: list[int]
    metadata_partitions: int
    requests: dict[str, int]
    replicas: list[ReplicaStatus]
    metadata: list[CachedStatus] = []
    failed: int = 0
    """Number of replicas that are offline because of a failed log directory."""


class Server(Protocol):
    """What a ``ServedConnection`` needs."""

    @property
    def connections(self) -> dict[ServedConnection, None]: ...

    def spawn(self, task: Coroutine[Any, Any, None], /) -> object: ...

    async def answer(self, frame: bytes, connection: ServedConnection) -> list[bytes]: ...


class BrokerServer:
    """``changed`` is called after each control request and each report, which may affect fetchers or ISRs."""

    def __init__(
        self,
        world: World,
        metadata: MetadataCache,
        replicas: ReplicaManager,
        *,
        settings: Settings,
        spawn: Spawn,
        changed: Callable[[], None],
    ) -> None:
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.disk_delay_s = 0.0
        self.cluster_id: str | None = None
        self.zk_migration_ready = False
        """The broker is in migration mode, and says so in ApiVersions."""
        self.spawn = spawn
        self.requests: dict[str, int] = {}
        self.connections: dict[ServedConnection, None] = {}
        self._world = world
        self._metadata = metadata
        self._replicas = replicas
        self._settings = settings
        self._changed = changed
        self._arrays = IntArrays()
        self._registered = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self.clients = ClientRequests(world, replicas)

    @property
    def _offered(self) -> Mapping[ApiKey, VersionRange]:
        generation = self._replicas.generation
        return generation.offered if self._replicas.disk is None else {**generation.offered, **generation.of_logs}

    def registered(self, broker_epoch: int) -> None:
        """The broker has registered, perhaps not for the first time, and knows its epoch."""
        self.broker_epoch = broker_epoch
        self._registered.set()

    def connection(self) -> ServedConnection:
        return ServedConnection(self)

    def close(self) -> None:
        """Close the open connections."""
        for connection in list(self.connections):
            connection.close()

    async def answer(self, frame: bytes, connection: ServedConnection) -> list[bytes]:
        """Return the whole answer without its length; FrameError when the connection has to be closed."""
        key = INT16.unpack_from(frame)[0] if len(frame) >= PRIVATE_HEADER.size else -1
        if key in (REPLICA_REPORT, BROKER_STATUS):
            return self._answer_private(key, frame, connection)
        if key in (PRODUCE, READ):
            _, _, correlation_id = PRIVATE_HEADER.unpack_from(frame)
            return [INT32.pack(correlation_id), await self.clients.answer(key, frame[PRIVATE_HEADER.size :])]
        header, view = decode_request_header(frame)
        api, version = ApiKey(header.api_key), header.api_version
        self.requests[api.name] = self.requests.get(api.name, 0) + 1
        if api is ApiKey.API_VERSIONS and version > self._offered[api].max:
            named = {ApiKey.API_VERSIONS: self._offered[api]} if self._replicas.generation.names_api_versions else {}
            refusal = _api_versions(0, KafkaErrorCode.UNSUPPORTED_VERSION, named)
            return [encode_response_header(api, 0, header.correlation_id), refusal]
        check_supported(api, version, self._offered)
        body = bytes(view)
        if api is ApiKey.API_VERSIONS:
            pieces = [_api_versions(version, KafkaErrorCode.NONE, self._offered, ready=self.zk_migration_ready)]
        elif api is ApiKey.DESCRIBE_CONFIGS:
            pieces = [self._settings.encode_describe_configs_response(version, body, self._replicas.broker_id)]
        elif api is ApiKey.LIST_OFFSETS:
            pieces = [answer_list_offsets(version, body, self._find_log, self._replicas.end_reported)]
        elif api is ApiKey.FETCH:
            pieces = [answer_fetch(version, body, self._find_log)]
        elif api is ApiKey.METADATA:
            pieces = await self._answer_metadata(version, body)
        else:
            await self._registered.wait()  # Kafka's broker handles no request before; it could not judge broker epochs
            async with self._one_at_a_time:
                if self.disk_delay_s and api in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA):
                    await self._world.clock.sleep(self.disk_delay_s)
                pieces = await self._answer_controller(api, version, body)
            self._changed()
        return [encode_response_header(api, version, header.correlation_id), *pieces]

    async def _to_end(self, steps: Steps[T]) -> T:
        """Run the steps, letting the event loop run in between."""
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            await self._world.clock.sleep(0)

    # -- Kafka's APIs ----------------------------------------------------------------------------------------------

    async def _answer_metadata(self, version: int, body: bytes) -> list[bytes]:
        query = MetadataQuery(version, decode_metadata_topics(version, body), LISTENER, self._replicas.generation)
        return await self._to_end(encode_metadata_response(query, self._metadata, self.cluster_id))

    def _find_log(self, topic: str, partition: int) -> Log | KafkaErrorCode:
        if self._replicas.offline(topic, partition):
            return KafkaErrorCode.KAFKA_STORAGE_ERROR
        hosted = self._replicas.partition(topic, partition)
        if hosted is None:
            return KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
        return Log() if hosted.stored is None else hosted.stored.log  # without a disk, all logs are empty

    async def _answer_controller(self, api: ApiKey, version: int, body: bytes) -> list[bytes]:
        if api is ApiKey.LEADER_AND_ISR:
            return await self._leader_and_isr(version, body)
        if api is ApiKey.UPDATE_METADATA:
            return await self._update_metadata(version, body)
        return await self._stop_replica(version, body)

    def _gate(self, api: ApiKey, controller_id: int, controller_epoch: int, broker_epoch: int) -> KafkaErrorCode:
        if broker_epoch != UNKNOWN_BROKER_EPOCH and broker_epoch < self.broker_epoch:
            log.info("%s for broker epoch %d, which is over: ours is %d", api.name, broker_epoch, self.broker_epoch)
            return KafkaErrorCode.STALE_BROKER_EPOCH
        if broker_epoch > self.broker_epoch and self._replicas.generation.refuses_later_broker_epoch:
            log.error("%s for broker epoch %d, ours is %d", api.name, broker_epoch, self.broker_epoch)
            return KafkaErrorCode.UNKNOWN_SERVER_ERROR
        known = self._replicas.controller_epoch
        if not self._replicas.accepts(controller_epoch):
            log.info("%s of controller %d with epoch %d, known is %d", api.name, controller_id, controller_epoch, known)
            return KafkaErrorCode.STALE_CONTROLLER_EPOCH
        return KafkaErrorCode.NONE

    async def _leader_and_isr(self, version: int, body: bytes) -> list[bytes]:
        request = await self._to_end(decode_leader_and_isr(version, body, self._arrays))
        error = self._gate(ApiKey.LEADER_AND_ISR, request.controller_id, request.controller_epoch, request.broker_epoch)
        if not error:
            now_ms = int(self._world.clock.monotonic() * 1000)
            try:
                codes = await self._to_end(self._replicas.become_leader_or_follower(request, now_ms))
                return encode_leader_and_isr_response(version, KafkaErrorCode.NONE, codes)
            except ValueError as wrong:
                log.error("%s", wrong)
                error = KafkaErrorCode.UNKNOWN_SERVER_ERROR
        refused: dict[tuple[str, bytes], list[tuple[int, int]]] = {}
        for topic in request.topics:
            refused.setdefault((topic.topic, topic.topic_id), []).extend((p.partition, error) for p in topic.partitions)
        return encode_leader_and_isr_response(version, error, refused)

    async def _update_metadata(self, version: int, body: bytes) -> list[bytes]:
        request = await self._to_end(decode_update_metadata(version, body, self._arrays))
        error = self._gate(
            ApiKey.UPDATE_METADATA, request.controller_id, request.controller_epoch, request.broker_epoch
        )
        if not error:
            await self._to_end(self._metadata.update(request))
        return encode_update_metadata_response(version, error)

    async def _stop_replica(self, version: int, body: bytes) -> list[bytes]:
        request = await self._to_end(decode_stop_replica(version, body))
        error = self._gate(ApiKey.STOP_REPLICA, request.controller_id, request.controller_epoch, request.broker_epoch)
        if error:
            named = request.partitions if error is KafkaErrorCode.UNKNOWN_SERVER_ERROR else ()
            return encode_stop_replica_response(version, error, [(topic, index, error) for topic, index, *_ in named])
        codes = await self._to_end(self._replicas.stop_replicas(request))
        return encode_stop_replica_response(version, KafkaErrorCode.NONE, codes)

    # -- our own ---------------------------------------------------------------------------------------------------

    def _answer_private(self, key: int, frame: bytes, connection: ServedConnection) -> list[bytes]:
        _, version, correlation_id = PRIVATE_HEADER.unpack_from(frame)
        header = INT32.pack(correlation_id)
        if key == BROKER_STATUS:
            return [header, msgspec.json.encode(self.status(with_metadata=version > 0))]
        try:
            report = msgspec.msgpack.decode(frame[PRIVATE_HEADER.size :], type=ReplicaReport)
        except msgspec.MsgspecError as wrong:
            raise FrameError(f"replica report: {wrong}") from None
        now_ms = int(self._world.clock.monotonic() * 1000)
        if report.first:
            connection.follower = self._replicas.follower_connected(report.broker, now_ms)
        follower = connection.follower
        if follower is None or self._replicas.followers.get(report.broker) is not follower:
            raise FrameError(f"replica report of broker {report.broker}: found an outdated connection")
        refused = self._replicas.follower_reports(follower, report.reports, report.stopped, now_ms)
        fetched = self._replicas.fetches(follower) if self._replicas.disk is not None else []
        self._changed()
        return [header, msgspec.msgpack.encode(ReportAnswer(refused, fetched))]

    def status(self, *, with_metadata: bool = False) -> BrokerStatus:
        replicas = self._replicas
        return BrokerStatus(
            replicas.broker_id,
            self.broker_epoch,
            self._metadata.controller_id,
            replicas.controller_epoch,
            sorted(self._metadata.alive),
            self._metadata.partition_count,
            self.requests,
            [
                ReplicaStatus(
                    each.topic,
                    each.partition,
                    each.leader,
                    each.leader_epoch,
                    each.isr,
                    each.partition_epoch,
                    each.is_leader,
                    each.pending_isr,
                )
                for each in replicas.partitions()
            ],
            self._cached() if with_metadata else [],
            len(replicas.failed),
        )

    def _cached(self) -> list[CachedStatus]:
        return [
            CachedStatus(topic.name, number, known.leader, known.leader_epoch)
            for topic in self._metadata.topics.values()
            for number, known in topic.partitions.items()
        ]


class ServedConnection(asyncio.Protocol):
    """A peer's connection; its requests are answered in order."""

    def __init__(self, server: Server) -> None:
        self.follower: Follower | None = None
        self._server = server
        self._reader = FrameReader()
        self._waiting: deque[bytes] = deque()
        self._busy = False
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass of it
        self._transport = transport
        self._server.connections[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._server.connections.pop(self, None)

    def close(self) -> None:
        self._waiting.clear()
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        try:
            self._waiting.extend(self._reader.feed(data))
        except FrameError as error:
            self._end(str(error))
            return
        if len(self._waiting) > MAX_WAITING and self._transport is not None:
            self._transport.pause_reading()
        if self._waiting and not self._busy:
            self._busy = True
            self._server.spawn(self._work())

    async def _work(self) -> None:
        """Serve all received requests, even after the peer has gone: requests of a dead controller still count."""
        try:
            while self._waiting:
                frame = self._waiting.popleft()
                pieces = await self._server.answer(frame, self)
                if self._transport is not None and not self._transport.is_closing():
                    self._transport.writelines([INT32.pack(sum(map(len, pieces))), *pieces])
                    if len(self._waiting) < MAX_WAITING:
                        self._transport.resume_reading()
        except FrameError as error:
            self._end(str(error))
        except Exception:
            log.exception("a request failed; its connection is closed")
            self._end("a request failed")
        finally:
            self._busy = False

    def _end(self, why: str) -> None:
        if self._transport is not None:
            log.warning("connection of %s closed: %s", self._transport.get_extra_info("peername"), why)
        self.close()


def _api_versions(
    version: int, error: KafkaErrorCode, offered: Mapping[ApiKey, VersionRange], *, ready: bool = False
) -> bytes:
    """ApiVersions 0-4."""
    flexible = version >= 3
    tags = NO_TAGS if flexible else b""
    end = _ZK_MIGRATION_READY if flexible and ready else tags
    apis = [_API.pack(api, *offered[api]) + tags for api in offered]
    throttle = INT32.pack(0) if version >= 1 else b""
    return INT16.pack(error) + array_length(len(apis), flexible=flexible) + b"".join(apis) + throttle + end
