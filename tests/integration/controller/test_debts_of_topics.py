"""Topics that go although some of their brokers do not answer, and what those owe afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from aiocontroller.controller import topic_deletion
from aiocontroller.core.errors import ControllerMovedError, KafkaErrorCode
from aiocontroller.core.ids import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
)
from aiocontroller.core.invariants import violations
from aiocontroller.net.ports import World
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.harness import Cluster, idle, until
from tests.integration.controller.owing import (
    deleted_on,
    owed,
    told_of,
    topic_t,
    until_owed,
    without_broker_2,
)
from tests.integration.controller.test_topic_deletion import delete, gone


@pytest.fixture
async def cluster(world: World, zk_connect: str) -> AsyncIterator[Cluster]:
    async with topic_t(world, zk_connect) as cluster:
        yield cluster


async def test_topic_goes_although_a_broker_is_dead(cluster: Cluster) -> None:
    """Kafka's deletion waits for the broker, for ever if need be."""
    service = await without_broker_2(cluster)
    await delete(cluster, "u")
    await gone(cluster, "u")
    assert await owed(cluster) == {(2, "u"): [0, 1]}
    assert deleted_on(cluster.brokers[1]) == [("u", 0), ("u", 1)]
    for broker in cluster.brokers.values():
        last = [p.leader for r in broker.of(ApiKey.UPDATE_METADATA) for t in r.topic_states for p in t.partition_states]
        assert last[-1] == LEADER_DURING_DELETE, "nobody knows it any more"
    returned = await cluster.add_broker(2)
    await until_owed(cluster, {})
    assert deleted_on(returned) == [("u", 0), ("u", 1)]
    stops = [p for r in returned.of(ApiKey.STOP_REPLICA) for t in r.topic_states for p in t.partition_states]
    assert {p.leader_epoch for p in stops} == {EPOCH_DURING_DELETE}
    await idle(service)
    assert violations(service.shell.context) == []


async def test_topic_without_an_id_waits_for_the_dead_broker(cluster: Cluster) -> None:
    """As with Kafka: the broker could not tell what it has from what the next topic of the name has."""
    (service,) = cluster.services
    await cluster.stop_controller(service)
    cluster.services.clear()
    service = await cluster.add_controller(auto_leader_rebalance_enable=False, inter_broker_protocol_version="2.7")
    await without_broker_2(cluster)
    await delete(cluster, "u")
    await until(lambda: "u" in service.shell.context.topics_ineligible_for_deletion)
    assert "u" in await cluster.zk.get_all_topics_in_cluster(watch=False)
    await cluster.add_broker(2)
    await gone(cluster, "u")
    assert await owed(cluster) == {}


async def test_topic_goes_although_a_broker_is_silent(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_deletion, "SILENCE_S", 0.2)
    service = await cluster.active()
    await cluster.create_topic("u", {0: [1, 2]})
    await cluster.until_state("u", 1, (1, 2))
    cluster.brokers[2].unanswered.add(ApiKey.STOP_REPLICA)
    await delete(cluster, "u")
    await gone(cluster, "u")
    assert await owed(cluster) == {(2, "u"): [0]}
    cluster.brokers[2].unanswered.clear()
    await cluster.bounce_broker(2)
    await until_owed(cluster, {})
    await idle(service)
    assert violations(service.shell.context) == []


async def test_topics_that_come_later_have_their_time_too(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_deletion, "SILENCE_S", 0.5)
    await cluster.active()
    for name in ("u", "v"):
        await cluster.create_topic(name, {0: [1, 2]})
        await cluster.until_state(name, 1, (1, 2))
    cluster.brokers[2].unanswered.add(ApiKey.STOP_REPLICA)
    await delete(cluster, "u")
    await until(lambda: deleted_on(cluster.brokers[2]) == [("u", 0)])
    await delete(cluster, "v")
    await gone(cluster, "u")
    await gone(cluster, "v")
    assert await owed(cluster) == {(2, "u"): [0], (2, "v"): [0]}


async def test_topic_goes_although_a_broker_refuses(cluster: Cluster) -> None:
    service = await cluster.active()
    await cluster.create_topic("u", {0: [1, 2]})
    await cluster.until_state("u", 1, (1, 2))
    cluster.brokers[2].stop_replica_errors = [KafkaErrorCode.KAFKA_STORAGE_ERROR] * 2
    await delete(cluster, "u")
    await gone(cluster, "u")
    await until_owed(cluster, {})
    assert deleted_on(cluster.brokers[2]) == [("u", 0)] * 3
    assert len(service.shell.context.debts) == 0


async def test_topic_of_the_same_name_while_the_broker_is_dead(cluster: Cluster) -> None:
    """It comes back with the old log: it deletes that, then it hears of the new topic, and can be in sync."""
    service = await without_broker_2(cluster)
    await delete(cluster, "u")
    await gone(cluster, "u")
    await cluster.create_topic_with_id("u", {0: [2, 1]}, b"n" * 16)
    await cluster.until_state("u", 1, (1,))
    returned = await cluster.add_broker(2)
    await until(lambda: "LEADER_AND_ISR" in told_of(returned, "u"))
    await idle(service)
    heard = told_of(returned, "u")
    assert heard[0] == "STOP_REPLICA"
    assert heard.count("STOP_REPLICA") == 1
    assert await owed(cluster) == {}
    assert violations(service.shell.context) == []


async def break_deletion_off(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller ends when it has written broker 2's debts of u, and before the znodes go."""
    service = await without_broker_2(cluster)
    with monkeypatch.context() as patch:

        async def moved(names: Any, *, fence: int) -> None:
            raise ControllerMovedError("another was elected")

        patch.setattr(service.shell.zk, "delete_topic_znodes", moved)
        patch.setattr(service.controller.election, "stand", lambda: asyncio.sleep(0))
        await delete(cluster, "u")
        await until_owed(cluster, {(2, "u"): [0, 1]})
        await until(lambda: not service.controller.election.active)
        await cluster.stop_controller(service)
        cluster.services.clear()


async def test_deletion_that_is_broken_off_begins_again(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """The debts are written before the znodes go; the next controller finds a topic that is there, and starts anew."""
    await break_deletion_off(cluster, monkeypatch)
    returned = await cluster.add_broker(2)
    await cluster.add_controller(auto_leader_rebalance_enable=False)
    await gone(cluster, "u")
    await until_owed(cluster, {})
    assert deleted_on(returned) == [("u", 0), ("u", 1)]


async def test_operator_takes_a_deletion_back_that_was_broken_off(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic lives on, with the dead broker's replica: its debts are void."""
    await break_deletion_off(cluster, monkeypatch)
    await cluster.client.delete("/admin/delete_topics/u")
    returned = await cluster.add_broker(2)
    service = await cluster.add_controller(auto_leader_rebalance_enable=False)
    await until(lambda: "LEADER_AND_ISR" in told_of(returned, "u"))
    await idle(service)
    assert await owed(cluster) == {}
    assert deleted_on(returned) == []
