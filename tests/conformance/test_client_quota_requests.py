"""Kafka's ClientQuotasRequestTest.

Each test is named after Kafka's and checks what that checks.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.wire.apis import ApiKey
from tests.conformance.admin_requests import Admin, admin_of
from tests.conformance.conftest import Setting
from tests.conformance.test_credential_requests import SHA_256, credentials, upsertion
from tests.conformance.test_credential_requests import alter as alter_credentials
from tests.conformance.test_credential_requests import describe as describe_credentials

Entity = tuple[tuple[str, str | None], ...]
"""Type and name of each part, in the order of the types; None is the default."""
Component = tuple[str, int, str | None]
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
NO_USER = "-"
PRODUCER, CONSUMER = "producer_byte_rate", "consumer_byte_rate"
REQUESTS, CONNECTIONS = "request_percentage", "connection_creation_rate"


def entity_of(user: str | None = NO_USER, client: str | None = NO_USER) -> Entity:
    parts = (("client-id", client), ("user", user))
    return tuple(part for part in parts if part[1] != NO_USER)


CLIENTS = {
    entity_of("user-1", "client-id-1"): 50.50,
    entity_of("user-2", "client-id-1"): 51.51,
    entity_of("user-3", "client-id-2"): 52.52,
    entity_of(None, "client-id-1"): 53.53,
    entity_of("user-1", None): 54.54,
    entity_of("user-3", None): 55.55,
    entity_of("user-1"): 56.56,
    entity_of("user-2"): 57.57,
    entity_of("user-3"): 58.58,
    entity_of(None): 59.59,
    entity_of(client="client-id-2"): 60.60,
}
ADDRESSES: dict[Entity, float] = {(("ip", "1.2.3.4"),): 10.0, (("ip", "2.3.4.5"),): 20.0}
ALL = {**CLIENTS, **ADDRESSES}


def key_of(entity: Entity) -> str:
    return CONNECTIONS if entity[0][0] == "ip" else REQUESTS


async def alter(admin: Admin, entity: Entity, *, validate_only: bool = False, **changes: float | None) -> E:
    """Set quotas of one entity, or remove those that are None; the answer's code."""
    ops = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in changes.items()]
    entries = [{"entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity], "ops": ops}]
    answer = await admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=validate_only)
    ((code, names),) = [(e.error_code, [(p.entity_type, p.entity_name) for p in e.entity]) for e in answer.entries]
    assert sorted(names) == sorted(entity)
    return E(code)


async def describe(
    admin: Admin, *components: Component, strict: bool, code: E = E.NONE
) -> dict[Entity, dict[str, float]]:
    asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = await admin.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=asked, strict=strict)
    assert answer.error_code == code
    found = {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries or ()
    }
    assert len(found) == len(answer.entries or ())
    return found


async def exactly(admin: Admin, entity: Entity) -> dict[Entity, dict[str, float]]:
    return await describe(admin, *((k, DEFAULT if n is None else EXACT, n) for k, n in entity), strict=True)


async def set_all(admin: Admin) -> None:
    for entity, value in ALL.items():
        assert await alter(admin, entity, **{key_of(entity): value}) == E.NONE


def quotas_of(entities: Iterable[Entity]) -> dict[Entity, dict[str, float]]:
    return {entity: {key_of(entity): ALL[entity]} for entity in entities}


async def test_alter_client_quotas_request(on: Setting) -> None:
    entity = entity_of("user", "client-id")
    steps: list[tuple[dict[str, float | None], dict[str, float]]] = [
        ({PRODUCER: 10_000.0, CONSUMER: 20_000.0}, {PRODUCER: 10_000.0, CONSUMER: 20_000.0}),
        ({PRODUCER: 15_000.0}, {PRODUCER: 15_000.0, CONSUMER: 20_000.0}),
        ({PRODUCER: None}, {CONSUMER: 20_000.0}),
        ({REQUESTS: None}, {CONSUMER: 20_000.0}),
        ({PRODUCER: 5_000.0}, {PRODUCER: 5_000.0, CONSUMER: 20_000.0}),
        ({PRODUCER: 20_000.0, CONSUMER: None, REQUESTS: 12.3}, {PRODUCER: 20_000.0, REQUESTS: 12.3}),
    ]
    async with on(1) as stage, admin_of(stage.service) as admin:
        assert await exactly(admin, entity) == {}
        for changes, expected in steps:
            assert await alter(admin, entity, **changes) == E.NONE
            assert await exactly(admin, entity) == {entity: expected}


