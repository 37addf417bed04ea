"""ISRs that leaders write themselves, below inter.broker.protocol.version 2.7 (``IsrChangeNotification``).

With later protocols leaders ask for the change: ``alter_partition``.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.controller.leadership_writes import read_states_again
from aiocontroller.controller.moving_isrs import follow_isrs
from aiocontroller.controller.reassignment import maybe_complete_reassignment
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import trigger_online_partition_state_change
from aiocontroller.core.events import IsrChangeNotification, PartitionReassignmentIsrChange


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
