"""Brokers start, fail, bounce and change: ``BrokerChange``, ``BrokerModifications`` and their consequences."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from aiocontroller.controller import broker_starts, debts
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import elect_and_take_offline, handle_partition_state_changes
from aiocontroller.controller.steps import carry_out_steps
from aiocontroller.controller.topic_deletion import fail_replica_deletion
from aiocontroller.core import broker_changes as plan
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core.apply import apply
from aiocontroller.core.broker_starts import BrokerStarts
from aiocontroller.core.context_changes import BrokersAdded, BrokersRemoved, BrokersReturning, BrokerUnlisted
from aiocontroller.core.effects import Replicas
from aiocontroller.core.election import Strategy
from aiocontroller.core.events import BrokerChange, BrokerModifications, SuspectsChange, UnlistBroker
from aiocontroller.core.ids import Broker
from aiocontroller.core.states import PartitionState
from aiocontroller.zookeeper.znodes import BadZNode, unreadable_brokers

log = logging.getLogger(__name__)

LISTED_FOR_S = 2.0
"""How long a dead broker stays in the list of live brokers where early detection is on.  From 2.10 on, librdkafka
forgets a broker that its metadata does not list, even in the middle of moving partitions off it, and then waits a
second before it looks for their new leaders."""


class FoundBrokers(NamedTuple):
    """What ZooKeeper holds about the brokers."""

    registered: Sequence[Broker]
    bad: Sequence[BadZNode]
    registrations: int
    """How many there have ever been, so that a broker that came and went is not missed."""


async def read_brokers(shell: ControllerShell) -> FoundBrokers:
    """Read the registered brokers."""
    registrations = await shell.zk.count_registrations()
    return FoundBrokers(*await shell.zk.get_all_brokers_in_cluster(watch=True), registrations)


async def load_brokers(shell: ControllerShell) -> None:
    """Read the registered brokers at failover, and start their senders."""
    found = await read_brokers(shell)
    await take_brokers(shell, found, await broker_starts.read(shell))


async def take_brokers(shell: ControllerShell, found: FoundBrokers, starts: BrokerStarts | BadZNode | None) -> None:
    """Take in the registered brokers at failover, and start their senders."""
    shell.report_bad_znodes(found.bad)
    counted = await broker_starts.take_over(shell, found.registered, found.registrations, starts)
    apply(shell.context, BrokersAdded(counted))
    assert shell.channels is not None
    shell.channels.add_brokers(counted, settled=True)
    if shell.channels.suspects():
        shell.queue.append(SuspectsChange())  # evidence from before this term


async def broker_change(shell: ControllerShell, event: BrokerChange) -> None:
    """Compare the registrations with the context: a known id with a later epoch is a broker that has bounced.

    Departure from Kafka, which treats bounced brokers before dead ones, and may elect a dead one meanwhile.
    """
    context = shell.context
    await broker_starts.prove(shell)
    recorded = context.starts
    found, bad, registrations = await read_brokers(shell)
    shell.report_bad_znodes(bad)
    unreadable = unreadable_brokers(bad)
    await broker_starts.look(shell, found, registrations, unreadable)
    changes = plan.compare_registrations(context, found, unreadable)
    apply(context, BrokersReturning([broker.id for broker in changes.bounced]))
    if not any(changes):
        await broker_starts.record(shell, recorded)
        return
    new, bounced, dead = [b.id for b in changes.new], [b.id for b in changes.bounced], changes.dead
    log.info(
        "Newly added brokers: %s, deleted brokers: %s, bounced brokers: %s, all live brokers: %s",
        new,
        dead,
        bounced,
        sorted(broker.id for broker in found),
    )
    for kind, broker in changes.by_kind():
        shell.journal.append("broker", broker=broker, detail=kind)
    channels = shell.channels
    assert channels is not None
    channels.add_brokers(changes.new)
    channels.remove_brokers(bounced)
    channels.remove_brokers(dead)
    if new:
        apply(context, BrokersAdded(changes.new))
        await on_broker_startup(shell, new)
    listed = shell.config.aiocontroller_early_broker_detection != "off"
    if gone := [*bounced, *dead]:
        apply(context, BrokersRemoved(gone, listed))
        await on_broker_failure(shell, gone)
        for departed in context.departed.values():
            if departed.id in dead:
                _schedule_unlisting(shell, departed)
    if bounced:
        channels.add_brokers(changes.bounced)
        apply(context, BrokersAdded(changes.bounced))
        await on_broker_startup(shell, bounced)
    await broker_starts.record(shell, recorded)


def _schedule_unlisting(shell: ControllerShell, broker: Broker) -> None:
    shell.queue.schedule(f"unlisting of {broker.id}", LISTED_FOR_S, UnlistBroker(broker.id, broker.epoch))


async def unlist_broker(shell: ControllerShell, event: UnlistBroker) -> None:
    """Send all brokers a list without the departed one, unless it has come back meanwhile."""
    context = shell.context
    if plan.is_to_be_unlisted(context, event.broker, event.broker_epoch):
        apply(context, BrokerUnlisted(event.broker))
        await shell.send_update_metadata(context.brokers)


async def on_broker_startup(shell: ControllerShell, ids: Sequence[int]) -> None:
    """Brokers have started (``onBrokerStartup``); ``core.broker_changes`` has the steps."""
    log.info("New broker startup callback for %s", list(ids))
    await carry_out_steps(shell, plan.on_broker_startup(shell.context, ids))


async def on_broker_failure(shell: ControllerShell, ids: Sequence[int]) -> None:
    """Brokers are gone (``onBrokerFailure``)."""
    log.info("Broker failure callback for %s", list(ids))
    debts.ask_again(shell, ids)
    await on_replicas_become_offline(shell, plan.replicas_on(shell.context, ids))


async def on_replicas_become_offline(shell: ControllerShell, replicas: Replicas) -> None:
    """Elect new leaders, then remove the replicas from ISRs, with one request to each broker for both.

    As in Kafka, every partition's leader is checked: an earlier change may have elected one that was dead already.
    """
    context, batch = shell.context, shell.new_batch()
    leaderless = psm.partitions_with_offline_leader(context)
    await handle_partition_state_changes(shell, leaderless, PartitionState.OfflinePartition)
    await shell.breathe()
    staying = plan.replicas_to_take_offline(context, replicas)
    await elect_and_take_offline(shell, psm.partitions_to_bring_online(context), Strategy.OFFLINE, staying, batch)
    deleting = plan.replicas_being_deleted(context, replicas)
    batch.add_update_metadata_request_for_brokers(context.brokers, ())  # all brokers get the broker list
    await shell.send(batch, metadata_at_once=True)
    await fail_replica_deletion(shell, deleting)


async def broker_modifications(shell: ControllerShell, event: BrokerModifications) -> None:
    """Endpoints, features or rack changed: inform all brokers, and move the sender to the endpoint (Kafka does not)."""
    context = shell.context
    old = context.brokers.get(event.broker)
    found = await shell.zk.get_broker(event.broker, watch=True)
    if isinstance(found, BadZNode):
        shell.report_bad_znodes([found])
        return
    verdict = plan.judge_modification(context, event.broker, found)
    if verdict is plan.Modification.APPEARED:
        shell.queue.append(BrokerChange())
    if verdict is not plan.Modification.CHANGED or old is None or found is None:
        return
    log.info("Broker %d changed from %s to %s", event.broker, _shown(old), _shown(found))
    moved = shell.endpoint_of(old) != shell.endpoint_of(found)
    apply(context, BrokersAdded([found]))
    if moved and shell.channels is not None:
        shell.channels.remove_brokers([event.broker])
        shell.channels.add_brokers([found])
        debts.ask_again(shell, [event.broker])
        await debts.look_and_pay(shell, event.broker)
    await shell.send_update_metadata(context.brokers)


def _shown(broker: Broker) -> str:
    listeners: Iterable[str] = (f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints)
    return f"{', '.join(listeners)} rack {broker.rack}"
