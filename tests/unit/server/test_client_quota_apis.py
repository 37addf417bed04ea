"""Filters of client quotas, and the right to ask about quotas and credentials."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server import client_quota_apis
from aiocontroller.server.client_quota_apis import DEFAULT, EXACT, SPECIFIED, _quotas, quota_filter
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.topic_rules import TopicError
from tests.unit.server.front import front, settle

ENTITIES = {
    "u": {"user": "u"},
    "v": {"user": "v"},
    "all users": {"user": None},
    "c": {"client-id": "c"},
    "u's c": {"user": "u", "client-id": "c"},
    "all clients of u": {"user": "u", "client-id": None},
    "ip": {"ip": "10.0.0.1"},
}


def component(kind: str, match: int, name: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(entity_type=kind, match_type=match, match=name)


@pytest.mark.parametrize(
    "components, strict, expected",
    [
        ([], False, list(ENTITIES)),
        ([], True, []),
        ([component("user", EXACT, "u")], True, ["u"]),
        ([component("user", EXACT, "u")], False, ["u", "u's c", "all clients of u"]),
        ([component("user", DEFAULT)], True, ["all users"]),
        ([component("user", SPECIFIED)], True, ["u", "v", "all users"]),
        ([component("client-id", SPECIFIED)], False, ["c", "u's c", "all clients of u"]),
        ([component("user", SPECIFIED), component("client-id", DEFAULT)], True, ["all clients of u"]),
        ([component("ip", SPECIFIED)], False, ["ip"]),
    ],
)
def test_what_a_filter_lets_through(components: list[SimpleNamespace], strict: bool, expected: list[str]) -> None:
    wanted = quota_filter(components, strict=strict)
    assert [name for name, entity in ENTITIES.items() if wanted.matches(entity)] == expected


@pytest.mark.parametrize(
    "components, code",
    [
        ([component("user", SPECIFIED)] * 2, 42),
        ([component("user", SPECIFIED), component("ip", SPECIFIED)], 42),
        ([component("", SPECIFIED)], 42),
        ([component("group", SPECIFIED)], 35),
        ([component("user", EXACT)], 42),
        ([component("user", 7)], 42),
    ],
)
def test_filters_that_mean_nothing(components: list[SimpleNamespace], code: int) -> None:
    with pytest.raises(TopicError) as caught:
        quota_filter(components, strict=False)
    assert caught.value.code == code


class Quotas:
    """The quotas of users, and of users' clients, by znode name."""

    OF_USERS: Mapping[str, Mapping[str, str]] = {
        "u": {"producer_byte_rate": "1"},
        "v": {"producer_byte_rate": "2"},
    }
    OF_CLIENTS: Mapping[str, Mapping[str, str]] = {"u/clients/c": {"producer_byte_rate": "3"}}

    async def get_entity_configs(self, entity_type: str, name: str) -> Mapping[str, str]:
        return {**self.OF_USERS, **self.OF_CLIENTS}.get(name, {})

    async def get_all_entity_configs(self, entity_type: str) -> Mapping[str, Mapping[str, str]]:
        return self.OF_USERS if entity_type == "users" else {}

    async def get_all_user_client_configs(self) -> Mapping[str, Mapping[str, str]]:
        return self.OF_CLIENTS


@pytest.mark.parametrize(
    "components, strict, rates",
    [
        ([component("user", EXACT, "u")], False, [1, 3]),
        ([component("user", EXACT, "u")], True, [1]),
        ([component("user", EXACT, "u"), component("client-id", EXACT, "c")], False, [3]),
        ([component("user", EXACT, "u"), component("client-id", SPECIFIED)], True, [3]),
        ([component("client-id", SPECIFIED)], False, [3]),
        ([], False, [1, 2, 3]),
    ],
)
async def test_quotas_that_a_filter_finds(components: list[SimpleNamespace], strict: bool, rates: list[int]) -> None:
    """A user's quotas are asked for by name; without a word of clients, those of the user's clients are found too."""
    wanted = quota_filter(components, strict=strict)
    found = [quotas async for _, quotas in _quotas(cast(Any, Quotas()), wanted)]
    assert [quotas["producer_byte_rate"] for quotas in found] == rates


class _DenyAll:
    def authorize(self, *asked: object) -> bool:
        return False

    def authorize_by_resource_type(self, *asked: object) -> bool:
        return False


@virtual_time
async def test_a_client_without_the_right_is_refused() -> None:
    entry = {"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": []}
    requests = [
        (ApiKey.DESCRIBE_CLIENT_QUOTAS, {}),
        (ApiKey.ALTER_CLIENT_QUOTAS, {"entries": [entry]}),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": [{"name": "u"}]}),
    ]
    for api, fields in requests:
        async with front() as it:
            it.shell.authorizer = _DenyAll()
            client = await it.connect()
            client.request(api, 0, cold.encode_request(api, 0, cold.request(api, 0, **fields)))
            await settle()
            answer = cold.decode_response(api, 0, client.answer(api, 0))
            codes = [getattr(answer, "error_code", 31), *(e.error_code for e in getattr(answer, "entries", ()) or ())]
            assert set(codes) == {31}, api


@virtual_time
async def test_users_without_credentials_are_not_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that has quotas alone is no SCRAM user."""
    scram = "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"

    class Users(Quotas):
        OF_USERS: Mapping[str, Mapping[str, str]] = {"u": {"producer_byte_rate": "1"}, "v": {"SCRAM-SHA-256": scram}}

    monkeypatch.setattr(client_quota_apis, "AdminZkClient", lambda zk: Users())
    async with front() as it:
        client = await it.connect()
        api = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
        client.request(api, 0, cold.encode_request(api, 0, cold.request(api, 0, users=None)))
        await settle()
        answer = cold.decode_response(api, 0, client.answer(api, 0))
        assert [(result.user, result.error_code) for result in answer.results] == [("v", 0)]


@virtual_time
async def test_users_that_are_asked_for_are_answered_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that is named twice is refused by itself, one without a name or credentials too."""
    scram = "salt=c2FsdA==,stored_key=a2V5,server_key=a2V5,iterations=4096"

    class Users(Quotas):
        OF_USERS: Mapping[str, Mapping[str, str]] = {
            "u": {"producer_byte_rate": "1"},
            "v": {"SCRAM-SHA-256": scram},
            "twice": {"SCRAM-SHA-256": scram},
        }

    monkeypatch.setattr(client_quota_apis, "AdminZkClient", lambda zk: Users())
    async with front() as it:
        client = await it.connect()
        api = ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS
        users = [{"name": name} for name in ("twice", "v", "", "u", "twice", "nobody")]
        client.request(api, 0, cold.encode_request(api, 0, cold.request(api, 0, users=users)))
        await settle()
        answer = cold.decode_response(api, 0, client.answer(api, 0))
        assert {result.user: result.error_code for result in answer.results} == {
            "twice": KafkaErrorCode.DUPLICATE_RESOURCE,
            "v": KafkaErrorCode.NONE,
            "": KafkaErrorCode.RESOURCE_NOT_FOUND,
            "u": KafkaErrorCode.RESOURCE_NOT_FOUND,
            "nobody": KafkaErrorCode.RESOURCE_NOT_FOUND,
        }
        [info] = answer.results[1].credential_infos
        assert (info.mechanism, info.iterations) == (1, 4096)
