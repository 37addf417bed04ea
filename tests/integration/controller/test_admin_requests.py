"""Requests of administrators that any broker answers, answered by a controller that need not be active."""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiocontroller.authorizer.authorizer import AclOperation, ResourceType
from aiocontroller.core.ids import Endpoint
from aiocontroller.net.ports import World
from aiocontroller.property_values import Secret
from aiocontroller.server import delegation_token_apis
from aiocontroller.server.request import KafkaRequest, RequestContext
from aiocontroller.service import Service
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from tests.integration.controller.asking import Asking, asking
from tests.integration.controller.harness import Cluster, running

TOPIC, BROKER = 2, 4


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with running(world, zk_connect) as cluster:
        await cluster.create_topic("t", {0: [1]})
        yield cluster


async def observer(cluster: Cluster, **changes: Any) -> Service:
    """A controller that never becomes active."""
    return await cluster.add_controller(aiocontroller_takeover_policy="observe", **changes)


async def ask(client: Asking, api: ApiKey, version: int, **fields: Any) -> Any:
    body = cold.encode_request(api, version, cold.request(api, version, **fields))
    return cold.decode_response(api, version, await client.request(api, version, body))


def changing(resource: int, name: str, **configs: str | None) -> dict[str, Any]:
    ops = [
        {"name": key.replace("_", "."), "config_operation": 1 if value is None else 0, "value": value}
        for key, value in configs.items()
    ]
    return {"resources": [{"resource_type": resource, "resource_name": name, "configs": ops}]}


async def entries(client: Asking, resource: int, name: str) -> dict[str, Any]:
    asked = {"resource_type": resource, "resource_name": name, "configuration_keys": None}
    (result,) = (await ask(client, ApiKey.DESCRIBE_CONFIGS, 4, resources=[asked], include_synonyms=True)).results
    assert not result.error_code, result
    return {config.name: config for config in result.configs}


async def notified(cluster: Cluster) -> list[Any]:
    names = sorted(await cluster.client.get_children("/config/changes"))
    return [json.loads(await cluster.client.get_data(f"/config/changes/{name}")) for name in names]


async def test_a_topics_settings_are_changed_described_and_announced(cluster: Cluster) -> None:
    async with asking(await observer(cluster)) as client:
        changed = await ask(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **changing(TOPIC, "t", retention_ms=" 5 "))
        assert [r.error_code for r in changed.responses] == [0]
        described = await entries(client, TOPIC, "t")
        assert (described["retention.ms"].value, described["retention.ms"].config_source) == ("5", 1)
        assert (described["segment.bytes"].value, described["segment.bytes"].config_source) == ("1073741824", 5)
        assert json.loads(await cluster.client.get_data("/config/topics/t")) == {
            "version": 1,
            "config": {"retention.ms": " 5 "},
        }
        assert await notified(cluster) == [{"version": 2, "entity_path": "topics/t"}]


async def test_what_is_only_looked_at_changes_nothing(cluster: Cluster) -> None:
    async with asking(await observer(cluster)) as client:
        for resource, name in ((TOPIC, "t"), (BROKER, "")):
            fields = changing(resource, name, min_insync_replicas="2")
            changed = await ask(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **fields, validate_only=True)
            assert [r.error_code for r in changed.responses] == [0]
        assert await notified(cluster) == []


async def test_all_brokers_settings_stand_in_for_what_a_topic_was_not_given(cluster: Cluster) -> None:
    async with asking(await observer(cluster)) as client:
        changed = await ask(
            client,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            1,
            **changing(BROKER, "", log_retention_ms="7", max_connections="9"),
        )
        assert [r.error_code for r in changed.responses] == [0]
        assert (await entries(client, BROKER, "")).keys() == {"log.retention.ms", "max.connections"}
        retention = (await entries(client, TOPIC, "t"))["retention.ms"]
        assert (retention.value, retention.config_source) == ("7", 3)
        assert [(s.name, s.value, s.source) for s in retention.synonyms][:1] == [("log.retention.ms", "7", 3)]


async def test_settings_changed_at_once_are_all_kept(cluster: Cluster) -> None:
    """Each alteration reads and writes all settings of a topic; none may overwrite another."""
    names = ["retention.ms", "segment.ms", "flush.ms", "segment.jitter.ms", "file.delete.delay.ms", "retention.bytes"]
    service = await observer(cluster)

    async def change(name: str) -> None:
        async with asking(service) as client:
            fields = changing(TOPIC, "t", **{name.replace(".", "_"): "1"})
            changed = await ask(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **fields)
            assert [r.error_code for r in changed.responses] == [0]

    await asyncio.gather(*map(change, names))
    assert await AdminZkClient(cluster.zk).get_entity_configs("topics", "t") == dict.fromkeys(names, "1")


