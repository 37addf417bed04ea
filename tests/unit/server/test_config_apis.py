"""Requests about configurations that need only this node: its own settings, and what is wrong by itself."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.net.complaints import MAX_CHARACTERS
from aiocontroller.server.alter_configs import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Alteration,
    ConfigOp,
    altered,
    names_for_the_log,
)
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.topic_rules import TopicError
from tests.unit.server.front import front, settle

US = {"resource_type": 4, "resource_name": "1000001"}


@pytest.mark.parametrize("version", range(5))
@virtual_time
async def test_this_node_has_no_settings_to_tell(version: int) -> None:
    asked = [{**US, "configuration_keys": None}, {**US, "resource_type": 8, "configuration_keys": None}]
    first, second = (await _asked(ApiKey.DESCRIBE_CONFIGS, version, resources=asked)).results
    assert (first.error_code, first.resource_name, first.configs) == (0, "1000001", ())
    assert (second.error_code, second.resource_type, second.configs) == (0, 8, ())


@pytest.mark.parametrize("operation, error", [(1, 0), (0, 42)])
@pytest.mark.parametrize("version", [0, 1])
@virtual_time
async def test_settings_of_ours_can_be_deleted_and_not_set(version: int, operation: int, error: int) -> None:
    """What kafka-reassign-partitions asks of every node when a reassignment is done."""
    api = ApiKey.INCREMENTAL_ALTER_CONFIGS
    config = {"name": "leader.replication.throttled.rate", "config_operation": operation, "value": None}
    us = {"resource_type": 4, "resource_name": "1000001", "configs": [config]}
    (result,) = (await _asked(api, version, resources=[us])).responses
    assert (result.error_code, result.resource_type, result.resource_name) == (error, 4, "1000001")


@pytest.mark.parametrize(
    "resource, code",
    [
        ((4, "1"), 42),
        ((4, "many"), 42),
        ((8, ""), 42),
        ((8, "1"), 42),
        ((16, "subscription"), 42),
        ((3, "unheard of"), 42),
    ],
)
@virtual_time
async def test_what_no_broker_tells_of_others(resource: tuple[int, str], code: int) -> None:
    one = {"resource_type": resource[0], "resource_name": resource[1]}
    (result,) = (await _asked(ApiKey.DESCRIBE_CONFIGS, 4, resources=[{**one, "configuration_keys": None}])).results
    assert (result.error_code, result.resource_type, result.resource_name) == (code, *resource)
    config = {"name": "x", "config_operation": 0, "value": "1"}
    (changed,) = (await _asked(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[{**one, "configs": [config]}])).responses
    assert changed.error_code == 42


@pytest.mark.parametrize(
    "configs, says",
    [
        ([("a", 0, "1"), ("a", 0, "2")], "duplicate"),
        ([("a", 0, None)], "Null value"),
        ([("a", 9, "1")], "Unknown operation 9"),
    ],
)
@virtual_time
async def test_what_is_wrong_by_itself(configs: list[tuple[str, int, str | None]], says: str) -> None:
    ops = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in configs]
    resource = {"resource_type": 2, "resource_name": "t", "configs": ops}
    (result,) = (await _asked(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])).responses
    assert result.error_code == 42
    assert says in result.error_message


@pytest.mark.parametrize("operation, code", [(SET, 40), (DELETE, 40), (APPEND, 42)])
@virtual_time
async def test_this_node_has_no_loggers_to_set(operation: int, code: int) -> None:
    config = {"name": "root", "config_operation": operation, "value": "INFO"}
    logger = {"resource_type": 8, "resource_name": "1000001", "configs": [config]}
    (result,) = (await _asked(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[logger])).responses
    assert result.error_code == code


@virtual_time
async def test_without_the_right_to_alter_valid_values_are_not_shown() -> None:
    config = {"name": "num.io.threads", "config_operation": SET, "value": "4"}
    (result,) = (
        await _asked(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _DenyAll(), resources=[{**US, "configs": [config]}])
    ).responses
    assert (result.error_code, result.error_message) == (31, None)


@virtual_time
async def test_a_resource_that_is_named_twice_is_not_changed() -> None:
    twice = [{"resource_type": 2, "resource_name": "t", "configs": []}] * 2
    for api, version in ((ApiKey.INCREMENTAL_ALTER_CONFIGS, 1), (ApiKey.ALTER_CONFIGS, 2)):
        results = (await _asked(api, version, resources=twice)).responses
        assert [result.error_code for result in results] == [42, 42]


class _DenyAll:
    def authorize(self, *asked: object) -> bool:
        return False

    def authorize_by_resource_type(self, *asked: object) -> bool:
        return False


@virtual_time
async def test_refusal_for_each_resource() -> None:
    resources = [
        {"resource_type": 2, "resource_name": "t"},
        {"resource_type": 4, "resource_name": "1000001"},
        {"resource_type": 8, "resource_name": "1000001"},
    ]
    described = await _asked(
        ApiKey.DESCRIBE_CONFIGS, 4, _DenyAll(), resources=[{**each, "configuration_keys": None} for each in resources]
    )
    assert [result.error_code for result in described.results] == [29, 31, 31]
    changed = await _asked(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, _DenyAll(), resources=[{**each, "configs": []} for each in resources]
    )
    assert [result.error_code for result in changed.responses] == [29, 31, 31]


@virtual_time
async def test_what_is_asked_of_the_authorizer() -> None:
    asked = []

    class Listening(_DenyAll):
        def authorize(self, *question: object) -> bool:
            asked.append(question)
            return False

    resource = {"resource_type": 2, "resource_name": "t", "configs": []}
    await _asked(ApiKey.ALTER_CONFIGS, 2, Listening(), resources=[resource])
    (question,) = asked
    assert question == ("User:ANONYMOUS", question[1], AclOperation.ALTER_CONFIGS, ResourceType.TOPIC, "t")


@virtual_time
async def test_a_request_that_would_take_too_long_to_read_costs_its_connection() -> None:
    async with front() as it:
        client = await it.connect()
        client.request(ApiKey.ALTER_CONFIGS, 2, bytes(600 << 10))
        await settle()
        assert client.closed


def _alteration(*ops: ConfigOp, incremental: bool = True) -> Alteration:
    return Alteration(2, "t", ops, incremental)


@pytest.mark.parametrize(
    "op, expected",
    [
        (ConfigOp("retention.ms", "2", SET), {"retention.ms": "2", "cleanup.policy": "delete"}),
        (ConfigOp("retention.ms", None, DELETE), {"cleanup.policy": "delete"}),
        (
            ConfigOp("cleanup.policy", "compact,delete", APPEND),
            {"retention.ms": "1", "cleanup.policy": "delete,compact"},
        ),
        (ConfigOp("cleanup.policy", "compact,", APPEND), {"retention.ms": "1", "cleanup.policy": "delete,compact"}),
        (ConfigOp("cleanup.policy", "delete", SUBTRACT), {"retention.ms": "1", "cleanup.policy": ""}),
        (
            ConfigOp("leader.replication.throttled.replicas", "0:1", APPEND),
            {"retention.ms": "1", "cleanup.policy": "delete", "leader.replication.throttled.replicas": "0:1"},
        ),
    ],
)
def test_operations(op: ConfigOp, expected: dict[str, str]) -> None:
    before = {"retention.ms": "1", "cleanup.policy": "delete"}
    assert altered(before, _alteration(op)) == expected
    assert before == {"retention.ms": "1", "cleanup.policy": "delete"}


def test_a_list_that_was_never_set_begins_with_its_default() -> None:
    assert altered({}, _alteration(ConfigOp("cleanup.policy", "compact", APPEND))) == {
        "cleanup.policy": "delete,compact"
    }


def test_what_is_not_incremental_replaces_everything() -> None:
    assert altered({"a": "1", "b": "2"}, _alteration(ConfigOp("b", "3"), incremental=False)) == {"b": "3"}


@pytest.mark.parametrize("name", ["retention.ms", "unheard.of"])
def test_only_lists_become_longer(name: str) -> None:
    with pytest.raises(TopicError, match=name):
        altered({}, _alteration(ConfigOp(name, "1", APPEND)))


async def _asked(api: ApiKey, version: int, authorizer: Any = None, **fields: Any) -> Any:
    """The answer, which no broker had a part in."""
    async with front() as it:
        if authorizer is not None:
            it.shell.authorizer = authorizer
        await it.broker()
        client = await it.connect()
        client.request(api, version, cold.encode_request(api, version, cold.request(api, version, **fields)))
        await settle()
        assert not it.upstreams
        return cold.decode_response(api, version, client.answer(api, version))


def test_log_line_of_many_settings_is_short() -> None:
    ops = [ConfigOp(f"setting-{n}", None, DELETE) for n in range(50_000)]
    assert len(names_for_the_log(ops)) < MAX_CHARACTERS + 50
    assert names_for_the_log(ops[:2]) == "setting-0, setting-1"
