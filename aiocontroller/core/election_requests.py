"""Decides which partitions of an election request get an election, and what is answered for each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Strategy
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.request_content import ElectionType

Answer = tuple[KafkaErrorCode, str]
Answers = dict[TopicPartition, Answer]

DONE: Answer = (KafkaErrorCode.NONE, "")
FIRST_WITH_NOT_NEEDED = (2, 4)
"""Tools of older releases do not know ELECTION_NOT_NEEDED and report it as a failure."""


def every_partition(context: ControllerContext) -> tuple[TopicPartition, ...]:
    """The partitions that brokers know of: Kafka takes all partitions from its metadata cache."""
    table = context.table
    led = (row for row in table.rows() if table.isr_of[row] != NO_ISR and not table.topic(row).deleting)
    return tuple(table.topic_partition(row) for row in led)


def strategy_of(election_type: ElectionType) -> Strategy:
    """ElectionType.UNCLEAN elects like an offline partition, with replicas outside the ISR allowed."""
    return Strategy.PREFERRED if election_type is ElectionType.PREFERRED else Strategy.OFFLINE


def refusal(context: ControllerContext, row: int, election_type: ElectionType) -> Answer | None:
    """Why the partition gets no election, or None.  ``row`` is -1 for a partition that does not exist."""
    table = context.table
    if row < 0:
        return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
    if table.topic(row).deleting:
        return KafkaErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted"
    if table.isr_of[row] == NO_ISR:
        return KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "The partition has never had a leader"
    leader, replicas = table.leader[row], table.replicas(row)
    if election_type is ElectionType.PREFERRED:
        needed = not replicas or leader != context.leader_order()(replicas)[0]
    else:
        needed = leader not in context.live
    return None if needed else (KafkaErrorCode.ELECTION_NOT_NEEDED, "The leader is the right one already")


def answers_for_failed(
    context: ControllerContext,
    asked: Iterable[int],
    elected: Collection[int],
    failed: Mapping[int, str],
    election_type: ElectionType,
) -> Answers:
    """The answers for the partitions whose election has failed (row -> why)."""
    code = KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if election_type is ElectionType.PREFERRED:
        code = KafkaErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    topic_partition = context.table.topic_partition
    return {
        topic_partition(row): (code, failed.get(row, "no leader was elected")) for row in asked if row not in elected
    }


def answers_after_questions(context: ControllerContext, partitions: Iterable[TopicPartition]) -> Answers:
    """The answers for unclean elections that had to wait until replicas had reported their logs."""
    answers: Answers = {}
    for tp in partitions:
        refused = refusal(context, context.table.row(*tp), ElectionType.UNCLEAN)
        if refused is None:
            answers[tp] = KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no leader was elected"
        else:
            answers[tp] = DONE if refused[0] is KafkaErrorCode.ELECTION_NOT_NEEDED else refused
    return answers


def presented(answers: Answers, *, named: bool, release: tuple[int, ...]) -> Answers:
    """The answers as the client understands them; without names, only those of partitions that needed an election."""
    not_needed = KafkaErrorCode.ELECTION_NOT_NEEDED
    if not named:
        return {tp: answer for tp, answer in answers.items() if answer[0] != not_needed}
    if release < FIRST_WITH_NOT_NEEDED:
        return {tp: DONE if answer[0] == not_needed else answer for tp, answer in answers.items()}
    return answers
