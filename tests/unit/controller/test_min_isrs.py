"""Partitions below ``min.insync.replicas``: what is read when, and that the time since when is that of the clock."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from aiocontroller.core.broken_partitions import BrokenKind
from aiocontroller.core.broken_view import broken_partitions, counts
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.service import Service
from tests.unit.controller.virtual_cluster import Stage, begin, is_active, stage

ALONE: dict[str, Any] = {"aiocontroller_eligible_leader_replicas": False}
"""Nobody else reads topics' settings."""


async def topic_with(it: Stage, name: str, own: str | None) -> None:
    """One partition on brokers 1, 2 and 3."""
    if own is not None:
        await it.create(f"/config/topics/{name}", settings(own))
    await it.create(f"/brokers/topics/{name}", b'{"version":1,"partitions":{"0":[1,2,3]}}')
    await it.sleep(2)


def settings(value: str) -> bytes:
    return json.dumps({"version": 1, "config": {"min.insync.replicas": value}}).encode()


async def change(it: Stage, topic: str, value: str) -> None:
    await it.client.set_data(f"/config/topics/{topic}", settings(value), -1)
    await it.zk.create_config_change_notification(f"topics/{topic}")
    await it.sleep(2)


def below(service: Service) -> list[str]:
    context = service.shell.context
    return [each.topic for each in broken_partitions(context, BrokenKind.UNDER_MIN_ISR, 0, 99)]


def reads(service: Service) -> Callable[[], list[str]]:
    """The topics whose settings have been read since."""
    found: list[str] = []
    real = service.shell.zk.get_topic_configs

    async def read(topics: list[str]) -> object:
        found.extend(topics)
        return await real(topics)

    service.shell.zk.get_topic_configs = read  # type: ignore[method-assign, assignment]
    return lambda: found


@virtual_time
async def test_own_settings_the_brokers_and_nonsense() -> None:
    async with stage() as it:
        for broker in (1, 2, 3):
            await it.add_broker(broker, min_insync_replicas="2")
        service = await it.add_controller(auto_leader_rebalance_enable=False, **ALONE)
        for name, own in (("a", "1"), ("b", "2"), ("c", None), ("d", "three"), ("e", "3")):
            await topic_with(it, name, own)
        read = reads(service)
        await it.kill_broker(3)
        await it.until(lambda: counts(service.shell.context)["under-replicated"] == 5)
        died_us = it.world.clock.wall_time_us()
        await it.sleep(5)
        assert below(service) == ["e"]
        assert read() == ["a", "b", "c", "d", "e"]
        await it.kill_broker(2)
        await it.until(lambda: len(below(service)) == 3)
        assert below(service) == ["e", "b", "c"]
        assert len(read()) == 5, "nothing is read twice"
        first, second, _ = broken_partitions(service.shell.context, BrokenKind.UNDER_MIN_ISR, 0, 9)
        assert first.since_us is not None
        assert died_us <= first.since_us + 10_000_000
        assert second.since_us is not None
        assert first.since_us < second.since_us
        assert not first.at_least
        await it.add_broker(2)


@virtual_time
async def test_settings_that_change_are_read_again_and_those_of_healthy_topics_never() -> None:
    async with stage() as it:
        service = await begin(it, 3, **ALONE)
        await topic_with(it, "a", "1")
        read = reads(service)
        await change(it, "a", "3")
        assert service.shell.context.table.broken.unread == {}
        asked = len(read())
        await it.kill_broker(3)
        await it.until(lambda: below(service) == ["a"])
        assert len(read()) == asked + 1
        await change(it, "a", "2")
        await it.until(lambda: below(service) == [])
        assert counts(service.shell.context) == {"offline": 0, "under-replicated": 1, "under-min-isr": 0}


@virtual_time
async def test_what_a_new_controller_finds_broken_was_so_before() -> None:
    async with stage() as it:
        first = await begin(it, 2)
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2]}}')
        await it.sleep(2)
        await it.kill_broker(2)
        await it.until(lambda: counts(first.shell.context)["under-replicated"] == 1)
        second = await it.add_controller(aiocontroller_id=1002, aiocontroller_standby="cold")
        it.crash(first)
        await it.until(lambda: is_active(second) and second.shell.context.loaded)
        [found] = broken_partitions(second.shell.context, BrokenKind.UNDER_REPLICATED, 0, 9)
        assert found.at_least
        assert [clause.text for clause in found.reason] == ["broker 2 not registered"]


@virtual_time
async def test_a_warm_standby_has_watched_since_when() -> None:
    async with stage() as it:
        first = await begin(it, 2)
        second = await it.add_controller(aiocontroller_id=1002)
        await it.create("/brokers/topics/t", b'{"version":1,"partitions":{"0":[1,2]}}')
        await it.sleep(5)
        await it.kill_broker(2)
        await it.until(lambda: counts(first.shell.context)["under-replicated"] == 1)
        [before] = broken_partitions(first.shell.context, BrokenKind.UNDER_REPLICATED, 0, 9)
        await it.sleep(30)
        it.crash(first)
        await it.until(lambda: is_active(second) and second.shell.context.loaded)
        [found] = broken_partitions(second.shell.context, BrokenKind.UNDER_REPLICATED, 0, 9)
        assert not found.at_least
        assert found.since_us is not None
        assert before.since_us is not None
        assert abs(found.since_us - before.since_us) < 1_000_000
