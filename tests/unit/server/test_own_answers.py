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
    for api in (ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS, ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CONFIGS)
    for version in range(SUPPORTED[api].max + 1)
]


@pytest.mark.parametrize("api,version", PER_NODE)
@virtual_time
async def test_what_is_asked_of_each_node_is_answered_for_ourselves(api: ApiKey, version: int) -> None:
    us = {"resource_type": 4, "resource_name": "1000001", "configuration_keys": None}
    body = cold.request(api, version, **({"resources": [us]} if api is ApiKey.DESCRIBE_CONFIGS else {}))
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
        for result in getattr(answer, "results", ()):  # log directories, configurations: one, without content
            assert not result.error_code
            assert not getattr(result, "topics", ())
            assert not getattr(result, "configs", ())


@pytest.mark.parametrize("operation, error", [(1, 0), (0, 42)])
@pytest.mark.parametrize("version", [0, 1])
@virtual_time
async def test_settings_of_ours_can_be_deleted_and_not_set(version: int, operation: int, error: int) -> None:
    """What kafka-reassign-partitions asks of every node when a reassignment is done."""
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    config = {"name": "leader.replication.throttled.rate", "config_operation": operation, "value": None}
    us = {"resource_type": 4, "resource_name": "1000001", "configs": [config]}
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(api, version, cold.encode_request(api, version, cold.request(api, version, resources=[us])))
        await settle()
        assert not it.upstreams
        (result,) = cold.decode_response(api, version, client.answer(api, version)).responses
        assert (result.error_code, result.resource_type, result.resource_name) == (error, 4, "1000001")


@pytest.mark.parametrize("resource", [(2, "orders"), (4, "1"), (4, "")])
@virtual_time
async def test_settings_that_others_take_are_relayed(resource: tuple[int, str]) -> None:
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    asked = {"resource_type": resource[0], "resource_name": resource[1], "configs": []}
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(api, 1, cold.encode_request(api, 1, cold.request(api, 1, resources=[asked])))
        await settle()
        assert len(it.upstreams[0].frames) == 1


@pytest.mark.parametrize("resource", [(2, "orders"), (4, "1"), (4, "")])
@virtual_time
async def test_settings_of_others_are_relayed(resource: tuple[int, str]) -> None:
    asked = {"resource_type": resource[0], "resource_name": resource[1], "configuration_keys": None}
    body = cold.encode_request(32, 1, cold.request(ApiKey.DESCRIBE_CONFIGS, 1, resources=[asked]))
    async with front() as it:
        await it.broker()
        client = await it.connect()
        client.request(ApiKey.DESCRIBE_CONFIGS, 1, body)
        await settle()
        assert len(it.upstreams[0].frames) == 1


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
