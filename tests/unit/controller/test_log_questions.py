"""Rounds of questions: what is asked together, what is asked again, and what a term's end makes void."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.log_questions import (
    ANSWER_WITHIN_S,
    ANSWER_WITHIN_S_EACH,
    Leaderless,
    LogQuestions,
    WaitingRequest,
)
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import LogEndsReceived
from aiocontroller.core.ids import Broker, TopicPartition
from aiocontroller.core.log_evidence import Evidence, LogEnd, Question
from aiocontroller.lab.simulated_net import SimulatedClock
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.net.tasks import LooseTasks
from tests.builders import leadership, table

A, B = (Question(TopicPartition("t", number), 5, (1, 2)) for number in (0, 1))
A_LATER = A._replace(leader_epoch=6)
ONE = {1: Broker(1, 101, ())}
TWO = {**ONE, 2: Broker(2, 102, ())}
FOUND = Evidence({1: LogEnd(0, 1)})


class Stage:
    """Each round takes a second."""

    def __init__(self) -> None:
        self.clock = SimulatedClock()
        self.queue = EventQueue(self.clock)
        self.questions = LogQuestions(self.queue, self.clock)
        self.rounds: list[tuple[list[Question], list[int]]] = []
        self.within_s: list[float] = []
        self.tasks = LooseTasks()
        assert not self.questions.can_ask
        self.questions.start(self.tasks, self.gather)
        assert self.questions.can_ask

    async def gather(
        self, brokers: Mapping[int, Broker], asked: Sequence[Question], within_s: float
    ) -> dict[TopicPartition, Evidence]:
        self.rounds.append((list(asked), list(brokers)))
        self.within_s.append(within_s)
        await self.clock.sleep(1)
        return {question.partition: FOUND for question in asked}

    def events(self) -> list[LogEndsReceived]:
        found = []
        while self.queue:
            event = self.queue.take().event
            assert isinstance(event, LogEndsReceived)
            found.append(event)
        return found


@virtual_time
async def test_what_comes_during_a_round_is_asked_in_the_next() -> None:
    it = Stage()
    it.questions.ask([A], ONE)
    await it.clock.sleep(0.5)
    it.questions.ask([A, B], TWO)  # the first is being asked already
    assert it.questions.open == 2
    await it.clock.sleep(5)
    assert it.rounds == [([A], [1]), ([B], [1, 2])]
    assert [event.asked for event in it.events()] == [(A,), (B,)]
    assert it.questions.open == 0


@virtual_time
async def test_a_question_about_another_epoch_is_another_question() -> None:
    it = Stage()
    it.questions.ask([A], ONE)
    await it.clock.sleep(0.5)
    it.questions.ask([A_LATER], ONE)
    await it.clock.sleep(5)
    events = it.events()
    assert [event.asked for event in events] == [(A,), (A_LATER,)]
    assert [event.evidence for event in events] == [{A.partition: FOUND}] * 2
    assert [event.duration_us for event in events] == [1_000_000] * 2


@virtual_time
async def test_the_same_may_be_asked_again_after_a_round() -> None:
    it = Stage()
    for _ in range(2):
        it.questions.ask([A], ONE)
        await it.clock.sleep(5)
    assert len(it.events()) == 2


@virtual_time
async def test_no_question_asks_nobody() -> None:
    it = Stage()
    it.questions.ask([], ONE)
    await it.clock.sleep(5)
    assert it.rounds == []


async def present(request: WaitingRequest) -> object:
    return dict(request.answers)


@virtual_time
async def test_a_term_s_end_makes_questions_void_and_answers_who_waits() -> None:
    it = Stage()
    answers: list[object] = []
    it.questions.requests.append(WaitingRequest(Reply(answers.append), [A.partition], present))
    it.questions.ask([A], ONE)
    await it.clock.sleep(0.5)
    it.questions.ask([B], ONE)
    it.questions.forget()
    assert answers == [KafkaErrorCode.NOT_CONTROLLER]
    assert it.questions.open == 0
    it.questions.ask([B], TWO)  # by the next term
    await it.clock.sleep(0.1)
    assert it.rounds == [([A], [1]), ([B], [1, 2])], "it does not wait for the round of the last one"
    await it.clock.sleep(5)
    assert [event.asked for event in it.events()] == [(B,)]


@virtual_time
async def test_a_cancelled_round_leaves_no_event() -> None:
    """The process ends."""
    it = Stage()
    it.questions.ask([A], ONE)
    await it.clock.sleep(0.5)
    it.tasks.cancel()
    await it.clock.sleep(5)
    assert it.events() == []


@virtual_time
async def test_a_request_is_answered_once_when_the_last_partition_is_decided() -> None:
    answers: list[object] = []
    request = WaitingRequest(Reply(answers.append), [A.partition, B.partition], present)
    done = (KafkaErrorCode.NONE, "")
    request.add_evidence(A, FOUND)
    request.add_evidence(Question(TopicPartition("u", 0), 1, ()), FOUND)  # another's
    assert list(request.evidence) == [A.partition]
    await request.decided({A.partition: done})
    assert answers == []
    await request.decided({B.partition: done})
    assert answers == [{A.partition: done, B.partition: done}]
    await request.decided({})
    assert len(answers) == 1
    await asyncio.sleep(0)


@virtual_time
async def test_what_is_leaderless_for_long_is_overdue() -> None:
    it = Stage()
    known = table({"t": [[1, 2]] * 2}, online=True)
    first, second = ((TopicPartition("t", number), 0) for number in (0, 1))

    def overdue(*partitions: Leaderless) -> frozenset[int]:
        it.questions.note_leaderless(partitions, 10)
        return it.questions.overdue_rows(known)

    assert overdue(first, second) == frozenset()
    await it.clock.sleep(6)
    assert overdue(first) == frozenset()  # the other has a leader
    await it.clock.sleep(5)
    assert overdue(first, second) == {0}
    await it.clock.sleep(10)
    assert overdue((TopicPartition("t", 0), 1), second) == {1}  # the first had a leader in between
    known.set_leadership(1, leadership(2, (2,), leader_epoch=1))
    assert it.questions.overdue_rows(known) == frozenset()  # it has one now
    assert overdue((TopicPartition("gone", 0), 0)) == frozenset()
    await it.clock.sleep(10)
    assert overdue((TopicPartition("gone", 0), 0)) == frozenset()
    it.questions.forget()
    assert overdue(first) == frozenset()


@virtual_time
async def test_only_what_was_not_known_is_new() -> None:
    it = Stage()
    assert it.questions.is_new(A, FOUND)
    assert not it.questions.is_new(A, FOUND)
    assert it.questions.is_new(A, Evidence({1: LogEnd(0, 2)}))
    assert it.questions.is_new(A_LATER, Evidence({1: LogEnd(0, 2)}))
    it.questions.decided([A.partition, B.partition])
    assert it.questions.is_new(A_LATER, Evidence({1: LogEnd(0, 2)}))


@virtual_time
async def test_what_is_not_told_is_asked_again_less_and_less_often() -> None:
    it = Stage()
    waits = [it.questions.ask_again_after_s(fruitless=True, too_short=False) for _ in range(7)]
    assert waits == [0.25, 0.5, 1, 2, 4, 5, 5]
    it.questions.ask_again_after_s(fruitless=False, too_short=False)
    assert it.questions.ask_again_after_s(fruitless=True, too_short=False) == 0.25


@virtual_time
async def test_awaited_brokers_that_had_too_little_time_get_more() -> None:
    """Else a busy machine would ask the same for ever.  With strategy None no broker is awaited, and clients wait."""
    it = Stage()
    for too_short in (True, True, True, True, True, True, False, False):
        it.questions.ask([A], ONE)
        await it.clock.sleep(5)
        it.questions.ask_again_after_s(fruitless=True, too_short=too_short)
    it.questions.ask([A], ONE)
    await it.clock.sleep(5)
    usual_s = it.within_s[0]
    assert usual_s == ANSWER_WITHIN_S + ANSWER_WITHIN_S_EACH
    assert [within_s / usual_s for within_s in it.within_s] == [1, 2, 3, 4, 4, 4, 4, 1, 1]
