"""A broker asks for a controlled shutdown, over TCP: the leaders afterwards, what is left, and when it is answered."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.controller.controlled_shutdown import ANSWER_WITHIN_S
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.service import Service
from aiocontroller.wire.apis import ApiKey
from tests.integration.controller.asking import asking, change
from tests.integration.controller.harness import Cluster, idle, journal_of, until


async def active_controller(cluster: Cluster) -> Service:
    service = await cluster.add_controller()
    await cluster.create_topic("t", {0: [2, 1, 3], 1: [1, 2, 3], 2: [3, 1]})
    await cluster.until_leaders("t", [2, 1, 3])
    await idle(service)
    for broker in cluster.brokers.values():
        broker.take()
    return service


def leaderships(requests: list[Any]) -> list[tuple[int, int, tuple[int, ...]]]:
    return [(p.partition_index, p.leader, p.isr) for r in requests for t in r.topic_states for p in t.partition_states]


@pytest.mark.parametrize("version", [0, 1, 2, 3])
async def test_leaders_move_and_isrs_shrink(cluster: Cluster, version: int) -> None:
    service = await active_controller(cluster)
    async with asking(service) as broker2:
        answer = await broker2.controlled_shutdown(2, cluster.brokers[2].epoch, version=version)
    assert (answer.error_code, answer.remaining) == (0, ())
    states = await cluster.states("t", 3)
    assert [(s.leader, s.isr, s.leader_epoch) for s in states if s] == [
        (1, (1, 3), 1),
        (1, (1, 3), 1),
        (3, (3, 1), 0),
    ]
    assert 2 not in service.shell.context.live
    assert service.controller.status()["shutting_down"] == [2]
    # it was answered after the others had been told
    assert (0, 1, (1, 3)) in leaderships(cluster.brokers[1].of(ApiKey.LEADER_AND_ISR))
    stopped = {
        p.partition_index: p.delete_partition
        for r in cluster.brokers[2].of(ApiKey.STOP_REPLICA)
        for t in r.topic_states
        for p in t.partition_states
    }
    assert stopped == {1: False}  # it becomes a follower of what it led
    assert [r.detail for r in journal_of(service).of_kind("broker") if r.broker == 2][-1] == "controlled shutdown"


async def test_last_isr_member_stays_leader_and_is_reported(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    state = await cluster.state("t", 0)
    topic_id = service.shell.context.table.topic_by_name["t"].id
    async with asking(service) as broker2:
        epoch = cluster.brokers[2].epoch
        await broker2.alter_partition(3, 2, epoch, change(topic_id, 0, state, (2,)))
        answer = await broker2.controlled_shutdown(2, epoch)
        assert answer.remaining == (("t", 0),)
        assert [(s.leader, s.isr) for s in await cluster.states("t", 2) if s] == [(2, (2,)), (1, (1, 3))]
        again = await broker2.controlled_shutdown(2, epoch)
        assert again.remaining == (("t", 0),), "the broker asks again, and gets the same answer"
    assert (await cluster.state("t", 0)).leader_epoch == 0


async def test_partition_without_other_replicas_does_not_hold_it(cluster: Cluster) -> None:
    """Kafka's rule: nothing can be done about it, so the broker may go; its death takes the partition offline."""
    service = await active_controller(cluster)
    await cluster.create_topic("single", {0: [2]})
    await cluster.until_leaders("single", [2])
    await idle(service)
    async with asking(service) as broker2:
        answer = await broker2.controlled_shutdown(2, cluster.brokers[2].epoch)
    assert answer.remaining == ()
    assert await cluster.leaders("single", 1) == [2]
    await cluster.kill_broker(2)
    state = await cluster.until_state("single", -1, (2,))
    assert state.leader_epoch == 1


async def test_two_shutdowns_at_once(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    async with asking(service) as two, asking(service) as three:
        answers = await asyncio.gather(
            two.controlled_shutdown(2, cluster.brokers[2].epoch), three.controlled_shutdown(3, cluster.brokers[3].epoch)
        )
    assert [a.remaining for a in answers] == [(), ()]
    states = await cluster.states("t", 3)
    assert [(s.leader, s.isr) for s in states if s] == [(1, (1,)), (1, (1,)), (1, (1,))]


async def test_broker_that_answers_nothing_delays_it_two_seconds_at_most(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    cluster.brokers[3].unanswered.add(ApiKey.LEADER_AND_ISR)
    started = cluster.world.clock.monotonic()
    async with asking(service) as broker2:
        answer = await broker2.controlled_shutdown(2, cluster.brokers[2].epoch)
        took = cluster.world.clock.monotonic() - started
        assert answer.remaining == ()
        assert ANSWER_WITHIN_S * 0.9 <= took < ANSWER_WITHIN_S + 1
        # events go on meanwhile, and the next shutdown of the same broker is answered, too
        await cluster.create_topic("later", {0: [1]})
        await cluster.until_leaders("later", [1])


async def test_answer_waits_for_the_others_acknowledgement(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    port = cluster.brokers[3].port
    cluster.brokers[3].deafen()
    async with asking(service) as broker2:
        asked = asyncio.create_task(broker2.controlled_shutdown(2, cluster.brokers[2].epoch))
        await cluster.until_state("t", 1, (1, 3), 0)
        await until(lambda: cluster.brokers[1].of(ApiKey.LEADER_AND_ISR))
        assert not asked.done()
        await cluster.brokers[3].listen(port)
        await asked
        assert cluster.brokers[3].of(ApiKey.LEADER_AND_ISR)


async def test_refusals(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    epoch = cluster.brokers[2].epoch
    async with asking(service) as client:
        stale = await client.controlled_shutdown(2, epoch - 1)
        assert stale.error_code == KafkaErrorCode.STALE_BROKER_EPOCH
        unknown = await client.controlled_shutdown(99, 5)
        assert unknown.error_code == KafkaErrorCode.BROKER_NOT_AVAILABLE
    assert await cluster.leaders("t", 3) == [2, 1, 3]
    assert service.shell.context.shutting_down == {}


async def test_broker_that_comes_back_may_lead_again(cluster: Cluster) -> None:
    service = await active_controller(cluster)
    async with asking(service) as broker2:
        await broker2.controlled_shutdown(2, cluster.brokers[2].epoch)
    await cluster.kill_broker(2)
    await until(lambda: 2 not in service.shell.context.brokers)
    await cluster.add_broker(2)
    await until(lambda: 2 in service.shell.context.live)
    await idle(service)
    state = await cluster.state("t", 0)
    topic_id = service.shell.context.table.topic_by_name["t"].id
    async with asking(service) as broker1:
        answer = await broker1.alter_partition(3, 1, cluster.brokers[1].epoch, change(topic_id, 0, state, (1, 3, 2)))
        assert [r.error_code for r in answer.results] == [0]
    await cluster.kill_broker(1)
    await cluster.until_state("t", 2, (3, 2), 0)
