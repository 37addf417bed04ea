"""What a controlled shutdown moves, which requests are refused, what the broker still leads."""

from __future__ import annotations

import pytest

from aiocontroller.core.broker_starts import BrokerStarts, Incarnation
from aiocontroller.core.controlled_shutdown import Moves, check_request, hosted, is_unproven, plan_moves, still_led
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import NO_LEADER, UNKNOWN_BROKER_EPOCH, TopicPartition
from tests.builders import ctx, lead


@pytest.mark.parametrize(
    "broker, epoch, error",
    [
        (1, 101, KafkaErrorCode.NONE),
        (1, 102, KafkaErrorCode.NONE),
        (1, UNKNOWN_BROKER_EPOCH, KafkaErrorCode.NONE),
        (1, 100, KafkaErrorCode.STALE_BROKER_EPOCH),
        (9, 101, KafkaErrorCode.BROKER_NOT_AVAILABLE),
        (9, UNKNOWN_BROKER_EPOCH, KafkaErrorCode.BROKER_NOT_AVAILABLE),
    ],
)
def test_requests_of_other_incarnations_are_refused(broker: int, epoch: int, error: KafkaErrorCode) -> None:
    assert check_request(ctx(brokers=2), broker, epoch) is error


def test_leaders_move_and_followers_leave() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2], [2, 1], [1], [3, 2]], "u": [[1, 2]]})
    context.queue_topic_deletion(["u"])
    rows = hosted(context, 1)
    assert list(rows) == [0, 1, 2]
    assert plan_moves(context, 1, rows) == Moves([0], [1]), "a sole replica stays where it is"


def test_partitions_that_never_had_a_leader_stay() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2], [1, 2]]}, online=False)
    lead(context, "t-1", 2, (2, 1))
    rows = hosted(context, 1)
    assert list(rows) == [1]
    assert plan_moves(context, 1, rows) == Moves([], [1])
    assert plan_moves(context, 1, []) == Moves([], [])


def test_what_the_broker_leads_even_so() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2], [1, 2]]})
    moves = plan_moves(context, 1, hosted(context, 1))
    lead(context, "t-0", 2, (2,))
    assert still_led(context, 1, moves) == [TopicPartition("t", 1)]


@pytest.mark.parametrize("clean_from, leader, isr, deleting, unproven", [
    (101, NO_LEADER, (1,), False, True),
    (101, NO_LEADER, (2, 1), False, True),
    (102, NO_LEADER, (1,), False, True),  # a log directory has failed since
    (100, NO_LEADER, (1,), False, False),
    (0, NO_LEADER, (1,), False, False),
    (101, 1, (1,), False, False),  # it leads with what it has
    (101, 2, (2, 1), False, False),  # it has caught up
    (101, NO_LEADER, (2,), False, False),
    (101, NO_LEADER, (1,), True, False),
])  # fmt: skip
def test_who_stops_before_its_log_was_compared(
    clean_from: int, leader: int, isr: tuple[int, ...], deleting: bool, unproven: bool
) -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2], [1, 2]]})
    lead(context, "t-0", 2, (2,))
    lead(context, "t-1", leader, isr)
    if deleting:
        context.queue_topic_deletion(["t"])
    assert not is_unproven(context, 1, hosted(context, 1))
    context.keep_starts(BrokerStarts(1, 1, 2, 1, {1: Incarnation(101, clean_from)}))
    assert is_unproven(context, 1, hosted(context, 1)) == unproven
    assert not is_unproven(context, 1, [])
