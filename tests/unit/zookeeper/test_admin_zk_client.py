"""Entities without settings are deleted, as by Kafka's tools, and only these; a lost answer costs no change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.client import ZooKeeperClient
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
