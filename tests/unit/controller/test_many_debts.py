"""A dead broker that owes thousands of replicas, and what it costs when it returns."""

from __future__ import annotations

import pytest

from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.codec import Create
from aiocontroller.zookeeper.debts import encode_debts, encode_root
from tests.unit.controller.virtual_cluster import is_active, stage


@pytest.mark.parametrize("topics, partitions", [(1, 6000), (600, 10)])
@virtual_time
async def test_thousands_of_debts_are_paid_at_once(topics: int, partitions: int) -> None:
    async with stage() as it:
        await it.add_broker(1)
        await it.create(paths.DEBTS, encode_root(0))
        await it.create(paths.debts_of_broker(2), b"")
        owed = encode_debts(dict.fromkeys(range(partitions), bytes(range(16))))
        names = [f"topic-{number:03d}" for number in range(topics)]
        await it.client.write_many([Create(paths.debts(2, name), owed) for name in names], fence=None)
        service = await it.add_controller()
        await it.until(lambda: is_active(service) and service.shell.context.loaded)
        assert len(service.shell.context.debts) == topics * partitions
        returned = await it.add_broker(2)
        await it.until(lambda: len(service.shell.context.debts) == 0, within_s=5)
        (request,) = returned.of(ApiKey.STOP_REPLICA)
        assert sum(len(topic.partition_states) for topic in request.topic_states) == topics * partitions
        assert (await it.zk.debts.load()).owed == []
