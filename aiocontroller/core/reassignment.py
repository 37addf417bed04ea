"""Moving replicas: what a requested assignment means, and in which phase a reassignment is.

An assignment under way holds the union of origin and target, with the lists of what is added and what is removed; it
is what the topic znode says, so every controller can go on from it.

Phases, as in Kafka: *U* the new assignment is written, replaced or taken back; *A* the added replicas catch up; *B*
all of the target is in sync: the leader moves into the target, the removed replicas are stopped and deleted, the
target alone is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.partitions import NO_ISR


class Refused(NamedTuple):
    code: KafkaErrorCode
    message: str


def check_target(context: ControllerContext, pid: int, target: Sequence[int] | None) -> ReplicaAssignment | Refused:
    """The assignment in which a requested reassignment begins; ``target`` None takes the running one back.

    Replicas that would be added must be on live brokers, which this controller itself is not, whatever clients see.
    """
    current = context.table.assignment(pid)
    if target is None:
        if pid not in context.partitions_being_reassigned:
            return Refused(KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
        return _unless_it_loses_data(context, pid, current.reassign_to(current.origin))
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
    return _unless_it_loses_data(context, pid, assignment)


def _unless_it_loses_data(
    context: ControllerContext, pid: int, assignment: ReplicaAssignment
) -> ReplicaAssignment | Refused:
    if in_sync_replica_stays(context, pid, assignment):
        return assignment
    isr = context.table.isr(pid)
    return Refused(
        KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT,
        f"of the in-sync replicas {isr} none that could lead is among {assignment.replicas}: data would be lost",
    )


def in_sync_replica_stays(context: ControllerContext, pid: int, assignment: ReplicaAssignment) -> bool:
    """Whether somebody who holds every record stays a replica, one that can lead if anybody can.

    A reassignment that overrides another drops replicas at once.  When those who were there before are dead, the
    dropped ones may be all that is in sync; Kafka deletes them.
    """
    table = context.table
    if table.isr_of[pid] == NO_ISR or set(table.replicas(pid)) <= set(assignment.replicas):
        return True
    staying = [r for r in table.isr(pid) if r in assignment.replicas]
    if any(context.is_replica_online(pid, r) for r in staying):
        return True
    return bool(staying) and not any(context.is_replica_online(pid, r) for r in table.isr(pid))


def is_complete(context: ControllerContext, pid: int) -> bool:
    """Whether phase B may begin: nothing to move, or all of the target is in sync."""
    assignment = context.table.assignment(pid)
    return not assignment.being_reassigned or set(assignment.target) <= set(context.table.isr(pid))


def by_broker(replicas: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """{pid: brokers} turned into {broker: pids}, both ascending."""
    found: dict[int, list[int]] = {}
    for pid in sorted(replicas):
        for broker in replicas[pid]:
            found.setdefault(broker, []).append(pid)
    return dict(sorted(found.items()))


def without_controllers(
    assignment: ReplicaAssignment, controllers: Collection[int], live: Sequence[int], spread: int
) -> ReplicaAssignment:
    """Other live brokers in the places of those that hold no replica; fewer replicas where there is no other."""
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
