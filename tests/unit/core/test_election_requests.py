"""Which partitions of an election request get one, and what is answered for each."""

from __future__ import annotations

import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Strategy
from aiocontroller.core.election_requests import (
    DONE,
    answers_for_failed,
    every_partition,
    presented,
    refusal,
    strategy_of,
)
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.request_content import ElectionType
from tests.builders import ctx, lead, row_of

PREFERRED, UNCLEAN = ElectionType.PREFERRED, ElectionType.UNCLEAN
NOT_NEEDED = (KafkaErrorCode.ELECTION_NOT_NEEDED, "The leader is the right one already")


def cluster() -> ControllerContext:
    """``t-0`` is led by its first replica, ``t-1`` by its second, ``t-2`` by a dead one; ``new-0`` by none."""
    context = ctx(brokers=[1, 2, 3], topics={"t": [[1, 2], [1, 2], [3, 1]], "gone": [[2, 1]]}, dead=[3])
    lead(context, "t-1", 2, (2, 1))
    context.queue_topic_deletion(["gone"])
    topic = context.table.add_topic("new")
    context.table.add_partitions(topic, {0: context.table.assignment(0)})
    return context


@pytest.mark.parametrize(
    "name, kind, code",
    [
        ("t-0", PREFERRED, KafkaErrorCode.ELECTION_NOT_NEEDED),
        ("t-1", PREFERRED, None),
        ("t-2", PREFERRED, KafkaErrorCode.ELECTION_NOT_NEEDED),
        ("t-0", UNCLEAN, KafkaErrorCode.ELECTION_NOT_NEEDED),
        ("t-1", UNCLEAN, KafkaErrorCode.ELECTION_NOT_NEEDED),
        ("t-2", UNCLEAN, None),
        ("gone-0", UNCLEAN, KafkaErrorCode.INVALID_TOPIC_EXCEPTION),
        ("new-0", PREFERRED, KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ],
)
def test_who_gets_an_election(name: str, kind: ElectionType, code: KafkaErrorCode | None) -> None:
    context = cluster()
    refused = refusal(context, row_of(context, name), kind)
    assert (refused and refused[0]) == code


def test_unknown_partitions_are_refused() -> None:
    refused = refusal(cluster(), -1, PREFERRED)
    assert refused is not None
    assert refused[0] is KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_without_names_all_partitions_that_brokers_know_are_asked_for() -> None:
    assert every_partition(cluster()) == tuple(TopicPartition("t", n) for n in range(3))


def test_the_kind_decides_strategy_and_error_code() -> None:
    assert (strategy_of(PREFERRED), strategy_of(UNCLEAN)) == (Strategy.PREFERRED, Strategy.OFFLINE)
    context = cluster()
    failed = answers_for_failed(context, [0, 1, 2], {0}, {1: "why"}, PREFERRED)
    assert failed == {
        TopicPartition("t", 1): (KafkaErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "why"),
        TopicPartition("t", 2): (KafkaErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "no leader was elected"),
    }
    [answer] = answers_for_failed(context, [2], set(), {}, UNCLEAN).values()
    assert answer[0] is KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def test_old_tools_do_not_know_that_none_was_needed() -> None:
    done, not_needed = TopicPartition("t", 0), TopicPartition("t", 1)
    answers = {done: DONE, not_needed: NOT_NEEDED}
    assert presented(answers, named=True, release=(2, 4)) == answers
    assert presented(answers, named=True, release=(2, 3)) == {done: DONE, not_needed: DONE}
    assert presented(answers, named=False, release=(2, 3)) == {done: DONE}
