"""Reassignment: validates requested assignments and decides which phase a reassignment is in.

The assignment during a reassignment is the union of origin and target, with lists of the added and the removed
replicas.  The topic znode holds all of it, so any controller can continue from it.

Phases, as in Kafka: *U* writes, replaces or cancels the new assignment; in *A* the added replicas catch up; in *B* all
of the target is in sync: the leader moves into the target, the removed replicas are stopped and deleted, and the target
alone is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Debt
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.partitions import NO_ISR


class Refused(NamedTuple):
    code: KafkaErrorCode
    message: str


def check_target(context: ControllerContext, row: int, target: Sequence[int] | None) -> ReplicaAssignment | Refused:
    """The first assignment of a requested reassignment; ``target`` None cancels the one in progress.

    ``row`` is -1 for a partition that does not exist or whose topic is about to be deleted.
    Added replicas must be on live brokers; this controller is not one, although clients see it as a node.
    """
    if row < 0:
        return _unknown(context, target)
    current = context.table.assignment(row)
    if target is None:
        if row not in context.partitions_being_reassigned:
            return Refused(KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
        return _unless_it_loses_data(context, row, current.reassign_to(current.origin))
    refused = _check_replicas(context, current, target)
    return refused or _unless_it_loses_data(context, row, current.reassign_to(target))


def _unknown(context: ControllerContext, target: Sequence[int] | None) -> Refused:
    """The refusal for an unknown partition; an invalid target is reported first."""
    if target is None:
        return Refused(KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
    refused = _check_replicas(context, ReplicaAssignment(()), target)
    return refused or Refused(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


def _check_replicas(context: ControllerContext, current: ReplicaAssignment, target: Sequence[int]) -> Refused | None:
    most = len(context.live) + len(current.origin)
    if len(target) > most:
        found = f"found {len(target)} replicas, expected {most} at most: those that it has, and each live broker"
        return Refused(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, found)
    wanted = ", ".join(map(str, target))
    if not target:
        return Refused(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, "found an empty replica list, expected brokers")
    if len(set(target)) != len(target):
        return Refused(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, f"found a replica twice in {wanted}")
    if any(broker < 0 for broker in target):
        return Refused(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, f"found a negative broker id in {wanted}")
    assignment = current.reassign_to(target)
    dead = [broker for broker in assignment.adding if broker not in context.live]
    if dead:
        live = ", ".join(map(str, sorted(context.live)))
        return Refused(
            KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"replicas {wanted}: brokers {', '.join(map(str, dead))} are not live (live: {live})",
        )
    return None


def _unless_it_loses_data(
    context: ControllerContext, row: int, assignment: ReplicaAssignment
) -> ReplicaAssignment | Refused:
    if in_sync_replica_stays(context, row, assignment):
        return assignment
    isr = context.table.isr(row)
    return Refused(
        KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"none of the in-sync replicas {isr} that could lead is among {assignment.replicas}: data would be lost",
    )


def in_sync_replica_stays(context: ControllerContext, row: int, assignment: ReplicaAssignment) -> bool:
    """Whether an in-sync replica stays, and one that can lead if any can.

    A reassignment that overrides another drops replicas at once.  If the original replicas are dead, the dropped ones
    may be the only ones in sync; Kafka deletes them.
    """
    table = context.table
    if table.isr_of[row] == NO_ISR or set(table.replicas(row)) <= set(assignment.replicas):
        return True
    staying = [r for r in table.isr(row) if r in assignment.replicas]
    if any(context.is_replica_online(row, r) for r in staying):
        return True
    return bool(staying) and not any(context.is_replica_online(row, r) for r in table.isr(row))


def is_complete(context: ControllerContext, row: int) -> bool:
    """Whether phase B may begin: there is nothing to move, or all of the target is in sync."""
    assignment = context.table.assignment(row)
    return not assignment.being_reassigned or set(assignment.target) <= set(context.table.isr(row))


def nothing_can_be_lost(context: ControllerContext, row: int) -> bool:
    """Whether removed replicas may be deleted: none of them is in sync, and one of the remaining replicas leads.

    Checked once ZooKeeper holds all of phase B's decisions.  A partition that never had a leader has no records.
    """
    table = context.table
    if table.isr_of[row] == NO_ISR:
        return True
    staying = set(table.assignment(row).target)
    return table.leader[row] in staying and set(table.isr(row)) <= staying


def no_longer_owed(context: ControllerContext, wanted: Mapping[int, ReplicaAssignment]) -> list[Debt]:
    """Debts of brokers that are replicas again by the ``wanted`` assignments."""
    table, ledger = context.table, context.debts
    found: list[Debt] = []
    for row, assignment in wanted.items() if ledger else ():
        topic, number = table.topic(row), table.index_of[row]
        for broker in assignment.replicas if topic.name in ledger.topics else ():
            debt = ledger.get(broker, topic.name, number)
            if debt is not None and debt.topic_id == topic.id:
                found.append(debt)
    return found


def by_broker(replicas: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """{row: brokers} turned into {broker: rows}, both ascending."""
    found: dict[int, list[int]] = {}
    for row in sorted(replicas):
        for broker in replicas[row]:
            found.setdefault(broker, []).append(row)
    return dict(sorted(found.items()))


def without_controllers(
    assignment: ReplicaAssignment, controllers: Collection[int], live: Sequence[int], spread: int
) -> ReplicaAssignment:
    """Replace controllers in the assignment by other live brokers; drop them if there is no other broker."""
    if not any(replica in controllers for replica in assignment.replicas):
        return assignment
    others = [b for b in live if b not in assignment.replicas]
    replicas: list[int] = []
    for replica in assignment.replicas:
        if replica not in controllers:
            replicas.append(replica)
        elif others:
            replicas.append(others.pop(spread % len(others)))
    return ReplicaAssignment(tuple(replicas))
