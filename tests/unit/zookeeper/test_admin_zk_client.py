"""Entities without settings are deleted, as by Kafka's tools, and only these; a lost answer costs no change."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient, TopicError, TopicToCreate
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.codec import Op, OpResult
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from tests.unit.zookeeper.test_client import connected
from tests.unit.zookeeper.test_writes import MULTI, SYNC, losing

SETTINGS = {"producer_byte_rate": "1"}
C, D = "u/clients/c", "u/clients/d"


@asynccontextmanager
async def admin() -> AsyncIterator[tuple[AdminZkClient, ZooKeeperClient]]:
    async with connected() as client:
        zk = KafkaZkClient(client)
        await zk.create_top_level_paths()
        yield AdminZkClient(zk), client


async def clear(admin: AdminZkClient, name: str) -> None:
    assert await admin.update_entity_configs("users", name, lambda _: {}) == {}


@virtual_time
async def test_a_user_goes_with_its_last_client() -> None:
    async with admin() as (it, client):
        for name in (C, D):
            await it.update_entity_configs("users", name, lambda _: dict(SETTINGS))
        await clear(it, C)
        assert not await client.exists(f"/config/users/{C}")
        assert await it.get_entity_configs("users", D) == SETTINGS
        await clear(it, D)
        assert not await client.exists("/config/users/u")


@virtual_time
async def test_a_user_with_settings_of_its_own_stays_without_clients() -> None:
    async with admin() as (it, client):
        for name in ("u", C):
            await it.update_entity_configs("users", name, lambda _: dict(SETTINGS))
        await clear(it, C)
        assert not await client.exists("/config/users/u/clients")
        assert await it.get_entity_configs("users", "u") == SETTINGS


@virtual_time
async def test_a_user_with_clients_stays_without_settings() -> None:
    async with admin() as (it, client):
        for name in ("u", C):
            await it.update_entity_configs("users", name, lambda _: dict(SETTINGS))
        await clear(it, "u")
        assert await it.get_entity_configs("users", "u") == {}
        assert await it.get_entity_configs("users", C) == SETTINGS
        await clear(it, C)
        assert not await client.exists("/config/users/u")
        await clear(it, "u")
        assert not await client.exists("/config/users/u")


@virtual_time
async def test_a_client_that_goes_takes_no_user_of_another_kind_with_it() -> None:
    async with admin() as (it, client):
        await it.update_entity_configs("clients", "c", lambda _: dict(SETTINGS))
        await it.update_entity_configs("clients", "c", lambda _: {})
        assert not await client.exists("/config/clients/c")
        assert await client.exists("/config/clients")


@virtual_time
@pytest.mark.parametrize("applied", [True, False])
async def test_a_change_whose_answer_is_lost_is_made_again_to_what_the_servers_know(*, applied: bool) -> None:
    """The client may have reached another server, which has not heard of the first attempt yet."""
    async with admin() as (it, client):
        await it.update_entity_configs("users", "u", lambda _: {"n": "0"})
        opcodes = losing(client, applied)
        found = await it.update_entity_configs("users", "u", lambda was: {"n": str(int(was["n"]) + 1), **SETTINGS})
        assert found == await it.get_entity_configs("users", "u") == {"n": "2" if applied else "1", **SETTINGS}
        assert opcodes[opcodes.index(MULTI) + 1] == SYNC


@virtual_time
@pytest.mark.parametrize("applied", [True, False])
async def test_a_configuration_whose_write_was_not_answered_is_written_again(*, applied: bool) -> None:
    async with admin() as (it, client):
        opcodes = losing(client, applied)
        await it.change_entity_configs("users", "u", SETTINGS)
        assert await it.get_entity_configs("users", "u") == SETTINGS
        assert opcodes[opcodes.index(MULTI) + 1] == SYNC


@virtual_time
async def test_settings_of_a_topic_that_does_not_exist_are_not_written() -> None:
    async with admin() as (it, client):
        with pytest.raises(TopicError) as caught:
            await it.alter_topic_configs("t", {"retention.ms": "1"})
        assert caught.value.code == KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert not await client.exists("/config/topics/t")


@virtual_time
async def test_a_configuration_that_may_not_be_written_is_an_error_at_once() -> None:
    async with admin() as (it, client):
        asked = 0

        async def refused(ops: Sequence[Op]) -> list[OpResult]:
            nonlocal asked
            asked += 1
            return [OpResult(Code.NO_AUTH) for _ in ops]

        client.multi = refused  # type: ignore[method-assign]
        with pytest.raises(exc.NoAuth):
            await it.change_entity_configs("users", "u", SETTINGS)
        assert asked == 1


@virtual_time
async def test_of_two_new_topics_whose_names_collide_the_later_one_is_refused() -> None:
    async with admin() as (it, _):
        wanted = [TopicToCreate(name, {0: [1]}) for name in ("a.b", "c", "a_b")]
        assert list(await it.check_create_topics(wanted)) == ["a_b"]
