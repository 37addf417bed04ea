"""Asks brokers how far the logs of leaderless partitions reach: all brokers at the same time, within a time limit.

A broker that has just started refuses connections for a while, and does not know its replicas until the controller has
sent them.  So it is asked again until the time is up.  What a broker does not report is in ``Evidence.silent``, with
the reason.

Nothing here reads the controller's context: a task of its own asks, concurrently with the consumer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, NamedTuple

import anyio

from aiocontroller.config import ConfigError
from aiocontroller.controller.broker_client import asking
from aiocontroller.controller.log_client import LogClient
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Broker, TopicPartition
from aiocontroller.core.log_evidence import (
    NOT_IN_TIME,
    UNKNOWN_EPOCH,
    EpochEnd,
    Evidence,
    IncoherentAnswersError,
    LogEnd,
    Question,
    Side,
    divergence,
    last_epoch,
)
from aiocontroller.wire.errors import FrameError, UnsupportedApiError
from aiocontroller.wire.fetch import EpochQuestion
from aiocontroller.wire.list_offsets import EARLIEST, LATEST, ListedOffset

log = logging.getLogger(__name__)

ASK_AGAIN_S = 0.1
PARTITIONS_AT_ONCE = 1_000
GRACE_S = 1.0
"""By how much the time limit of a connection exceeds that of the whole."""
OFFSET_OUT_OF_RANGE = 1
NOT_YET = frozenset(
    (
        KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        KafkaErrorCode.NOT_LEADER_OR_FOLLOWER,
        KafkaErrorCode.REPLICA_NOT_AVAILABLE,
    )
)
"""Errors of a broker that has not received its replicas yet."""


A_BUG = "a bug kept it from being asked"
LEFT_OUT = "it leaves the partition out of its answer"
"""This happens when a Fetch exceeds a quota."""
Found = dict[TopicPartition, Evidence]


async def gather(
    shell: ControllerShell, brokers: Mapping[int, Broker], questions: Sequence[Question], within_s: float
) -> Found:
    """Return what brokers report about each partition; takes at most ``within_s``, and a second more."""
    deadline_s = shell.world.clock.monotonic() + within_s
    asked = {
        number: _AskedBroker(shell, brokers.get(number), deadline_s, of_broker)
        for number, of_broker in _by_broker(questions).items()
    }
    try:
        with anyio.move_on_after(within_s) as asking_all:
            await _together(one.ask() for one in asked.values())
        if asking_all.cancelled_caught:
            for one in asked.values():
                if not one.finished:  # a question may be open
                    await one.hang_up()
        left_s = deadline_s - shell.world.clock.monotonic()
        with anyio.move_on_after(max(left_s, GRACE_S)):  # others tell where they diverge, even if one broker hangs
            for piece in _pieces(questions):
                await _find_divergences(asked, piece)
    finally:
        for one in asked.values():
            await one.hang_up()
    found: Found = {}
    for piece in _pieces(questions):
        found |= {question.partition: _evidence(asked, question) for question in piece}
        await shell.world.clock.sleep(0)
    return found


def _pieces(questions: Sequence[Question]) -> Iterator[Sequence[Question]]:
    """Split the questions; other tasks run between two pieces."""
    return (questions[start : start + PARTITIONS_AT_ONCE] for start in range(0, len(questions), PARTITIONS_AT_ONCE))


def _by_broker(questions: Sequence[Question]) -> dict[int, list[Question]]:
    found: dict[int, list[Question]] = {}
    for question in questions:
        for broker in question.brokers:
            found.setdefault(broker, []).append(question)
    return found


async def _together(calls: Iterable[Coroutine[Any, Any, object]]) -> None:
    async def one(call: Coroutine[Any, Any, object]) -> None:
        await call

    async with anyio.create_task_group() as tasks:
        for call in calls:
            tasks.start_soon(one, call)


class _AskedBroker:
    """One broker and its answers."""

    def __init__(
        self, shell: ControllerShell, broker: Broker | None, deadline_s: float, questions: Sequence[Question]
    ) -> None:
        self.ends: dict[TopicPartition, LogEnd] = {}
        self.silent: dict[TopicPartition, str] = {}
        """Why it has reported nothing about a partition."""
        self.why_silent = NOT_IN_TIME if broker is not None else "it is not registered"
        self.diverging: dict[TopicPartition, int] = {}
        self.logs: LogClient | None = None
        self.finished = False
        """All questions about ends have been answered, or will not be asked again."""
        self.heard = False
        """It has answered something, or more time would not help."""
        self._connection = AsyncExitStack()
        self._shell = shell
        self._broker = broker
        self._deadline_s = deadline_s
        self._questions = questions

    async def ask(self) -> None:
        """Learn where the logs end; repeat questions that the broker cannot answer yet."""
        if self._broker is not None:
            await self._ask(self._broker)
        self.finished = True

    async def _ask(self, broker: Broker) -> None:
        open_ = list(self._questions)
        while open_:
            try:
                if self.logs is None:
                    self.logs = await self._connect(broker)
                    self.heard = True
                open_ = [one for piece in _pieces(open_) for one in await self._ask_once(self.logs, piece)]
            except (UnsupportedApiError, ConfigError) as error:
                self.why_silent, self.heard = str(error), True
                await self.hang_up()
                return
            except (OSError, FrameError) as error:
                self.why_silent = str(error) or type(error).__name__
                await self.hang_up()
            except Exception:  # a bug: the other brokers' answers still count
                log.exception("Bug while asking broker %d about logs", broker.id)
                self.why_silent = A_BUG
                await self.hang_up()
                return
            if open_:
                await self._shell.world.clock.sleep(ASK_AGAIN_S)

    async def _connect(self, broker: Broker) -> LogClient:
        left_s = self._deadline_s - self._shell.world.clock.monotonic()
        client = await self._connection.enter_async_context(asking(self._shell, broker, max(left_s, 0) + GRACE_S))
        return await LogClient.over(client)

    async def hang_up(self) -> None:
        """Close the connection, if there is one."""
        self.logs = None
        await self._connection.aclose()

    async def _ask_once(self, logs: LogClient, questions: Sequence[Question]) -> list[Question]:
        """Ask about each partition once; returns the questions to repeat."""
        topics = by_topic(question.partition for question in questions)
        latest = await logs.offsets(topics, LATEST)
        earliest = await logs.offsets(topics, EARLIEST)
        again = []
        lengths: dict[TopicPartition, LogEnd] = {}
        for question in questions:
            tp = question.partition
            codes = [_code(latest.get(tp)), _code(earliest.get(tp))]
            failed = next((code for code in codes if code), 0)
            if failed in NOT_YET:
                again.append(question)
                self.silent[tp] = _words(failed)
            elif failed:
                self.silent[tp] = _words(failed)
            elif not 0 <= earliest[tp].offset <= latest[tp].offset:
                self.silent[tp] = f"it reports a log from {earliest[tp].offset} to {latest[tp].offset}"
            else:
                self.silent.pop(tp, None)
                lengths[tp] = LogEnd(UNKNOWN_EPOCH, latest[tp].offset, earliest[tp].offset)
        if logs.knows_epochs:
            asked = {question.partition: question for question in questions}
            searches = {tp: last_epoch(length, asked[tp].leader_epoch) for tp, length in lengths.items()}
            changing = await self._search(logs, searches, lambda tp, epoch: lengths[tp]._replace(epoch=epoch))
            again += [asked[tp] for tp in changing]
            for tp in lengths:
                if tp in self.ends and self.ends[tp].epoch > asked[tp].leader_epoch:
                    known = f"the partition's leader epoch is {asked[tp].leader_epoch}"
                    self.silent[tp] = f"it reports records of epoch {self.ends.pop(tp).epoch}, and {known}"
        else:
            self.ends.update(lengths)
        return [*again, *(question for question in questions if self.silent.get(question.partition) == LEFT_OUT)]

    async def _search(
        self,
        logs: LogClient,
        searches: Mapping[TopicPartition, Generator[int, EpochEnd | None, int]],
        found: Callable[[TopicPartition, int], LogEnd],
    ) -> list[TopicPartition]:
        """Carry out the searches for last epochs; each round has one question from each search.

        Returns the partitions whose logs have changed meanwhile, as those of followers do that have not yet been told
        that their leader is dead.
        """
        waiting, changing = dict(searches), list[TopicPartition]()
        answers: dict[TopicPartition, EpochEnd | None] = dict.fromkeys(waiting)
        while waiting:
            ask: dict[TopicPartition, int] = {}
            for tp in list(waiting):
                if tp not in answers:
                    continue
                try:
                    ask[tp] = waiting[tp].send(answers[tp])
                except StopIteration as end:
                    self.ends[tp] = found(tp, end.value)
                    del waiting[tp]
                except IncoherentAnswersError as error:
                    self.silent[tp] = str(error)
                    changing.append(tp)
                    del waiting[tp]
            answers = await self.epoch_ends(logs, ask)
            for tp in [tp for tp in waiting if tp not in answers]:
                del waiting[tp]
        return changing

    async def epoch_ends(
        self, logs: LogClient, epochs: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, EpochEnd | None]:
        """Return where epochs end (None: the epoch is above all known ones), without partitions it does not report."""
        topics: dict[str, list[EpochQuestion]] = {}
        for (topic, partition), epoch in epochs.items():
            topics.setdefault(topic, []).append(EpochQuestion(partition, epoch))
        ends: dict[TopicPartition, EpochEnd | None] = {}
        found = await logs.epoch_ends(topics)
        for tp in epochs:
            answer = found.get(tp)
            if answer is None:
                self.silent[tp] = LEFT_OUT
            elif answer.error_code == OFFSET_OUT_OF_RANGE:
                ends[tp] = None
            elif answer.error_code:
                self.silent[tp] = _words(answer.error_code)
            else:
                ends[tp] = EpochEnd(answer.epoch, answer.end_offset)
        return ends


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topic -> its partitions, both in the order of their first mention."""
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return topics


