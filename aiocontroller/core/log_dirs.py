"""Decides from a broker's answer to LeaderAndIsr which of its replicas are on a failed log directory."""

from __future__ import annotations

from typing import NamedTuple

from aiocontroller.core.alter_partition import resolve
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.context_changes import LogDirs
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import LeaderAndIsrResponseReceived


class LogDirChanges(NamedTuple):
    """What a broker's answer says of its log directories."""

    change: LogDirs
    newly_offline: list[int]
    """Rows whose replica there has failed just now, ascending."""


def read_answer(context: ControllerContext, event: LeaderAndIsrResponseReceived) -> LogDirChanges | None:
    """The changes that the answer shows; None if another incarnation of the broker sent it.

    Errors other than KAFKA_STORAGE_ERROR are normal, or for the broker to resolve: after a failover, brokers answer
    STALE_CONTROLLER_EPOCH for each partition whose leader epoch they know already.  An error for an id that two topics
    share may be that of either, so both stay as they were.
    """
    broker = context.brokers.get(event.broker)
    if broker is None or broker.epoch != event.broker_epoch:
        return None
    offline: list[int] = []
    refused: set[int] = set()  # membership only
    unclear: set[tuple[str | bytes, int]] = set()  # membership only
    for topic, partition, code in event.errors:
        row, _ = resolve(context, topic, partition)
        if row >= 0 and code == KafkaErrorCode.KAFKA_STORAGE_ERROR:
            offline.append(row)
        elif row >= 0:
            refused.add(row)
        else:
            unclear.add((topic, partition))
    table = context.table
    before = context.offline_dirs.get(event.broker, set())
    failed = [row for row in event.rows if row in before] if before else []
    online = [row for row in failed if row not in refused and (table.topic(row).id, table.index_of[row]) not in unclear]
    return LogDirChanges(LogDirs(event.broker, offline, online), sorted(set(offline) - before))
