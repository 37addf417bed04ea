"""Open questions about logs: the consumer adds questions, one task asks them, and an event returns the answers.

Questions added while others are being asked wait for the next round, so that each broker has only one connection for
this purpose.  The end of a term voids all of them; a round that is under way then goes on for nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial

from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.core.election_requests import Answers
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import LogEndsReceived
from aiocontroller.core.ids import Broker, TopicPartition
from aiocontroller.core.log_evidence import Evidence, Question
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.net.ports import Clock
from aiocontroller.net.tasks import Tasks

log = logging.getLogger(__name__)

ANSWER_WITHIN_S = 2.0
"""How long brokers may take to report how far their logs reach; later answers do not count."""
ANSWER_WITHIN_S_EACH = 0.0005
"""Additional time per partition: 10,000 take a second or two on a busy machine."""

LONGEST_PATIENCE = 4
"""The largest factor by which the time limit grows.  A busy machine then gets through all questions in the end, and a
hung broker delays the other brokers' answers by seconds only."""
ASK_AGAIN_S, LONGEST_ASK_AGAIN_S = 0.25, 5.0
Leaderless = tuple[TopicPartition, int]
"""A partition without a leader, and its leader epoch."""
Gather = Callable[[Mapping[int, Broker], Sequence[Question], float], Awaitable[dict[TopicPartition, Evidence]]]


class WaitingRequest:
    """A request about offline partitions that waits until their logs' ends are known."""

    def __init__(
        self,
        reply: Reply,
        waiting: Iterable[TopicPartition],
        present: Callable[[WaitingRequest], Awaitable[object]],
        *,
        elects: bool = True,
        leader: int | None = None,
    ) -> None:
        self.reply = reply
        self.waiting = dict.fromkeys(waiting)
        self.elects = elects
        """Whether unclean leaders are to be elected; otherwise the answer only says what is known."""
        self.leader = leader
        """The broker that is to lead; None: the one with the best log."""
        self.answers: Answers = {}
        """The outcome for each partition."""
        self.evidence: dict[TopicPartition, tuple[Question, Evidence]] = {}
        self._present = present

    def add_evidence(self, question: Question, evidence: Evidence) -> None:
        """Take in what is known of a partition, if the request waits for it."""
        if question.partition in self.waiting:
            self.evidence[question.partition] = question, evidence

    async def decided(self, answers: Answers) -> None:
        """Take in the outcome for some partitions; the last one completes the answer."""
        self.answers |= answers
        for partition in answers:
            self.waiting.pop(partition, None)
        if not self.waiting:
            self.reply.ensure(await self._present(self))


