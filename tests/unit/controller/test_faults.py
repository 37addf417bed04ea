"""What has failed is set aside for a growing while, and forgotten when it should be."""

from __future__ import annotations

import asyncio
from typing import Any

from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.faults import (
    FORGOTTEN_S,
    LONGEST_REFUSAL_S,
    LONGEST_RETRY_S,
    Faults,
    name_of,
)
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.lab.simulated_net import SimulatedClock
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metrics import Metrics

BUG = RuntimeError("a bug")
BROKERS = (1, 2)
TOPIC_CHANGE = ev.TopicChange()


def created(answers: list[Any]) -> ev.CreateTopics:
    return ev.CreateTopics(topics=(), timeout_ms=0, validate_only=False, reply=Reply(answers.append))


def from_broker(broker: int) -> ev.AlterPartitionReceived:
    return ev.AlterPartitionReceived(
        broker=broker, broker_epoch=1, version=0, partitions=(), reply=Reply(lambda _: None)
    )


def fresh() -> Faults:
    return Faults(SimulatedClock().monotonic, Metrics())


@virtual_time
async def test_signal_waits_for_a_growing_while() -> None:
    faults = fresh()
    assert not faults.suspect(TOPIC_CHANGE, BROKERS)
    waits = [faults.failed(TOPIC_CHANGE, BUG, BROKERS) for _ in range(9)]
    assert waits == [1, 2, 4, 8, 16, 32, LONGEST_RETRY_S, LONGEST_RETRY_S, LONGEST_RETRY_S]
    assert faults.is_set_aside(ev.TopicChange())
    assert not faults.suspect(ev.BrokerChange(), BROKERS)
    assert faults.failed_events.value == 9
    faults.succeeded(ev.TopicChange())
    assert faults.failed(TOPIC_CHANGE, BUG, BROKERS) == 1


@virtual_time
async def test_signals_of_two_topics_are_two() -> None:
    faults = fresh()
    faults.failed(ev.PartitionModifications("a"), BUG, BROKERS)
    assert faults.suspect(ev.PartitionModifications("a"), BROKERS)
    assert not faults.suspect(ev.PartitionModifications("b"), BROKERS)


@virtual_time
async def test_request_may_fail_once() -> None:
    """A client that repeats it makes us reload four times within the first minute, and then every five minutes."""
    faults = fresh()
    answers: list[Any] = []
    event = created(answers)
    waits = [faults.failed(event, BUG, BROKERS) for _ in range(7)]
    assert waits == [0, 2, 8, 32, 128, LONGEST_REFUSAL_S, LONGEST_REFUSAL_S]
    assert faults.is_set_aside(created([]))
    faults.refuse(event)
    assert answers == [KafkaErrorCode.UNKNOWN_SERVER_ERROR]
    assert faults.refused.value == 1
    await asyncio.sleep(LONGEST_REFUSAL_S + 1)
    assert not faults.is_set_aside(created([]))
    assert faults.suspect(created([]), BROKERS)
    assert faults.failed(created([]), BUG, BROKERS) == LONGEST_REFUSAL_S
    await asyncio.sleep(FORGOTTEN_S + 1)
    assert faults.failed(created([]), BUG, BROKERS) == LONGEST_REFUSAL_S, "it was not asked for again"
    await asyncio.sleep(FORGOTTEN_S + 1)
    assert not faults.suspect(created([]), BROKERS)
    assert faults.failed(created([]), BUG, BROKERS) == 0


@virtual_time
async def test_success_between_failures_does_not_buy_another_reload() -> None:
    faults = fresh()
    faults.failed(created([]), BUG, BROKERS)
    faults.succeeded(created([]))
    assert faults.failed(created([]), BUG, BROKERS) == 2


@virtual_time
async def test_each_broker_is_refused_for_itself() -> None:
    """And all that do not exist together, of which a client can name thousands of millions."""
    faults = fresh()
    for broker in (1, 7, 8):
        faults.failed(from_broker(broker), BUG, BROKERS)
    assert not faults.suspect(from_broker(2), BROKERS)
    assert faults.suspect(from_broker(9), BROKERS)
    assert not faults.is_set_aside(from_broker(1), BROKERS)
    assert faults.is_set_aside(from_broker(9), BROKERS)


@virtual_time
async def test_what_is_set_aside_is_named() -> None:
    faults = fresh()
    faults.failed(ev.PartitionModifications("a"), BUG, BROKERS)
    faults.failed(from_broker(1), BUG, BROKERS)
    faults.failed(created([]), RuntimeError("x" * 10_000), BROKERS)
    faults.failed(created([]), RuntimeError("x" * 10_000), BROKERS)
    first, second = faults.status()
    assert (first["event"], first["failures"], first["for_s"]) == ("CreateTopics", 2, 2.0)
    assert len(first["error"]) == 300
    assert second == {
        "event": "PartitionModifications a",
        "failures": 1,
        "error": "RuntimeError('a bug')",
        "for_s": 1.0,
    }
    assert name_of(from_broker(1)) == "AlterPartitionReceived 1"
    faults.forget()
    assert faults.status() == []


@virtual_time
async def test_signals_come_back_when_their_time_is_up() -> None:
    faults = fresh()
    queue = EventQueue(SimulatedClock())
    faults.failed(TOPIC_CHANGE, BUG, BROKERS)
    faults.failed(created([]), BUG, BROKERS)
    faults.schedule_retries(queue)
    faults.schedule_retries(queue)
    await asyncio.sleep(0.5)
    assert len(queue) == 0
    await asyncio.sleep(0.6)
    assert len(queue) == 1
    assert (await queue.get()).event == TOPIC_CHANGE
