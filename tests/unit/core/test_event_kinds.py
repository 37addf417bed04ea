"""What all events are: Kafka's states and timers, requests that are answered once."""

from __future__ import annotations

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import ControllerState, Reply
from aiocontroller.core.events import ControlledShutdown


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


def controlled_shutdown(answers: list[object]) -> ControlledShutdown:
    return ControlledShutdown(broker=1, broker_epoch=2, reply=Reply(answers.append))


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
