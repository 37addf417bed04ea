"""A simulated broker's connections: to its controller (ISR changes, shutdown), and to the leaders that it follows."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from itertools import islice
from struct import Struct
from typing import NamedTuple

import msgspec

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.lab.cluster.controller_requests import (
    AlterPartitionAnswer,
    alter_partition_version,
    decode_alter_partition_response,
    decode_controlled_shutdown_response,
    encode_alter_partition,
    encode_controlled_shutdown,
)
from aiocontroller.lab.cluster.metadata_cache import MetadataCache
from aiocontroller.lab.cluster.partition import Fetcher, IsrChange, Partition, ReportVerdict
from aiocontroller.lab.cluster.replica_manager import ReplicaManager
from aiocontroller.lab.cluster.replication import FetchAnswer
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.frames import decode_response_header, encode_request_header
from aiocontroller.wire.primitives import INT32, NO_TAGS, Cursor, string

log = logging.getLogger(__name__)

LISTENER = "PLAINTEXT"
CONNECT_TIMEOUT_S = 2.0
REQUEST_TIMEOUT_S = 30.0
SHUTDOWN_REQUEST_TIMEOUT_S = 5.0
RETRY_S = 0.05
MAX_CHANGES = 10_000
MAX_REPORTS = 5_000
HEARTBEAT_S = 0.5
FETCH_BACKOFF_S = 0.1
_CLIENT_ID = "simulated-broker"

REPLICA_REPORT = 30_000
"""API key, outside Kafka's range, of a follower's reports to its leader (in place of Fetch), in msgpack."""
BROKER_STATUS = 30_001
"""API key for tests and tools: the state of each of this broker's replicas, as JSON."""
PRIVATE_HEADER = Struct(">hhi")


class ReplicaReport(msgspec.Struct, array_like=True):
    """Each report is (partition, leader epoch); with a disk, the log's end and its last epoch follow."""

    broker: int
    first: bool
    """Whether this is the first report on its connection: it is complete, and replaces all older ones."""
    reports: list[tuple[str, list[tuple[int, ...]]]]
    stopped: list[tuple[str, int]]


class ReportAnswer(msgspec.Struct, array_like=True):
    refused: list[tuple[str, int, int]]
    """(topic, partition, verdict) of the rejected reports"""
    fetched: list[FetchAnswer]
    """Answers for the partitions with something new."""


class Signal:
    """An event that one task waits for, with a timeout."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout_s: float | None = None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        except TimeoutError:
            pass
        self._event.clear()


class ControllerChannel:
    """The connection to the controller, like Kafka's ``NodeToControllerChannelManager``.

    The controller is looked up in the metadata cache, and then kept until the connection breaks or an answer has the
    error NOT_CONTROLLER: a newer UpdateMetadata alone does not move the channel.
    """

    def __init__(self, world: World, metadata: MetadataCache, *, timeout_s: float = REQUEST_TIMEOUT_S) -> None:
        self._world = world
        self._metadata = metadata
        self._timeout_s = timeout_s
        self._connection: BrokerConnection | None = None
        self._correlation_id = 0
        self.alter_partition_offered = -1

    async def request(self, api: ApiKey, version: int, body: bytes) -> memoryview:
        """Send a request and return the answer's body; OSError when there is no controller, or it does not answer."""
        connection = self._connection
        assert connection is not None, "connect first"
        self._correlation_id += 1
        header = encode_request_header(api, version, self._correlation_id, _CLIENT_ID)
        try:
            async with asyncio.timeout(self._timeout_s):
                frame = await connection.request([header, body])
            return decode_response_header(api, version, frame)[1]
        except (OSError, FrameError, asyncio.CancelledError):
            self.disconnect()
            raise

    async def connect(self, *, negotiate: bool) -> None:
        """Connect unless connected; OSError when there is no controller or it cannot be reached."""
        if self._connection is not None and self._connection.open:
            return
        self.disconnect()
        endpoint = self._metadata.endpoint(self._metadata.controller_id, LISTENER)
        if endpoint is None:
            raise ConnectionError(
                f"controller {self._metadata.controller_id} is not in the metadata's list of live brokers"
            )
        _, self._connection = await self._world.network.connect(
            BrokerConnection, endpoint.host, endpoint.port, timeout_s=CONNECT_TIMEOUT_S
        )
        if negotiate:
            await self._negotiate()

    def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    async def _negotiate(self) -> None:
        """Send ApiVersions 3, which every controller knows, to learn the controller's AlterPartition versions."""
        body = string(_CLIENT_ID, flexible=True) + string("1", flexible=True) + NO_TAGS
        cursor = Cursor(
            "API_VERSIONS version 3 response", await self.request(ApiKey.API_VERSIONS, 3, body), flexible=True
        )
        error = cursor.int16("error code")
        offered = {}
        for _ in range(cursor.array_length("APIs", 7)):
            key, _, offered[key] = cursor.int16("key"), cursor.int16("min version"), cursor.int16("max version")
            cursor.tags()
        if error or ApiKey.ALTER_PARTITION not in offered:
            self.disconnect()
            raise ConnectionError(f"the controller offers no AlterPartition (error {error}, {len(offered)} APIs)")
        self.alter_partition_offered = offered[ApiKey.ALTER_PARTITION]


