"""Requests of brokers that are refused: seldom in the log, a metric, and shown while they go on."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from aiocontroller.controller.refused_brokers import GOES_ON_S, LOG_AGAIN_S, RefusedBrokers
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import AlterPartitionReceived, CreateTopics
from aiocontroller.core.ids import Broker
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metrics import Metrics
from aiocontroller.wire.apis import ApiKey


def alter_partition(broker: int, epoch: int) -> AlterPartitionReceived:
    return AlterPartitionReceived(
        broker=broker, broker_epoch=epoch, version=3, partitions=(), reply=Reply(lambda _: None)
    )


@virtual_time
async def test_one_line_a_minute_a_metric_and_an_end(caplog: pytest.LogCaptureFixture) -> None:
    """Finding 9: 20 lines a second, and nothing else that showed it."""
    caplog.set_level(logging.WARNING)
    world, metrics, context = simulated_world(SimulatedNetwork()), Metrics(), ControllerContext(1, 1)
    context.add_brokers([Broker(1, 7, ())])
    refused = RefusedBrokers(world.clock, metrics)
    for _ in range(20 * 90):
        refused.note(ApiKey.ALTER_PARTITION, "User:CN=b1", "10.0.0.1", alter_partition(1, 7), context)
        await world.clock.sleep(0.05)
    assert len(caplog.records) == 2
    assert "ALTER_PARTITION(56) from User:CN=b1 (10.0.0.1) refused" in caplog.records[0].getMessage()
    assert metrics.snapshot()['aiocontroller_authorizer_requestsrefused_total{api="alter_partition"}'] == 1800
    assert metrics.snapshot()["aiocontroller_authorizer_brokersrefused"] == 1
    assert refused.going_on() == ["ALTER_PARTITION of broker 1, which comes as User:CN=b1 from 10.0.0.1"]
    await world.clock.sleep(GOES_ON_S + 1)
    assert refused.going_on() == []


def test_the_next_line_comes_a_minute_later_to_the_moment(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    now_s = 1000.0
    clock: Any = SimpleNamespace(monotonic=lambda: now_s)
    refused, context = RefusedBrokers(clock, Metrics()), ControllerContext(1, 1)
    context.add_brokers([Broker(1, 7, ())])
    lines = []
    for later_s in (0.0, LOG_AGAIN_S - 1, LOG_AGAIN_S, 2 * LOG_AGAIN_S - 1, 2 * LOG_AGAIN_S):
        now_s = 1000.0 + later_s
        refused.note(ApiKey.ALTER_PARTITION, "User:CN=b1", "10.0.0.1", alter_partition(1, 7), context)
        lines.append(len(caplog.records))
    assert lines == [1, 1, 2, 2, 3]


@virtual_time
async def test_refused_candidates_take_no_readiness_away() -> None:
    world, context = simulated_world(SimulatedNetwork()), ControllerContext(1, 1)
    context.add_brokers([Broker(1, 7, ())])
    refused = RefusedBrokers(world.clock, Metrics())
    topics = CreateTopics(topics=(), timeout_ms=1, validate_only=False, reply=Reply(lambda _: None))
    refused.note(ApiKey.CREATE_TOPICS, "User:eve", "10.0.0.9", topics, context)
    for broker, epoch in ((1, -1), (1, 6), (2, 7)):
        refused.note(ApiKey.ALTER_PARTITION, "User:eve", "10.0.0.9", alter_partition(broker, epoch), context)
    assert refused.going_on() == []
