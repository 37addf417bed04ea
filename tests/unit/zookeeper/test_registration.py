"""The quick way to the role: what was read of the epoch holds for the session that read it."""

from __future__ import annotations

import pytest

from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.registration import KnownEpoch, seize_controller
from tests.unit.zookeeper.test_client import connected


@virtual_time
async def test_epoch_that_an_earlier_session_has_read_is_not_relied_on() -> None:
    """In between, this process may have lost the role: with the new session it would win by an old epoch."""
    async with connected() as client:
        await KafkaZkClient(client).create_top_level_paths()
        await client.create("/controller_epoch", data=b"7")
        generation = client.session.generation
        for wrong in (generation - 1, generation + 1):
            with pytest.raises(ControllerMovedError, match="earlier session"):
                await seize_controller(client, KnownEpoch(7, 0, wrong), 1, 0)
            assert not await client.exists("/controller")
        assert await seize_controller(client, KnownEpoch(7, 0, generation), 1, 0) == (8, 1)
        assert await client.exists("/controller")
        assert client.fence_generation == generation