async def test_alter_client_quotas_request_validate_only(on: Setting) -> None:
    entity = entity_of("user")
    unchanged: dict[str, float | None] = {PRODUCER: 20_000.0, REQUESTS: 23.45}
    changes: list[dict[str, float | None]] = [
        {CONSUMER: 50_000.0},
        {PRODUCER: 10_000.0},
        {REQUESTS: None},
        {PRODUCER: 10_000.0, CONSUMER: 50_000.0, REQUESTS: None},
    ]
    async with on(1) as stage, admin_of(stage.service) as admin:
        assert await alter(admin, entity, **unchanged) == E.NONE
        for change in changes:
            assert await alter(admin, entity, validate_only=True, **change) == E.NONE
            assert await exactly(admin, entity) == {entity: unchanged}


async def test_client_quotas_for_scram_users(on: Setting) -> None:
    """The password that is in the same znode is no quota, and stays there."""
    entity = entity_of("user")
    async with on(1) as stage, admin_of(stage.service) as admin:
        (altered,) = await alter_credentials(admin, upsertions=[upsertion("user")])
        assert altered.error_code == E.NONE
        assert await exactly(admin, entity) == {}
        assert await alter(admin, entity, producer_byte_rate=10_000.0, consumer_byte_rate=20_000.0) == E.NONE
        assert await exactly(admin, entity) == {entity: {PRODUCER: 10_000.0, CONSUMER: 20_000.0}}
        assert credentials(await describe_credentials(admin, "user")) == {"user": {SHA_256: 4096}}


async def test_alter_ip_quotas_request(on: Setting) -> None:
    """Each is removed in the end, and is no longer described then."""
    entity, default = (("ip", "10.0.0.1"),), (("ip", None),)
    async with on(1) as stage, admin_of(stage.service) as admin:
        for changed, value in ((entity, 100.0), (entity, 150.0), (default, 200.0)):
            assert await alter(admin, changed, connection_creation_rate=value) == E.NONE
            assert await exactly(admin, changed) == {changed: {CONNECTIONS: value}}
        both = await describe(admin, ("ip", SPECIFIED, None), strict=True)
        assert both == {entity: {CONNECTIONS: 150.0}, default: {CONNECTIONS: 200.0}}
        for changed in (entity, default):
            assert await alter(admin, changed, connection_creation_rate=None) == E.NONE
            assert await exactly(admin, changed) == {}
        assert await describe(admin, ("ip", SPECIFIED, None), strict=True) == {}


async def test_alter_client_quotas_invalid_requests(on: Setting) -> None:
    refused: list[tuple[Entity, dict[str, float]]] = [
        (entity_of(""), {REQUESTS: 12.34}),
        (entity_of(client=""), {REQUESTS: 12.34}),
        ((("", "name"),), {REQUESTS: 12.34}),
        ((), {PRODUCER: 10_000.5}),
        (entity_of("user"), {"bad": 1.0}),
        (entity_of("user"), {PRODUCER: 10_000.5}),
    ]
    async with on(1) as stage, admin_of(stage.service) as admin:
        for entity, change in refused:
            assert await alter(admin, entity, validate_only=True, **change) == E.INVALID_REQUEST, (entity, change)


