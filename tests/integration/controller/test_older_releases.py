"""Clusters of older releases: nothing is sent or written that a broker, or its tools, could not read."""

from __future__ import annotations

from typing import Any

import pytest

from aiocontroller.core.errors import KafkaErrorCode as E
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.asking import Asking, asking
from tests.integration.controller.harness import running, until
from tests.integration.controller.test_admin_requests import TOPIC, ask, changing, entries

PROTOCOL = "inter.broker.protocol.version"


def topic(name: str, **configs: str | None) -> dict[str, Any]:
    settings = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
    return {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": settings}


async def created(client: Asking, *topics: dict[str, Any]) -> list[int]:
    fields = {"topics": topics, "timeout": 20_000, "validate_only": False}
    return [int(each.error_code) for each in (await ask(client, ApiKey.CREATE_TOPICS, 5, **fields)).topics]


async def altered(client: Asking, **configs: str | None) -> int:
    changed = await ask(client, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, **changing(TOPIC, "plain", **configs))
    return int(changed.responses[0].error_code)


async def test_topics_have_the_settings_of_the_oldest_broker(world: World, zk_connect: str) -> None:
    """A broker of 2.8 fails on a version that it does not know, and so on all other partitions in the LeaderAndIsr."""
    async with running(world, zk_connect) as cluster:
        await cluster.add_broker(1, defaults={PROTOCOL: "2.8-IV1"})
        await cluster.add_broker(2, defaults={PROTOCOL: "3.9-IV0"})
        service = await cluster.add_controller()
        await until(lambda: service.shell.is_active and len(service.shell.settings.brokers) == 2)
        async with asking(service) as client:
            wanted = [
                topic("plain", max_compaction_lag_ms="9", segment_index_bytes="3"),
                topic("later", local_retention_ms="5"),
                topic("format", message_format_version="3.0"),
                topic("none", retention_ms=None),
                topic("many", retention_ms="many"),
            ]
            assert await created(client, *wanted) == [0, *[E.INVALID_CONFIG] * 2, E.INVALID_REQUEST, E.INVALID_CONFIG]
            assert await cluster.zk.get_all_topics_in_cluster(watch=False) == ["plain"]
            assert await altered(client, local_retention_ms="5") == E.INVALID_CONFIG
            assert await altered(client, retention_ms="many") == E.INVALID_REQUEST
            assert await altered(client, retention_ms="7") == 0
            described = await entries(client, TOPIC, "plain")
            assert len(described) == 26
            assert {"max.compaction.lag.ms", "segment.index.bytes", "retention.ms"} <= described.keys()


@pytest.mark.parametrize("release, code", [("2.2-IV1", 0), ("2.4-IV1", E.ELECTION_NOT_NEEDED)])
async def test_election_that_is_not_needed_is_none_where_tools_know_no_code_for_it(
    world: World, zk_connect: str, release: str, code: int
) -> None:
    async with running(world, zk_connect) as cluster:
        await cluster.add_broker(1, defaults={PROTOCOL: release})
        service = await cluster.add_controller()
        await until(lambda: service.shell.is_active and service.shell.settings.brokers)
        async with asking(service) as client:
            assert await created(client, topic("t")) == [0]
            partitions = [{"topic": "t", "partitions": [0]}]
            answer = await ask(client, ApiKey.ELECT_LEADERS, 0, topic_partitions=partitions, timeout=20_000)
            (result,) = answer.replica_election_results
            assert result.partition_result[0].error_code == code


async def test_topics_have_those_of_the_newest_release_when_the_last_broker_has_come_to_it(
    world: World, zk_connect: str
) -> None:
    async with running(world, zk_connect) as cluster:
        await cluster.add_broker(1, defaults={PROTOCOL: "2.8-IV1"})
        service = await cluster.add_controller()
        await until(lambda: service.shell.is_active and service.shell.settings.release == (2, 8))
        await cluster.kill_broker(1)
        await cluster.add_broker(1, defaults={PROTOCOL: "3.9-IV0"})
        await until(lambda: service.shell.settings.release == (3, 9), within_s=60)
        async with asking(service) as client:
            assert await created(client, topic("later", local_retention_ms="5")) == [0]
            remote = topic("remote", remote_storage_enable="true")
            assert await created(client, remote) == [E.INVALID_CONFIG], "the brokers have no remote storage"
