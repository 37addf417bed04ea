"""ISRs change: by a leader's ``AlterPartition`` request, or by notification znodes of older inter-broker protocols."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiocontroller.controller.brokers import on_replicas_become_offline
from aiocontroller.controller.leadership_writes import journal_isrs, names, read_states_again
from aiocontroller.controller.moving_isrs import follow_isrs
from aiocontroller.controller.reassignment import drop_strangers, maybe_complete_reassignment
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import trigger_online_partition_state_change
from aiocontroller.core.alter_partition import (
    AlterPartitionResult,
    Verdict,
    check_partition,
    check_request,
    resolve,
    strangers,
)
from aiocontroller.core.decisions import Decisions, commit
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    AlterPartitionReceived,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    PartitionReassignmentIsrChange,
    UpdateMetadataResponseReceived,
)
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.overlap import overlapped
from aiocontroller.zookeeper.writes import Writes

log = logging.getLogger(__name__)


WRITTEN_AT_ONCE = 1_000
"""A step of a write takes whole requests until it has this many partitions."""

UNKNOWN = (KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaErrorCode.UNKNOWN_TOPIC_ID)
"""Errors after which a broker does not retry.  A controller that was deposed before the topic was created must not send
them, as Kafka's may."""

Resolved = tuple[AlterPartitionReceived, list[int]]
"""A request, and the rows of those of its partitions that exist."""


class Begun(NamedTuple):
    verdicts: list[list[Verdict]]
    """For each request in the step."""
    decisions: Decisions
    writes: Writes


async def alter_partition(shell: ControllerShell, events: Sequence[AlterPartitionReceived]) -> None:
    """Handle requests of several brokers together, as long as no two name the same partition."""
    waiting = deque(events)
    while waiting:
        await _alter_together(shell, _take_disjoint(shell, waiting))


def _take_disjoint(shell: ControllerShell, waiting: deque[AlterPartitionReceived]) -> list[Resolved]:
    """Take requests from the left; a second one about a partition waits, to be judged by the result of the first."""
    context = shell.context
    taken: list[Resolved] = []
    seen: set[int] = set()
    while waiting:
        event = waiting[0]
        error = check_request(context, event)
        if error:
            event.reply.answer(error)
            waiting.popleft()
            continue
        rows = [row for c in event.partitions if (row := resolve(context, c.topic, c.partition)[0]) >= 0]
        if not seen.isdisjoint(rows):
            break
        seen.update(rows)
        taken.append((event, rows))
        waiting.popleft()
    return taken


async def _alter_together(shell: ControllerShell, requests: list[Resolved]) -> None:
    """Write the valid changes, answer each partition separately, then update all metadata caches.

    The leader delays acknowledgements until it is answered, so it comes first; Kafka updates the caches first.  While
    one step is answered, ZooKeeper works on the next.
    """

    refused: dict[int, list[int]] = {}

    async def begin(step: list[Resolved]) -> Begun:
        return await _write(shell, step)

    async def finish(step: list[Resolved], begun: Begun) -> None:
        outcome = await _finish(shell, begun)
        refused.update(_refused_strangers(shell, step, begun.verdicts))
        for (event, _), verdicts in zip(step, begun.verdicts, strict=True):
            event.reply.answer(
                [
                    _result(shell, change.topic, change.partition, verdict, outcome.get(verdict.row))
                    for change, verdict in zip(event.partitions, verdicts, strict=True)
                ]
            )

    await overlapped(_steps(requests), begin, finish)
    known = [row for _, rows in requests for row in rows]
    if known:
        await shell.send_update_metadata(shell.context.brokers, known)
    await maybe_complete_reassignment(shell, known)
    await drop_strangers(shell, refused)


def _refused_strangers(
    shell: ControllerShell, step: list[Resolved], verdicts: list[list[Verdict]]
) -> dict[int, list[int]]:
    """row -> brokers that its leader wrongly takes for replicas, and would propose again; Kafka accepts them."""
    return {
        verdict.row: strangers(shell.context, verdict.row, change.isr)
        for (event, _), each in zip(step, verdicts, strict=True)
        for change, verdict in zip(event.partitions, each, strict=True)
        if verdict.error_code == KafkaErrorCode.INVALID_REQUEST
        and event.broker == shell.context.table.leader[verdict.row]
    }


def _steps(requests: Iterable[Resolved]) -> list[list[Resolved]]:
    steps: list[list[Resolved]] = []
    size = WRITTEN_AT_ONCE
    for request in requests:
        if size >= WRITTEN_AT_ONCE:
            steps.append([])
            size = 0
        steps[-1].append(request)
        size += len(request[1])
    return steps


async def _write(shell: ControllerShell, step: list[Resolved]) -> Begun:
    """Validate the changes, and write the valid ones, each partition once."""
    context = shell.context
    verdicts = [
        [check_partition(context, change, event.broker, event.version) for change in event.partitions]
        for event, _ in step
    ]
    accepted = {v.row: v.write for each in verdicts for v in each if v.write is not None}
    decisions = Decisions(list(accepted), list(accepted.values()), [()] * len(accepted))
    if not accepted:
        if any(verdict.error_code in UNKNOWN for each in verdicts for verdict in each):
            await shell.zk.check_controller_epoch(fence=context.epoch_zk_version)
        return Begun(verdicts, decisions, Writes(0))
    writes = await shell.zk.set_topic_partition_states(
        *names(shell, decisions.rows), decisions.leaderships, fence=context.epoch_zk_version
    )
    return Begun(verdicts, decisions, writes)