async def test_alter_client_quotas_invalid_entity_combination(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        for entity in ((("ip", "1.2.3.4"), ("user", "user")), (("client-id", "client"), ("ip", "1.2.3.4"))):
            code = await alter(admin, entity, validate_only=True, request_percentage=12.34)
            assert code == E.INVALID_REQUEST, entity


async def test_alter_client_quotas_bad_ip(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        for address in ("not a valid host because it has spaces", "RFC2606.invalid"):
            code = await alter(admin, (("ip", address),), validate_only=True, connection_creation_rate=50.0)
            assert code == E.INVALID_REQUEST, address


async def test_describe_client_quotas_invalid_filter_combination(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        for other in ("user", "client-id"):
            kinds: list[Component] = [("ip", SPECIFIED, None), (other, SPECIFIED, None)]
            assert await describe(admin, *kinds, strict=False, code=E.INVALID_REQUEST) == {}


async def test_client_quotas_unsupported_entity_types(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        kind: Component = ("other", EXACT, "name")
        assert await describe(admin, kind, strict=True, code=E.UNSUPPORTED_VERSION) == {}


async def test_describe_client_quotas_match_exact(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        await set_all(admin)
        for entity in CLIENTS:
            assert await exactly(admin, entity) == quotas_of([entity])
        absent = (
            entity_of("user-1", "client-id-2"),
            entity_of("user-3", "client-id-1"),
            entity_of("user-2", None),
            entity_of("user-4"),
            entity_of(None, "client-id-2"),
            entity_of(client="client-id-1"),
            entity_of(client="client-id-3"),
        )
        for entity in absent:
            assert await exactly(admin, entity) == {}


async def test_describe_client_quotas_match_partial(on: Setting) -> None:
    users = {entity: dict(entity)["user"] for entity in CLIENTS if "user" in dict(entity)}
    clients = {entity: dict(entity)["client-id"] for entity in CLIENTS if "client-id" in dict(entity)}
    cases: list[tuple[list[Component], bool, int, list[Entity]]] = [
        ([("user", EXACT, "user-1")], False, 3, [e for e, name in users.items() if name == "user-1"]),
        ([("user", EXACT, "unknown")], False, 0, []),
        ([("client-id", EXACT, "client-id-2")], False, 2, [e for e, name in clients.items() if name == "client-id-2"]),
        ([("user", DEFAULT, None)], False, 2, [e for e, name in users.items() if name is None]),
        ([("user", EXACT, "user-2")], True, 1, [entity_of("user-2")]),
        ([("client-id", EXACT, "client-id-1")], True, 0, []),
        ([("user", SPECIFIED, None)], True, 4, [e for e in users if e not in clients]),
        ([("user", SPECIFIED, None)], False, 10, list(users)),
        ([("client-id", SPECIFIED, None)], True, 1, [e for e in clients if e not in users]),
        ([("client-id", SPECIFIED, None)], False, 7, list(clients)),
        ([("ip", SPECIFIED, None)], False, 2, list(ADDRESSES)),
        ([], False, 13, list(ALL)),
        ([], True, 0, []),
    ]
    async with on(1) as stage, admin_of(stage.service) as admin:
        await set_all(admin)
        for components, strict, count, expected in cases:
            assert len(expected) == count
            assert await describe(admin, *components, strict=strict) == quotas_of(expected), (components, strict)


async def test_client_quotas_sanitized(on: Setting) -> None:
    async with on(1) as stage, admin_of(stage.service) as admin:
        entity = entity_of("user with spaces")
        assert await alter(admin, entity, producer_byte_rate=20_000.0) == E.NONE
        assert await exactly(admin, entity) == {entity: {PRODUCER: 20_000.0}}


async def test_client_quotas_with_default_name(on: Setting) -> None:
    """A client that has the name of the default's znode is another than the default."""
    async with on(1) as stage, admin_of(stage.service) as admin:
        entity = entity_of(client="<default>")
        assert await alter(admin, entity, producer_byte_rate=20_000.0) == E.NONE
        assert await exactly(admin, entity) == {entity: {PRODUCER: 20_000.0}}
        assert await exactly(admin, entity_of(client=None)) == {}
