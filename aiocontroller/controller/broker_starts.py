"""Keeps the record of brokers' starts in ZooKeeper (``core.broker_starts``).

The record is written after the starts in it have been dealt with: if a controller ends in between, its successor finds
the same starts again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core import broker_starts as plan
from aiocontroller.core import eligible_replicas
from aiocontroller.core.apply import apply
from aiocontroller.core.broker_starts import BrokerStarts
from aiocontroller.core.context_changes import BrokersReturning, LastEpochsKnown, StartsRecorded
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.events import BrokerChange
from aiocontroller.core.ids import Broker
from aiocontroller.zookeeper.from_aiozk import exc
from aiocontroller.zookeeper.znodes import BadZNode

log = logging.getLogger(__name__)

OLD_SESSION_TIMEOUT_S = 6.0
"""The default of ``zookeeper.session.timeout.ms`` before Kafka 2.5, for brokers that have not reported theirs."""
ELIGIBLE = "aiocontroller.eligible.leader.replicas"


async def read(shell: ControllerShell) -> BrokerStarts | BadZNode | None:
    """Return an earlier controller's record; None if there is none, access is denied, or it is not needed."""
    if not _are_needed(shell):
        return None
    try:
        return await shell.zk.get_broker_starts()
    except exc.NoAuth:
        return None


async def take_over(
    shell: ControllerShell, registered: Sequence[Broker], registrations: int, found: BrokerStarts | BadZNode | None
) -> Sequence[Broker]:
    """At failover, continue an earlier controller's record; returns the brokers that count as registered for now.

    A broker that has started uncleanly since that controller looked is left out, so that the failover elects others as
    if it were dead; afterwards it is taken in as a starting broker.  Kafka's controller would let it go on leading with
    whatever is left of its log.
    """
    if not _are_needed(shell):
        return registered
    kept = shell.policy.eligible_leader_replicas
    if isinstance(found, BadZNode):
        shell.report_bad_znodes([found])
        found = None
    look = plan.taken_over(found, shell.context.epoch, registered, registrations, shell.settings.lowest_min_isr)
    if not kept:
        look = look._replace(starts=plan.without_eligible(look.starts))
    earlier, unheard, ended, starts = dict[int, int](), list[int](), list[int](), look.starts
    if found is not None:
        earlier = {broker: known.epoch for broker, known in found.brokers.items()}
        unheard, ended = look.unheard(found), look.ended(found)
        starts = plan.with_ends_unhandled(look.but_for(unheard, found), ended)
    if unheard:
        log.warning("Brokers %s have started uncleanly since the last controller looked", unheard)
    if unheard or ended:
        shell.queue.append(BrokerChange())  # records them once the failover has dealt with them
    apply(shell.context, LastEpochsKnown(earlier), StartsRecorded(starts), BrokersReturning(unheard))
    await _write(shell)
    return [broker for broker in registered if broker.id not in unheard]


async def pass_on(shell: ControllerShell, epoch: int, fence: int) -> None:
    """Keep the record valid over a term that ends before it has begun: it changes nothing."""
    found = await read(shell)
    if isinstance(found, BrokerStarts) and found.controller_epoch == epoch - 1:
        with suppress(exc.NoAuth, ControllerMovedError):  # then /controller must be deleted all the same
            await shell.zk.set_broker_starts(replace(found, controller_epoch=epoch), fence=fence)


def _are_needed(shell: ControllerShell) -> bool:
    """Whether starts are recorded: recovery needs to know the unclean ones, even if no replica is eligible."""
    return shell.policy.eligible_leader_replicas or shell.config.recovery.compares


async def look(
    shell: ControllerShell, registered: Sequence[Broker], registrations: int, unreadable: Collection[int]
) -> None:
    """Take in which brokers have started, and how; ``record`` follows when that has been dealt with."""
    context = shell.context
    if context.starts is None:
        return
    observed = plan.observed(context.starts, registered, registrations, unreadable, _closed(shell, context.starts))
    for broker in observed.unclean:
        if broker in context.starts.brokers:
            shell.journal.append("unclean_start", broker=broker, broker_epoch=observed.starts.brokers[broker].epoch)
    apply(context, StartsRecorded(observed.starts))