async def test_brokers_that_do_not_say_whether_a_policy_decides(cluster: Cluster) -> None:
    """A broker may have alter.config.policy.class.name, so one that does not answer lets nothing through."""
    broker = await cluster.add_broker(1)
    broker.deafen()
    async with asking(await observer(cluster)) as client:
        changed = await ask(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **changing(TOPIC, "t", retention_ms="5"))
        assert [r.error_code for r in changed.responses] == [7]
        assert (await entries(client, TOPIC, "t"))["retention.ms"].value == "604800000"


async def test_quotas_are_changed_described_and_removed(cluster: Cluster) -> None:
    entity = [{"entity_type": "user", "entity_name": "ü"}, {"entity_type": "client-id", "entity_name": None}]

    def altering(value: float | None) -> dict[str, Any]:
        op = {"key": "producer_byte_rate", "value": value or 0.0, "remove": value is None}
        return {"entries": [{"entity": entity, "ops": [op]}]}

    async with asking(await observer(cluster)) as client:
        changed = await ask(client, ApiKey.ALTER_CLIENT_QUOTAS, 1, **altering(5.0))
        assert [entry.error_code for entry in changed.entries] == [0]
        (quota,) = (await ask(client, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)).entries
        assert [(e.entity_type, e.entity_name) for e in quota.entity] == [("user", "ü"), ("client-id", None)]
        assert [(v.key, v.value) for v in quota.values] == [("producer_byte_rate", 5.0)]
        assert await notified(cluster) == [{"version": 2, "entity_path": "users/%C3%BC/clients/<default>"}]
        await ask(client, ApiKey.ALTER_CLIENT_QUOTAS, 1, **altering(None))
        assert (await ask(client, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1)).entries == ()
        assert await cluster.client.get_children("/config/users") == []


async def test_a_quota_that_is_taken_away_is_no_password(cluster: Cluster) -> None:
    """The right to change quotas does not allow removing a user's credential."""
    await AdminZkClient(cluster.zk).change_entity_configs(
        "users", "u", {"SCRAM-SHA-256": "kept", "request_percentage": "1"}
    )
    entry = {
        "entity": [{"entity_type": "user", "entity_name": "u"}],
        "ops": [{"key": key, "value": 0.0, "remove": True} for key in ("SCRAM-SHA-256", "request_percentage")],
    }
    async with asking(await observer(cluster)) as client:
        await ask(client, ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[entry])
    assert await AdminZkClient(cluster.zk).get_entity_configs("users", "u") == {"SCRAM-SHA-256": "kept"}


NO_PATHS = (".", "..", "/", "a//b", "a/", "a/../b", "\0", "\x7f", "\ue000", "\U0001f600")


@pytest.mark.parametrize("name, code", [*((name, 40) for name in NO_PATHS), ("a/b", 3), ("a..b", 3), ("\xe4", 3)])
async def test_topic_that_no_znode_can_name_has_no_settings(cluster: Cluster, name: str, code: int) -> None:
    """Answered as by a broker, which reads the settings before it looks for the topic."""
    async with asking(await observer(cluster)) as client:
        asked = changing(TOPIC, name, **{"retention.ms": "1"})
        (result,) = (await ask(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **asked)).responses
    assert result.error_code == code


@pytest.mark.parametrize("kind", ["user", "client-id"])
async def test_name_of_dots_has_no_quotas_and_no_credentials(cluster: Cluster, kind: str) -> None:
    names = (".", "..")
    removal = {"key": "producer_byte_rate", "value": 0.0, "remove": True}
    removed = [{"entity": [{"entity_type": kind, "entity_name": name}], "ops": [removal]} for name in names]
    async with asking(await observer(cluster)) as client:
        for name in names:
            component = {"entity_type": kind, "match_type": 0, "match": name}
            found = await ask(client, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=[component], strict=True)
            assert (found.error_code, found.entries) == (0, ())
        answer = await ask(client, ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=removed)
        assert [each.error_code for each in answer.entries] == [0, 0]
        users = [{"name": name} for name in names]
        described = await ask(client, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users)
        assert {each.error_code for each in described.results} == {91}


# -- delegation tokens -------------------------------------------------------------------------------------------------

KEY = Secret("a key that all brokers have")