def _code(answer: ListedOffset | None) -> int:
    return KafkaErrorCode.UNKNOWN_SERVER_ERROR if answer is None else answer.error_code


def _words(code: int) -> str:
    known = code in KafkaErrorCode._value2member_map_
    return f"it answers {KafkaErrorCode(code).name if known else f'error {code}'}"


# -- where the logs diverge --------------------------------------------------------------------------------------------


class _Open(NamedTuple):
    """A search for the offset where one log diverges from the best one."""

    partition: TopicPartition
    better: int
    other: int
    search: Generator[Side, EpochEnd | None, int]


async def _find_divergences(asked: Mapping[int, _AskedBroker], questions: Sequence[Question]) -> None:
    """For logs whose last epochs differ, find how much of the worse one is also in the best one."""
    waiting: list[tuple[_Open, Side]] = []
    for question in questions:
        for one in _searches(asked, question):
            _go_on(asked, one, None, waiting)
    while waiting:
        ask: dict[int, dict[TopicPartition, int]] = {}
        later: list[tuple[_Open, Side]] = []
        now: list[tuple[_Open, int]] = []
        for one, side in waiting:
            broker = one.better if side.of_better else one.other
            if one.partition in ask.setdefault(broker, {}):
                later.append((one, side))  # a request can ask about a partition only once
            else:
                ask[broker][one.partition] = side.epoch
                now.append((one, broker))
        ends: dict[int, dict[TopicPartition, EpochEnd | None]] = {broker: {} for broker in ask}
        await _together(_ask_epoch_ends(asked[broker], epochs, broker, ends) for broker, epochs in ask.items())
        waiting = later
        for one, broker in now:
            if one.partition in ends[broker]:
                _go_on(asked, one, ends[broker][one.partition], waiting)