class AlterPartitionManager:
    """Sends ISR changes to the controller: one request in flight with all pending changes, retried after 50 ms."""

    def __init__(
        self,
        world: World,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        broker_epoch: Callable[[], int],
        *,
        topic_ids: bool = True,
    ) -> None:
        self._topic_ids = topic_ids
        self._world = world
        self._replicas = replicas
        self._broker_epoch = broker_epoch
        self._channel = ControllerChannel(world, metadata)
        self._wanted = Signal()
        self.requests = 0

    def wake(self) -> None:
        """Called when ``replicas.isr_changes`` may have changes."""
        if self._replicas.isr_changes:
            self._wanted.set()

    async def run(self) -> None:
        try:
            while True:
                await self._wanted.wait()
                while self._replicas.isr_changes:
                    if await self._round():
                        await self._world.clock.sleep(RETRY_S)
        finally:
            self._channel.disconnect()

    async def _round(self) -> bool:
        """Send one request; returns whether to wait before the next."""
        changes = list(islice(self._replicas.isr_changes.values(), MAX_CHANGES))
        try:
            await self._channel.connect(negotiate=True)
            highest = min(self._replicas.generation.alter_partition, self._channel.alter_partition_offered)
            version = alter_partition_version(changes, highest, topic_ids=self._topic_ids)
            body = encode_alter_partition(version, self._replicas.broker_id, self._broker_epoch(), changes)
            self.requests += 1
            response = await self._channel.request(ApiKey.ALTER_PARTITION, version, body)
            answer = decode_alter_partition_response(version, response)
        except (OSError, FrameError) as error:
            log.debug("AlterPartition of %d partitions: %s", len(changes), error)
            return True
        codes = [answer.error_code, *(partition.error_code for partition in answer.partitions)]
        if KafkaErrorCode.NOT_CONTROLLER in codes:
            self._channel.disconnect()
            return True
        if answer.error_code:
            log.info("AlterPartition of %d partitions: error %d, asked again", len(changes), answer.error_code)
            return True
        return self._apply(version, changes, answer)

    def _apply(self, version: int, changes: Sequence[IsrChange], answer: AlterPartitionAnswer) -> bool:
        answered = {(each.topic, each.partition): each for each in answer.partitions}
        again = False
        for change in changes:
            partition = change.partition
            topic = partition.topic_id if version >= 2 and partition.topic_id != NO_TOPIC_ID else partition.topic
            each = answered.get((topic, partition.partition))
            if each is None:
                log.warning("AlterPartition: the controller's answer leaves out %s", partition)
                again = True
            elif self._replicas.isr_change_answered(
                change, each.error_code, each.leader_epoch, each.isr, each.partition_epoch
            ):
                log.info("AlterPartition: %s: error %d, asked again", partition, each.error_code)
                again = True
        return again


class ShutdownRequest(NamedTuple):
    """The fields of a ControlledShutdown request; ``version`` is the request's."""

    broker: int
    broker_epoch: int
    version: int


