"""ISRs change: by a leader's ``AlterPartition`` request, or by notification znodes of older inter-broker protocols."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from aiocontroller.controller import broker_starts
from aiocontroller.controller.brokers import on_replicas_become_offline
from aiocontroller.controller.leadership_writes import carry_out_pieces, read_states_again
from aiocontroller.controller.moving_isrs import follow_isrs
from aiocontroller.controller.reassignment import drop_non_replicas, maybe_complete_reassignment
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import trigger_online_partition_state_change
from aiocontroller.core.alter_partition import (
    IsrChange,
    Judged,
    Resolved,
    notable_requests,
    refused_non_replicas,
    take_disjoint,
)
from aiocontroller.core.apply import apply
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    AlterPartitionReceived,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    PartitionReassignmentIsrChange,
    UpdateMetadataResponseReceived,
)
from aiocontroller.core.log_dirs import read_answer

log = logging.getLogger(__name__)


WRITTEN_AT_ONCE = 1_000
"""A step of a write takes whole requests until it has this many partitions."""


async def alter_partition(shell: ControllerShell, events: Sequence[AlterPartitionReceived]) -> None:
    """Handle requests of several brokers together, as long as no two name the same partition."""
    waiting = deque(events)
    while waiting:
        taken = take_disjoint(shell.context, waiting)
        for event, error in taken.refused:
            event.reply.answer(error)
        await _alter_together(shell, taken.requests)


async def _alter_together(shell: ControllerShell, requests: list[Resolved]) -> None:
    """Write the valid changes, answer each partition separately, then update all metadata caches.

    The leader delays acknowledgements until it is answered, so it comes first; Kafka updates the caches first.  While
    one step is answered, ZooKeeper works on the next.
    """
    changes = [IsrChange(step) for step in _steps(requests)]
    before = {row: shell.context.table.isr(row) for _, rows in requests for row in rows}
    await carry_out_pieces(shell, changes)
    for change in changes:
        _note_requests(shell, change.judged, before)
    refused: dict[int, list[int]] = {}
    for change in changes:
        refused |= refused_non_replicas(shell.context, change.judged)
    known = [row for _, rows in requests for row in rows]
    if known:
        await shell.send_update_metadata(shell.context.brokers, known)
    await maybe_complete_reassignment(shell, known)
    await drop_non_replicas(shell, refused)


def _note_requests(shell: ControllerShell, judged: Judged, before: Mapping[int, Sequence[int]]) -> None:
    """Record which removals leaders asked for, and which requests were refused; removals are evidence of sickness.

    A leader repeats what was refused, perhaps many times a second: that is recorded once.
    """
    for event, asked, verdict in notable_requests(judged, before):
        removed = [replica for replica in before[verdict.row] if replica not in asked.isr]
        refusal = (event.broker, asked.isr, verdict.error_code)
        if verdict.error_code and shell.refused_isrs.get(verdict.row) == refusal:
            continue
        if verdict.error_code:
            shell.refused_isrs[verdict.row] = refusal
        else:
            shell.refused_isrs.pop(verdict.row, None)
        name = shell.topic_partition(verdict.row)
        shell.journal.append(
            "isr_request",
            topic=name.topic,
            partition=name.partition,
            broker=event.broker,
            broker_epoch=event.broker_epoch,
            isr=asked.isr,
            brokers=removed or None,
            code=int(verdict.error_code) or None,
        )
        if shell.sickness is not None and not verdict.error_code:
            shell.sickness.accused(event.broker, removed)


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


async def isr_change_notification(shell: ControllerShell, event: IsrChangeNotification) -> None:
    """Read the ISRs that leaders of inter.broker.protocol.version < 2.7 have written and announce here."""
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
    table, moving = shell.context.table, shell.context.partitions_being_reassigned
    rows = sorted({row for event in events if (row := table.row(event.topic, event.partition)) in moving})
    await follow_isrs(shell, rows)
    await maybe_complete_reassignment(shell, rows)


async def leader_and_isr_response_received(shell: ControllerShell, event: LeaderAndIsrResponseReceived) -> None:
    """Take replicas offline whose log directory has failed."""
    found = read_answer(shell.context, event)
    if found is None:
        return
    if event.error_code:
        _log_refusal(event.broker, "LeaderAndIsr", event.error_code)
        return
    apply(shell.context, found.change)
    if found.newly_offline:
        log.error("Log directory failures on broker %d: %s", event.broker, shell.sample(found.newly_offline))
        shell.journal.append("broker", broker=event.broker, detail="log directory failed")
        await broker_starts.disk_failed(shell, event.broker)
        await on_replicas_become_offline(shell, {event.broker: found.newly_offline})


async def update_metadata_response_received(shell: ControllerShell, event: UpdateMetadataResponseReceived) -> None:
    """Log a refusal; other answers carry no information."""
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