async def _ask_epoch_ends(
    one: _AskedBroker,
    epochs: Mapping[TopicPartition, int],
    broker: int,
    ends: dict[int, dict[TopicPartition, EpochEnd | None]],
) -> None:
    """Store the broker's answers in ``ends``.  Without one, the only bound on the loss is the whole log."""
    if one.logs is not None:
        try:
            ends[broker] = await one.epoch_ends(one.logs, epochs)
        except (OSError, FrameError):
            await one.hang_up()


def _searches(asked: Mapping[int, _AskedBroker], question: Question) -> list[_Open]:
    tp = question.partition
    ends = {broker: asked[broker].ends[tp] for broker in question.brokers if tp in asked[broker].ends}
    best = Evidence(ends).best(question.brokers)
    if best is None or ends[best].epoch < 0:
        return []
    return [
        _Open(tp, best, broker, divergence(ends[best], end))
        for broker, end in ends.items()
        if broker != best and 0 <= end.epoch != ends[best].epoch
    ]


def _go_on(
    asked: Mapping[int, _AskedBroker], one: _Open, answer: EpochEnd | None, waiting: list[tuple[_Open, Side]]
) -> None:
    try:
        waiting.append((one, one.search.send(answer)))
    except StopIteration as end:
        asked[one.other].diverging[one.partition] = end.value
    except IncoherentAnswersError:
        pass  # the whole log may be lost


def _evidence(asked: Mapping[int, _AskedBroker], question: Question) -> Evidence:
    tp = question.partition
    replicas = {broker: asked[broker] for broker in question.brokers}
    return Evidence(
        {broker: one.ends[tp] for broker, one in replicas.items() if tp in one.ends},
        {broker: one.silent.get(tp, one.why_silent) for broker, one in replicas.items() if tp not in one.ends},
        {broker: one.diverging[tp] for broker, one in replicas.items() if tp in one.diverging},
        tuple(broker for broker, one in replicas.items() if not one.heard),
    )
