"""What tests of the typed client have in common: observers, concurrent writers, lost answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aiocontroller.core.ids import (
    Broker,
    Endpoint,
    ReplicaAssignment,
    TopicAssignment,
    TopicPartition,
)
from aiocontroller.zookeeper.client import Create
from aiocontroller.zookeeper.errors import Code, MaybeAppliedError
from aiocontroller.zookeeper.kafka_zk_client import BrokerInfo, KafkaZkClient, ZNodeChange

NO_NODE, BAD_VERSION, NODE_EXISTS = int(Code.NO_NODE), int(Code.BAD_VERSION), int(Code.NODE_EXISTS)
TP = TopicPartition

Connect = Callable[[], Awaitable[KafkaZkClient]]


class Changes:
    """What ``on_change`` reported, in order; ``next()`` waits with a bound."""

    def __init__(self, zk: KafkaZkClient) -> None:
        self._queue: asyncio.Queue[tuple[ZNodeChange, str]] = asyncio.Queue()
        zk.on_change = lambda change, name: self._queue.put_nowait((change, name))

    async def next(self) -> tuple[ZNodeChange, str]:
        async with asyncio.timeout(5):
            return await self._queue.get()

    def empty(self) -> bool:
        return self._queue.empty()


async def put(zk: KafkaZkClient, path: str, data: bytes = b"") -> None:
    """As another client would write it."""
    writes = await zk.client.write_many([Create(path, data)], fence=None)
    assert writes.code == [0], path


async def data_of(zk: KafkaZkClient, path: str) -> bytes | None:
    reads = await zk.client.get_many([path])
    assert reads.code == [0], path
    return reads.data[0]


async def exists(zk: KafkaZkClient, path: str) -> bool:
    return (await zk.client.exists_many([path])).code == [0]


def topic(name: str, *replicas: tuple[int, ...]) -> TopicAssignment:
    return TopicAssignment(name, bytes(range(16)), {i: ReplicaAssignment(r) for i, r in enumerate(replicas)})


async def put_topic(zk: KafkaZkClient, assignment: TopicAssignment) -> None:
    from aiocontroller.zookeeper.znodes import encode_topic

    await put(zk, f"/brokers/topics/{assignment.topic}", encode_topic(assignment))


def broker_info(broker_id: int) -> BrokerInfo:
    return BrokerInfo(Broker(broker_id, 0, (Endpoint("PLAINTEXT", "127.0.0.1", 9092 + broker_id),), "r1"), 17)


class Lossy:
    """Stands for ``client.multi`` once: carries the multi out, or not, and loses the reply."""

    def __init__(self, zk: KafkaZkClient, *, applied: bool, error: type[Exception] = MaybeAppliedError) -> None:
        self._multi = zk.client.multi
        self._client = zk.client
        self._applied = applied
        self._error = error
        zk.client.multi = self  # type: ignore[method-assign]

    async def __call__(self, ops):
        self._client.multi = self._multi
        if self._applied:
            await self._multi(ops)
        raise self._error("lost by the test")
