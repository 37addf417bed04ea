"""DescribeAcls, CreateAcls and DeleteAcls into a real ZooKeeper: the codes that Kafka's ``AclApis`` gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from aiocontroller.authorizer.acl_authorizer import AclAuthorizer
from aiocontroller.authorizer.acls import AccessControlEntry, ResourcePattern
from aiocontroller.authorizer.authorizer import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
)
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.net.ports import World
from aiocontroller.security import ACL_AUTHORIZERS
from aiocontroller.service import Service
from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from tests import acl_requests
from tests.acl_requests import acl
from tests.integration.controller.asking import Asking, asking
from tests.integration.controller.harness import Cluster, running, until

E, Op = KafkaErrorCode, AclOperation
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ANY_OPERATION, ANY_PERMISSION = AclOperation.ANY, AclPermissionType.ANY
CLUSTER = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME)
ME = "User:ANONYMOUS"
VERSIONS = pytest.mark.parametrize("version", [0, 1, 2, 3])


async def ask(client: Asking, api: ApiKey, version: int, **fields: Any) -> Any:
    body = cold.encode_request(api, version, cold.request(api, version, **fields))
    return cold.decode_response(api, version, await client.request(api, version, body))


def creation(name: str = "t", pattern: int = LITERAL, **changes: Any) -> dict[str, Any]:
    return acl(name, pattern=pattern, **{"principal": "User:alice"} | changes)


def acl_filter(name: str | None = None, pattern: int = PatternType.ANY, **changes: Any) -> dict[str, Any]:
    return acl_requests.acl_filter(name, ResourceType.TOPIC, pattern, **changes)


async def create(client: Asking, *creations: dict[str, Any], version: int = 3) -> list[int]:
    answer = await ask(client, ApiKey.CREATE_ACLS, version, creations=creations)
    return [int(result.error_code) for result in answer.results]


async def describe(client: Asking, version: int = 3, **changes: Any) -> list[tuple[str, int, list[tuple[str, int]]]]:
    answer = await ask(client, ApiKey.DESCRIBE_ACLS, version, **acl_filter(**changes))
    assert answer.error_code == 0
    return [
        (r.resource_name, int(getattr(r, "pattern_type", LITERAL)), [(a.principal, int(a.operation)) for a in r.acls])
        for r in answer.resources
    ]


async def delete(client: Asking, *filters: dict[str, Any], version: int = 3) -> list[list[tuple[str, str, int]]]:
    answer = await ask(client, ApiKey.DELETE_ACLS, version, filters=filters)
    assert [f.error_code for f in answer.filter_results] == [0] * len(filters)
    return [
        [(m.resource_name, m.principal, int(m.error_code)) for m in each.matching_acls]
        for each in answer.filter_results
    ]


@asynccontextmanager
async def guarded(world: World, zk_connect: str, **changes: Any) -> AsyncIterator[tuple[Cluster, Service]]:
    """A controller whose clients may alter and describe the cluster, by an ACL."""
    async with running(world, zk_connect) as cluster:
        service = await cluster.add_controller(authorizer_class_name=ACL_AUTHORIZERS[0], **changes)
        await allow(service, Op.ALTER, Op.DESCRIBE)
        yield cluster, service


async def allow(service: Service, *operations: AclOperation) -> None:
    assert service.shell.acls is not None
    entries = [AccessControlEntry(ME, "*", operation, AclPermissionType.ALLOW) for operation in operations]
    await service.shell.acls.update(CLUSTER, lambda _: entries)


# -- all versions ------------------------------------------------------------------------------------------------------


@VERSIONS
async def test_acls_are_created_described_and_deleted(world: World, zk_connect: str, version: int) -> None:
    async with guarded(world, zk_connect) as (_, service), asking(service) as client:
        other = LITERAL if version == 0 else PREFIXED  # which version 0 does not have
        asked = [creation("t"), creation("t", principal="User:bob"), creation("app-", other), creation("t")]
        if version == 0:
            asked = [{k: v for k, v in each.items() if k != "resource_pattern_type"} for each in asked]
        assert await create(client, *asked, version=version) == [0, 0, 0, 0]
        everything = {"version": version} if version else {"version": 0, "pattern": LITERAL}
        assert await describe(client, **everything) == [
            *([("app-", LITERAL, [("User:alice", Op.READ)])] if version == 0 else []),
            ("t", LITERAL, [("User:alice", Op.READ), ("User:bob", Op.READ)]),
            *([("app-", PREFIXED, [("User:alice", Op.READ)])] if version else []),
        ]
        first, second = acl_filter("t", LITERAL, principal_filter="User:bob"), acl_filter(None, LITERAL)
        found = await delete(client, first, second, version=version)
        rest = [("t", "User:alice", 0)] + ([("app-", "User:alice", 0)] if version == 0 else [])
        assert [found[0], sorted(found[1])] == [[("t", "User:bob", 0)], sorted(rest)]
        assert [name for name, _, _ in await describe(client, **everything)] == ([] if version == 0 else ["app-"])


@VERSIONS
async def test_without_an_authorizer_security_is_disabled(world: World, zk_connect: str, version: int) -> None:
    async with running(world, zk_connect) as cluster:
        service = await cluster.add_controller()
        async with asking(service) as client:
            assert await create(client, creation(), version=version) == [E.SECURITY_DISABLED]
            described = await ask(client, ApiKey.DESCRIBE_ACLS, version, **acl_filter(pattern=LITERAL))
            assert described.error_code == E.SECURITY_DISABLED
            deleted = await ask(client, ApiKey.DELETE_ACLS, version, filters=[acl_filter("t", LITERAL)] * 2)
            assert [f.error_code for f in deleted.filter_results] == [E.SECURITY_DISABLED] * 2


@VERSIONS
async def test_clients_without_permission_neither_see_nor_change_acls(
    world: World, zk_connect: str, version: int
) -> None:
    """Findings 7 and 8: an unauthorized CreateAcls was relayed under the controller's own name, and answered with 0."""
    async with guarded(world, zk_connect) as (_, service), asking(service) as client:
        await allow(service, Op.CREATE, Op.CLUSTER_ACTION)
        denied = E.CLUSTER_AUTHORIZATION_FAILED
        assert await create(client, creation(), creation("u"), version=version) == [denied] * 2
        described = await ask(client, ApiKey.DESCRIBE_ACLS, version, **acl_filter(pattern=LITERAL))
        assert (described.error_code, described.resources) == (denied, ())
        deleted = await ask(client, ApiKey.DELETE_ACLS, version, filters=[acl_filter(pattern=LITERAL)])
        assert [(f.error_code, f.matching_acls) for f in deleted.filter_results] == [(denied, ())]
        await allow(service, Op.DESCRIBE)
        assert await describe(client, version, pattern=LITERAL) == []
        assert await create(client, creation(), version=version) == [denied]


