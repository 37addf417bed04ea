"""Brokers of a live cluster lag, freeze, die and restart under aiocontroller, while a producer keeps writing."""

from __future__ import annotations

import asyncio

import pytest

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.cluster.load.clients import now_us
from aiocontroller.lab.kafka.controllers import OurController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.lab.kafka.view import led_by, moved_off, whole
from tests.integration.kafka.conftest import KafkaCluster, check_nothing_lost, take_over, under_load
from tests.integration.kafka.releases import finds_an_outside_controller

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
VICTIM = 2
PARTITIONS = 6
TRIES = 3


async def states(stage: PlayedCluster) -> list[LeaderAndIsr]:
    """Return the topic's states in ZooKeeper."""
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    (topic,) = stage.topics
    found = await ours.zk.get_topic_partition_states([topic] * PARTITIONS, list(range(PARTITIONS)))
    assert all(isinstance(state, LeaderAndIsr) for state in found), found
    return found  # type: ignore[return-value]


async def registered(stage: PlayedCluster, broker: int) -> int:
    """Return the epoch of the broker's registration; 0 without one."""
    ours = stage.controllers["aiocontroller"]
    assert isinstance(ours, OurController)
    return getattr(await ours.zk.get_broker(broker, watch=False), "epoch", 0)


async def test_a_follower_that_lags_leaves_the_isr_and_comes_back(stage: PlayedCluster, kafka: KafkaCluster) -> None:
    """The leaders send us AlterPartition: no leader changes, no leader epoch rises.

    A follower lags only where a record was written meanwhile, which may not be in every partition: a broker answers the
    producer's requests one by one, and before KAFKA-13091 (2.8) one that waits for the follower may wait until it is
    back.
    """
    await take_over(stage)
    await under_load(stage, kafka)
    for _ in range(TRIES):
        epoch = await registered(stage, VICTIM)
        before, lagged, after = await lag(stage)
        if epoch and await registered(stage, VICTIM) == epoch:
            break
        await stage.heal()  # the machine was so busy that the frozen broker's session has expired: this proves nothing
    else:
        pytest.fail(f"broker {VICTIM} lost its session in each of {TRIES} tries")
    for p, state in enumerate(before):
        if state.leader != VICTIM:
            assert (after[p].leader, after[p].leader_epoch) == (state.leader, state.leader_epoch)
    for p in lagged:
        assert after[p].partition_epoch >= before[p].partition_epoch + 2  # out, and in again
    assert await check_nothing_lost(stage)


async def lag(stage: PlayedCluster) -> tuple[list[LeaderAndIsr], list[int], list[LeaderAndIsr]]:
    """Freeze the victim until it has left an ISR; return the states before, where it has left, and the states after."""
    before = await states(stage)
    followed = [p for p, state in enumerate(before) if state.leader != VICTIM]
    assert followed

    async def left() -> list[int]:
        now = await states(stage)
        return [p for p in followed if VICTIM not in now[p].isr]

    async def expanded() -> bool:
        return all(VICTIM in state.isr for state in await states(stage))

    stage.freeze(VICTIM)
    lagged = await until(left, "an ISR without the frozen follower", 20)
    stage.thaw(VICTIM)
    await until(expanded, "it is in every ISR again")  # by ZooKeeper: metadata may not even show yet that it left
    return before, lagged, await states(stage)


async def test_a_broker_frozen_past_its_session_wakes_up_deposed(stage: PlayedCluster, kafka: KafkaCluster) -> None:
    await take_over(stage)
    await under_load(stage, kafka)
    led = led_by(await stage.view(), VICTIM)
    assert led
    stage.freeze(VICTIM)
    await stage.until(lambda view: moved_off(view, frozenset((VICTIM,))), "everything has moved off the frozen broker")
    moved_us = now_us()
    others = {(topic, p) for topic in stage.topics for p in range(PARTITIONS)} - led

    async def go_on() -> bool:
        heard = {(t, p) for t, tally in stage.load.tallies().items() for p in tally.acknowledged_since(moved_us)}
        return others <= heard

    await until(go_on, "partitions that it did not lead go on while it is frozen", 60)
    stage.thaw(VICTIM)
    await stage.until(whole, "it is in every ISR again")
    await stage.load.settled()
    assert await check_nothing_lost(stage)


async def test_a_broker_is_killed_and_comes_back(stage: PlayedCluster, kafka: KafkaCluster) -> None:
    await take_over(stage)
    await under_load(stage, kafka)
    before = await states(stage)
    stage.brokers[VICTIM].kill()

    async def moved() -> bool:
        return all(s.leader not in (-1, VICTIM) and VICTIM not in s.isr for s in await states(stage))

    await until(moved, "new leaders", 60)
    for old, new in zip(before, await states(stage), strict=True):
        # Where the victim followed, its leader may have shrunk the ISR first, which raises no epoch.
        risen = new.leader_epoch - old.leader_epoch
        assert risen == 1 if old.leader == VICTIM else risen in (0, 1)
    await stage.load.settled()
    await stage.heal()
    assert await check_nothing_lost(stage)


async def test_a_rolling_restart_is_clean(stage: PlayedCluster, kafka: KafkaCluster) -> None:
    await take_over(stage)
    await under_load(stage, kafka)
    for broker in stage.brokers.values():
        logged = len(broker.log.read_text())
        await asyncio.to_thread(broker.stop)
        if finds_an_outside_controller(kafka.version):
            assert "ontrolled shutdown" in broker.log.read_text()[logged:]
            assert "unclean shutdown" not in broker.log.read_text()[logged:]
        await stage.start(broker)
        await stage.until(whole, "full ISRs")
    await stage.load.settled()
    assert await check_nothing_lost(stage)
