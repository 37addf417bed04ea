"""Decides what a broker's controlled shutdown moves: its leaders first, then its followers leave the ISRs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aiocontroller.core.columns import take
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import NO_LEADER, UNKNOWN_BROKER_EPOCH, TopicPartition


def check_request(context: ControllerContext, broker: int, broker_epoch: int) -> KafkaErrorCode:
    """The error of the request, or NONE.  Old releases send no epoch."""
    known = context.brokers.get(broker)
    if known is None:
        return KafkaErrorCode.BROKER_NOT_AVAILABLE
    if broker_epoch != UNKNOWN_BROKER_EPOCH and broker_epoch < known.epoch:
        return KafkaErrorCode.STALE_BROKER_EPOCH
    return KafkaErrorCode.NONE


def is_unproven(context: ControllerContext, broker: int, rows: Sequence[int]) -> bool:
    """Whether one of these partitions, which the broker hosts, has had no leader since the broker, a member of its ISR,
    started uncleanly.

    Then its log may still lack what the ISR had.  A clean stop does not change that: the next start counts as unclean,
    too.
    """
    if broker not in context.unproven_brokers():
        return False
    table = context.table
    leaders, isrs = take(rows, table.leader, table.isr_of)
    members = {isr for isr in set(isrs) if broker in table.isrs.values[isr]}  # membership only
    return any(leader == NO_LEADER and isr in members for leader, isr in zip(leaders, isrs, strict=True))


class Moves(NamedTuple):
    """What moves away from a broker in controlled shutdown, as rows."""

    led: list[int]
    """Partitions that another replica is to lead."""
    followed: list[int]
    """Partitions whose ISR the broker leaves."""


def hosted(context: ControllerContext, broker: int) -> Sequence[int]:
    """The partitions with leadership on the broker, except of topics that are being deleted."""
    table = context.table
    return table.with_leadership(table.not_deleting(table.partitions_on_broker(broker)))


def plan_moves(context: ControllerContext, broker: int, rows: Sequence[int]) -> Moves:
    """Of these partitions, those with other replicas; the others stay as they are, as in Kafka."""
    table = context.table
    assigned, leaders = take(rows, table.assignment_of, table.leader)
    shared = {a for a in set(assigned) if len(table.assignments.values[a].replicas) > 1}  # membership only
    moves = Moves([], [])
    for row, assignment, leader in zip(rows, assigned, leaders, strict=True):
        if assignment in shared:
            (moves.led if leader == broker else moves.followed).append(row)
    return moves


def hears_nothing(moves: Moves, remaining: Sequence[TopicPartition]) -> bool:
    """Whether the broker is sent no request: it hosts nothing, or everything that it hosts stays with it."""
    return not moves.followed and len(remaining) == len(moves.led)


def still_led(context: ControllerContext, broker: int, moves: Moves) -> list[TopicPartition]:
    """The partitions that the broker still leads, because no other replica is in sync."""
    table = context.table
    return [table.topic_partition(row) for row in moves.led if table.leader[row] == broker]
