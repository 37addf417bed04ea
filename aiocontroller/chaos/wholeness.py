"""Is the cluster whole again?  What is asked after the faults have ended, named as in ``docs/chaos.md``.

* I5: every partition is led by a live broker and has all its replicas in sync; every broker's metadata and every
  replica's leader epoch are what ZooKeeper says; a broker hosts what it is assigned and nothing else.
* I6: one controller is in office, the one that owns ``/controller``.
* I8: nothing is left to delete or to move, and what was moved last is where it was to be.
* I9: the queues are empty.
* I12: controllers that are not in office hold nothing: no sender, no timer, no watch but one, no cluster state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aiocontroller.chaos.history import ZNodeHistory
from aiocontroller.chaos.observers import hosted
from aiocontroller.cluster.simulated_broker import SimulatedBroker
from aiocontroller.core.ids import LeaderAndIsr, TopicAssignment, TopicPartition
from aiocontroller.core.invariants import violations
from aiocontroller.service import Service
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

MAX_QUEUED = 5


async def what_is_missing(
    zk: KafkaZkClient,
    controllers: Mapping[int, Service],
    brokers: Mapping[int, SimulatedBroker],
    targets: Mapping[TopicPartition, tuple[int, ...]],
    history: ZNodeHistory,
) -> list[str]:
    """Empty when the cluster is whole.  ``targets`` are the replicas that moves were last acknowledged for."""
    active = [service for service in controllers.values() if service.controller.election.active]
    holder = await zk.get_controller(watch=False)
    if len(active) != 1 or getattr(holder, "owner_session", None) != active[0].client.session_id:
        return [f"I6: {len(active)} controllers in office, /controller is {holder}"]
    missing = list(_controller(active[0], brokers))
    for number, service in controllers.items():
        if service is not active[0]:
            missing += _standing_by(number, service)
    for name in await zk.get_topic_deletions(watch=False):
        missing.append(f"I8: topic {name} is still to be deleted")
    if (reassignment := await zk.get_partition_reassignment(watch=False)) is not None:
        missing.append(f"I8: the reassignment request is still there: {reassignment}")
    topics = await zk.get_all_topics_in_cluster(watch=False)
    found = await zk.get_topic_assignments(topics, watch=False)
    for broker, process in brokers.items():
        missing += _broker(broker, process, active[0], found.found, history)
    for assignment in found.found:
        missing += _moves(assignment, targets)
        missing += await _partitions(zk, assignment, brokers)
    return missing


def _controller(service: Service, brokers: Mapping[int, SimulatedBroker]) -> Iterator[str]:
    context = service.shell.context
    if len(service.queue) > MAX_QUEUED:
        yield f"I9: {len(service.queue)} events wait"
    if service.shell.channels is not None and (left := sum(s.queued for s in service.shell.channels.statistics())):
        yield f"I9: {left} requests wait for brokers"
    if context.partitions_being_reassigned:
        yield f"I8: {len(context.partitions_being_reassigned)} partitions are being reassigned"
    if context.topics_to_be_deleted:
        yield f"I8: topics {list(context.topics_to_be_deleted)} are to be deleted"
    if sorted(context.live) != sorted(brokers):
        yield f"I5: live brokers are {sorted(context.live)}"
    for wrong in violations(context):
        yield f"context: {wrong}"


def _standing_by(number: int, service: Service) -> Iterator[str]:
    shell = service.shell
    if shell.channels is not None:
        yield f"I12: controller {number} has senders and is not in office"
    if len(shell.context.table) or shell.context.brokers:
        yield f"I12: controller {number} knows partitions or brokers and is not in office"
    if service.queue.statistics().deferred:
        yield f"I12: controller {number} has timers and is not in office"
    if (watches := service.client.statistics().watches) != 1:
        yield f"I12: controller {number} is not in office and has {watches} watches, expected one"


def _broker(
    broker: int,
    process: SimulatedBroker,
    active: Service,
    assignments: list[TopicAssignment],
    history: ZNodeHistory,
) -> Iterator[str]:
    names = {assignment.topic for assignment in assignments}
    known = {name for name in process.metadata.topics if name in names or not history.may_not_know_of_end(name, broker)}
    if known != names:
        yield f"I5: broker {broker} knows topics {sorted(known)}, there are {sorted(names)}"
    if process.metadata.controller_id != active.shell.id:
        yield f"I6: broker {broker} takes {process.metadata.controller_id} for the controller, it is {active.shell.id}"
    alive = [b for b in sorted(process.metadata.alive) if b != active.shell.id]
    if alive != sorted(active.shell.context.live):
        yield f"I5: broker {broker} takes {alive} for alive"
    assigned = {
        (a.topic, n) for a in assignments for n, replicas in a.partitions.items() if broker in replicas.replicas
    }
    found = hosted(process.replicas)
    for topic, number in sorted(set(found) - assigned):
        if not history.is_excused((topic, number), broker):
            yield f"I8: broker {broker} hosts {topic}-{number}, which is not assigned to it"
    for topic, number in sorted(assigned - set(found)):
        yield f"I8: broker {broker} does not host {topic}-{number}"


def _moves(assignment: TopicAssignment, targets: Mapping[TopicPartition, tuple[int, ...]]) -> Iterator[str]:
    for number, replicas in assignment.partitions.items():
        name = TopicPartition(assignment.topic, number)
        if replicas.being_reassigned:
            yield f"I8: {name} is being reassigned: {replicas}"
        elif targets.get(name, replicas.replicas) != replicas.replicas:
            yield f"I8: {name} is on {replicas.replicas}, it was last moved to {targets[name]}"


async def _partitions(
    zk: KafkaZkClient, assignment: TopicAssignment, brokers: Mapping[int, SimulatedBroker]
) -> list[str]:
    topic, numbers = assignment.topic, sorted(assignment.partitions)
    states = await zk.get_topic_partition_states([topic] * len(numbers), numbers)
    missing = []
    for number, state in zip(numbers, states, strict=True):
        name = f"{topic}-{number}"
        if not isinstance(state, LeaderAndIsr) or state.leader < 0:
            missing.append(f"I5: {name} has no leader: {state}")
            continue
        replicas = assignment.partitions[number].replicas
        if set(state.isr) != set(replicas):
            missing.append(f"I5: {name} has ISR {state.isr} of {replicas}")
        for broker, process in brokers.items():
            missing += _believes(broker, process, topic, number, state, broker in replicas)
    return missing


def _believes(
    broker: int, process: SimulatedBroker, topic: str, number: int, state: LeaderAndIsr, is_replica: bool
) -> Iterator[str]:
    cached = process.metadata.topics.get(topic)
    known = cached.partitions.get(number) if cached is not None else None
    believed = (known.leader, known.leader_epoch) if known is not None else None
    if believed != (state.leader, state.leader_epoch):
        yield f"I5: broker {broker} believes {believed} of {topic}-{number}, it is {(state.leader, state.leader_epoch)}"
    replica = process.replicas.partition(topic, number)
    if (
        is_replica
        and replica is not None
        and (replica.leader, replica.leader_epoch) != (state.leader, state.leader_epoch)
    ):
        yield f"I5: broker {broker}'s replica of {topic}-{number} is at leader epoch {replica.leader_epoch}"
