"""What is asked of each node, and answered for ourselves."""

from __future__ import annotations

import pytest

from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from tests.unit.server.front import front, settle

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
