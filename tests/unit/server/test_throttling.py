"""A client that has used up a quota is answered at once, and muted for a while."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.core.mutation_quotas import PermissiveQuota, StrictQuota, TokenBucket
from aiocontroller.core.request_content import TopicResult
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import decode_response_header
from tests.unit.server.front import Client, Front, front, settle

REQUESTS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.CREATE_TOPICS: {
        "topics": [{"name": "t", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}],
        "timeout": 1000,
        "validate_only": False,
    },
    ApiKey.CREATE_PARTITIONS: {
        "topics": [{"name": "t", "count": 2, "assignments": None}],
        "timeout": 1000,
        "validate_only": False,
    },
    ApiKey.DELETE_TOPICS: {"topic_names": ["t"], "timeout": 1000},
}
STRICT = {ApiKey.CREATE_TOPICS: 6, ApiKey.CREATE_PARTITIONS: 3, ApiKey.DELETE_TOPICS: 5}


async def send(client: Client, api: ApiKey, version: int) -> None:
    fields = REQUESTS[api]
    client.request(api, version, cold.encode_request(api, version, cold.request(api, version, **fields)))
    await settle()


def overdraw(it: Front, kind: type[StrictQuota | PermissiveQuota], seconds: float) -> None:
    now = it.world.clock.monotonic
    bucket = TokenBucket(1, 1, now())
    bucket.take(1 + seconds, now())
    it.quotas.found = kind(bucket, now)


@pytest.mark.parametrize("api", list(REQUESTS))
@virtual_time
async def test_connection_is_muted_for_its_throttle_time(api: ApiKey) -> None:
    async with front() as it:
        it.topic("t", 1)
        overdraw(it, PermissiveQuota, 4)
        client, other = await it.connect(), await it.connect()
        await send(client, api, STRICT[api] - 1)
        event = await it.event()
        event.quota.record(2)
        answered_s = it.world.clock.monotonic()
        event.reply.answer({"t": TopicResult(E.NONE)})
        await settle()
        _, body = decode_response_header(api, STRICT[api] - 1, client.frames[0])
        throttle_s = cold.decode_response(api, STRICT[api] - 1, bytes(body)).throttle_time.total_seconds()
        assert 4 < throttle_s <= 6
        await send(client, ApiKey.DELETE_TOPICS, 4)
        await send(client, ApiKey.DELETE_TOPICS, 4)
        await asyncio.sleep(answered_s + throttle_s - 0.001 - it.world.clock.monotonic())
        assert not it.queue
        await send(other, ApiKey.CREATE_PARTITIONS, 3)
        await asyncio.sleep(0.2)
        events = [await it.event() for _ in range(2)]
        assert [type(each).__name__ for each in events] == ["CreatePartitions", "DeleteTopics"]
        assert not it.queue  # its next one waits for the answer


@virtual_time
async def test_client_that_leaves_while_it_is_muted_is_forgotten() -> None:
    async with front() as it:
        overdraw(it, PermissiveQuota, 4)
        client = await it.connect()
        await send(client, ApiKey.DELETE_TOPICS, 4)
        event = await it.event()
        event.quota.record(1)
        event.reply.answer({"t": TopicResult(E.NONE)})
        await settle()
        client.close()
        await asyncio.sleep(10)
        assert not it.listener.connections


@pytest.mark.parametrize("api", list(REQUESTS))
@virtual_time
async def test_the_version_decides_whether_the_quota_refuses(api: ApiKey) -> None:
    async with front() as it:
        it.topic("t", 1)
        for version, strict in ((STRICT[api] - 1, False), (STRICT[api], True)):
            client = await it.connect()
            await send(client, api, version)
            assert it.quotas.asked[-1] == ("User:ANONYMOUS", "me", strict)


@virtual_time
async def test_a_standby_asks_no_broker_for_quotas() -> None:
    async with front() as it:
        it.shell.channels = None
        client = await it.connect()
        await send(client, ApiKey.DELETE_TOPICS, 5)
        assert it.quotas.asked == []
