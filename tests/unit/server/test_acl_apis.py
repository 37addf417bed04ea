"""Which ACLs a request creates and deletes, on the modelled ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.acls import AccessControlEntry, AclBinding, AclBindingFilter, ResourcePattern
from aiocontroller.authorizer.authorizer import AclOperation, AclPermissionType, PatternType, ResourceType
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server.acl_apis import SUCCESS, create_acls, delete_acls
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.acl_store import AclStore
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.unit.server.front import front, settle
from tests.unit.zookeeper.test_client import connected

T = ResourcePattern(ResourceType.TOPIC, "t")
T_PREFIX = ResourcePattern(ResourceType.TOPIC, "t", PatternType.PREFIXED)
U = ResourcePattern(ResourceType.TOPIC, "u")
G = ResourcePattern(ResourceType.GROUP, "t")
ALICE = AccessControlEntry("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
BOB = AccessControlEntry("User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW)
EVERY = AclBindingFilter(ResourceType.ANY, None, PatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY)
BINDINGS = [AclBinding(pattern, entry) for pattern in (T, T_PREFIX, U, G) for entry in (ALICE, BOB)]


@asynccontextmanager
async def store() -> AsyncIterator[AclStore]:
    async with connected() as client:
        await KafkaZkClient(client).create_top_level_paths()
        made = AclStore(client, simulated_world(SimulatedNetwork()), AclAuthorizer())
        await made.load()
        assert await create_acls(made, BINDINGS) == [SUCCESS] * len(BINDINGS)
        yield made


async def left(acls: AclStore) -> set[AclBinding]:
    """As ZooKeeper has them."""
    anew = AclStore(acls._client, simulated_world(SimulatedNetwork()), AclAuthorizer())
    await anew.load()
    return {AclBinding(pattern, e) for pattern in anew.authorizer.patterns() for e in anew.authorizer.entries(pattern)}


async def delete(*filters: Mapping[str, Any]) -> tuple[list[set[AclBinding]], set[AclBinding]]:
    """What each filter deleted, and what is left."""
    async with store() as acls:
        found = await delete_acls(acls, [EVERY._replace(**changes) for changes in filters])
        assert all(outcome == SUCCESS for each in found for outcome in each.values())
        return [set(each) for each in found], await left(acls)


def of(*patterns: ResourcePattern) -> set[AclBinding]:
    return {binding for binding in BINDINGS if binding.pattern in patterns}


@virtual_time
async def test_a_filter_for_one_pattern_deletes_that_patterns() -> None:
    deleted, rest = await delete({"resource": ResourceType.TOPIC, "name": "t", "pattern": PatternType.LITERAL})
    assert deleted == [of(T)]
    assert rest == of(T_PREFIX, U, G)


@virtual_time
async def test_a_wide_filter_deletes_what_it_matches_and_no_more() -> None:
    deleted, rest = await delete({"resource": ResourceType.TOPIC, "pattern": PatternType.LITERAL})
    assert deleted == [of(T, U)]
    assert rest == of(T_PREFIX, G)
    deleted, rest = await delete({"principal": "User:alice"})
    assert deleted == [{binding for binding in BINDINGS if binding.entry == ALICE}]
    assert rest == {binding for binding in BINDINGS if binding.entry == BOB}


@virtual_time
async def test_what_several_filters_match_counts_for_the_first() -> None:
    named = {"resource": ResourceType.TOPIC, "name": "t", "pattern": PatternType.LITERAL}
    deleted, rest = await delete({"principal": "User:alice"}, named, {"resource": ResourceType.TOPIC})
    of_alice = {binding for binding in BINDINGS if binding.entry == ALICE}
    assert deleted == [of_alice, of(T) - of_alice, of(T_PREFIX, U) - of_alice]
    assert rest == of(G) - of_alice


@virtual_time
async def test_filters_that_match_nothing_delete_nothing() -> None:
    deleted, rest = await delete(
        {"resource": ResourceType.TOPIC, "name": "none"},
        {"resource": ResourceType.TOPIC, "name": "t/../u"},
        {"resource": ResourceType.CLUSTER},
        {"principal": "User:carol"},
    )
    assert deleted == [set()] * 4
    assert rest == set(BINDINGS)


@virtual_time
async def test_each_binding_is_created_or_refused_by_itself() -> None:
    async with store() as acls:
        new = AccessControlEntry("User:carol", "*", AclOperation.WRITE, AclPermissionType.DENY)
        bindings = [
            AclBinding(T, new),
            AclBinding(ResourcePattern(ResourceType.TOPIC, ""), new),
            AclBinding(ResourcePattern(ResourceType.CLUSTER, "mine"), new),
            *(AclBinding(ResourcePattern(ResourceType.TOPIC, name), new) for name in ("a/b", ".", "..", "\0")),
            AclBinding(U, new._replace(principal="carol")),
        ]
        outcomes = await create_acls(acls, bindings)
        assert [outcome.code for outcome in outcomes] == [
            KafkaErrorCode.NONE,
            *[KafkaErrorCode.INVALID_REQUEST] * 6,
            KafkaErrorCode.UNKNOWN_SERVER_ERROR,
        ]
        assert await left(acls) == {*BINDINGS, AclBinding(T, new)}


@virtual_time
async def test_one_binding_that_stands_for_several_refuses_the_request() -> None:
    async with store() as acls:
        new = AccessControlEntry("User:carol", "*", AclOperation.WRITE, AclPermissionType.ALLOW)
        for vague in (
            AclBinding(ResourcePattern(ResourceType.ANY, "t"), new),
            AclBinding(ResourcePattern(ResourceType.TOPIC, "t", PatternType.ANY), new),
            AclBinding(ResourcePattern(ResourceType.TOPIC, "t", PatternType.MATCH), new),
            AclBinding(T, new._replace(operation=AclOperation.ANY)),
            AclBinding(T, new._replace(permission=AclPermissionType.ANY)),
        ):
            outcomes = await create_acls(acls, [AclBinding(T, new), vague])
            assert [outcome.code for outcome in outcomes] == [KafkaErrorCode.UNKNOWN_SERVER_ERROR] * 2
        assert await left(acls) == set(BINDINGS)


@virtual_time
async def test_what_is_there_already_is_neither_written_nor_announced() -> None:
    async with store() as acls:
        announced = await acls.changes()
        assert len(announced) > 0
        assert await create_acls(acls, [BINDINGS[0]]) == [SUCCESS]
        assert await delete_acls(acls, [EVERY._replace(principal="User:carol")]) == [{}]
        assert await acls.changes() == announced


@virtual_time
async def test_requests_are_answered_where_no_authorizer_is_configured() -> None:
    every = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    new = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:u", "host": "*"}
    new |= {"operation": 3, "permission_type": 3}
    for api, fields, results_of in (
        (ApiKey.DESCRIBE_ACLS, every, lambda answer: [answer]),
        (ApiKey.CREATE_ACLS, {"creations": [new]}, lambda answer: answer.results),
        (ApiKey.DELETE_ACLS, {"filters": [every]}, lambda answer: answer.filter_results),
    ):
        async with front() as it:
            client = await it.connect()
            client.request(api, 2, cold.encode_request(api, 2, cold.request(api, 2, **fields)))
            await settle()
            answer = cold.decode_response(api, 2, client.answer(api, 2))
            assert [each.error_code for each in results_of(answer)] == [KafkaErrorCode.SECURITY_DISABLED], api
