"""Brokers start, fail, bounce and change: ``BrokerChange``, ``BrokerModifications`` and their consequences."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

from aiocontroller.controller import debts
from aiocontroller.controller.own_replicas import load_known_controllers, naming_controllers
from aiocontroller.controller.reassignment import resume_for_brokers
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import (
    elect_and_take_offline,
    handle_partition_state_changes,
    handle_replica_state_changes,
)
from aiocontroller.controller.topic_deletion import fail_replica_deletion, resume_deletion_for_topics
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core.election import Strategy
from aiocontroller.core.events import BrokerChange, BrokerModifications, OwnReplicas
from aiocontroller.core.ids import Broker
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.zookeeper.znodes import BadZNode

log = logging.getLogger(__name__)


async def load_brokers(shell: ControllerShell) -> None:
    """Read the registered brokers at failover, and start their senders."""
    found, bad = await shell.zk.get_all_brokers_in_cluster(watch=True)
    shell.report_bad_znodes(bad)
    shell.context.add_brokers(found)
    assert shell.channels is not None
    shell.channels.add_brokers(found, settled=True)


async def broker_change(shell: ControllerShell, event: BrokerChange) -> None:
    """Compare the registrations with the context: a known id with a later epoch is a broker that has bounced."""
    context = shell.context
    found, bad = await shell.zk.get_all_brokers_in_cluster(watch=True)
    shell.report_bad_znodes(bad)
    current = {broker.id: broker for broker in found}
    known = context.brokers
    unreadable = {int(znode.path.rsplit("/", 1)[1]) for znode in bad if znode.path.rsplit("/", 1)[1].isdecimal()}
    new = [b for b in found if b.id not in known]
    bounced = [b for b in found if b.id in known and b.epoch > known[b.id].epoch]
    dead = [b for b in known if b not in current and b not in unreadable]
    if not (new or bounced or dead):
        return
    log.info(
        "Newly added brokers: %s, deleted brokers: %s, bounced brokers: %s, all live brokers: %s",
        [b.id for b in new],
        dead,
        [b.id for b in bounced],
        sorted(current),
    )
    for kind, ids in (("added", [b.id for b in new]), ("bounced", [b.id for b in bounced]), ("dead", dead)):
        for broker in ids:
            shell.journal.append("broker", broker=broker, detail=kind)
    channels = shell.channels
    assert channels is not None
    channels.add_brokers(new)
    channels.remove_brokers([b.id for b in bounced])
    channels.remove_brokers(dead)
    if new:
        context.add_brokers(new)
        await on_broker_startup(shell, [b.id for b in new])
    if bounced:
        context.remove_brokers([b.id for b in bounced])
        await on_broker_failure(shell, [b.id for b in bounced])
        channels.add_brokers(bounced)
        context.add_brokers(bounced)
        await on_broker_startup(shell, [b.id for b in bounced])
    if dead:
        context.remove_brokers(dead)
        await on_broker_failure(shell, dead)


async def on_broker_startup(shell: ControllerShell, ids: Sequence[int]) -> None:
    """Tell all brokers about the new ones, send the new ones everything, and retry elections."""
    context, table = shell.context, shell.context.table
    log.info("New broker startup callback for %s", list(ids))
    await shell.send_update_metadata([b for b in context.brokers if b not in ids])
    # Topics being deleted are included, marked as such: a broker whose session expired may still know them.
    await shell.send_update_metadata(ids, table.worth_telling(table.rows()))
    for broker in ids:
        await debts.look_and_pay(shell, broker)
    batch = shell.new_batch()
    replicas = {broker: table.partitions_on_broker(broker) for broker in ids}
    # Replicas that the broker is deleting, or has deleted, keep their states.
    staying = rsm.check_valid_previous_states(table, replicas, ReplicaState.OnlineReplica).valid
    await handle_replica_state_changes(shell, staying, ReplicaState.OnlineReplica, batch=batch)
    to_bring_online = psm.partitions_to_bring_online(context)
    if to_bring_online:
        await handle_partition_state_changes(
            shell, to_bring_online, PartitionState.OnlinePartition, Strategy.OFFLINE, batch=batch
        )
    await shell.send(batch)
    await resume_for_brokers(shell, ids)
    if not context.controllers.isdisjoint(ids):
        await load_known_controllers(shell)
    if naming_controllers(shell):
        shell.queue.append(OwnReplicas())  # until now there may have been no other broker to hold them
    names = dict.fromkeys(table.topic(row).name for rows in replicas.values() for row in rows)
    await resume_deletion_for_topics(shell, [name for name in names if name in context.topics_to_be_deleted])


async def on_broker_failure(shell: ControllerShell, ids: Sequence[int]) -> None:
    log.info("Broker failure callback for %s", list(ids))
    debts.ask_again(shell, ids)
    table = shell.context.table
    await on_replicas_become_offline(shell, {broker: table.partitions_on_broker(broker) for broker in ids})


async def on_replicas_become_offline(shell: ControllerShell, replicas: dict[int, list[int]]) -> None:
    """Elect new leaders, then remove the replicas from ISRs, with one request to each broker for both.

    As in Kafka, every partition's leader is checked: an earlier change may have elected one that was dead already.
    """
    context, table = shell.context, shell.context.table
    batch = shell.new_batch()
    leaderless = psm.partitions_with_offline_leader(context)
    await handle_partition_state_changes(shell, leaderless, PartitionState.OfflinePartition)
    await shell.breathe()
    staying = {broker: table.staying(rows) for broker, rows in replicas.items()}
    await elect_and_take_offline(shell, psm.partitions_to_bring_online(context), Strategy.OFFLINE, staying, batch)
    deleting: dict[int, list[int]] = {}
    if context.topics_to_be_deleted:
        deleting = {b: [row for row in rows if table.topic(row).deleting] for b, rows in replicas.items()}
    batch.add_update_metadata_request_for_brokers(context.brokers, ())  # all brokers get the broker list
    await shell.send(batch)
    await fail_replica_deletion(shell, deleting)


async def broker_modifications(shell: ControllerShell, event: BrokerModifications) -> None:
    """Endpoints, features or rack changed: tell all brokers, and move the sender to the endpoint (Kafka does not)."""
    context = shell.context
    old = context.brokers.get(event.broker)
    found = await shell.zk.get_broker(event.broker, watch=True)
    if isinstance(found, BadZNode):
        shell.report_bad_znodes([found])
        return
    if old is None and found is not None:
        # Its znode could not be read when it appeared: this may be its repair.
        shell.queue.append(BrokerChange())
    if old is None or found is None or found.epoch != old.epoch or found == old:
        return  # BrokerChange handles started, failed and bounced brokers
    log.info("Broker %d changed from %s to %s", event.broker, _shown(old), _shown(found))
    moved = shell.endpoint_of(old) != shell.endpoint_of(found)
    context.add_brokers([found])
    if moved and shell.channels is not None:
        shell.channels.remove_brokers([event.broker])
        shell.channels.add_brokers([found])
        debts.ask_again(shell, [event.broker])
        await debts.look_and_pay(shell, event.broker)
    await shell.send_update_metadata(context.brokers)


def _shown(broker: Broker) -> str:
    listeners: Iterable[str] = (f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints)
    return f"{', '.join(listeners)} rack {broker.rack}"
