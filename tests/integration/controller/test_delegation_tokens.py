"""Expired tokens are removed, and brokers are notified."""

from __future__ import annotations

from aiocontroller.net.ports import World
from aiocontroller.zookeeper.cluster_znodes import DelegationToken, encode_delegation_token
from tests.integration.controller.harness import running, until


async def test_tokens_that_are_over_are_deleted_and_announced(world: World, zk_connect: str) -> None:
    async with running(world, zk_connect) as cluster:
        now_ms = world.clock.wall_time_us() // 1000
        await cluster.zk.create_paths(["/delegation_token/tokens", "/delegation_token/token_changes"])
        for name, expiry_ms, max_ms in (
            ("over", now_ms - 1, now_ms + 60_000),
            ("alive", now_ms + 60_000, now_ms + 60_000),
        ):
            token = DelegationToken(name, "User:a", "User:a", (), now_ms - 10, max_ms, expiry_ms)
            await cluster.client.create(f"/delegation_token/tokens/{name}", data=encode_delegation_token(token))
        await cluster.client.create("/delegation_token/tokens/damaged", data=b"{")
        service = await cluster.add_controller(delegation_token_expiry_check_interval_ms=50)

        async def cleared() -> bool:
            names = await cluster.client.get_children("/delegation_token/tokens")
            return sorted(names) == ["alive", "damaged"]

        await until(cleared)

        async def announced() -> list[bytes]:
            names = await cluster.client.get_children("/delegation_token/token_changes")
            return [await cluster.client.get_data(f"/delegation_token/token_changes/{name}") for name in names]

        assert await until(announced) == [b"over"]
        assert service.shell.counts.bad_znodes.value
