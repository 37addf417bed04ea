"""Early detection: a broker that seems to be dead is treated as if it had asked for a controlled shutdown.

Its leaders move to other in-sync replicas, and it leaves every ISR that has another member, by ordinary fenced writes
with higher leader epochs.  Nothing is done that a controlled shutdown would not do to a live broker: its registration
stays, no leader is elected from outside the ISR, and no ISR becomes empty.  ``docs/early-detection.md`` explains why
no record acknowledged with ``acks=all`` can be lost, whether the suspicion is right or wrong.

Unlike in a controlled shutdown, the broker gets no StopReplica.  If it is alive, it would obey that much later, and
then ignore the LeaderAndIsr of the same leader epoch that starts the replica again.

The suspicion ends when ZooKeeper confirms it (the registration vanishes, ``BrokerChange`` does the rest), when another
incarnation registers, or when the broker answers steadily: then it is handled like a broker that starts.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from aiocontroller.controller import broker_starts
from aiocontroller.controller.broker_fencing import schedule_fencing
from aiocontroller.controller.brokers import on_broker_startup
from aiocontroller.controller.fast_bounce import schedule_removal
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import handle_partition_state_changes, remove_from_isr
from aiocontroller.core import suspicions as plan
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import BrokersSuspected, BrokersTrusted
from aiocontroller.core.election import Strategy
from aiocontroller.core.events import SuspectsChange
from aiocontroller.core.failure_detector import Suspicion
from aiocontroller.core.states import PartitionState

log = logging.getLogger(__name__)


async def suspects_change(shell: ControllerShell, event: SuspectsChange) -> None:
    """Update the context to the failure detector's present suspects, which may have changed since the event."""
    context = shell.context
    assert shell.channels is not None
    await broker_starts.prove(shell)
    suspects = shell.channels.suspects()
    trusted = plan.compare_suspects(context, suspects).trusted
    if trusted:
        await _take_back(shell, trusted)
    alarming = [s for s in plan.compare_suspects(context, suspects).alarming if shell.channels.confirm(s.peer)]
    if alarming:
        await _move_away(shell, alarming)


async def _move_away(shell: ControllerShell, suspicions: Sequence[Suspicion]) -> None:
    context, table = shell.context, shell.context.table
    suspects = [suspicion.peer for suspicion in suspicions]
    apply(context, BrokersSuspected(suspects))
    shell.stop_awaiting_leaders(suspects)
    led = {broker: plan.led_by(context, broker) for broker in suspects}
    batch = shell.new_batch()
    await handle_partition_state_changes(
        shell,
        sorted(row for rows in led.values() for row in rows),
        PartitionState.OnlinePartition,
        Strategy.CONTROLLED_SHUTDOWN,
        batch=batch,
    )
    followed = {broker: plan.followed_by(context, broker) for broker in suspects}
    await remove_from_isr(shell, followed, batch)
    await shell.send(batch, metadata_at_once=True)
    for suspicion in suspicions:
        broker = suspicion.peer
        schedule_removal(shell, broker)
        schedule_fencing(shell, suspicion)
        shell.counts.alarms.inc()
        shell.journal.append(
            "suspicion",
            event="alarm",
            state="broker",
            broker=broker,
            broker_epoch=suspicion.epoch,
            partitions=len(led[broker]) + len(followed[broker]),
            duration_us=int(suspicion.quiet_s * 1e6),
            detail=suspicion.reason,
        )
        log.warning(
            "Broker %d seems to be dead (%s, silent for %.3f s): %d of %d leaders moved, removed from %d more ISRs",
            broker,
            suspicion.reason,
            suspicion.quiet_s,
            sum(table.leader[row] != broker for row in led[broker]),
            len(led[broker]),
            len(followed[broker]),
        )


async def _take_back(shell: ControllerShell, brokers: Sequence[int]) -> None:
    """Trust brokers whose same incarnation answers again, after a false alarm or because it was frozen."""
    context = shell.context
    apply(context, BrokersTrusted(brokers))
    for broker in brokers:
        shell.counts.false_alarms.inc()
        shell.journal.append(
            "suspicion",
            event="false alarm",
            state="broker",
            broker=broker,
            broker_epoch=context.brokers[broker].epoch,
        )
    log.warning("Brokers %s answer again and are no longer suspected", list(brokers))
    await on_broker_startup(shell, [broker for broker in brokers if broker in context.live])
