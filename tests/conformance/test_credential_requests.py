"""Kafka's tests of AlterUserScramCredentials and DescribeUserScramCredentials, and what UpdateFeaturesTest has for us.

Each test is named after Kafka's and checks what that checks.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.property_values import parse_text
from aiocontroller.wire.apis import ApiKey
from tests.conformance.admin_requests import Admin, admin_of
from tests.conformance.conftest import Setting
from tests.conformance.simulated_cluster import SimulatedCluster
from tests.integration.controller.harness import idle

UNKNOWN, SHA_256, SHA_512 = 0, 1, 2
USERS = ("user1", "user2", "user3@user3.com")
Results = list[tuple[str, int]]


@asynccontextmanager
async def broker(on: Setting, **settings: Any) -> AsyncIterator[tuple[SimulatedCluster, Admin]]:
    async with on(0, **settings) as stage, admin_of(stage.service) as admin:
        await idle(stage.service)
        yield stage, admin


def deletion(user: str, mechanism: int = SHA_256) -> dict[str, Any]:
    return {"name": user, "mechanism": mechanism}


def upsertion(user: str, mechanism: int = SHA_256, iterations: int = 4096) -> dict[str, Any]:
    secret = {"salt": b"salt", "salted_password": b"saltedPassword"}
    return {"name": user, "mechanism": mechanism, "iterations": iterations, **secret}


async def alter(
    admin: Admin, deletions: list[dict[str, Any]] | None = None, upsertions: list[dict[str, Any]] | None = None
) -> Any:
    fields = {"deletions": deletions or [], "upsertions": upsertions or []}
    return (await admin.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, **fields)).results


async def describe(admin: Admin, *users: str, all_of_them: bool = False) -> Any:
    asked = None if all_of_them else [{"name": user} for user in users]
    answer = await admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=asked)
    assert answer.error_code == E.NONE
    return answer.results


def codes(results: Any) -> Results:
    return sorted((each.user, int(each.error_code)) for each in results)


def credentials(results: Any) -> dict[str, dict[int, int]]:
    """Iterations by mechanism and user, of those that are described without an error."""
    return {
        each.user: {int(info.mechanism): info.iterations for info in each.credential_infos}
        for each in results
        if not each.error_code
    }


# -- AlterUserScramCredentialsRequestTest ------------------------------------------------------------------------------


async def test_alter_nothing(on: Setting) -> None:
    async with broker(on) as (_, admin):
        assert await alter(admin) == ()


async def test_alter_same_thing_twice(on: Setting) -> None:
    async with broker(on) as (_, admin):
        both = [upsertion("user1"), upsertion("user2")]
        assert codes(await alter(admin, upsertions=both)) == [("user1", E.NONE), ("user2", E.NONE)]
        for deletions, upsertions in (
            ([deletion("user1")] * 2, [upsertion("user2")] * 2),
            ([deletion("user1"), deletion("user2")], both),
        ):
            found = await alter(admin, deletions, upsertions)
            assert codes(found) == [("user1", E.DUPLICATE_RESOURCE), ("user2", E.DUPLICATE_RESOURCE)]


async def test_alter_empty_user(on: Setting) -> None:
    async with broker(on) as (_, admin):
        for deletions, upsertions in (
            ([deletion("")], []),
            ([], [upsertion("")]),
            ([deletion("")] * 2, [upsertion("")]),
        ):
            (result,) = await alter(admin, deletions, upsertions)
            assert (result.user, result.error_code) == ("", E.UNACCEPTABLE_CREDENTIAL)
            assert result.error_message == "Username must not be empty"


async def test_alter_unknown_mechanism(on: Setting) -> None:
    async with broker(on) as (_, admin):
        found = await alter(
            admin,
            [deletion("user1", UNKNOWN), deletion("user1"), deletion("user2", 10)],
            [
                upsertion("user4", UNKNOWN, 8192),
                upsertion("user4", SHA_256, 8192),
                upsertion("user5", 10, 8192),
                upsertion("user6", UNKNOWN, 8192),
            ],
        )
        users = ("user1", "user2", "user4", "user5", "user6")
        assert codes(found) == [(user, E.UNSUPPORTED_SASL_MECHANISM) for user in users]
        assert {each.error_message for each in found} == {"Unknown SCRAM mechanism"}


async def test_alter_too_few_iterations(on: Setting) -> None:
    async with broker(on) as (_, admin):
        (result,) = await alter(admin, upsertions=[upsertion("user1", iterations=1)])
        assert result.error_code == E.UNACCEPTABLE_CREDENTIAL
        assert result.error_message.startswith("Too few iterations")


async def test_alter_too_many_iterations(on: Setting) -> None:
    async with broker(on) as (_, admin):
        (result,) = await alter(admin, upsertions=[upsertion("user1", iterations=2**31 - 1)])
        assert result.error_code == E.UNACCEPTABLE_CREDENTIAL
        assert result.error_message.startswith("Too many iterations")


async def test_delete_something_that_does_not_exist(on: Setting) -> None:
    async with broker(on) as (_, admin):
        assert codes(await alter(admin, [deletion("user1")])) == [("user1", E.RESOURCE_NOT_FOUND)]


async def test_alter_not_controller(on: Setting) -> None:
    async with broker(on) as (stage, _):
        async with admin_of(await stage.add_controller()) as other:
            found = await alter(other, [deletion("user1")], [upsertion("user2", SHA_512)])
            assert codes(found) == [("user1", E.NOT_CONTROLLER), ("user2", E.NOT_CONTROLLER)]


async def test_alter_and_describe(on: Setting) -> None:
    user1, user2, user3 = USERS
    async with broker(on) as (_, admin):
        assert codes(await alter(admin, upsertions=[upsertion(user1)])) == [(user1, E.NONE)]
        found = await alter(admin, upsertions=[upsertion(user, SHA_512, 8192) for user in USERS])
        assert codes(found) == [(user, E.NONE) for user in USERS]
        two, one = {SHA_256: 4096, SHA_512: 8192}, {SHA_512: 8192}
        for all_of_them in (False, True):
            found = await describe(admin, all_of_them=all_of_them)
            assert credentials(found) == {user1: two, user2: one, user3: one}
        assert credentials(await describe(admin, user1)) == {user1: two}

        found = await describe(admin, user1, "unknownUser")
        assert codes(found) == [("unknownUser", E.RESOURCE_NOT_FOUND), (user1, E.NONE)]
        assert credentials(found) == {user1: two}
        found = await describe(admin, user1, user2, user2)
        assert codes(found) == [(user1, E.NONE), (user2, E.DUPLICATE_RESOURCE)]
        assert credentials(found) == {user1: two}

        found = await alter(admin, [deletion(user1), deletion(user2, SHA_512)])
        assert codes(found) == [(user1, E.NONE), (user2, E.NONE)]
        assert credentials(await describe(admin)) == {user1: one, user3: one}
        found = await alter(admin, [deletion(user1, SHA_512), deletion(user3, SHA_512)])
        assert codes(found) == [(user1, E.NONE), (user3, E.NONE)]
        assert await describe(admin) == ()


# -- … NotAuthorizedTest -----------------------------------------------------------------------------------------------

AUTHORIZER = {
    "authorizer_class_name": parse_text("kafka.security.authorizer.AclAuthorizer"),
    "super_users": ("User:another",),
}


async def test_alter_nothing_not_authorized(on: Setting) -> None:
    async with broker(on, **AUTHORIZER) as (_, admin):
        assert await alter(admin) == ()


async def test_alter_something_not_authorized(on: Setting) -> None:
    async with broker(on, **AUTHORIZER) as (stage, admin):
        found = await alter(admin, [deletion("user1")], [upsertion("user2", SHA_512)])
        refused = E.CLUSTER_AUTHORIZATION_FAILED
        assert codes(found) == [("user1", refused), ("user2", refused)]
        assert not await stage.client.exists("/config/users/user2")


async def test_describe_not_authorized(on: Setting) -> None:
    async with broker(on, **AUTHORIZER) as (_, admin):
        answer = await admin.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=None)
        assert answer.error_code == E.CLUSTER_AUTHORIZATION_FAILED


# -- DescribeUserScramCredentialsRequestTest ---------------------------------------------------------------------------


async def test_describe_nothing(on: Setting) -> None:
    async with broker(on) as (_, admin):
        assert await describe(admin) == ()


async def test_describe_with_null(on: Setting) -> None:
    async with broker(on) as (_, admin):
        assert await describe(admin, all_of_them=True) == ()


async def test_describe_not_controller(on: Setting) -> None:
    async with broker(on) as (stage, _):
        async with admin_of(await stage.add_controller()) as other:
            assert await describe(other) == ()


async def test_describe_same_user_twice(on: Setting) -> None:
    async with broker(on) as (_, admin):
        (result,) = await describe(admin, "user1", "user1")
        assert (result.user, result.error_code) == ("user1", E.DUPLICATE_RESOURCE)
        assert "'user1' twice in a single request" in result.error_message


async def test_unknown_user(on: Setting) -> None:
    async with broker(on) as (_, admin):
        (result,) = await describe(admin, "unknownUser")
        assert (result.user, result.error_code) == ("unknownUser", E.RESOURCE_NOT_FOUND)
        assert "'unknownUser'" in result.error_message


# -- UpdateFeaturesTest ------------------------------------------------------------------------------------------------


async def update(admin: Admin, feature: str, level: int) -> Any:
    updates = [{"feature": feature, "max_version_level": level, "upgrade_type": 1}]
    return await admin.ask(ApiKey.UPDATE_FEATURES, 1, timeout=10_000, feature_updates=updates, validate_only=False)


async def test_should_fail_request_if_not_controller(on: Setting) -> None:
    async with broker(on) as (stage, _):
        before = await stage.zk.get_feature()
        async with admin_of(await stage.add_controller()) as other:
            answer = await update(other, "feature_1", 3)
        assert answer.error_code == E.NOT_CONTROLLER
        assert answer.error_message is not None
        assert answer.results == ()
        assert await stage.zk.get_feature() == before


async def test_should_fail_request_during_deletion_of_non_existing_feature(on: Setting) -> None:
    async with broker(on) as (stage, admin):
        before = await stage.zk.get_feature()
        (result,) = (await update(admin, "feature_non_existing", 3)).results
        assert (result.feature, result.error_code) == ("feature_non_existing", E.INVALID_REQUEST)
        assert result.error_message
        assert await stage.zk.get_feature() == before
