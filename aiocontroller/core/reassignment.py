"""Reassignment: validates requested assignments and decides which phase a reassignment is in.

The assignment during a reassignment is the union of origin and target, with lists of the added and the removed
replicas.  The topic znode holds all of it, so any controller can continue from it.

Phases, as in Kafka: *U* writes, replaces or cancels the new assignment; in *A* the added replicas catch up; in *B* the
whole target is in sync: the leader moves into the target, the removed replicas are stopped and deleted, and the target
alone is written.  Each phase has functions that plan it, and that return the effects of what was written;
``core.reassignment_phases`` calls them in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from aiocontroller.core.alter_partition import non_replicas
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.context_changes import ReassignmentsBegun
from aiocontroller.core.debts import Changes, Debt
from aiocontroller.core.effects import Effects, LeaderAndIsrRequests, SharedLeaderAndIsrRequests
from aiocontroller.core.election import Strategy, elect
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import MAX_BROKER_ID, ReplicaAssignment, TopicPartition
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.states import ReplicaState


class Refused(NamedTuple):
    """Why a reassignment cannot start: the error code and message for the client."""

    code: KafkaErrorCode
    message: str


class Checked(NamedTuple):
    """Which of several reassignments may start."""

    wanted: dict[int, ReplicaAssignment]
    """Row -> the first assignment of its reassignment."""
    refused: dict[TopicPartition, Refused]


def check_targets(
    context: ControllerContext, targets: Iterable[tuple[TopicPartition, Sequence[int] | None]]
) -> Checked:
    """Check the partitions of a request.  A reassignment that a topic deletion waits for may still be cancelled."""
    checked = Checked({}, {})
    for tp, target in targets:
        row = context.table.row(*tp) if target is None else movable(context, tp)
        assignment = check_target(context, row, target)
        if isinstance(assignment, Refused):
            checked.refused[tp] = assignment
        else:
            checked.wanted[row] = assignment
    return checked


def check_entries(
    context: ControllerContext, entries: Iterable[tuple[TopicPartition, Sequence[int]]], moving: AbstractSet[int]
) -> Checked:
    """Check entries of the request znode; rows in ``moving`` that already have this target are in neither result.

    Targets need not be alive: as in Kafka, the reassignment waits for a dead one.
    """
    checked = Checked({}, {})
    for tp, target in entries:
        row = movable(context, tp)
        sound = row >= 0 and target and len(set(target)) == len(target)
        if not sound or min(target) < 0 or max(target) > MAX_BROKER_ID or not context.controllers.isdisjoint(target):
            checked.refused[tp] = Refused(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, "is impossible")
            continue
        current = context.table.assignment(row)
        assignment = current.reassign_to(target)
        if row in moving and assignment == current and not is_complete(context, row):
            continue
        if in_sync_replica_stays(context, row, assignment):
            checked.wanted[row] = assignment
        else:
            checked.refused[tp] = Refused(KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, "would lose data")
    return checked


def movable(context: ControllerContext, tp: TopicPartition) -> int:
    """The partition's row; -1 if it does not exist, or its topic is being deleted."""
    row = context.table.row(*tp)
    return -1 if row < 0 or context.table.topic(row).deleting else row


def entries_left(
    context: ControllerContext,
    requested: Mapping[TopicPartition, Sequence[int]],
    gone: Collection[TopicPartition],
    *,
    only_finished: bool,
) -> dict[TopicPartition, Sequence[int]]:
    """The entries to keep in the request znode: all but those of the partitions ``gone``.

    With ``only_finished``, entries whose target differs from the present replicas also stay: they are newer requests.
    """
    table = context.table
    return {
        tp: target
        for tp, target in requested.items()
        if tp not in gone or (only_finished and table.replicas(table.row(*tp)) != tuple(target))
    }


