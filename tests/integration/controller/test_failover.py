"""The main job on a real ZooKeeper: winning, loading, electing, notifying; brokers that come, go and bounce."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from aiocontroller.controller import failover
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, running, until


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with running(world, zk_connect) as cluster:
        yield cluster


async def test_first_controller_of_a_fresh_cluster_has_epoch_1(cluster: Cluster) -> None:
    service = await cluster.add_controller()
    assert await cluster.active() is service
    assert await cluster.zk.get_controller_epoch() == (1, 1)


async def test_new_topic_gets_leaders_and_brokers_hear_of_them(cluster: Cluster) -> None:
    for broker in (1, 2, 3):
        await cluster.add_broker(broker)
    await cluster.add_controller()
    await cluster.active()
    await cluster.create_topic("t", {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    states = await cluster.until_leaders("t", [1, 2, 3])
    assert [s.isr for s in states] == [(1, 2, 3), (2, 3, 1), (3, 1, 2)]
    assert {s.leader_epoch for s in states} == {0}
    broker = cluster.brokers[1]
    await until(lambda: len(broker.of(ApiKey.LEADER_AND_ISR)) == 2)
    requests = broker.of(ApiKey.LEADER_AND_ISR)
    partitions = [p for r in requests for t in r.topic_states for p in t.partition_states]
    assert [(p.partition_index, p.leader, p.is_new) for p in partitions] == [(0, 1, True), (1, 2, True), (2, 3, True)]


async def test_dead_brokers_partitions_move_and_come_back(cluster: Cluster) -> None:
    for broker in (1, 2, 3):
        await cluster.add_broker(broker)
    await cluster.add_controller()
    await cluster.create_topic("t", {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]})
    await cluster.until_leaders("t", [1, 2, 3])
    await cluster.kill_broker(2)
    states = await cluster.until_leaders("t", [1, 3, 3])
    await until(lambda: not cluster.services[0].queue)
    states = await cluster.states("t", 3)
    assert [(s.isr, s.leader_epoch) for s in states] == [((1, 3), 1), ((3, 1), 1), ((3, 1), 1)]


async def test_whole_isr_dies_and_returns(cluster: Cluster) -> None:
    await cluster.add_broker(1)
    await cluster.add_broker(2)
    await cluster.add_controller()
    await cluster.create_topic("t", {0: [2]})
    await cluster.until_leaders("t", [2])
    await cluster.kill_broker(2)
    (state,) = await cluster.until_leaders("t", [-1])
    assert (state.isr, state.leader_epoch) == ((2,), 1)
    await cluster.add_broker(2)
    (state,) = await cluster.until_leaders("t", [2])
    assert (state.isr, state.leader_epoch) == ((2,), 2)


async def test_standby_takes_over_when_the_active_one_leaves(cluster: Cluster) -> None:
    await cluster.add_broker(1)
    first = await cluster.add_controller()
    assert await cluster.active() is first
    await cluster.create_topic("t", {0: [1]})
    await cluster.until_leaders("t", [1])
    second = await cluster.add_controller()
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    assert await cluster.active() is second
    await until(lambda: second.shell.context.table.leadership_count == 1)
    assert await cluster.zk.get_controller_epoch() == (2, 2)


async def test_topics_are_loaded_in_groups(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several topics at a time, in groups of about equal size: none is left out, none is loaded twice."""
    await cluster.add_broker(1)
    await cluster.add_broker(2)
    sizes = {f"t{n:02}": (1, 2, 7)[n % 3] for n in range(20)}
    first = await cluster.add_controller()
    await cluster.active()
    for topic, size in sizes.items():
        await cluster.create_topic(topic, {p: [1 + p % 2, 2 - p % 2] for p in range(size)})
    await cluster.create_topic("unreadable", {0: []})
    await until(lambda: first.shell.context.table.leadership_count == sum(sizes.values()))
    monkeypatch.setattr(failover, "FIRST_GROUP", 1)
    monkeypatch.setattr(failover, "GROUP_PARTITIONS", 5)
    await cluster.stop_controller(first)
    cluster.services.remove(first)
    second = await cluster.add_controller()
    await until(lambda: second.shell.context.table.leadership_count == sum(sizes.values()))
    table = second.shell.context.table
    assert {name: list(topic.partitions()) for name, topic in table.topic_by_name.items()} == {
        topic: [table.row(topic, p) for p in range(size)] for topic, size in sizes.items()
    }
    assert len(table) == sum(sizes.values())
    for topic, size in sizes.items():
        assert [table.leadership(table.row(topic, p)) for p in range(size)] == await cluster.states(topic, size)


async def test_expired_session_ends_the_term_and_another_begins(cluster: Cluster) -> None:
    await cluster.add_broker(1)
    service = await cluster.add_controller()
    await cluster.active()
    await expire_session(service.client)
    await until(lambda: service.shell.context.epoch == 2)
    assert await cluster.active() is service


async def test_deposed_controller_is_fenced_and_steps_down(cluster: Cluster) -> None:
    await cluster.add_broker(1)
    service = await cluster.add_controller()
    await cluster.active()
    epoch, _ = await cluster.zk.get_controller_epoch() or (0, 0)
    await cluster.client.set_data("/controller_epoch", str(epoch + 5).encode())
    await cluster.create_topic("t", {0: [1]})
    await until(lambda: service.shell.context.epoch == epoch + 6)
    await cluster.until_leaders("t", [1])
