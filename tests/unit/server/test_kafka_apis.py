"""The registry of APIs: one dispatch, handlers that wait, and handlers that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server import kafka_apis
from aiocontroller.server.apis import HANDLER_TIMEOUT_S, Apis, Handler, all_versions
from aiocontroller.server.request import KafkaRequest
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.errors import FrameError
from tests.unit.server.front import Front, front, settle, warnings


def use(it: Front, handlers: Mapping[ApiKey, Handler]) -> None:
    apis: Apis = {api: all_versions(api, handler) for api, handler in handlers.items()}
    it.listener.apis._apis.update(apis)


@virtual_time
async def test_a_waiting_handler_holds_up_no_other_connection() -> None:
    async def slow(request: KafkaRequest) -> None:
        await asyncio.sleep(10)
        request.respond(b"slow")

    async with front() as it:
        use(it, {ApiKey.DESCRIBE_CLUSTER: slow, ApiKey.FIND_COORDINATOR: lambda request: request.respond(b"fast")})
        first, second = await it.connect(), await it.connect()
        first.request(ApiKey.DESCRIBE_CLUSTER, 0)
        second.request(ApiKey.FIND_COORDINATOR, 0)
        await settle()
        assert second.answer(ApiKey.FIND_COORDINATOR, 0) == b"fast"
        assert not first.frames
        await asyncio.sleep(10)
        assert first.answer(ApiKey.DESCRIBE_CLUSTER, 0) == b"slow"


@pytest.mark.parametrize("error", [ValueError("a bug"), FrameError("rubbish"), TimeoutError()])
@pytest.mark.parametrize("waits", [True, False])
@virtual_time
async def test_handler_that_fails_costs_one_connection(
    error: Exception, waits: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail_later(request: KafkaRequest) -> None:
        await asyncio.sleep(0.1)
        raise error

    def fail(request: KafkaRequest) -> None:
        raise error

    async with front() as it:
        use(it, {ApiKey.WRITE_TXN_MARKERS: fail_later if waits else fail})
        first, second = await it.connect(), await it.connect()
        first.request(ApiKey.WRITE_TXN_MARKERS, 0)
        await settle()
        assert first.closed
        assert warnings(caplog)
        second.request(ApiKey.API_VERSIONS, 0)
        await settle()
        assert second.frames


@virtual_time
async def test_handler_that_waits_for_ever_is_given_up() -> None:
    async def forever(request: KafkaRequest) -> None:
        await asyncio.get_running_loop().create_future()

    async with front() as it:
        use(it, {ApiKey.DESCRIBE_CLUSTER: forever})
        client = await it.connect()
        client.request(ApiKey.DESCRIBE_CLUSTER, 0)
        await settle()
        assert not client.closed
        await asyncio.sleep(HANDLER_TIMEOUT_S)
        assert client.closed


@virtual_time
async def test_handlers_that_run_at_one_time_are_bounded() -> None:
    running: list[KafkaRequest] = []
    most = 0

    async def slow(request: KafkaRequest) -> None:
        nonlocal most
        running.append(request)
        most = max(most, len(running))
        await asyncio.sleep(1)
        running.remove(request)
        request.respond(b"")

    async with front() as it:
        use(it, {ApiKey.DESCRIBE_CLUSTER: slow})
        clients = [await it.connect() for _ in range(kafka_apis.MAX_RUNNING + 5)]
        for client in clients:
            client.request(ApiKey.DESCRIBE_CLUSTER, 0)
        await asyncio.sleep(5)
        assert most == kafka_apis.MAX_RUNNING
        assert all(client.frames for client in clients)


@virtual_time
async def test_large_requests_are_begun_one_in_a_turn_of_the_loop() -> None:
    """What a handler does first is to read its request, and that takes milliseconds for each KiB."""
    begun: list[bool] = []
    """Whether another one had been begun since the loop went round."""
    in_this_turn = False

    def next_turn() -> None:
        nonlocal in_this_turn
        in_this_turn = False

    async def read(request: KafkaRequest) -> None:
        nonlocal in_this_turn
        begun.append(in_this_turn)
        in_this_turn = True
        asyncio.get_running_loop().call_soon(next_turn)
        request.respond(b"")

    async with front() as it:
        use(it, {ApiKey.ALTER_CONFIGS: read})
        clients = [await it.connect() for _ in range(40)]
        for client in clients:
            client.request(ApiKey.ALTER_CONFIGS, 0, bytes(kafka_apis.SMALL_BYTES + 1))
        await asyncio.sleep(1)
        assert all(client.frames for client in clients)
    assert begun == [False] * 40


@virtual_time
async def test_few_handlers_of_very_large_requests_run_at_one_time() -> None:
    """All that wait for the same go on in the same turn of the loop."""
    running: list[KafkaRequest] = []
    ready = asyncio.Event()

    async def wait(request: KafkaRequest) -> None:
        running.append(request)
        await ready.wait()
        request.respond(b"")

    async with front() as it:
        use(it, {ApiKey.ALTER_CONFIGS: wait, ApiKey.DESCRIBE_CLUSTER: wait})
        clients = [await it.connect() for _ in range(10)]
        for client in clients:
            client.request(ApiKey.ALTER_CONFIGS, 0, bytes(kafka_apis.LARGE_BYTES + 1))
        await asyncio.sleep(0.1)
        assert len(running) == kafka_apis.MAX_LARGE_RUNNING
        small = await it.connect()
        small.request(ApiKey.DESCRIBE_CLUSTER, 0)
        await asyncio.sleep(0.1)
        assert len(running) == kafka_apis.MAX_LARGE_RUNNING + 1
        ready.set()
        await asyncio.sleep(0.1)
        assert all(client.frames for client in [*clients, small])


@virtual_time
async def test_request_whose_connection_ends_before_its_turn_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that had gone left work for minutes behind."""
    monkeypatch.setattr(kafka_apis, "MAX_RUNNING", 1)
    began, ended = 0, 0

    async def slow(request: KafkaRequest) -> None:
        nonlocal began, ended
        began += 1
        await asyncio.sleep(5)
        ended += 1

    async with front() as it:
        use(it, {ApiKey.DESCRIBE_CLUSTER: slow})
        clients = [await it.connect() for _ in range(3)]
        for client in clients:
            client.request(ApiKey.DESCRIBE_CLUSTER, 0)
            await settle()
        for client in clients:
            client.close()
        await asyncio.sleep(20)
        assert (began, ended) == (1, 1), "what has begun goes on to its end, the others never begin"
