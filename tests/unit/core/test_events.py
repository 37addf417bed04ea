"""Events: Kafka's states and timers, signals that are equal, requests that are answered once."""

from __future__ import annotations

import pytest

from aiocontroller.core import events
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import (
    CertainRequest,
    ControllerState,
    Event,
    Reply,
    Request,
    Response,
    Signal,
)


def subclasses(of: type[Event]) -> list[type[Event]]:
    return [c for c in vars(events).values() if isinstance(c, type) and issubclass(c, of) and c not in _ABSTRACT]


_ABSTRACT = (Event, Signal, Request, CertainRequest, Response)


@pytest.mark.parametrize("event", subclasses(Event))
def test_every_event_names_its_state_and_cannot_change(event: type[Event]) -> None:
    assert isinstance(event.state, ControllerState)
    assert event.__struct_config__.frozen


def test_states_have_kafkas_byte_values() -> None:
    assert [int(s) for s in ControllerState] == list(range(18))


@pytest.mark.parametrize(
    "state, timer",
    [
        (ControllerState.Idle, None),
        (ControllerState.UpdateMetadataResponseReceived, None),
        (ControllerState.BrokerChange, "LeaderElectionRateAndTimeMs"),
        (ControllerState.AlterPartitionReassignment, "PartitionReassignmentRateAndTimeMs"),
        (ControllerState.ControllerChange, "ControllerChangeRateAndTimeMs"),
        (ControllerState.IsrChange, "IsrChangeRateAndTimeMs"),
        (ControllerState.LeaderAndIsrResponseReceived, "LeaderAndIsrResponseReceivedRateAndTimeMs"),
    ],
)
def test_timers_have_kafkas_names(state: ControllerState, timer: str | None) -> None:
    assert state.timer == timer


@pytest.mark.parametrize("signal", subclasses(Signal))
def test_equal_signals_are_one(signal: type[Signal]) -> None:
    """So that the queue can hold each of them once."""
    arguments = {"broker": 1, "broker_epoch": 7, "topic": "t", "partition": 0, "step": "s", "vacant": True}
    fields = [arguments[name] for name in signal.__struct_fields__]
    assert len({signal(*fields), signal(*fields)}) == 1


def test_signals_about_different_things_are_two() -> None:
    assert events.BrokerModifications(1) != events.BrokerModifications(2)
    assert len({events.ControllerChange(), events.Reelect(), events.Startup(), events.TopicChange()}) == 4


def controlled_shutdown(answers: list[object]) -> events.ControlledShutdown:
    return events.ControlledShutdown(broker=1, broker_epoch=2, reply=Reply(answers.append))


def test_a_preempted_request_is_answered() -> None:
    answers: list[object] = []
    request = controlled_shutdown(answers)
    found = [request.reply.answered]
    request.preempt()
    found.append(request.reply.answered)
    assert found == [False, True]
    assert answers == [KafkaErrorCode.NOT_CONTROLLER]


def test_a_request_is_answered_once() -> None:
    answers: list[object] = []
    request = controlled_shutdown(answers)
    request.reply.answer("done")
    request.preempt()
    request.reply.ensure("again")
    assert answers == ["done"]
    with pytest.raises(AssertionError, match="answered once"):
        request.reply.answer("again")


def test_an_answer_may_come_later() -> None:
    answers: list[object] = []
    reply = controlled_shutdown(answers).reply
    assert reply.deferred is False
    reply.defer()
    assert (reply.deferred, reply.answered) == (True, False)
    reply.ensure(["t-0"])
    assert answers == [["t-0"]]
