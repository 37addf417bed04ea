"""The one queue through which everything reaches the controller."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.core import events as ev
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import CertainRequest, Event, Reply, Request
from aiocontroller.lab.simulated_net import SimulatedClock
from aiocontroller.lab.virtual_time import turns, virtual_time


def queue() -> EventQueue:
    return EventQueue(SimulatedClock())


def shutdown_request(answers: list[Any], broker: int = 1) -> ev.ControlledShutdown:
    return ev.ControlledShutdown(broker=broker, broker_epoch=7, reply=Reply(answers.append))


async def drain(queue: EventQueue) -> list[Event]:
    return [(await queue.get()).event for _ in range(len(queue))]


@virtual_time
async def test_first_in_first_out_with_the_time_of_entry() -> None:
    events = queue()
    events.append(ev.BrokerChange())
    await asyncio.sleep(2)
    events.append(ev.TopicChange())
    assert len(events) == 2
    first, second = await events.get(), await events.get()
    assert (first.event, second.event) == (ev.BrokerChange(), ev.TopicChange())
    assert (first.enqueued_s, second.enqueued_s) == (0, 2)
    assert len(events) == 0


@virtual_time
async def test_signal_that_waits_already_is_not_queued_twice() -> None:
    events = queue()
    for _ in range(1000):
        events.append(ev.TopicChange())
        events.append(ev.PartitionModifications("a"))
    events.append(ev.PartitionModifications("b"))
    events.append(ev.BrokerModifications(1))
    events.append(ev.BrokerModifications(2))
    assert await drain(events) == [
        ev.TopicChange(),
        ev.PartitionModifications("a"),
        ev.PartitionModifications("b"),
        ev.BrokerModifications(1),
        ev.BrokerModifications(2),
    ]
    assert events.statistics().coalesced == 1998


@virtual_time
async def test_more_of_the_same_class_are_taken_only_while_they_come_next() -> None:
    events = queue()
    for topic in "abc":
        events.append(ev.PartitionModifications(topic))
    events.append(ev.TopicChange())
    events.append(ev.PartitionModifications("d"))
    first = (await events.get()).event
    assert [queued.event for queued in events.take_more_like(first, at_most=1)] == [ev.PartitionModifications("b")]
    assert [queued.event for queued in events.take_more_like(first, at_most=9)] == [ev.PartitionModifications("c")]
    events.append(ev.PartitionModifications("a"))  # taken, so it may be queued anew
    assert await drain(events) == [ev.TopicChange(), ev.PartitionModifications("d"), ev.PartitionModifications("a")]


@virtual_time
async def test_signal_is_queued_anew_once_it_was_taken() -> None:
    """What changes while the handler reads must be read again."""
    events = queue()
    events.append(ev.TopicChange())
    await events.get()
    events.append(ev.TopicChange())
    assert await drain(events) == [ev.TopicChange()]


@virtual_time
async def test_requests_and_responses_never_coalesce() -> None:
    events, answers = queue(), list[Any]()
    for _ in range(3):
        events.append(shutdown_request(answers))
        events.append(ev.UpdateMetadataResponseReceived(1, 7, 0))
    assert len(await drain(events)) == 6


@virtual_time
async def test_prepended_event_is_next() -> None:
    events = queue()
    events.append(ev.TopicChange())
    events.append(ev.BrokerChange())
    events.prepend(ev.Expire())
    assert await drain(events) == [ev.Expire(), ev.TopicChange(), ev.BrokerChange()]


@virtual_time
async def test_get_waits_for_an_event_however_it_comes() -> None:
    events = queue()
    for put in (events.append, events.prepend, events.clear_and_put):
        waiting = asyncio.create_task(events.get())
        await turns()
        assert not waiting.done()
        put(ev.BrokerChange())
        assert (await waiting).event == ev.BrokerChange()


@virtual_time
async def test_cancelled_get_loses_nothing() -> None:
    events = queue()
    waiting = asyncio.create_task(events.get())
    await turns()
    waiting.cancel()
    await asyncio.wait([waiting])
    events.append(ev.BrokerChange())
    assert (await events.get()).event == ev.BrokerChange()


@virtual_time
async def test_scheduled_event_comes_at_its_deadline() -> None:
    events = queue()
    events.schedule("rebalance", 300, ev.AutoPreferredReplicaLeaderElection())
    assert (len(events), events.statistics().deferred) == (0, 1)
    queued = await events.get()
    assert (queued.event, queued.enqueued_s) == (ev.AutoPreferredReplicaLeaderElection(), 300)
    assert events.statistics().deferred == 0


@virtual_time
async def test_same_tag_replaces_and_cancel_forgets() -> None:
    events = queue()
    events.schedule("a", 10, ev.BrokerModifications(1))
    events.schedule("a", 20, ev.BrokerModifications(2))
    events.schedule("b", 5, ev.BrokerModifications(3))
    events.schedule("c", 1, ev.BrokerModifications(4))
    events.cancel("c")
    events.cancel("an unknown tag")
    await asyncio.sleep(60)
    assert await drain(events) == [ev.BrokerModifications(3), ev.BrokerModifications(2)]


@virtual_time
async def test_tag_can_be_scheduled_again_when_it_was_due() -> None:
    events = queue()
    for _ in range(3):
        events.schedule("a", 10, ev.TopicChange())
        assert (await events.get()).event == ev.TopicChange()
    assert events.statistics().deferred == 0


@virtual_time
async def test_clear_and_put_answers_requests_and_cancels_timers() -> None:
    events, answers = queue(), list[Any]()
    events.append(shutdown_request(answers))
    events.append(ev.TopicChange())
    events.append(
        ev.AlterPartitionReceived(broker=1, broker_epoch=7, version=3, partitions=(), reply=Reply(answers.append))
    )
    events.schedule("a", 10, ev.TopicChange())
    events.clear_and_put(ev.Expire())
    assert answers == [KafkaErrorCode.NOT_CONTROLLER] * 2
    await asyncio.sleep(60)
    assert await drain(events) == [ev.Expire()]
    assert events.statistics().preempted == 3


@virtual_time
async def test_signals_dropped_by_clear_and_put_may_be_queued_again() -> None:
    events = queue()
    events.append(ev.TopicChange())
    events.append(ev.Expire())
    events.clear_and_put(ev.Expire())
    events.append(ev.TopicChange())
    assert await drain(events) == [ev.Expire(), ev.TopicChange()]


@virtual_time
async def test_responses_of_a_term_go_with_it_and_nothing_else_does() -> None:
    events, answers = queue(), list[Any]()
    request = shutdown_request(answers)
    for event in (ev.TopicChange(), ev.UpdateMetadataResponseReceived(1, 7, 0), request, ev.BrokerChange()):
        events.append(event)
    events.drop_responses()
    assert await drain(events) == [ev.TopicChange(), request, ev.BrokerChange()]
    assert answers == []


@virtual_time
async def test_session_that_expires_does_not_undo_the_shutdown() -> None:
    events = queue()
    events.clear_and_put(ev.ShutdownEventThread())
    events.clear_and_put(ev.Expire())
    assert await drain(events) == [ev.Expire(), ev.ShutdownEventThread()]


@virtual_time
async def test_request_that_was_answered_is_not_answered_by_its_preemption() -> None:
    events, answers = queue(), list[Any]()
    request = shutdown_request(answers)
    events.append(request)
    request.reply.answer([])
    events.clear_and_put(ev.Expire())
    assert answers == [[]]


@virtual_time
async def test_statistics() -> None:
    events = queue()
    events.append(ev.TopicChange())
    events.append(ev.TopicChange())
    events.append(ev.BrokerChange())
    events.schedule("a", 10, ev.Reelect())
    await events.get()
    assert events.statistics() == (1, 1, 0, 1, 2, 1, 0, 0)
    events.clear_and_put(ev.Expire())
    assert events.statistics() == (1, 1, 0, 0, 3, 1, 1, 0)


def client_request(answers: list[Any]) -> ev.ListPartitionReassignments:
    return ev.ListPartitionReassignments(partitions=None, reply=Reply(answers.append))


@virtual_time
async def test_full_queue_refuses_only_clients() -> None:
    events, refused, others = EventQueue(SimulatedClock(), max_client_requests=2), list[Any](), list[Any]()
    for _ in range(5):
        events.append(client_request(refused))
    assert refused == [KafkaErrorCode.REQUEST_TIMED_OUT] * 3
    assert (events.statistics().client_requests, events.statistics().refused) == (2, 3)
    never_lost = [
        ev.TopicChange(),
        ev.BrokerModifications(1),
        ev.UpdateMetadataResponseReceived(1, 7, 0),
        shutdown_request(others),
        ev.AlterPartitionReceived(broker=1, broker_epoch=7, version=3, partitions=(), reply=Reply(others.append)),
        ev.AllocateProducerIds(broker=1, broker_epoch=7, reply=Reply(others.append)),
        ev.Release(reply=Reply(others.append)),
        ev.TakeOver(reply=Reply(others.append)),
    ]
    for event in never_lost:
        events.append(event)
    assert (await drain(events))[2:] == never_lost
    assert others == []


@virtual_time
async def test_full_queue_has_room_again_when_requests_were_taken_or_preempted() -> None:
    events, answers = EventQueue(SimulatedClock(), max_client_requests=1), list[Any]()
    events.append(client_request(answers))
    await events.get()
    events.append(client_request(answers))
    assert answers == []
    events.clear_and_put(ev.Expire())
    assert answers == [KafkaErrorCode.NOT_CONTROLLER]
    events.append(client_request(answers))
    assert len(answers) == 1
    events.append(client_request(answers))
    assert answers == [KafkaErrorCode.NOT_CONTROLLER, KafkaErrorCode.REQUEST_TIMED_OUT]


@virtual_time
async def test_gathered_requests_free_their_places() -> None:
    events, answers = EventQueue(SimulatedClock(), max_client_requests=3), list[Any]()
    for _ in range(3):
        events.append(client_request(answers))
    first = (await events.get()).event
    assert len(events.take_more_like(first, at_most=9)) == 2
    assert events.statistics().client_requests == 0


@virtual_time
async def test_length_is_bounded_whatever_comes() -> None:
    """A flood of changes and of clients, while the consumer stands still."""
    events, answers = EventQueue(SimulatedClock(), max_client_requests=10), list[Any]()
    topics, brokers = 7, 5
    for round in range(1000):
        events.append(ev.TopicChange())
        events.append(ev.BrokerChange())
        events.append(ev.PartitionModifications(f"t{round % topics}"))
        events.append(ev.BrokerModifications(round % brokers))
        events.append(client_request(answers))
    assert len(events) == 2 + topics + brokers + 10
    assert len(answers) == 990


def test_only_clients_requests_are_refused() -> None:
    """Clients' requests alone; a new type of request counts as a client's until it says otherwise."""
    kinds = [kind for kind in vars(ev).values() if isinstance(kind, type) and issubclass(kind, Request)]
    assert {kind.__name__ for kind in kinds if issubclass(kind, CertainRequest)} - {"CertainRequest"} == {
        "AllocateProducerIds",
        "AlterPartitionReceived",
        "ControlledShutdown",
        "RecoverPartitions",
        "Release",
        "RollBack",
        "TakeOver",
    }


@virtual_time
async def test_second_consumer_is_an_error() -> None:
    """Also while the first one handles an event, and nothing waits."""
    events = queue()

    async def consume() -> None:
        await events.get()
        await asyncio.sleep(5)

    first = asyncio.ensure_future(consume())
    await turns()
    with pytest.raises(AssertionError, match="one consumer"):
        await events.get()
    events.append(ev.BrokerChange())
    await turns()
    events.append(ev.TopicChange())
    with pytest.raises(AssertionError, match="one consumer"):
        await events.get()
    assert len(events) == 1, "it was not taken"
    await first
    assert (await events.get()).event == ev.TopicChange(), "the first one has ended"