async def ask_as(service: Service, principal: str, api: ApiKey, version: int, **fields: Any) -> Any:
    """Ask as a client that logged in under this name."""
    answers: list[bytes] = []
    context = RequestContext(
        api=api,
        version=version,
        correlation_id=1,
        client_id="me",
        principal=principal,
        host="10.0.0.1",
        listener=Endpoint("OURS", "127.0.0.1", 1, "SASL_SSL"),
        authenticated=True,
    )
    body = cold.encode_request(api, version, cold.request(api, version, **fields))
    request = KafkaRequest(context, body, answers.append, lambda reason: None)
    handling = delegation_token_apis.apis(service.shell)[api].handle(request)
    assert handling is not None
    await handling
    return cold.decode_response(api, version, answers[0])


async def test_a_token_is_owned_by_its_requester(cluster: Cluster) -> None:
    service = await observer(cluster, delegation_token_secret_key=KEY)
    bob = {"principal_type": "User", "principal_name": "bob"}
    made = await ask_as(service, "User:ops", ApiKey.CREATE_DELEGATION_TOKEN, 3, renewers=[bob], max_lifetime=-1)
    assert (made.error_code, made.principal_type, made.principal_name) == (0, "User", "ops")
    assert made.hmac == hmac.digest(KEY.value.encode(), made.token_id.encode(), "sha512")
    found = json.loads(await cluster.client.get_data(f"/delegation_token/tokens/{made.token_id}"))
    assert (found["version"], found["owner"], found["tokenRequester"]) == (3, "User%3Aops", "User%3Aops")
    assert found["renewers"] == ["User%3Abob"]
    assert found["maxTimestamp"] - found["issueTimestamp"] == 604_800_000
    assert found["expiryTimestamp"] - found["issueTimestamp"] == 86_400_000
    (change,) = await cluster.client.get_children("/delegation_token/token_changes")
    assert await cluster.client.get_data(f"/delegation_token/token_changes/{change}") == made.token_id.encode()


async def test_rights_to_renew_and_expire_a_token(cluster: Cluster) -> None:
    service = await observer(cluster, delegation_token_master_key=KEY)
    bob = {"principal_type": "User", "principal_name": "bob"}
    made = await ask_as(service, "User:ops", ApiKey.CREATE_DELEGATION_TOKEN, 2, renewers=[bob], max_lifetime=60_000)

    async def code(principal: str, api: ApiKey, **fields: Any) -> int:
        return int((await ask_as(service, principal, api, 2, **{"hmac": made.hmac, **fields})).error_code)

    assert await code("User:eve", ApiKey.RENEW_DELEGATION_TOKEN, renew_period=1000) == 63
    assert await code("User:eve", ApiKey.EXPIRE_DELEGATION_TOKEN, expiry_time_period=-1) == 63
    assert await code("User:bob", ApiKey.RENEW_DELEGATION_TOKEN, renew_period=1000, hmac=b"guessed") == 62
    renewed = await ask_as(service, "User:bob", ApiKey.RENEW_DELEGATION_TOKEN, 2, hmac=made.hmac, renew_period=10**12)
    assert (renewed.error_code, renewed.expiry_timestamp) == (0, made.max_timestamp), "no longer than it may live"
    assert await code("User:ops", ApiKey.EXPIRE_DELEGATION_TOKEN, expiry_time_period=-1) == 0
    assert await code("User:ops", ApiKey.EXPIRE_DELEGATION_TOKEN, expiry_time_period=-1) == 62
    assert await cluster.client.get_children("/delegation_token/tokens") == []


async def test_whose_tokens_are_described(cluster: Cluster) -> None:
    service = await observer(cluster, delegation_token_secret_key=KEY)
    made = await ask_as(service, "User:ops", ApiKey.CREATE_DELEGATION_TOKEN, 3, max_lifetime=-1)
    asked: list[tuple[object, ...]] = []

    class DenyAll:
        def authorize(self, *question: object) -> bool:
            asked.append(question[2:])
            return False

        def authorize_by_resource_type(self, *question: object) -> bool:
            return False

    service.shell.authorizer = DenyAll()
    own = await ask_as(service, "User:ops", ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, owners=None)
    assert [(t.token_id, t.hmac) for t in own.tokens] == [(made.token_id, made.hmac)]
    assert asked == []
    others = await ask_as(service, "User:eve", ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, owners=None)
    assert others.tokens == ()
    assert asked == [
        (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, made.token_id),
        (AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:ops"),
    ]