# -- what is refused ---------------------------------------------------------------------------------------------------


async def test_wrong_acls_are_refused_one_by_one(world: World, zk_connect: str) -> None:
    async with guarded(world, zk_connect) as (_, service), asking(service) as client:
        asked = [
            creation("kafka", resource_type=ResourceType.CLUSTER),
            creation(""),
            creation("a/b"),
            creation(operation=99),
            creation(".."),
            creation("x", principal="alice"),
            creation("x"),
            creation("good"),
        ]
        invalid, failed = E.INVALID_REQUEST, E.UNKNOWN_SERVER_ERROR
        assert await create(client, *asked) == [invalid, invalid, invalid, invalid, invalid, failed, failed, 0]
        assert [name for name, _, _ in await describe(client)] == ["good"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"resource_type": ResourceType.ANY},
        {"resource_pattern_type": PatternType.MATCH},
        {"operation": ANY_OPERATION},
        {"permission_type": ANY_PERMISSION},
    ],
)
async def test_acl_that_is_a_filter_fails_its_request(world: World, zk_connect: str, wrong: dict[str, int]) -> None:
    async with guarded(world, zk_connect) as (_, service), asking(service) as client:
        assert await create(client, creation("good"), creation(**wrong)) == [E.UNKNOWN_SERVER_ERROR] * 2
        assert await describe(client) == []


