"""InitProducerId, as one more broker answers it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from tests.unit.server.allowing import Allowed, Allowing
from tests.unit.server.front import Front, settle
from tests.unit.server.one_more_broker import (
    CLUSTER,
    TOPIC,
    WRITE,
    ask,
    front,
)


async def init(it: Front, version: int, **fields: Any) -> tuple[int, int, int]:
    answer = await ask(it, ApiKey.INIT_PRODUCER_ID, version, **fields)
    return int(answer.error_code), answer.producer_id, answer.producer_epoch


async def allocate(it: Front, *results: Any) -> None:
    for result in results:
        event = await it.event()
        assert isinstance(event, ev.AllocateProducerIds)
        assert event.own
        event.reply.answer(result)


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.INIT_PRODUCER_ID].max + 1))
@virtual_time
async def test_idempotent_producers_get_ids_of_our_own_block(version: int) -> None:
    async with front() as it:
        blocks = asyncio.create_task(allocate(it, (5_000, 2), (9_000, 1_000)))
        found = [await init(it, version) for _ in range(4)]
        assert found == [(0, 5_000, 0), (0, 5_001, 0), (0, 9_000, 0), (0, 9_001, 0)]
        await blocks


@virtual_time
async def test_producers_that_wait_share_one_block() -> None:
    async with front() as it:
        clients = [await it.connect() for _ in range(5)]
        body = cold.encode_request(22, 0, cold.request(ApiKey.INIT_PRODUCER_ID, 0))
        for client in clients:
            client.request(ApiKey.INIT_PRODUCER_ID, 0, body)
        await settle()
        assert len(it.queue) == 1
        await allocate(it, (0, 1_000))
        await settle()
        ids = [cold.decode_response(22, 0, client.answer(ApiKey.INIT_PRODUCER_ID, 0)).producer_id for client in clients]
        assert sorted(ids) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("why", ["no block", "out of office"])
@virtual_time
async def test_producer_tries_again_when_there_is_no_block(why: str) -> None:
    async with front() as it:
        blocks = None
        if why == "out of office":
            it.shell.channels = None
        else:
            blocks = asyncio.create_task(allocate(it, KafkaErrorCode.NOT_CONTROLLER))
        assert await init(it, 4) == (KafkaErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
        if blocks is not None:
            await blocks


@pytest.mark.parametrize(
    "allowed, code",
    [
        ((), KafkaErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (((AclOperation.IDEMPOTENT_WRITE, CLUSTER, CLUSTER_NAME),), 14),
        (((WRITE, TOPIC, "any"),), 14),
    ],
)
@virtual_time
async def test_rights_to_a_producer_id(allowed: tuple[Allowed, ...], code: int) -> None:
    async with front() as it:
        it.shell.channels = None
        it.shell.authorizer = Allowing(*allowed)
        assert await init(it, 4) == (code, -1, -1)


@pytest.mark.parametrize("version", range(SUPPORTED[ApiKey.INIT_PRODUCER_ID].max + 1))
@virtual_time
async def test_transactional_producers_are_sent_to_their_coordinator(version: int) -> None:
    seconds = {"transaction_timeout": 60_000}
    async with front() as it:
        assert (await init(it, version, transactional_id="t", **seconds))[0] == KafkaErrorCode.NOT_COORDINATOR
        assert (await init(it, version, transactional_id="", **seconds))[0] == KafkaErrorCode.INVALID_REQUEST
        assert (await init(it, version, transactional_id="t"))[0] == KafkaErrorCode.INVALID_TRANSACTION_TIMEOUT
        if version >= 3:
            answer = await init(it, version, transactional_id="t", producer_id=7, **seconds)
            assert answer[0] == KafkaErrorCode.INVALID_REQUEST
        it.shell.authorizer = Allowing()
        assert (await init(it, version, transactional_id="t", **seconds))[0] == 53