def check_target(context: ControllerContext, row: int, target: Sequence[int] | None) -> ReplicaAssignment | Refused:
    """Check a requested reassignment; returns the assignment with which it begins.

    ``target`` None cancels the reassignment in progress.  ``row`` is -1 for a partition that does not exist or whose
    topic is being deleted.  Added replicas must be on live brokers; this controller is none, although clients see it as
    a node.
    """
    if row < 0:
        return _unknown(context, target)
    current = context.table.assignment(row)
    if target is None:
        if row not in context.partitions_being_reassigned:
            return Refused(KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
        return _refused_if_it_loses_data(context, row, current.reassign_to(current.origin))
    refused = _check_replicas(context, current, target)
    return refused or _refused_if_it_loses_data(context, row, current.reassign_to(target))


def _unknown(context: ControllerContext, target: Sequence[int] | None) -> Refused:
    """The refusal for an unknown partition; an invalid target is reported first."""
    if target is None:
        return Refused(KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is in progress")
    refused = _check_replicas(context, ReplicaAssignment(()), target)
    return refused or Refused(KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")


def _check_replicas(context: ControllerContext, current: ReplicaAssignment, target: Sequence[int]) -> Refused | None:
    most = len(context.live) + len(current.origin)
    if len(target) > most:
        found = f"found {len(target)} replicas, expected {most} at most: its present replicas and each live broker"
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


def _refused_if_it_loses_data(
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
    """Whether an in-sync replica stays, and, if any can lead, one that can.

    A reassignment that overrides another drops replicas at once.  If the original replicas are dead, the dropped ones
    may be the only ones in sync; Kafka deletes them all the same.
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


def ready_for_phase_b(context: ControllerContext, rows: Iterable[int]) -> list[int]:
    """Those of the rows that are being reassigned and may begin phase B."""
    return [row for row in rows if row in context.partitions_being_reassigned and is_complete(context, row)]


def uncommitted(context: ControllerContext) -> list[int]:
    """Rows that no other event may resume: ready for phase B, or with replicas that are still to be told; ascending."""
    return sorted({*ready_for_phase_b(context, context.partitions_being_reassigned), *context.untold_reassignments})


def completed_by_election(context: ControllerContext, elected: Iterable[int]) -> bool:
    """Whether an election has made the target of a reassignment its ISR, so that the leader will ask for no change.

    Phases of a reassignment elect, too; they go on by themselves once the assignment is the target.
    """
    if not context.partitions_being_reassigned:
        return False
    table = context.table
    return any(table.assignment(row).being_reassigned for row in ready_for_phase_b(context, elected))


def reassignments_to_resume(context: ControllerContext, brokers: Iterable[int]) -> list[int]:
    """Rows being reassigned to these brokers, which have just started, or ready for phase B; ascending."""
    table, started = context.table, set(brokers)
    return sorted(
        row
        for row in context.partitions_being_reassigned
        if started & set(table.assignment(row).target) or is_complete(context, row)
    )


def queued_topics(context: ControllerContext, rows: Iterable[int]) -> list[str]:
    """Names of the rows' topics that are queued for deletion, which has to wait for the reassignment."""
    names = dict.fromkeys(context.table.topic(row).name for row in rows)
    return [name for name in names if name in context.topics_to_be_deleted]


# -- phase U -----------------------------------------------------------------------------------------------------------


class PhaseU(NamedTuple):
    """New assignments.  They enter memory before they are written, so that replicas they drop are not elected."""

    wanted: dict[int, ReplicaAssignment]
    """Row -> new assignment; without rows that have it already."""
    before: dict[int, ReplicaAssignment]
    dropped: dict[int, list[int]]
    """Row -> replicas that the new assignment no longer names, because it overrides or cancels another."""
    leader_epochs: dict[int, int]
    unchanged: dict[int, ReplicaAssignment]
    """Assignments that move nothing and that the rows already have.  They are written too: if the topic has been
    recreated meanwhile, the write fails, and so the answer does not claim that the partition was moved."""
    states: Mapping[int, Mapping[int, ReplicaState]]
    """Row -> dropped replica -> its state before."""

    def dropped_without(self, failed: Collection[int]) -> dict[int, list[int]]:
        """``dropped`` without the rows whose write failed."""
        return {row: brokers for row, brokers in self.dropped.items() if row not in failed}


def begun(phase: PhaseU, rows: Sequence[int]) -> ReassignmentsBegun:
    """The change of the context for rows whose reassignments have begun.

    A reassignment is cancelled if an assignment that moves nothing replaces one that did.
    """
    before, wanted = phase.before, phase.wanted
    cancelled = [
        row for row in rows if row in before and before[row].being_reassigned and not wanted[row].being_reassigned
    ]
    return ReassignmentsBegun(rows, cancelled)


def plan_phase_u(context: ControllerContext, wanted: Mapping[int, ReplicaAssignment]) -> PhaseU:
    """Plan phase U; ``wanted``: row -> the assignment with which its reassignment begins."""
    table = context.table
    before = {row: table.assignment(row) for row, assignment in wanted.items() if table.assignment(row) != assignment}
    leaving = {row: [b for b in old.replicas if b not in wanted[row].replicas] for row, old in before.items()}
    dropped = {row: brokers for row, brokers in leaving.items() if brokers}
    return PhaseU(
        {row: wanted[row] for row in before},
        before,
        dropped,
        {row: table.leader_epoch[row] for row in before},
        {row: to for row, to in wanted.items() if row not in before and not to.being_reassigned},
        _states(context, dropped),
    )


def _states(context: ControllerContext, replicas: Mapping[int, Sequence[int]]) -> dict[int, dict[int, ReplicaState]]:
    """Row -> broker -> the replica's state."""
    state = context.table.replica_state
    return {row: {broker: state(row, broker) for broker in brokers} for row, brokers in replicas.items()}


def give_back(before: Mapping[int, ReplicaAssignment], states: Mapping[int, Mapping[int, ReplicaState]]) -> Effects:
    """Give rows their earlier assignments back, and the replicas that had left them the states that these had.

    Otherwise they would be NonExistentReplica, and hear nothing of their partition when their broker restarts.
    """
    entered: dict[ReplicaState, dict[int, list[int]]] = {}
    for row in sorted(before):
        for broker, state in states.get(row, {}).items():
            if state is not ReplicaState.NonExistentReplica:
                entered.setdefault(state, {}).setdefault(broker, []).append(row)
    return Effects(assigned=before, replicas=tuple((replicas, state) for state, replicas in entered.items()))


def led_by_dropped(context: ControllerContext, dropped: Mapping[int, Sequence[int]]) -> list[int]:
    """Rows led by a replica that is dropped; they must get another leader first.

    Kafka leaves such a partition without a leader, so the new target never catches up.  An election in phase B would be
    too late, even if the new target is in sync: without a leader, the partition might wait for the replicas' logs.
    """
    leader = context.table.leader
    return [row for row, gone in dropped.items() if leader[row] in gone]


def effects_of_phase_u(plan: PhaseU, failed: Collection[int]) -> Effects:
    """Rows whose assignment could not be written get the old one back."""
    back = {row: plan.before[row] for row in failed if row in plan.before}
    requests = LeaderAndIsrRequests(list(back), [old.replicas for old in back.values()])
    return give_back(back, plan.states)._replace(leader_and_isr=[requests])


def epochs_not_raised(context: ControllerContext, plan: PhaseU, failed: Collection[int]) -> list[int]:
    """Rows with dropped replicas whose leader epoch the phases have not raised.

    It must be raised before the replicas are stopped: brokers of 2.6 to 3.4.0 ignore a StopReplica with the leader
    epoch that they know (KAFKA-13972).  Kafka stops them first.
    """
    table, known = context.table, plan.leader_epochs
    return [
        row
        for row in plan.dropped_without(failed)
        if table.topic_of[row] >= 0 and table.isr_of[row] != NO_ISR and table.leader_epoch[row] == known[row]
    ]


def effects_of_dropping(
    context: ControllerContext, plan: PhaseU, failed: Collection[int], raised: Sequence[int]
) -> Effects:
    """Stop the dropped replicas, once leader epochs are above those that brokers know."""
    dropped = {row: b for row, b in plan.dropped_without(failed).items() if context.table.topic_of[row] >= 0}
    return Effects(leader_and_isr=[to_replicas(context, raised)], owed=debts_owed(context, dropped))


# -- phase A -----------------------------------------------------------------------------------------------------------


def untold(context: ControllerContext, rows: Iterable[int], raised: Collection[int]) -> list[int]:
    """Rows with leadership whose leader epoch was not raised: a leader would not heed the same epoch."""
    done = frozenset(raised)
    return [row for row in rows if row not in done and context.table.isr_of[row] != NO_ISR]


def effects_of_phase_a(context: ControllerContext, raised: Sequence[int]) -> Effects:
    """Send all replicas the union of origin and target, now that the leader epochs are raised."""
    leader_and_isr: list[SharedLeaderAndIsrRequests] = []
    for row in raised:
        assignment = context.table.assignment(row)
        leader_and_isr.append(SharedLeaderAndIsrRequests(assignment.origin, (row,)))
        leader_and_isr.append(SharedLeaderAndIsrRequests(assignment.adding, (row,), is_new=True))
    return Effects(leader_and_isr=leader_and_isr)


def replicas_to_create(context: ControllerContext, rows: Iterable[int]) -> dict[int, list[int]]:
    """Broker -> rows whose added replica becomes NewReplica; without leadership, the first election informs it."""
    state, absent = context.table.replica_state, ReplicaState.NonExistentReplica
    added = {row: context.table.assignment(row).adding for row in rows}
    return by_broker({row: [b for b in brokers if state(row, b) is absent] for row, brokers in added.items()})


# -- phase B -----------------------------------------------------------------------------------------------------------


class PhaseB(NamedTuple):
    """Rows whose whole target is in sync."""

    found: dict[int, list[int]]
    """Broker -> rows whose added replica was in sync before any phase created it."""
    added: dict[int, list[int]]
    """Broker -> rows whose replica becomes OnlineReplica."""
    unelectable: list[int]
    """Rows that no replica of the target can lead: none of their replicas is removed yet."""
    before: dict[int, ReplicaAssignment]
    """The other rows, with their assignments during the reassignment."""
    moving: list[int]
    """Those of the other rows whose leader is not in the target, or not online."""
    states: Mapping[int, Mapping[int, ReplicaState]]
    """Row -> removed replica -> its state before."""

    def without(self, rows: Collection[int]) -> PhaseB:
        """The phase without these rows."""
        return self._replace(before={row: old for row, old in self.before.items() if row not in rows})

    def targets(self) -> dict[int, ReplicaAssignment]:
        """Row -> the final assignment, which adds and removes nothing."""
        return {row: ReplicaAssignment(old.target) for row, old in self.before.items()}

    def removed(self) -> dict[int, tuple[int, ...]]:
        """Row -> the replicas that are removed; without the rows that remove none."""
        return {row: old.removing for row, old in self.before.items() if old.removing}


def plan_phase_b(context: ControllerContext, rows: Sequence[int]) -> PhaseB:
    """Plan phase B of rows whose whole targets are in sync."""
    table, online = context.table, ReplicaState.OnlineReplica
    before = {row: table.assignment(row) for row in rows}
    added = {row: [b for b in a.adding if table.replica_state(row, b) is not online] for row, a in before.items()}
    outside = [
        row
        for row, assignment in before.items()
        if table.leader[row] not in assignment.target or not context.is_replica_online(row, table.leader[row])
    ]
    unelectable = set(elect(context, [row for row in outside if table.isr_of[row] != NO_ISR], Strategy.REASSIGN).failed)
    moving = [row for row in outside if row not in unelectable]
    states = _states(context, {row: old.removing for row, old in before.items() if old.removing})
    found = replicas_to_create(context, rows)
    return PhaseB(found, by_broker(added), sorted(unelectable), before, moving, states).without(unelectable)


def not_moved(context: ControllerContext, plan: PhaseB, elected: Collection[int]) -> list[int]:
    """Rows that were to get another leader and got none, because the ISR had changed; no replica is removed."""
    return [row for row in plan.moving if row not in elected and context.table.isr_of[row] != NO_ISR]


def leaders_that_stay(context: ControllerContext, plan: PhaseB, elected: Collection[int]) -> list[int]:
    """Rows whose leader epoch has to be raised because no election has raised it."""
    return [row for row in plan.before if row not in elected and context.table.isr_of[row] != NO_ISR]


def plan_commit(context: ControllerContext, plan: PhaseB) -> tuple[PhaseB, dict[int, tuple[int, ...]]]:
    """Return the rows that may end with their targets, and row -> removed replicas, whose deletion brokers will owe.

    Other rows, whose ISR or leader has changed meanwhile, stay between origin and target, and are resumed later.
    """
    safe = plan.without([row for row in plan.before if not nothing_can_be_lost(context, row)])
    return safe, {row: brokers for row, brokers in safe.removed().items() if context.table.isr_of[row] != NO_ISR}


def effects_of_commit(
    context: ControllerContext, plan: PhaseB, ended: Collection[int], removed: Mapping[int, Sequence[int]]
) -> Effects:
    """Stop removed replicas of the rows ``ended``, whose targets were written; others get the old assignment back."""
    back = {row: old for row, old in plan.before.items() if row not in ended}
    return give_back(back, plan.states)._replace(
        leader_and_isr=[LeaderAndIsrRequests(list(back), [old.replicas for old in back.values()])],
        owed=debts_owed(context, {row: brokers for row, brokers in removed.items() if row in ended}),
    )


# -- brokers in ISRs that are not replicas -----------------------------------------------------------------------------


def non_replicas_in_isrs(context: ControllerContext) -> dict[int, tuple[int, ...]]:
    """Row -> brokers in its ISR that are not replicas, as Kafka's controller leaves them if it ends after writing the
    assignment."""
    table = context.table
    replicas, in_sync = table.assignments.values, table.isrs.values
    combinations = set(zip(table.assignment_of, table.isr_of, strict=True))  # membership only
    odd = {
        (a, i) for a, i in combinations if i != NO_ISR and a >= 0 and not set(in_sync[i]) <= set(replicas[a].replicas)
    }
    rows = [row for row in table.rows() if (table.assignment_of[row], table.isr_of[row]) in odd] if odd else []
    return {row: tuple(non_replicas(context, row, table.isr(row))) for row in rows}


def still_non_replicas(context: ControllerContext) -> dict[int, list[int]]:
    """Row -> those of the noted brokers that are not replicas now, perhaps none; the ISR may be without them by now."""
    noted = context.read_with_non_replicas
    return {row: non_replicas(context, row, brokers) for row, brokers in noted.items()}


class NonReplicas(NamedTuple):
    """Row -> brokers that are not replicas, for rows led by a replica."""

    all: dict[int, Sequence[int]]
    in_sync: dict[int, Sequence[int]]
    """The rows whose ISR contains any of these brokers."""


def led_by_non_replicas(context: ControllerContext, found: Mapping[int, Sequence[int]]) -> list[int]:
    """Rows led by a broker that is not a replica, although a live, in-sync replica could lead."""
    table = context.table
    return [
        row
        for row, brokers in found.items()
        if table.leader[row] in brokers
        and not context.needs_no_leader(row)
        and any(b in table.isr(row) and context.is_replica_online(row, b) for b in table.replicas(row))
    ]


def plan_non_replicas(context: ControllerContext, found: Mapping[int, Sequence[int]]) -> NonReplicas:
    """Select the rows whose non-replicas can go; ``found``: row -> brokers that are not replicas."""
    table = context.table
    odd = {
        row: brokers
        for row, brokers in found.items()
        if brokers and table.leader[row] in table.replicas(row) and not context.needs_no_leader(row)
    }
    return NonReplicas(odd, {row: b for row, b in odd.items() if not set(b).isdisjoint(table.isr(row))})


def no_longer_in_sync(context: ControllerContext, plan: NonReplicas) -> dict[int, Sequence[int]]:
    """Row -> its non-replicas, for rows whose ISR contains none of them: these brokers are to delete their logs."""
    return {row: b for row, b in plan.all.items() if set(b).isdisjoint(context.table.isr(row))}


# -- replicas ----------------------------------------------------------------------------------------------------------


def to_replicas(context: ControllerContext, rows: Sequence[int]) -> LeaderAndIsrRequests:
    """Requests that send each row to all of its replicas."""
    return LeaderAndIsrRequests(rows, [context.table.replicas(row) for row in rows])


def debts_owed(context: ControllerContext, removed: Mapping[int, Sequence[int]]) -> list[Debt]:
    """The debts for replicas (row -> brokers) that assignments no longer name."""
    found: list[Debt] = []
    for row, brokers in removed.items():
        name, number = context.table.topic_partition(row)
        found += [debt for broker in brokers if (debt := context.debts.get(broker, name, number)) is not None]
    return found


def debts_of(context: ControllerContext, removed: Mapping[int, Sequence[int]]) -> Changes:
    """The debts that brokers (row -> brokers) incur by ceasing to be replicas."""
    table, changes = context.table, Changes(context.debts)
    for row, brokers in removed.items():
        topic = table.topic(row)
        for broker in brokers:
            if broker not in context.controllers:
                changes.owe(broker, topic.name, topic.id, table.index_of[row])
    return changes


def no_longer_owed(context: ControllerContext, wanted: Mapping[int, ReplicaAssignment]) -> list[Debt]:
    """Debts of brokers that the ``wanted`` assignments make replicas again."""
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
    """Turn row -> brokers into broker -> rows, both ascending."""
    found: dict[int, list[int]] = {}
    for row in sorted(replicas):
        for broker in replicas[row]:
            found.setdefault(broker, []).append(row)
    return dict(sorted(found.items()))


def naming_controllers(context: ControllerContext) -> list[int]:
    """The rows whose assignments name a controller as a replica, ascending."""
    table = context.table
    return sorted({row for controller in context.controllers for row in table.partitions_on_broker(controller)})


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