@pytest.mark.parametrize(
    "api,fields",
    [
        (ApiKey.CREATE_ACLS, {"creations": [creation(operation=0)]}),
        (ApiKey.DESCRIBE_ACLS, acl_filter(resource_type_filter=0)),
        (ApiKey.DELETE_ACLS, {"filters": [acl_filter(pattern=0)]}),
    ],
)
async def test_unknown_elements_end_the_connection(
    world: World, zk_connect: str, api: ApiKey, fields: dict[str, Any]
) -> None:
    async with guarded(world, zk_connect) as (_, service), asking(service) as client:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await ask(client, api, 3, **fields)


async def test_filters_that_match_nothing_delete_nothing(world: World, zk_connect: str) -> None:
    async with guarded(world, zk_connect) as (_, service), asking(service) as client:
        assert await create(client, creation("t")) == [0]
        filters = [acl_filter("u"), acl_filter(""), acl_filter("a/b"), acl_filter(operation=99), acl_filter(pattern=99)]
        assert await delete(client, *filters) == [[]] * 5
        assert await delete(client, acl_filter("t", PatternType.MATCH), acl_filter("t")) == [
            [("t", "User:alice", 0)],
            [],
        ]


async def test_damaged_acls_are_neither_shown_nor_overwritten(world: World, zk_connect: str) -> None:
    async with running(world, zk_connect) as cluster:
        await cluster.zk.create_paths(["/kafka-acl/Topic"])
        await cluster.client.create("/kafka-acl/Topic/t", data=b"{no JSON")
        service = await cluster.add_controller(authorizer_class_name=ACL_AUTHORIZERS[0], super_users=(ME,))
        async with asking(service) as client:
            assert await create(client, creation("t"), creation("u")) == [E.UNKNOWN_SERVER_ERROR, 0]
            assert [name for name, _, _ in await describe(client)] == ["u"]
            assert await delete(client, acl_filter("t"), acl_filter()) == [[], [("u", "User:alice", 0)]]
            assert await cluster.client.get_data("/kafka-acl/Topic/t") == b"{no JSON"


# -- what follows ------------------------------------------------------------------------------------------------------


async def test_acls_take_effect_while_active_and_standing_by(world: World, zk_connect: str) -> None:
    """Both answer, and each follows what the other writes; with a new session each reads all ACLs again."""
    async with guarded(world, zk_connect) as (cluster, first):
        second = await cluster.add_controller(authorizer_class_name=ACL_AUTHORIZERS[1])
        await cluster.active()

        def may(service: Service, name: str) -> bool:
            return service.shell.authorizer.authorize("User:alice", "h", Op.DESCRIBE, ResourceType.TOPIC, name)

        async with asking(first) as one, asking(second) as two:
            assert await create(one, creation("t")) == [0]
            assert may(first, "t")
            await until(lambda: may(second, "t"), within_s=1)
            assert await create(two, creation("app-", PREFIXED)) == [0]
            assert may(second, "app-1")
            await until(lambda: may(first, "app-1"), within_s=1)
            assert await delete(one, acl_filter("t")) == [[("t", "User:alice", 0)]]
            await until(lambda: not may(second, "t"), within_s=1)
        for service in (first, second):
            await expire_session(service.client)
        async with asking(second) as two:
            await until(lambda: second.client.connected)
            assert await create(two, creation("late")) == [0]
            await until(lambda: may(first, "late") and may(second, "late"))


async def test_many_at_once_lose_nothing(world: World, zk_connect: str) -> None:
    async with guarded(world, zk_connect) as (cluster, first):
        second = await cluster.add_controller(authorizer_class_name=ACL_AUTHORIZERS[0])
        services = [first, second] * 6

        async def one(service: Service, number: int) -> None:
            async with asking(service) as client:
                assert await create(client, creation("t", principal=f"User:u{number}")) == [0]

        await asyncio.gather(*(one(service, number) for number, service in enumerate(services)))
        expected = [f"User:u{n}" for n in range(len(services))]
        pattern = ResourcePattern(ResourceType.TOPIC, "t")
        for service in (first, second):
            authorizer = service.shell.authorizer
            assert isinstance(authorizer, AclAuthorizer)
            await until(lambda a=authorizer: sorted(e.principal for e in a.entries(pattern)) == sorted(expected))