async def _finish(shell: ControllerShell, begun: Begun) -> dict[int, KafkaErrorCode]:
    """Apply the changes that ZooKeeper accepted; returns row -> error code."""
    _, decisions, writes = begun
    if not decisions.rows:
        return {}
    ok = [i for i, code in enumerate(writes.code) if code == Code.OK]
    written = decisions.select(ok)
    commit(shell.context.table, written, [writes.version[i] for i in ok])
    journal_isrs(shell, written.rows)
    await read_states_again(
        shell, [row for row, code in zip(decisions.rows, writes.code, strict=True) if code != Code.OK]
    )
    return {
        row: KafkaErrorCode.NONE
        if code == Code.OK
        else KafkaErrorCode.INVALID_UPDATE_VERSION
        if code == Code.BAD_VERSION
        else KafkaErrorCode.UNKNOWN_SERVER_ERROR
        for row, code in zip(decisions.rows, writes.code, strict=True)
    }


def _result(
    shell: ControllerShell, topic: str | bytes, partition: int, verdict: Verdict, written: KafkaErrorCode | None
) -> AlterPartitionResult:
    error = verdict.error_code if written is None else written
    leadership = shell.context.table.leadership(verdict.row) if error == KafkaErrorCode.NONE else None
    return AlterPartitionResult(topic, partition, error, leadership)


async def isr_change_notification(shell: ControllerShell, event: IsrChangeNotification) -> None:
    """Leaders of inter.broker.protocol.version < 2.7 write their ISRs themselves and say here for which partitions."""
    names = await shell.zk.get_all_isr_change_notifications(watch=True)
    if not names:
        return
    partitions, bad = await shell.zk.get_partitions_from_isr_change_notifications(names)
    shell.report_bad_znodes(bad)
    table = shell.context.table
    rows = sorted({row for tp in partitions if (row := table.row(tp.topic, tp.partition)) >= 0})
    unread = await read_states_again(shell, rows)
    found = [row for row in rows if row not in unread]
    if found:
        await shell.send_update_metadata(shell.context.brokers, found)
        await maybe_complete_reassignment(shell, found)
        if not shell.context.table.not_online.keys().isdisjoint(found):
            await trigger_online_partition_state_change(shell)  # an eligible leader may have joined the ISR
    await shell.zk.delete_isr_change_notifications(names, fence=shell.context.epoch_zk_version)


async def partition_reassignment_isr_change(
    shell: ControllerShell, events: Sequence[PartitionReassignmentIsrChange]
) -> None:
    """An added replica may have joined the ISR; the leader's notification comes later."""
    table, under_way = shell.context.table, shell.context.partitions_being_reassigned
    rows = sorted({row for event in events if (row := table.row(event.topic, event.partition)) in under_way})
    await follow_isrs(shell, rows)
    await maybe_complete_reassignment(shell, rows)


async def leader_and_isr_response_received(shell: ControllerShell, event: LeaderAndIsrResponseReceived) -> None:
    """Take replicas offline whose log directory has failed; other errors are normal, or for the broker to resolve.

    After a failover, brokers answer STALE_CONTROLLER_EPOCH for each partition whose leader epoch they know already.
    """
    context = shell.context
    broker = context.brokers.get(event.broker)
    if broker is None or broker.epoch != event.broker_epoch:
        return
    if event.error_code:
        _log_refusal(event.broker, "LeaderAndIsr", event.error_code)
        return
    offline: list[int] = []
    refused: set[int] = set()
    for topic, partition, code in event.errors:
        row, _ = resolve(context, topic, partition)
        if row >= 0 and code == KafkaErrorCode.KAFKA_STORAGE_ERROR:
            offline.append(row)
        elif row >= 0:
            refused.add(row)
    before = context.offline_dirs.get(event.broker, ())
    online = [row for row in event.rows if row in before and row not in refused] if before else []
    newly = context.set_offline_dir_replicas(event.broker, offline, online)
    if newly:
        log.error("Log directory failures on broker %d: %s", event.broker, shell.sample(newly))
        await on_replicas_become_offline(shell, {event.broker: newly})


async def update_metadata_response_received(shell: ControllerShell, event: UpdateMetadataResponseReceived) -> None:
    if event.error_code:
        _log_refusal(event.broker, "UpdateMetadata", event.error_code)


def _log_refusal(broker: int, request: str, code: int) -> None:
    """Log a refusal: a stale broker epoch is a bounce about to be reported; other errors need attention."""
    level = logging.INFO if code == KafkaErrorCode.STALE_BROKER_EPOCH else logging.ERROR
    log.log(level, "Broker %d refused %s with %s", broker, request, _named(code))


def _named(code: int) -> str:
    try:
        return KafkaErrorCode(code).name
    except ValueError:
        return f"error {code}"
