"""Decides what follows when brokers start, fail, bounce or change their registration."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.effects import Replicas
from aiocontroller.core.election import Strategy
from aiocontroller.core.events import OwnReplicas
from aiocontroller.core.ids import Broker
from aiocontroller.core.partition_state_machine import partitions_to_bring_online
from aiocontroller.core.reassignment import naming_controllers, reassignments_to_resume
from aiocontroller.core.reassignment_phases import on_partition_reassignment
from aiocontroller.core.replica_state_machine import check_valid_previous_states
from aiocontroller.core.states import ReplicaState
from aiocontroller.core.steps import (
    AskForDebts,
    ElectLeaders,
    Enqueue,
    LoadKnownControllers,
    MoveReplicas,
    ResumeDeletions,
    SendMetadata,
    SendRequests,
    Steps,
)


class BrokerChanges(NamedTuple):
    """The registrations that differ from the context."""

    new: list[Broker]
    bounced: list[Broker]
    """Known ids with a later epoch: the broker has ended and registered again."""
    dead: list[int]

    def by_kind(self) -> list[tuple[str, int]]:
        """(kind, broker) of each, as the journal has them."""
        added, bounced = [("added", b.id) for b in self.new], [("bounced", b.id) for b in self.bounced]
        return added + bounced + [("dead", broker) for broker in self.dead]


def compare_registrations(
    context: ControllerContext, found: Sequence[Broker], unreadable: Collection[int]
) -> BrokerChanges:
    """Compare the registrations in ZooKeeper with the context; an unreadable one does not count as gone."""
    known, there = context.brokers, {broker.id for broker in found}
    return BrokerChanges(
        [broker for broker in found if broker.id not in known],
        [broker for broker in found if broker.id in known and broker.epoch > known[broker.id].epoch],
        [broker for broker in known if broker not in there and broker not in unreadable],
    )


# -- a broker starts ---------------------------------------------------------------------------------------------------


def on_broker_startup(context: ControllerContext, ids: Sequence[int]) -> Steps[None]:
    """Send all brokers the new ones' addresses, send the new ones everything, and retry elections."""
    table = context.table
    yield SendMetadata(others(context, ids))
    # Topics being deleted are included, marked as such: a broker whose session expired may still know them.
    yield SendMetadata(ids, table.for_update_metadata(table.rows()))
    for broker in ids:
        yield AskForDebts(broker)
    replicas = replicas_on(context, ids)
    yield MoveReplicas(replicas_to_start(context, replicas), ReplicaState.OnlineReplica)
    to_bring_online = partitions_to_bring_online(context)
    if to_bring_online:
        yield ElectLeaders(to_bring_online, Strategy.OFFLINE)
    yield SendRequests()
    yield from on_partition_reassignment(context, reassignments_to_resume(context, ids))
    if not context.controllers.isdisjoint(ids):
        yield LoadKnownControllers()
    if naming_controllers(context):
        yield Enqueue(OwnReplicas())  # until now there may have been no other broker to hold them
    yield ResumeDeletions(queued_topics_of(context, replicas))


def others(context: ControllerContext, started: Collection[int]) -> list[int]:
    """The registered brokers that did not start just now."""
    return [broker for broker in context.brokers if broker not in started]


def replicas_on(context: ControllerContext, brokers: Iterable[int]) -> dict[int, list[int]]:
    """Broker -> the rows of its replicas, ascending."""
    return {broker: context.table.partitions_on_broker(broker) for broker in brokers}


def replicas_to_start(context: ControllerContext, replicas: Replicas) -> dict[int, list[int]]:
    """Those that become OnlineReplica.  Replicas that the broker is deleting, or has deleted, keep their states."""
    return check_valid_previous_states(context.table, replicas, ReplicaState.OnlineReplica).valid


def queued_topics_of(context: ControllerContext, replicas: Mapping[int, Sequence[int]]) -> list[str]:
    """The replicas' topics whose deletion may go on, now that their brokers have started."""
    names = dict.fromkeys(context.table.topic(row).name for rows in replicas.values() for row in rows)
    return [name for name in names if name in context.topics_to_be_deleted]


def is_to_be_unlisted(context: ControllerContext, broker: int, broker_epoch: int) -> bool:
    """Whether this incarnation is gone, and still listed; not once another one has registered."""
    departed = context.departed.get(broker)
    return departed is not None and departed.epoch == broker_epoch


# -- replicas become offline -------------------------------------------------------------------------------------------


def replicas_to_take_offline(context: ControllerContext, replicas: Replicas) -> dict[int, Sequence[int]]:
    """The replicas without those of topics that are being deleted, unless a deletion waits for a reassignment."""
    return {broker: context.staying(rows) for broker, rows in replicas.items()}


def replicas_being_deleted(context: ControllerContext, replicas: Replicas) -> dict[int, list[int]]:
    """The other replicas: their deletion has failed for now."""
    if not context.topics_to_be_deleted:
        return {}
    return {broker: [row for row in rows if context.needs_no_leader(row)] for broker, rows in replicas.items()}


# -- a registration changes --------------------------------------------------------------------------------------------


class Modification(Enum):
    """What has become of a registration whose znode has changed."""

    NOTHING = "nothing to do: BrokerChange handles started, failed and bounced brokers"
    APPEARED = "a broker that is not known: its znode may have been repaired"
    CHANGED = "the same incarnation with other endpoints, features or rack"


def judge_modification(context: ControllerContext, broker: int, found: Broker | None) -> Modification:
    """``found``: the registration that ZooKeeper holds now; None if it is gone."""
    known = context.brokers.get(broker)
    if known is None:
        return Modification.NOTHING if found is None else Modification.APPEARED
    if found is None or found.epoch != known.epoch or found == known:
        return Modification.NOTHING
    return Modification.CHANGED
