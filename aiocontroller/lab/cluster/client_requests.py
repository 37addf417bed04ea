"""Produce and Fetch of a simulated broker's clients, in msgpack under API keys of its own.

The checks and error codes are Kafka's.  A produce with acks=all is answered when the high watermark has passed its
records, when the broker stops leading, or on timeout; in the last two cases the fate of the records is unknown.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum

import msgspec

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.cluster.logs import NO_OFFSET, Run
from aiocontroller.lab.cluster.partition import Partition, ReportVerdict, judge
from aiocontroller.lab.cluster.replica_manager import ReplicaManager
from aiocontroller.lab.cluster.replication import ALL
from aiocontroller.net.ports import World
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.primitives import Buffer

PRODUCE = 30_002
READ = 30_003
MOST_RECORDS = 1_000


class Refusal(IntEnum):
    """Kafka's error codes that only producers get."""

    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20


class Produce(msgspec.Struct, array_like=True):
    topic: str
    partition: int
    acks: int
    """0, 1, or -1 for all."""
    count: int
    timeout_ms: int


class Produced(msgspec.Struct, array_like=True):
    """The answer to ``Produce``.  ``base`` is the first record's offset; ``topic_id`` is zero if the broker has
    none."""

    error: int
    base: int = NO_OFFSET
    leader_epoch: int = -1
    topic_id: bytes = bytes(16)


class Read(msgspec.Struct, array_like=True):
    topic: str
    partition: int
    leader_epoch: int
    start: int


class Records(msgspec.Struct, array_like=True):
    error: int
    runs: list[Run]
    """The records from the requested start up to the high watermark."""
    topic_id: bytes = bytes(16)


class ClientRequests:
    """Answers the clients of one broker; ``now_ms`` is its clock."""

    def __init__(self, world: World, replicas: ReplicaManager) -> None:
        self.disk_delay_s = 0.0
        """The time that it takes to write records."""
        self._world = world
        self._replicas = replicas
        self._waiting: dict[Partition, dict[asyncio.Event, None]] = {}
        replicas.progressed = self._progressed

    async def answer(self, key: int, body: Buffer) -> bytes:
        """Return the encoded answer; FrameError for a malformed body."""
        try:
            if key == PRODUCE:
                return msgspec.msgpack.encode(await self._produce(msgspec.msgpack.decode(body, type=Produce)))
            return msgspec.msgpack.encode(self._read(msgspec.msgpack.decode(body, type=Read)))
        except msgspec.MsgspecError as wrong:
            raise FrameError(f"client's request: {wrong}") from None

    def _progressed(self, partition: Partition) -> None:
        for event in self._waiting.get(partition, ()):
            event.set()

    async def _produce(self, request: Produce) -> Produced:
        replicas, name = self._replicas, (request.topic, request.partition)
        if self.disk_delay_s:
            await self._world.clock.sleep(self.disk_delay_s)
        partition = replicas.partition(*name)
        if not 0 < request.count <= MOST_RECORDS or request.acks not in (ALL, 0, 1):
            raise FrameError(f"produce: found {request.count} records and acks {request.acks}")
        if replicas.offline(*name):
            return Produced(KafkaErrorCode.KAFKA_STORAGE_ERROR)
        if partition is None:
            return Produced(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        leading = partition.leading
        if leading is None:
            return Produced(KafkaErrorCode.NOT_LEADER_OR_FOLLOWER)
        if request.acks == ALL and replicas.under_min_isr(partition):
            return Produced(Refusal.NOT_ENOUGH_REPLICAS)
        if replicas.holds_lock(partition):
            return Produced(KafkaErrorCode.REQUEST_TIMED_OUT)
        base = leading.log.append(leading.epoch, replicas.broker_id, request.count)
        replicas.raise_hw(partition)
        error: int = KafkaErrorCode.NONE
        if request.acks == ALL:
            error = await self._committed(partition, leading.epoch, base + request.count, request.timeout_ms / 1000)
        return Produced(error, base, leading.epoch, partition.topic_id)

    async def _committed(self, partition: Partition, epoch: int, end: int, timeout_s: float) -> int:
        """Wait until the records before ``end`` are committed; returns an error code."""
        progressed = asyncio.Event()
        waiting = self._waiting.setdefault(partition, {})
        waiting[progressed] = None
        try:
            async with asyncio.timeout(timeout_s):
                while (error := self._committed_now(partition, epoch, end)) is None:
                    await progressed.wait()
                    progressed.clear()
            return error
        except TimeoutError:
            return KafkaErrorCode.REQUEST_TIMED_OUT
        finally:
            del waiting[progressed]
            if not waiting:
                self._waiting.pop(partition, None)

    def _committed_now(self, partition: Partition, epoch: int, end: int) -> int | None:
        leading = partition.leading
        if leading is None or leading.epoch != epoch:
            return KafkaErrorCode.NOT_LEADER_OR_FOLLOWER
        if leading.log.hw < end:
            return None
        too_few = self._replicas.under_min_isr(partition)
        return Refusal.NOT_ENOUGH_REPLICAS_AFTER_APPEND if too_few else KafkaErrorCode.NONE

    def _read(self, request: Read) -> Records:
        partition = self._replicas.partition(request.topic, request.partition)
        verdict = judge(partition, request.leader_epoch)
        if partition is None or partition.leading is None or verdict is not ReportVerdict.OK:
            return Records(int(verdict) or KafkaErrorCode.NOT_LEADER_OR_FOLLOWER, [])
        log = partition.leading.log
        return Records(KafkaErrorCode.NONE, log.between(request.start, log.hw), partition.topic_id)
