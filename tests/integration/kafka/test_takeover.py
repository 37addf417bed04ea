"""A live Kafka 3.9 cluster: aiocontroller takes the role, a broker dies, producers go on, the role goes back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from aiocontroller.cluster.real_kafka import RealKafkaCluster, kafka_missing
from aiocontroller.net.ports import World
from tests.integration.controller.harness import running, until
from tests.integration.kafka.producing import Load, create_topic

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]
PARTITIONS = 6


@pytest.fixture(autouse=True)
def _jars() -> None:
    missing = kafka_missing()
    if missing:
        pytest.skip(missing)


async def test_takeover_broker_death_and_release_lose_nothing(world: World, zk_connect: str, tmp_path: Path) -> None:
    brokers = RealKafkaCluster(3, zk_connect, tmp_path)
    await brokers.start_async()
    try:
        async with running(world, zk_connect) as cluster:
            await asyncio.to_thread(create_topic, brokers.bootstrap, "t", PARTITIONS, 3)
            before = await cluster.zk.get_controller_epoch()
            assert before is not None
            with Load(brokers.bootstrap, "t", PARTITIONS) as load:
                await until(lambda: len(load.acknowledged_since(0)) == PARTITIONS, "first acknowledgements", 60)

                service = await cluster.add_controller(aiocontroller_takeover_policy="takeover")
                assert await cluster.active() is service
                assert await cluster.zk.get_controller_epoch() == (before[0] + 1, before[1] + 1)
                await until(lambda: service.shell.context.table.leadership_count == PARTITIONS)
                taken = time.monotonic()
                await until(lambda: len(load.acknowledged_since(taken)) == PARTITIONS, "going on after the takeover")

                states = await cluster.states("t", PARTITIONS)
                victim = next(s.leader for s in states if s is not None)
                brokers.brokers[victim].kill()

                async def moved() -> bool:
                    now = await cluster.states("t", PARTITIONS)
                    return all(s is not None and s.leader not in (-1, victim) and victim not in s.isr for s in now)

                await until(moved, "new leaders", 30)
                after = await cluster.states("t", PARTITIONS)
                for old, new in zip(states, after, strict=True):
                    assert old is not None
                    assert new is not None
                    # Where the victim followed, its leader may have shrunk the ISR first, which raises no epoch.
                    risen = new.leader_epoch - old.leader_epoch
                    assert risen == 1 if old.leader == victim else risen in (0, 1)
                died = time.monotonic()
                await until(lambda: len(load.acknowledged_since(died)) == PARTITIONS, "going on without the broker", 60)

                await brokers.brokers[victim].start_async()

                async def rejoined() -> bool:
                    now = await cluster.states("t", PARTITIONS)
                    return all(s is not None and len(s.isr) == 3 for s in now)

                await until(rejoined, "full ISRs, by AlterPartition", 60)

                await cluster.stop_controller(service)

                async def released() -> bool:
                    holder = await cluster.zk.get_controller(watch=False)
                    return getattr(holder, "controller_id", None) in brokers.brokers

                await until(released, "a broker takes the role back", 30)
                given = time.monotonic()
                await until(lambda: len(load.acknowledged_since(given)) == PARTITIONS, "going on after the release", 60)
            assert await asyncio.to_thread(load.check_nothing_lost) > 0
    finally:
        brokers.kill()


async def test_rolling_restart_is_clean_and_loses_nothing(world: World, zk_connect: str, tmp_path: Path) -> None:
    brokers = RealKafkaCluster(3, zk_connect, tmp_path)
    await brokers.start_async()
    try:
        async with running(world, zk_connect) as cluster:
            await asyncio.to_thread(create_topic, brokers.bootstrap, "t", PARTITIONS, 3)
            service = await cluster.add_controller(aiocontroller_takeover_policy="takeover")
            assert await cluster.active() is service

            async def whole() -> bool:
                now = await cluster.states("t", PARTITIONS)
                return all(s is not None and len(s.isr) == 3 for s in now)

            with Load(brokers.bootstrap, "t", PARTITIONS) as load:
                for broker in brokers.brokers.values():
                    await until(whole, "full ISRs", 60)
                    await broker.stop_async()
                    assert "Controlled shutdown request returned successfully" in broker.log.read_text()
                    await broker.start_async()
                await until(whole, "full ISRs", 60)
            assert await asyncio.to_thread(load.check_nothing_lost) > 0
    finally:
        brokers.kill()
