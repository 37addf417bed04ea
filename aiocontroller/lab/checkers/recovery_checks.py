"""Checks whether the cluster is whole after the faults have ended; the names are those of ``docs/chaos.md``.

* I16: every partition has a live leader and all its replicas in sync; every broker's metadata and every replica's
  leader epoch agree with ZooKeeper.
* I6: one controller is active, the one that owns ``/controller``.
* I17: nothing is left to delete or to move, and the last reassignments have reached their targets; a broker hosts its
  assigned replicas and nothing else.
* I9: the queues are empty.
* I18: controllers that are not active hold nothing: no sender, no timer, only one watch, no cluster state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aiocontroller.core.ids import LeaderAndIsr, TopicAssignment, TopicPartition
from aiocontroller.lab.checkers.history import ZNodeHistory
from aiocontroller.lab.checkers.inspection import Inspection
from aiocontroller.lab.cluster.broker_server import BrokerStatus
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

MAX_QUEUED = 5


async def what_is_missing(
    zk: KafkaZkClient,
    controllers: Sequence[Inspection],
    brokers: Mapping[int, BrokerStatus],
    targets: Mapping[TopicPartition, tuple[int, ...]],
    history: ZNodeHistory,
) -> list[str]:
    """Return what is missing until the cluster is whole; empty if it is.

    ``targets`` are the replicas of the last acknowledged reassignments.
    """
    active = [controller for controller in controllers if controller.active]
    holder = await zk.get_controller(watch=False)
    if len(active) != 1 or getattr(holder, "owner_session", None) != active[0].session_id:
        return [f"I6: {len(active)} active controllers, /controller is {holder}"]
    missing = list(_controller(active[0], brokers))
    for controller in controllers:
        if controller is not active[0]:
            missing += _standing_by(controller)
    for owed in (await zk.debts.load()).owed:
        missing.append(f"I17: broker {owed.broker} still has to delete {owed.topic}: {sorted(owed.partitions)}")
    for name in await zk.get_topic_deletions(watch=False):
        missing.append(f"I17: topic {name} is still to be deleted")
    if (reassignment := await zk.get_partition_reassignment(watch=False)) is not None:
        missing.append(f"I17: the reassignment request is still there: {reassignment}")
    topics = await zk.get_all_topics_in_cluster(watch=False)
    found = await zk.get_topic_assignments(topics, watch=False)
    for broker in brokers.values():
        missing += _broker(broker, active[0], found.found, history)
    for assignment in found.found:
        missing += _moves(assignment, targets)
        missing += await _partitions(zk, assignment, brokers)
    return missing


def _controller(active: Inspection, brokers: Mapping[int, BrokerStatus]) -> Iterator[str]:
    if active.queued_events > MAX_QUEUED:
        yield f"I9: {active.queued_events} events wait"
    if active.queued_requests:
        yield f"I9: {active.queued_requests} requests wait for brokers"
    if active.reassigning:
        yield f"I17: {active.reassigning} partitions are being reassigned"
    if active.deleting:
        yield f"I17: topics {active.deleting} are to be deleted"
    if active.unsent:
        yield f"I16: {active.unsent} partitions have yet to be sent to brokers"
    if active.recursive_watches:
        yield f"I18: the active controller has {active.recursive_watches} recursive watches"
    if active.live_brokers != sorted(brokers):
        yield f"I16: live brokers are {active.live_brokers}"
    for wrong in active.violations:
        yield f"context: {wrong}"


def _standing_by(controller: Inspection) -> Iterator[str]:
    who = f"controller {controller.id}"
    if controller.senders:
        yield f"I18: {who} has senders and is not active"
    if controller.partitions or controller.brokers:
        yield f"I18: {who} knows partitions or brokers and is not active"
    if controller.timers:
        yield f"I18: {who} has timers and is not active"
    if controller.watches != 1 + controller.acl_watches:
        yield f"I18: {who} is not active and has {controller.watches} watches, expected {1 + controller.acl_watches}"

    expected = ("off", "cold") if controller.observes else ("warm", "cold")
    if controller.copy not in expected or controller.behind:
        yield f"I18: the copy of {who} is {controller.copy}, and {controller.behind} parts of it are not up to date"
    if controller.recursive_watches != (controller.copy == "warm"):
        yield f"I18: {who}, whose copy is {controller.copy}, has {controller.recursive_watches} recursive watches"


def _broker(
    broker: BrokerStatus, active: Inspection, assignments: list[TopicAssignment], history: ZNodeHistory
) -> Iterator[str]:
    names = {assignment.topic for assignment in assignments}
    cached = {known.topic for known in broker.metadata}
    known = {name for name in cached if name in names or not _may_keep(name, broker.id, history)}
    if known != names:
        yield f"I16: broker {broker.id} knows topics {sorted(known)}, there are {sorted(names)}"
    if broker.controller_id != active.id:
        yield f"I6: broker {broker.id} takes {broker.controller_id} for the controller, it is {active.id}"
    alive = [number for number in broker.alive if number != active.id]
    if alive != active.live_brokers:
        yield f"I16: broker {broker.id} takes {alive} for alive"
    assigned = {
        (a.topic, n) for a in assignments for n, replicas in a.partitions.items() if broker.id in replicas.replicas
    }
    found = {(replica.topic, replica.partition) for replica in broker.replicas}
    for topic, number in sorted(found - assigned):
        if not history.tolerates_strays:
            yield f"I17: broker {broker.id} hosts {topic}-{number}, which is not assigned to it"
    for topic, number in sorted(assigned - found):
        yield f"I17: broker {broker.id} does not host {topic}-{number}"


def _may_keep(topic: str, broker: int, history: ZNodeHistory) -> bool:
    """Whether a broker may still know a deleted topic: no controller that could inform it knew all partitions."""
    return history.may_know_deleted_topic(topic, broker) or history.cannot_be_repaired(topic)


def _moves(assignment: TopicAssignment, targets: Mapping[TopicPartition, tuple[int, ...]]) -> Iterator[str]:
    for number, replicas in assignment.partitions.items():
        name = TopicPartition(assignment.topic, number)
        if replicas.being_reassigned:
            yield f"I17: {name} is being reassigned: {replicas}"
        elif targets.get(name, replicas.replicas) != replicas.replicas:
            yield f"I17: {name} is on {replicas.replicas}, it was last moved to {targets[name]}"


async def _partitions(zk: KafkaZkClient, assignment: TopicAssignment, brokers: Mapping[int, BrokerStatus]) -> list[str]:
    topic, numbers = assignment.topic, sorted(assignment.partitions)
    states = await zk.get_topic_partition_states([topic] * len(numbers), numbers)
    missing = []
    for number, state in zip(numbers, states, strict=True):
        name = f"{topic}-{number}"
        if not isinstance(state, LeaderAndIsr) or state.leader < 0:
            missing.append(f"I16: {name} has no leader: {state}")
            continue
        replicas = assignment.partitions[number].replicas
        if set(state.isr) != set(replicas):
            missing.append(f"I16: {name} has ISR {state.isr} of {replicas}")
        for broker in brokers.values():
            missing += _believes(broker, topic, number, state, broker.id in replicas)
    return missing


def _believes(broker: BrokerStatus, topic: str, number: int, state: LeaderAndIsr, is_replica: bool) -> Iterator[str]:
    leadership = (state.leader, state.leader_epoch)
    cached = [(p.leader, p.leader_epoch) for p in broker.metadata if (p.topic, p.partition) == (topic, number)]
    if cached != [leadership]:
        yield f"I16: broker {broker.id} believes {cached} of {topic}-{number}, it is {leadership}"
    for replica in broker.replicas:
        here = (replica.topic, replica.partition) == (topic, number)
        if is_replica and here and (replica.leader, replica.leader_epoch) != leadership:
            yield f"I16: broker {broker.id}'s replica of {topic}-{number} is at leader epoch {replica.leader_epoch}"
