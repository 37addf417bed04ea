"""Requests have the versions of the cluster's protocol, and never newer ones than a broker supports."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, idle, running, until


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with running(world, zk_connect) as cluster:
        for broker in (1, 2):
            await cluster.add_broker(broker)
        yield cluster


def versions(cluster: Cluster, broker: int) -> dict[ApiKey, set[int]]:
    found: dict[ApiKey, set[int]] = {}
    for received in cluster.brokers[broker].received:
        found.setdefault(received.api, set()).add(received.version)
    return found


@pytest.mark.parametrize("protocol,expected", [("2.2", (2, 5)), ("2.7", (4, 6)), ("3.3", (6, 7)), ("3.9", (7, 8))])
async def test_requests_have_the_versions_of_the_protocol(
    cluster: Cluster, protocol: str, expected: tuple[int, int]
) -> None:
    service = await cluster.add_controller(inter_broker_protocol_version=protocol)
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    leader_and_isr, update_metadata = expected
    for broker in (1, 2):
        assert versions(cluster, broker) == {
            ApiKey.LEADER_AND_ISR: {leader_and_isr},
            ApiKey.UPDATE_METADATA: {update_metadata},
        }


async def test_older_broker_gets_what_it_takes(cluster: Cluster) -> None:
    """Its binaries are older than the configured protocol, which is the operator's mistake."""
    cluster.brokers[2].served |= {ApiKey.LEADER_AND_ISR: (0, 5), ApiKey.UPDATE_METADATA: (0, 7)}
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2]})
    await cluster.until_leaders("t", [1])
    await idle(service)
    assert versions(cluster, 2) == {ApiKey.LEADER_AND_ISR: {5}, ApiKey.UPDATE_METADATA: {7}}


@pytest.mark.parametrize("protocol", ["2.3", "2.7", "2.8", "3.9"])
async def test_failed_log_directory_is_noticed(cluster: Cluster, protocol: str) -> None:
    """Before 2.8 topics have no ids, and brokers' answers contain topic names."""
    service = await cluster.add_controller(inter_broker_protocol_version=protocol)
    await cluster.create_topic("t", {0: [1, 2], 1: [2, 1]})
    await cluster.until_leaders("t", [1, 2])
    await idle(service)
    cluster.brokers[1].errors["t", 0] = KafkaErrorCode.KAFKA_STORAGE_ERROR
    data = b'{"version":1,"broker":1,"event":1}'
    await cluster.client.create("/log_dir_event_notification/log_dir_event_", data=data, sequential=True)
    await cluster.until_leaders("t", [2, 2])
    await until(lambda: set(service.shell.context.offline_dirs) == {1})