class LogQuestions:
    """The questions of the current term.  Owned by the consumer, except for the task that asks."""

    def __init__(self, queue: EventQueue, clock: Clock) -> None:
        self._queue = queue
        self._clock = clock
        self._tasks: Tasks | None = None
        self._gather: Gather | None = None
        self._waiting: dict[TopicPartition, Question] = {}
        self._asked: dict[TopicPartition, Question] = {}
        """The questions of the current round."""
        self._brokers: Mapping[int, Broker] = {}
        self._since_s: dict[Leaderless, float] = {}
        """When each was first seen without a leader."""
        self._overdue: Sequence[Leaderless] = ()
        self._recorded: dict[TopicPartition, tuple[Question, Evidence]] = {}
        self._rounds: dict[TopicPartition, tuple[Question, int]] = {}
        """The last question about a partition, and in how many rounds it was asked unchanged."""
        self._fruitless = 0
        """Rounds in a row after which some partition still waited for a live broker."""
        self._too_short = 0
        """Those of them that gave an awaited broker too little time."""
        self.led_below_min_isr: dict[TopicPartition, int] = {}
        """Partitions whose leaders were elected by their logs -> in-sync replicas that each needs to serve reads."""
        self._term = 0
        self._busy = False
        self.requests: list[WaitingRequest] = []
        """Waiting requests, in order of arrival."""

    def start(self, tasks: Tasks, gather: Gather) -> None:
        """Ask with ``gather``, in tasks of this group."""
        self._tasks, self._gather = tasks, gather

    @property
    def can_ask(self) -> bool:
        """Whether brokers can be asked at all."""
        return self._gather is not None

    @property
    def open(self) -> int:
        """The number of partitions whose logs are being asked about."""
        return len(self._waiting) + len(self._asked)

    def ask(self, questions: Iterable[Question], brokers: Mapping[int, Broker]) -> None:
        """Ask the questions that are not being asked already; ``brokers`` are those registered now."""
        assert self._tasks is not None, "not started: there is no task group"
        for question in questions:
            if self._asked.get(question.partition) != question:
                self._waiting[question.partition] = question
        self._brokers = dict(brokers)
        if self._waiting and not self._busy:
            self._busy = True
            self._tasks.start_soon(partial(self._ask, self._term), name="questions about logs")

    def note_leaderless(self, partitions: Iterable[Leaderless], after_s: float) -> None:
        """Note all partitions that have no leader now; those that have had none for ``after_s`` are overdue."""
        now_s = self._clock.monotonic()
        self._since_s = {key: self._since_s.get(key, now_s) for key in partitions}
        self._overdue = [key for key, since_s in self._since_s.items() if now_s - since_s >= after_s]

    def overdue_rows(self, table: PartitionTable) -> frozenset[int]:
        """Return those overdue at the last ``note_leaderless`` and without a leader since, for membership tests."""
        rows = ((table.row(*partition), epoch) for partition, epoch in self._overdue)
        return frozenset(row for row, epoch in rows if row >= 0 and table.leader_epoch[row] == epoch)

    def is_new(self, question: Question, evidence: Evidence) -> bool:
        """Whether this differs from what was last known of the partition; remembers it."""
        known = self._recorded.get(question.partition)
        self._recorded[question.partition] = question, evidence
        return known != (question, evidence)

    def decided(self, partitions: Iterable[TopicPartition]) -> None:
        """The partitions have leaders: forget what was known of their logs."""
        for partition in partitions:
            self._recorded.pop(partition, None)
            self._rounds.pop(partition, None)

    def ask_again_after_s(self, *, fruitless: bool, too_short: bool) -> float:
        """Return when to ask live brokers again for what they have not reported: soon, then less and less often.

        ``too_short``: some of them are awaited, and get more time in the next round.
        """
        self._fruitless = self._fruitless + 1 if fruitless else 0
        self._too_short = self._too_short + 1 if too_short else 0
        return min(ASK_AGAIN_S * 2.0 ** (self._fruitless - 1), LONGEST_ASK_AGAIN_S)

    def rows_asked_enough(self, table: PartitionTable) -> frozenset[int]:
        """Return those about which the same brokers have been asked so often that late ones get no more time."""
        often = (partition for partition, (_, rounds) in self._rounds.items() if rounds >= LONGEST_PATIENCE)
        return frozenset(table.row(*partition) for partition in often)

    def _patience(self) -> int:
        """Return the factor of the time limit; it grows with each round in a row that was too short for a broker."""
        return min(1 + self._too_short, LONGEST_PATIENCE)

    def forget(self) -> None:
        """End the term: drop all questions, and refuse the waiting requests."""
        self._recorded.clear()
        self._rounds.clear()
        self._fruitless = self._too_short = 0
        self.led_below_min_isr.clear()
        self._since_s.clear()
        self._overdue = ()
        self._term += 1
        self._busy = False  # the next term's questions do not wait for the last one's round
        self._waiting.clear()
        self._asked.clear()
        requests, self.requests = self.requests, []
        for request in requests:
            request.reply.ensure(KafkaErrorCode.NOT_CONTROLLER)

    async def _ask(self, term: int) -> None:
        assert self._gather is not None
        try:
            while self._waiting and term == self._term:
                self._asked, self._waiting = self._waiting, {}
                asked = list(self._asked.values())
                began_s = self._clock.monotonic()
                within_s = (ANSWER_WITHIN_S + len(asked) * ANSWER_WITHIN_S_EACH) * self._patience()
                try:
                    found = await self._gather(self._brokers, asked, within_s)
                except Exception:  # a bug: elections go on as Kafka's do
                    log.exception("Bug while asking brokers about the logs of %d partitions", len(asked))
                    found = {question.partition: _nothing(question) for question in asked}
                if term == self._term:
                    self._asked = {}
                    self._count(asked)
                    taken_us = int((self._clock.monotonic() - began_s) * 1e6)
                    self._queue.append(LogEndsReceived(tuple(asked), found, taken_us))
        finally:
            self._busy = self._busy and term != self._term  # the next term may ask already

    def _count(self, asked: Sequence[Question]) -> None:
        for question in asked:
            before, rounds = self._rounds.get(question.partition, (question, 0))
            self._rounds[question.partition] = question, rounds + 1 if before == question else 1


def _nothing(question: Question) -> Evidence:
    return Evidence({}, dict.fromkeys(question.brokers, "a bug kept it from being asked"))
