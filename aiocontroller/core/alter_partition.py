"""Decides whether an ISR change may be written: the checks of Kafka's ``AlterPartitionReceived``, in its order.

Departures from Kafka: the sender must lead the partition, and an ISR must contain the leader, only replicas, and each
broker once.  Version 0 may add a broker that is not live: brokers up to 3.0 treat a refusal as final until the next
leader epoch, and their own controllers did not refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import AlterPartition, AlterPartitionReceived
from aiocontroller.core.ids import NO_TOPIC_ID, RECOVERED, RECOVERING, LeaderAndIsr


class AlterPartitionResult(msgspec.Struct, frozen=True, gc=False):
    """One partition's answer: an error, or the leadership that now holds."""

    topic: str | bytes
    """As the request named it: a name or an id."""
    partition: int
    error_code: int
    leadership: LeaderAndIsr | None = None


class Verdict(NamedTuple):
    """``write`` is the leadership to write; if it is None, ``error_code`` is the answer (NONE: nothing changes)."""

    row: int
    error_code: KafkaErrorCode
    write: LeaderAndIsr | None = None


def resolve(context: ControllerContext, topic: str | bytes, partition: int) -> tuple[int, KafkaErrorCode]:
    """The row of a partition named by topic name or id, or -1 and the error code for an unknown name or id."""
    table = context.table
    if isinstance(topic, bytes):
        known = table.topic_by_id.get(topic) if topic != NO_TOPIC_ID else None
        if known is None:
            return -1, KafkaErrorCode.UNKNOWN_TOPIC_ID
        topic = known.name
    row = table.row(topic, partition)
    return row, KafkaErrorCode.NONE if row >= 0 else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def check_request(context: ControllerContext, request: AlterPartitionReceived) -> KafkaErrorCode:
    """The error that applies to the whole request, or NONE."""
    broker = context.brokers.get(request.broker)
    if broker is None or broker.epoch != request.broker_epoch:
        return KafkaErrorCode.STALE_BROKER_EPOCH
    return KafkaErrorCode.NONE


def check_partition(context: ControllerContext, change: AlterPartition, broker: int, version: int) -> Verdict:
    """The verdict on one partition of a request by ``broker``; ``version`` decides the code for ineligible replicas."""
    row, error = resolve(context, change.topic, change.partition)
    current = context.table.leadership(row) if row >= 0 else None
    if current is None:
        return Verdict(row, error or KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if change.partition_epoch > current.partition_epoch or change.leader_epoch > current.leader_epoch:
        return Verdict(row, KafkaErrorCode.NOT_CONTROLLER)  # the broker has a newer epoch: we are stale
    if change.leader_epoch < current.leader_epoch:
        return Verdict(row, KafkaErrorCode.FENCED_LEADER_EPOCH)
    if change.isr == current.isr and change.recovery_state == current.recovery_state:
        return Verdict(row, KafkaErrorCode.NONE)  # a repeated request whose answer was lost
    if change.partition_epoch < current.partition_epoch:
        return Verdict(row, KafkaErrorCode.INVALID_UPDATE_VERSION)
    if not _recovery_is_consistent(change, current):
        return Verdict(row, KafkaErrorCode.INVALID_REQUEST)
    if (
        broker != current.leader
        or not change.isr
        or len(set(change.isr)) != len(change.isr)
        or current.leader not in change.isr
    ):
        return Verdict(row, KafkaErrorCode.INVALID_REQUEST)  # never written: an ISR holds its leader
    outside = strangers(context, row, change.isr)
    if not all(replica in context.live for replica in change.isr) and (version > 0 or outside):
        ineligible = KafkaErrorCode.INELIGIBLE_REPLICA if version >= 2 else KafkaErrorCode.OPERATION_NOT_ATTEMPTED
        return Verdict(row, ineligible)
    if outside:
        return Verdict(row, KafkaErrorCode.INVALID_REQUEST)  # a leader must be a replica
    return Verdict(
        row,
        KafkaErrorCode.NONE,
        LeaderAndIsr(
            current.leader,
            current.leader_epoch,
            change.isr,
            context.epoch,
            current.partition_epoch,
            change.recovery_state,
        ),
    )


def strangers(context: ControllerContext, row: int, isr: Sequence[int]) -> list[int]:
    """Brokers in the ISR that are not replicas."""
    replicas = context.table.replicas(row)
    return [broker for broker in isr if broker not in replicas]


def _recovery_is_consistent(change: AlterPartition, current: LeaderAndIsr) -> bool:
    if change.recovery_state == RECOVERING:
        return len(change.isr) == 1 and current.recovery_state == RECOVERING
    return change.recovery_state == RECOVERED