def _closed(shell: ControllerShell, starts: BrokerStarts) -> list[int]:
    """Return the stopping brokers that were alive so recently that their sessions cannot have expired yet.

    A client pings after a third of its session timeout, so its session expires at the earliest two thirds of the
    timeout after it was last alive.  Half is used here, as clocks differ.  ZooKeeper may grant a broker less than it
    asks for, but no less than it granted us, unless the broker asks for less.
    """
    channels, now_s = shell.channels, shell.world.clock.monotonic()
    assert channels is not None

    def was_closed(broker: int) -> bool:
        asked_s = shell.settings.session_s(broker) or OLD_SESSION_TIMEOUT_S
        return now_s - channels.alive_s(broker) <= min(asked_s, shell.zk.client.session_timeout_s) / 2

    return [broker for broker, known in starts.brokers.items() if known.stopping and was_closed(broker)]


async def record(shell: ControllerShell, starts: BrokerStarts | None) -> None:
    """Write the record if it differs from ``starts``, which was written last."""
    context = shell.context
    if context.starts is None:
        return  # not kept, or ZooKeeper has denied a write meanwhile
    apply(context, StartsRecorded(plan.proven(context.starts, eligible_replicas.newly_proven(context))))
    if context.starts != starts:
        await _write(shell)


async def prove(shell: ControllerShell) -> None:
    """Record which brokers have turned out to be in no ISR without a leader, before more partitions lose theirs."""
    await _change(shell, lambda starts: plan.proven(starts, eligible_replicas.newly_proven(shell.context)))


async def stopping(shell: ControllerShell, broker: int, epoch: int) -> None:
    """Record that this incarnation of the broker has asked for controlled shutdown, so that its next start is clean."""
    await _change(shell, lambda starts: plan.stopping(starts, broker, epoch))


async def removed(shell: ControllerShell, broker: int, epoch: int) -> None:
    """Record that we are about to remove this registration: the next start is unclean, whatever was asked for."""
    await _change(shell, lambda starts: plan.removed(starts, broker, epoch))


async def disk_failed(shell: ControllerShell, broker: int) -> None:
    """Record that a log directory of the broker has failed: until its next start its replicas are not eligible."""
    await _change(shell, lambda starts: plan.disk_failed(starts, broker))


async def follow_min_isr(shell: ControllerShell) -> None:
    """Take in the brokers' ``min.insync.replicas``, which applies to topics without their own.

    Nothing else is written: starts may be being dealt with.
    """
    context, lowest = shell.context, shell.settings.lowest_min_isr
    if context.starts is None or lowest is None or lowest == context.starts.min_isr:
        return
    shell.min_isrs.clear()
    apply(context, StartsRecorded(plan.with_min_isr(context.starts, lowest)))
    written = await read(shell)
    await _write(shell, plan.with_min_isr(written, lowest) if isinstance(written, BrokerStarts) else None)


def status(shell: ControllerShell) -> dict[str, Any]:
    """Status as JSON values: whether eligible replicas are kept, or why not, and the partitions that have some.

    Such a partition commits nothing: its leader, if it has one, has fewer replicas in sync than
    ``min.insync.replicas``, and after a crash it serves no reads until another joins.
    """
    context = shell.context
    kept = eligible_replicas.are_kept(context)
    of = context.table.eligible if kept else {}
    led = sum(context.table.leader[row] in context.live for row in of)
    return {"kept": kept, "why_not": "" if kept else _why_not(shell), "leaderless": len(of) - led, "led": led}


def _why_not(shell: ControllerShell) -> str:
    if not shell.policy.aiocontroller_eligible_leader_replicas:
        return f"{ELIGIBLE} is false"
    if not shell.policy.eligible_leader_replicas:
        return f"inter.broker.protocol.version is {shell.policy.inter_broker_protocol_version}, below 3.7"
    if not shell.is_active:
        return "not the active controller"
    return "from the next term on"


async def _change(shell: ControllerShell, change: Callable[[BrokerStarts], BrokerStarts]) -> None:
    before = shell.context.starts
    if before is not None and (after := change(before)) != before:
        apply(shell.context, StartsRecorded(after))
        await _write(shell)


async def _write(shell: ControllerShell, starts: BrokerStarts | None = None) -> None:
    """Write the record, or this one, under the fence; if ZooKeeper denies it, no replica is eligible."""
    starts = starts or shell.context.starts
    assert starts is not None
    try:
        await shell.zk.set_broker_starts(starts, fence=shell.context.epoch_zk_version)
    except exc.NoAuth:
        log.error("No replica is eligible to lead outside the ISR: the record of brokers' starts cannot be written")
        apply(shell.context, StartsRecorded(None))