async def ask_for_controlled_shutdown(
    world: World,
    metadata: MetadataCache,
    asked: ShutdownRequest,
    *,
    retries: int,
    backoff_s: float,
    finds: Callable[[int], Awaitable[bool]],
) -> bool:
    """Request a controlled shutdown as Kafka's broker does; returns whether the controller has moved all leaders.

    Before each attempt, ``finds`` returns whether the broker can find the controller with this id.
    """
    channel = ControllerChannel(world, metadata, timeout_s=SHUTDOWN_REQUEST_TIMEOUT_S)
    for attempt in range(retries):
        if attempt:
            await world.clock.sleep(backoff_s)
        if not await finds(metadata.controller_id):
            log.info("controlled shutdown, attempt %d: controller %d is not found", attempt + 1, metadata.controller_id)
            continue
        try:
            await channel.connect(negotiate=False)
            body = encode_controlled_shutdown(asked.version, asked.broker, asked.broker_epoch)
            response = await channel.request(ApiKey.CONTROLLED_SHUTDOWN, asked.version, body)
            error, remaining = decode_controlled_shutdown_response(asked.version, response)
        except (OSError, FrameError) as problem:
            log.info("controlled shutdown, attempt %d: %s", attempt + 1, problem)
            channel.disconnect()
            continue
        if error == KafkaErrorCode.NONE and not remaining:
            channel.disconnect()
            return True
        log.info("controlled shutdown, attempt %d: error %d, %d partitions left", attempt + 1, error, len(remaining))
        if error == KafkaErrorCode.NOT_CONTROLLER:
            channel.disconnect()
    channel.disconnect()
    return False


SentReports = dict[tuple[str, int], tuple[Partition, int]]
"""(topic, partition) -> the partition and the leader epoch that was reported"""


class FetcherLink:
    """Reports to one leader which partitions this broker follows there; see ``replica_manager``."""

    def __init__(self, world: World, replicas: ReplicaManager, fetcher: Fetcher, metadata: MetadataCache) -> None:
        self._world = world
        self._replicas = replicas
        self._fetcher = fetcher
        self._metadata = metadata
        self._wanted = Signal()
        self.disk_delay_s = 0.0
        """The time that it takes to write fetched records."""

    def wake(self) -> None:
        if self._fetcher.unreported or self._fetcher.stopped:
            self._wanted.set()

    async def run(self) -> None:
        while True:
            endpoint = self._metadata.endpoint(self._fetcher.leader, LISTENER)
            if endpoint is not None:
                try:
                    _, connection = await self._world.network.connect(
                        BrokerConnection, endpoint.host, endpoint.port, timeout_s=CONNECT_TIMEOUT_S
                    )
                    await self._report(connection)
                except (OSError, msgspec.DecodeError) as error:
                    log.debug("replica reports to broker %d: %s", self._fetcher.leader, error)
            await self._world.clock.sleep(FETCH_BACKOFF_S)

    async def _report(self, connection: BrokerConnection) -> None:
        fetcher = self._fetcher
        fetcher.unreported = dict.fromkeys(fetcher.followed)
        fetcher.stopped.clear()
        first = True
        try:
            while True:
                report, sent = self._next_report(first)
                first = False
                frame = PRIVATE_HEADER.pack(REPLICA_REPORT, 0, 0) + msgspec.msgpack.encode(report)
                answer = await connection.request([frame])
                decoded = msgspec.msgpack.decode(answer[INT32.size :], type=ReportAnswer)
                if self.disk_delay_s and any(each.runs for each in decoded.fetched):
                    await self._world.clock.sleep(self.disk_delay_s)
                self._replicas.take_fetched(fetcher, decoded.fetched)
                if self._take_back(decoded.refused, sent):
                    await self._world.clock.sleep(FETCH_BACKOFF_S)
                elif not fetcher.unreported:
                    await self._wanted.wait(HEARTBEAT_S)
        finally:
            connection.close()

    def _next_report(self, first: bool) -> tuple[ReplicaReport, SentReports]:
        fetcher = self._fetcher
        by_topic: dict[str, list[tuple[int, ...]]] = {}
        sent: SentReports = {}
        for partition in list(islice(fetcher.unreported, MAX_REPORTS)):
            del fetcher.unreported[partition]
            entry = (partition.partition, partition.leader_epoch, *self._replicas.fetch_of(partition))
            by_topic.setdefault(partition.topic, []).append(entry)
            sent[partition.topic, partition.partition] = (partition, partition.leader_epoch)
        stopped = list(fetcher.stopped)
        fetcher.stopped.clear()
        return ReplicaReport(self._replicas.broker_id, first, list(by_topic.items()), stopped), sent

    def _take_back(self, refused: list[tuple[str, int, int]], sent: SentReports) -> bool:
        """Queue reports again that reached the leader before its own LeaderAndIsr, or that it lost with its replica.

        Returns whether there were any.
        """
        early = False
        for topic, index, verdict in refused:
            partition, leader_epoch = sent.get((topic, index)) or (self._replicas.partition(topic, index), None)
            if partition is None or partition not in self._fetcher.followed:
                continue
            if leader_epoch in (None, partition.leader_epoch) and ReportVerdict(verdict).retriable:
                self._fetcher.unreported[partition] = None
                early = True
        return early
