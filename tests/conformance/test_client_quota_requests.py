"""Kafka's ClientQuotasRequestTest: what a filter finds.

Each test is named after Kafka's and checks what that checks.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.wire.apis import ApiKey
from tests.conformance.admin_requests import Admin, admin_of
from tests.conformance.conftest import Setting

Entity = tuple[tuple[str, str | None], ...]
"""Type and name of each part, in the order of the types; None is the default."""
Component = tuple[str, int, str | None]
EXACT, DEFAULT, SPECIFIED = 0, 1, 2
NO_USER = "-"
PRODUCER, REQUESTS, CONNECTIONS = "producer_byte_rate", "request_percentage", "connection_creation_rate"


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


async def alter(admin: Admin, quotas: dict[Entity, tuple[str, float]]) -> None:
    entries = [
        {
            "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity],
            "ops": [{"key": key, "value": value, "remove": False}],
        }
        for entity, (key, value) in quotas.items()
    ]
    answer = await admin.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=entries, validate_only=False)
    assert [entry.error_code for entry in answer.entries] == [E.NONE] * len(entries)


async def describe(admin: Admin, *components: Component, strict: bool) -> dict[Entity, dict[str, float]]:
    asked = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    answer = await admin.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=asked, strict=strict)
    assert answer.error_code == E.NONE
    found = {
        tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)): {
            value.key: value.value for value in entry.values
        }
        for entry in answer.entries
    }
    assert len(found) == len(answer.entries)
    return found


async def exactly(admin: Admin, entity: Entity) -> dict[Entity, dict[str, float]]:
    return await describe(admin, *((k, DEFAULT if n is None else EXACT, n) for k, n in entity), strict=True)


async def set_all(admin: Admin) -> None:
    await alter(admin, {entity: (key_of(entity), value) for entity, value in ALL.items()})


def quotas_of(entities: Iterable[Entity]) -> dict[Entity, dict[str, float]]:
    return {entity: {key_of(entity): ALL[entity]} for entity in entities}


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
        await alter(admin, {entity: (PRODUCER, 20_000.0)})
        assert await exactly(admin, entity) == {entity: {PRODUCER: 20_000.0}}


async def test_client_quotas_with_default_name(on: Setting) -> None:
    """A client that has the name of the default's znode is another than the default."""
    async with on(1) as stage, admin_of(stage.service) as admin:
        entity = entity_of(client="<default>")
        await alter(admin, {entity: (PRODUCER, 20_000.0)})
        assert await exactly(admin, entity) == {entity: {PRODUCER: 20_000.0}}
        assert await exactly(admin, entity_of(client=None)) == {}
