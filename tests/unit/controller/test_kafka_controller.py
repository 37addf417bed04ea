"""The consumer of events, and what it says of itself."""

from __future__ import annotations

import msgspec

from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.lab.virtual_time import virtual_time
from tests.unit.controller.virtual_cluster import (
    ask,
    begin,
    stage,
    until_leader,
    with_topic,
)


@virtual_time
async def test_partitions_that_never_had_a_leader_are_not_counted_as_offline() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        await it.create("/brokers/topics/new", msgspec.json.encode({"version": 1, "partitions": {"0": [9], "1": [9]}}))
        await with_topic(it, [2], 2)
        assert service.controller.status()["offline_partitions"] == 0
        await it.kill_broker(2)
        await until_leader(it, -1)
        assert service.controller.status()["offline_partitions"] == 1


@virtual_time
async def test_changes_are_handled_while_clients_are_refused() -> None:
    async with stage() as it:
        service = await begin(it, 2)
        await with_topic(it, [1, 2], 1)
        service.queue._max_client_requests = 0
        listing = await ask(service, ev.ListPartitionReassignments, partitions=None)
        assert listing == KafkaErrorCode.REQUEST_TIMED_OUT
        await it.kill_broker(1)
        assert await until_leader(it, 2) is not None
        refused = service.metrics.get("aiocontroller", "EventQueue", "RefusedClientRequests")
        assert refused is not None
        assert refused.value == 1
