"""What the brokers' inter.broker.protocol.version means for the controller, which has no setting of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest

from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper.cluster_znodes import FEATURES_DISABLED, FEATURES_ENABLED, FeatureZNode
from tests.integration.controller.harness import Cluster, idle, running, until

PROTOCOL = "inter.broker.protocol.version"


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with running(world, zk_connect) as cluster:
        yield cluster


async def add_broker(cluster: Cluster, broker: int, protocol: str) -> None:
    await cluster.add_broker(broker, settings={PROTOCOL: protocol})


async def topic_id(cluster: Cluster) -> bytes:
    (found,) = (await cluster.zk.get_topic_assignments(["t"], watch=False)).found
    return found.topic_id


async def test_takeover_of_an_old_protocol_writes_neither_topic_ids_nor_features(cluster: Cluster) -> None:
    for broker in (1, 2):
        await add_broker(cluster, broker, "2.6-IV0")
    await cluster.create_topic("t", {0: [1, 2]})
    service = await cluster.add_controller()
    await cluster.until_leaders("t", [1])
    await idle(service)
    assert await topic_id(cluster) == NO_TOPIC_ID
    assert (await cluster.zk.get_feature())[0] == FeatureZNode(1, FEATURES_DISABLED, {})
    assert {r.version for r in cluster.brokers[1].received if r.api == ApiKey.LEADER_AND_ISR} == {4}


async def test_lowest_protocol_counts_until_the_last_broker_has_come_to_the_new_one(cluster: Cluster) -> None:
    """Then the cluster is reloaded, as by a new controller: topics get ids, and brokers are told."""
    for broker in (1, 2):
        await add_broker(cluster, broker, "2.6-IV0")
    await cluster.create_topic("t", {0: [1, 2]})
    service = await cluster.add_controller()
    await cluster.until_leaders("t", [1])
    await cluster.kill_broker(1)
    await cluster.until_state("t", 2, (2,))
    await add_broker(cluster, 1, "3.9-IV0")
    await until(lambda: service.shell.settings.reported(1, PROTOCOL) == "3.9-IV0")
    await until(lambda: cluster.brokers[1].of(ApiKey.LEADER_AND_ISR), "the survey may be faster than the controller")
    await idle(service)
    assert await topic_id(cluster) == NO_TOPIC_ID
    assert {r.version for r in cluster.brokers[1].received if r.api == ApiKey.LEADER_AND_ISR} == {4}
    await idle(service)
    await cluster.write_state("t", msgspec.structs.replace(await cluster.state("t"), isr=(2, 1)))
    await cluster.kill_broker(2)
    await cluster.until_state("t", 1, (1,))
    await add_broker(cluster, 2, "3.9-IV0")

    async def upgraded() -> bool:
        feature, _ = await cluster.zk.get_feature()
        return await topic_id(cluster) != NO_TOPIC_ID and feature == FeatureZNode(2, FEATURES_ENABLED, {})

    await until(upgraded, "ids and features")
    given = await topic_id(cluster)

    def received() -> bool:
        newest = [r for r in cluster.brokers[2].received if r.api == ApiKey.LEADER_AND_ISR and r.version == 7]
        return any(t.topic_id is not None and t.topic_id.bytes == given for r in newest for t in r.request.topic_states)

    await until(received, "brokers hear the id")
