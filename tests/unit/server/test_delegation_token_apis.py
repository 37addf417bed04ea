"""The right to a delegation token, before any is made."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from aiocontroller.authorizer.authorizer import AclOperation, AllowAll, Authorizer, ResourceType
from aiocontroller.config import Config
from aiocontroller.core.ids import Endpoint
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.property_values import Secret
from aiocontroller.server import delegation_token_apis
from aiocontroller.server.delegation_token_apis import apis
from aiocontroller.server.request import KafkaRequest, RequestContext
from aiocontroller.wire import cold
from aiocontroller.wire.apis import SUPPORTED, ApiKey
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.unit.zookeeper.test_client import connected

TOKEN_APIS = (
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
)


class _DenyAll:
    def __init__(self) -> None:
        self.asked: list[tuple[object, ...]] = []

    def authorize(self, *asked: object) -> bool:
        self.asked.append(asked)
        return False

    def authorize_by_resource_type(self, *asked: object) -> bool:
        return False


async def asked(
    api: ApiKey,
    version: int,
    *,
    protocol: str = "SASL_SSL",
    principal: str = "User:ops",
    authorizer: Authorizer | None = None,
    key: Secret | None = None,
    zk: KafkaZkClient | None = None,
    **fields: Any,
) -> Any:
    config = msgspec.structs.replace(Config(), delegation_token_secret_key=key)
    world = simulated_world(SimulatedNetwork())
    shell: Any = SimpleNamespace(config=config, policy=config, world=world, authorizer=authorizer or AllowAll(), zk=zk)
    answers: list[bytes] = []
    context = RequestContext(
        api=api,
        version=version,
        correlation_id=1,
        client_id="me",
        principal=principal,
        host="10.0.0.1",
        listener=Endpoint("OURS", "127.0.0.1", 1, protocol),
        authenticated=True,
    )
    body = cold.encode_request(api, version, cold.request(api, version, **fields))
    request = KafkaRequest(context, body, answers.append, lambda reason: None)
    handling = apis(shell)[api].handle(request)
    assert handling is not None
    await handling
    (answer,) = answers
    return cold.decode_response(api, version, answer)


@pytest.mark.parametrize(
    "protocol, principal, code",
    [
        ("PLAINTEXT", "User:ANONYMOUS", 64),
        ("SSL", "User:ANONYMOUS", 64),
        ("SSL", "User:CN=ops", 61),
        ("SASL_PLAINTEXT", "User:ops", 61),
        ("SASL_SSL", "User:ops", 61),
    ],
)
@pytest.mark.parametrize("api", TOKEN_APIS)
@virtual_time
async def test_where_tokens_are_given_out(api: ApiKey, protocol: str, principal: str, code: int) -> None:
    """64: not in the open, and not without a login; 61: these brokers have no key for tokens."""
    for version in range(SUPPORTED[api].max + 1):
        answer = await asked(api, version, protocol=protocol, principal=principal)
        assert answer.error_code == code


@virtual_time
async def test_a_token_for_another_user_needs_create_tokens() -> None:
    deny_all = _DenyAll()
    answer = await asked(
        ApiKey.CREATE_DELEGATION_TOKEN,
        3,
        authorizer=deny_all,
        key=Secret("k"),
        owner_principal_type="User",
        owner_principal_name="carol",
    )
    assert (answer.error_code, answer.principal_name, answer.token_requester_principal_name) == (65, "carol", "ops")
    assert deny_all.asked == [("User:ops", "10.0.0.1", AclOperation.CREATE_TOKENS, ResourceType.USER, "User:carol")]


@virtual_time
async def test_only_users_renew() -> None:
    group = {"principal_type": "Group", "principal_name": "g"}
    answer = await asked(ApiKey.CREATE_DELEGATION_TOKEN, 1, key=Secret("k"), renewers=[group])
    assert (answer.error_code, answer.hmac) == (67, b"")


@virtual_time
async def test_an_empty_list_of_owners_has_no_tokens() -> None:
    answer = await asked(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, key=Secret("k"), owners=[])
    assert (answer.error_code, answer.tokens) == (0, ())


@pytest.mark.parametrize(
    "period_ms, lives", [(-1, None), (-86_400_000, None), (0, 0), (1, 1), (86_400_000, 86_400_000)]
)
async def test_a_negative_period_ends_a_token_at_once(
    monkeypatch: pytest.MonkeyPatch, period_ms: int, lives: int | None
) -> None:
    periods: list[int | None] = []

    async def live_until(_: Any, hmac_given: bytes, period_ms: int | None) -> dict[str, Any]:
        periods.append(period_ms)
        return {}

    monkeypatch.setattr(delegation_token_apis, "_live_until", live_until)
    nothing: Any = None
    period = timedelta(milliseconds=period_ms)
    await delegation_token_apis._expire(nothing, SimpleNamespace(hmac=b"", expiry_time_period=period))
    assert periods == [lives]


@virtual_time
async def test_a_token_lives_until_it_is_expired() -> None:
    """A period counts from now on, and never lasts longer than the token may; a negative one deletes the token."""
    day = timedelta(days=1)
    renew, expire = ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN
    async with connected() as client:
        zk = KafkaZkClient(client)
        await zk.create_paths(["/delegation_token/tokens", "/config/changes"])
        made = await asked(ApiKey.CREATE_DELEGATION_TOKEN, 2, key=Secret("k"), zk=zk, max_lifetime=5 * day)
        given: Any = {"key": Secret("k"), "zk": zk, "hmac": made.hmac}

        def days(answer: Any) -> float:
            assert answer.error_code == 0
            return round((answer.expiry_timestamp - made.issue_timestamp) / day, 4)

        assert days(await asked(renew, 2, renew_period=2 * day, **given)) == 2
        assert days(await asked(expire, 2, expiry_time_period=day, **given)) == 1
        assert days(await asked(expire, 2, expiry_time_period=6 * day, **given)) == 5
        assert await client.get_children("/delegation_token/tokens") == [made.token_id]
        assert days(await asked(expire, 2, expiry_time_period=timedelta(milliseconds=-1), **given)) == 0
        assert await client.get_children("/delegation_token/tokens") == []
        assert (await asked(renew, 2, renew_period=day, **given)).error_code == 62
