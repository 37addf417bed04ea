"""``AlterPartition``: a leader asks to change an ISR (``AlterPartitionReceived``).

Leaders of older inter-broker protocols write ISRs themselves: ``isr_change_notifications``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from aiocontroller.controller.leadership_writes import carry_out_pieces
from aiocontroller.controller.reassignment import drop_non_replicas, maybe_complete_reassignment
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.alter_partition import (
    IsrChange,
    Judged,
    Resolved,
    notable_requests,
    refused_non_replicas,
    take_disjoint,
)
from aiocontroller.core.events import AlterPartitionReceived

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
