"""Commands on a ZooKeeper that wants a login."""

from __future__ import annotations

import msgspec
import pytest
from aiozk import exc

from aiocontroller.cli.finding import connected
from aiocontroller.config import Config
from aiocontroller.net.ports import World
from aiocontroller.property_values import Secret
from aiocontroller.zookeeper.securing import zookeeper_client


async def test_commands_take_credentials_from_the_environment(
    world: World, zk_connect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = msgspec.structs.replace(
        Config(),
        zookeeper_connect=zk_connect,
        zookeeper_set_acl=True,
        aiocontroller_zookeeper_digest_username="kafka",
        aiocontroller_zookeeper_digest_password=Secret("secret"),
    )
    owner = zookeeper_client(config, world)
    await owner.start(10)
    await owner.ensure_path("/config/users")
    await owner.create("/config/users/alice", data=b"hash")
    try:
        async with connected(zk_connect) as stranger:
            with pytest.raises(exc.NoAuth):
                await stranger.client.get_data("/config/users/alice")
        monkeypatch.setenv("AIOCONTROLLER_ZOOKEEPER_DIGEST_USERNAME", "kafka")
        monkeypatch.setenv("AIOCONTROLLER_ZOOKEEPER_DIGEST_PASSWORD", "secret")
        async with connected(zk_connect) as known:
            assert await known.client.get_data("/config/users/alice") == b"hash"
    finally:
        await owner.delete("/config/users/alice")
        await owner.close()
