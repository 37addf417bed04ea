"""What is asked of each node, and answered for ourselves."""

from __future__ import annotations

import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.wire import cold, messages
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange
from tests.unit.server.front import front, settle
from tests.virtual_time import virtual_time

PER_NODE = [
    (api, version)
    for api in (ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_LOG_DIRS)
    for version in range(SUPPORTED[api].max + 1)
]


@pytest.mark.parametrize("api,version", PER_NODE)
@virtual_time
async def test_what_is_asked_of_each_node_is_answered_for_ourselves(api: ApiKey, version: int) -> None:
    body = cold.request(api, version)
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(api, version, cold.encode_request(api, version, body))
        await settle()
        assert not it.upstreams
        answer = cold.decode_response(api, version, client.answer(api, version))
        assert not getattr(answer, "error_code", 0)
        for name in ("groups", "transaction_states"):
            assert not getattr(answer, name, ())
        for result in getattr(answer, "results", ()):  # log directories: one, without content
            assert not result.error_code
            assert not getattr(result, "topics", ())


@virtual_time
async def test_out_of_office_it_relays_to_the_brokers_of_its_last_term() -> None:
    async with front() as it:
        await it.broker()
        it.shell.last_brokers = list(it.context.brokers.values())
        it.shell.last_offered = {ApiKey.METADATA: VersionRange(0, 12)}
        it.shell.channels, it.shell.context = None, ControllerContext()
        client = await it.connect()
        client.request(ApiKey.API_VERSIONS, 0)
        await settle()
        offered = messages.decode_api_versions_response(0, client.frames[0][4:]).versions
        assert offered[ApiKey.METADATA] == VersionRange(0, 12)
        client.request(ApiKey.METADATA, 9)
        await settle()
        assert len(it.upstreams[0].frames) == 1


@virtual_time
async def test_standby_relays_nothing_it_knows_no_broker() -> None:
    async with front() as it:
        it.shell.channels = None
        client = await it.connect()
        client.request(ApiKey.API_VERSIONS, 0)
        client.request(ApiKey.METADATA, 9)
        await settle()
        assert client.closed
        assert client.correlation_ids() == [1]
