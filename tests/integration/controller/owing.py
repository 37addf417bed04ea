"""Clusters whose brokers come to owe the deletion of replicas, and their debts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiocontroller.lab.recording_brokers.recording_broker import RecordingBroker
from aiocontroller.net.ports import World
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, idle, running, until
from tests.integration.controller.test_reassignment import T0, catch_up, finished, reassign


@asynccontextmanager
async def topic_t(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    """Brokers 1 to 4, a controller, and topic t on broker 1."""
    async with running(world, zk_connect) as cluster:
        for broker in (1, 2, 3, 4):
            await cluster.add_broker(broker)
        service = await cluster.add_controller(auto_leader_rebalance_enable=False)
        await cluster.create_topic("t", {0: [1]})
        await cluster.until_leaders("t", [1])
        await idle(service)
        yield cluster


def deleted_on(broker: RecordingBroker) -> list[tuple[str, int]]:
    """Return what the broker has deleted because of StopReplica."""
    topics = [topic for request in broker.of(ApiKey.STOP_REPLICA) for topic in request.topic_states]
    return [(t.topic_name, p.partition_index) for t in topics for p in t.partition_states if p.delete_partition]


def sent_of(broker: RecordingBroker, topic: str) -> list[str]:
    """Return in order the requests that the broker got for the topic: to host a replica, or to delete it."""
    heard = []
    for api, _, request in broker.received:
        if api in (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA):
            heard += [api.name for t in request.topic_states if t.topic_name == topic]
    return heard


async def owed(cluster: Cluster) -> dict[tuple[int, str], list[int]]:
    """Return the debts that ZooKeeper holds."""
    found = await cluster.zk.debts.load()
    assert found.bad == []
    return {(one.broker, one.topic): sorted(one.partitions) for one in found.owed}


async def until_owed(cluster: Cluster, expected: dict[tuple[int, str], list[int]]) -> None:
    async def check() -> bool:
        return await owed(cluster) == expected

    await until(check, f"debts are {expected}")


async def moved_from_a_silent_broker(cluster: Cluster) -> Service:
    """Move t-0 from broker 1, which receives StopReplica and does not answer, to broker 2."""
    service = await cluster.active()
    cluster.brokers[1].unanswered.add(ApiKey.STOP_REPLICA)
    await reassign(service, {T0: (2,)})
    await catch_up(cluster, service, (1, 2))
    await finished(cluster, service, (2,))
    await until(lambda: deleted_on(cluster.brokers[1]) == [("t", 0)])
    return service


async def another_controller(cluster: Cluster) -> Service:
    """Start another aiocontroller, after the first one has gone."""
    (first,) = cluster.services
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    service = await cluster.add_controller(auto_leader_rebalance_enable=False)
    await cluster.active()
    return service


async def without_broker_2(cluster: Cluster) -> Service:
    """Create topic u on brokers 1 and 2; broker 2 is dead."""
    service = await cluster.active()
    await cluster.create_topic("u", {0: [1, 2], 1: [2, 1]})
    await cluster.until_state("u", 2, (2, 1), partition=1)
    await cluster.kill_broker(2)
    await cluster.until_state("u", 1, (1,), partition=1)
    await idle(service)
    return service
