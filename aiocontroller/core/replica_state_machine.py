"""The replica state machine's decisions (Kafka's ``ZkReplicaStateMachine``).

Replicas are given as ``{broker: rows}``.  A partition's replica states are one interned tuple, so a transition is
decided once for each combination of assignment and states.

Departures from Kafka: when several brokers go offline in one step, a partition's ISR shrinks once for all of them and
its leader epoch rises by one, while Kafka goes broker by broker.  When the whole ISR goes offline, Kafka keeps the
member that it happened to treat last; here the whole ISR stays, since each member still holds every acknowledged
record.  It also stays if only non-replicas would be left in it: Kafka keeps these, although they can never lead.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from itertools import compress
from typing import NamedTuple

from aiocontroller.core.columns import take
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.effects import Effects, Entered, LeaderAndIsrRequests, Replicas, SharedLeaderAndIsrRequests
from aiocontroller.core.ids import NO_LEADER, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.leadership_changes import LeadershipChange, LeadershipFacts, Written
from aiocontroller.core.partitions import NO_ISR, PartitionTable
from aiocontroller.core.states import VALID_PREVIOUS_REPLICA_STATES, ReplicaState


class CheckedReplicas(NamedTuple):
    """Replicas that may make a transition, and replicas that may not, as broker -> rows."""

    valid: dict[int, list[int]]
    refused: dict[int, list[int]]


def check_valid_previous_states(table: PartitionTable, replicas: Replicas, target: ReplicaState) -> CheckedReplicas:
    """Which replicas may make the transition, by the table of ``states``; brokers without any are left out.

    A leader cannot be a new replica.
    """
    allowed = VALID_PREVIOUS_REPLICA_STATES[target]
    checked = CheckedReplicas({}, {})
    for broker, rows in replicas.items():
        states = _states(table, broker, rows)
        leading = _led_by(table, broker, rows) if target is ReplicaState.NewReplica else ()
        if allowed.issuperset(states.values()) and not leading:
            valid, refused = list(rows), list[int]()
        else:
            legal = [
                states[combination] in allowed and row not in leading
                for row, combination in zip(rows, _combinations(table, rows), strict=True)
            ]
            valid = list(compress(rows, legal))
            refused = [row for row, ok in zip(rows, legal, strict=True) if not ok]
        if valid:
            checked.valid[broker] = valid
        if refused:
            checked.refused[broker] = refused
    return checked


def _led_by(table: PartitionTable, broker: int, rows: Sequence[int]) -> set[int]:
    return {row for row in rows if table.isr_of[row] != NO_ISR and table.leader[row] == broker}


def effects_of_transition(table: PartitionTable, replicas: Replicas, target: ReplicaState) -> Effects:
    """What follows when the replicas, which may make the transition, enter any state but OfflineReplica."""
    entered = [(replicas, target)]
    match target:
        case ReplicaState.NewReplica:
            return Effects(
                leader_and_isr=[SharedLeaderAndIsrRequests((b,), rows, is_new=True) for b, rows in replicas.items()],
                replicas=entered,
            )
        case ReplicaState.OnlineReplica:
            # A NewReplica was sent its request (is_new) in the transition to NewReplica.
            known = {b: not_in_state(table, b, rows, ReplicaState.NewReplica) for b, rows in replicas.items()}
            return Effects(
                leader_and_isr=[SharedLeaderAndIsrRequests((b,), rows) for b, rows in known.items()], replicas=entered
            )
        case ReplicaState.ReplicaDeletionStarted:
            return Effects(deleted=replicas, replicas=entered)
        case _:
            return Effects(replicas=entered)


def among(replicas: Replicas, rows: Sequence[int]) -> dict[int, list[int]]:
    """The replicas restricted to these rows, ascending; brokers without any are left out."""
    found = {}
    wanted = frozenset(rows)
    for broker, own in replicas.items() if wanted else ():
        near = own[bisect_left(own, rows[0]) : bisect_right(own, rows[-1])]
        kept = [row for row in near if row in wanted]
        if kept:
            found[broker] = kept
    return found


def not_in_state(table: PartitionTable, broker: int, rows: Sequence[int], state: ReplicaState) -> list[int]:
    """The rows without a replica in this state on the broker."""
    states = _states(table, broker, rows)
    if state not in states.values():
        return list(rows)
    return [row for row, pair in zip(rows, _combinations(table, rows), strict=True) if states[pair] is not state]


def _combinations(table: PartitionTable, rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """(assignment, replica states) of each partition, as interned ids."""
    return zip(*take(rows, table.assignment_of, table.replica_states_of), strict=True)


def _states(table: PartitionTable, broker: int, rows: Sequence[int]) -> dict[tuple[int, int], ReplicaState]:
    """The state of the broker's replica in each combination that occurs; NonExistentReplica if it has none."""
    assignments, values = table.assignments.values, table.replica_states.values
    found = {}
    for combination in dict.fromkeys(_combinations(table, rows)):
        replicas, states = assignments[combination[0]].replicas, values[combination[1]]
        at = replicas.index(broker) if broker in replicas else -1
        found[combination] = ReplicaState.NonExistentReplica if at < 0 else ReplicaState(states[at])
    return found


def set_replica_states(table: PartitionTable, replicas: Replicas, target: ReplicaState) -> None:
    """Set states without a check; brokers that are not replicas of a partition are skipped."""
    assignments, values = table.assignments.values, table.replica_states.values
    for broker, rows in replicas.items():
        changed: dict[tuple[int, int], int] = {}
        for combination in sorted(set(_combinations(table, rows))):
            members = zip(assignments[combination[0]].replicas, values[combination[1]], strict=True)
            states = tuple(target if replica == broker else ReplicaState(state) for replica, state in members)
            changed[combination] = table.replica_states.id(states)
        if any(before != after for (_, before), after in changed.items()):
            table.set_replica_states(rows, [changed[pair] for pair in _combinations(table, rows)])


def initialize_replica_states(context: ControllerContext) -> None:
    """Set the states at failover: online replicas Online, the rest DeletionIneligible."""
    table, live = context.table, context.live
    everything = table.rows()
    [assignments] = take(everything, table.assignment_of)
    states = {
        assignment: table.replica_states.id(
            tuple(
                ReplicaState.OnlineReplica if replica in live else ReplicaState.ReplicaDeletionIneligible
                for replica in table.assignments.values[assignment].replicas
            )
        )
        for assignment in sorted(set(assignments))
    }
    table.set_replica_states(everything, map(states.__getitem__, assignments))
    for broker, damaged in context.offline_dirs.items():
        if broker in live:
            lost = [row for row in table.partitions_on_broker(broker) if row in damaged]
            set_replica_states(table, {broker: lost}, ReplicaState.ReplicaDeletionIneligible)


def online_and_offline(context: ControllerContext, broker: int) -> tuple[list[int], list[int]]:
    """The partitions whose replica on the broker is online, and the others."""
    rows, damaged = context.table.partitions_on_broker(broker), context.offline_dirs.get(broker, ())
    if broker not in context.live:
        return [], rows
    if not damaged:
        return rows, []
    return [row for row in rows if row not in damaged], [row for row in rows if row in damaged]


class OfflinePlan(NamedTuple):
    """The effects of a transition to OfflineReplica."""

    shrink: Decisions
    """ISRs to write without the replicas that go offline."""
    unchanged: list[int]
    """Partitions whose ISR did not contain the replica: nothing is written, the other replicas get a LeaderAndIsr."""
    without_leadership: list[int]


def plan_offline(context: ControllerContext, replicas: Replicas) -> OfflinePlan:
    """Take the replicas out of their partitions' ISRs; partitions whose leader goes have none then (elect first)."""
    table, isrs, epoch = context.table, context.table.isrs.values, context.epoch
    shrunk: dict[tuple[int, int, tuple[int, ...]], tuple[int, ...] | None] = {}
    others: dict[tuple[int, tuple[int, ...]], tuple[int, ...]] = {}
    plan = OfflinePlan(Decisions.none(), [], [])
    going = leaving(replicas)
    columns = take(
        [row for row, _ in going],
        table.isr_of,
        table.assignment_of,
        table.leader,
        table.leader_epoch,
        table.partition_epoch,
        table.recovery_state,
    )
    rows, leaderships, recipients = plan.shrink
    for (row, gone), isr, assignment, leader, leader_epoch, partition_epoch, recovery_state in zip(
        going, *columns, strict=True
    ):
        if isr == NO_ISR:
            plan.without_leadership.append(row)
            continue
        combination = (isr, assignment, gone)
        if combination not in shrunk:
            shrunk[combination] = _without(isrs[isr], gone, table.assignments.values[assignment].replicas)
        left = shrunk[combination]
        if left is None:
            plan.unchanged.append(row)
            continue
        key = (assignment, gone)
        if key not in others:
            others[key] = tuple(r for r in table.assignments.values[assignment].replicas if r not in gone)
        rows.append(row)
        recipients.append(others[key])
        leads = NO_LEADER if leader in gone else leader
        leaderships.append(LeaderAndIsr(leads, leader_epoch + 1, left, epoch, partition_epoch, recovery_state))
    return plan


def effects_of_offline(
    context: ControllerContext, replicas: Replicas, plan: OfflinePlan, stop: bool, done: Decisions
) -> Effects:
    """The remaining replicas get a LeaderAndIsr; with ``stop``, those that went offline are stopped."""
    leader_and_isr = [LeaderAndIsrRequests(done.rows, done.recipients)]
    if plan.unchanged:
        gone = leaving(among(replicas, plan.unchanged))
        others = [tuple(r for r in context.table.replicas(row) if r not in brokers) for row, brokers in gone]
        leader_and_isr.append(LeaderAndIsrRequests(plan.unchanged, others, unless_sent=True))
    settled = sorted((*done.rows, *plan.unchanged, *plan.without_leadership)) if stop else []
    return Effects(
        (Entered(done.rows, None, ReplicaState.OfflineReplica.name),),
        tuple(leader_and_isr),
        plan.without_leadership,
        among(replicas, settled) if settled else {},
    )


class ShrinkingPlan(NamedTuple):
    """ISRs without the replicas."""

    replicas: Replicas
    offline: OfflinePlan
    stop: bool

    @property
    def decisions(self) -> Decisions:
        """The ISRs to write; the replicas without a change of an ISR are not among them."""
        return self.offline.shrink

    def effects(self, context: ControllerContext, written: Written) -> Effects:
        """The other replicas of what was written get a LeaderAndIsr; with ``stop``, brokers get StopReplica."""
        return effects_of_offline(context, self.replicas, self.offline, self.stop, written.done)


class IsrShrinking(LeadershipChange[ShrinkingPlan]):
    """Removes replicas from ISRs and informs the others.  With ``stop``, the removed replicas are stopped."""

    def __init__(self, replicas: Replicas, *, stop: bool = False) -> None:
        ascending = {broker: sorted(rows) for broker, rows in replicas.items()}
        several = len(ascending) != 1
        super().__init__(sorted(set[int]().union(*ascending.values())) if several else next(iter(ascending.values())))
        self.stopped: set[int] = set()
        self._unchanged: list[int] = []
        """Rows with none of the replicas in sync according to memory, not checked in ZooKeeper yet."""
        self._read_again: set[int] = set()  # membership only
        self._replicas = ascending
        self._stop = stop

    def plan(self, context: ControllerContext, rows: Sequence[int], facts: LeadershipFacts) -> ShrinkingPlan:
        """The ISRs of these rows without the replicas; O(rows * replicas)."""
        replicas = among(self._replicas, rows)
        return ShrinkingPlan(replicas, plan_offline(context, replicas), self._stop)

    def carried_out(self, plan: ShrinkingPlan, effects: Effects) -> None:
        """Collect the rows to be read again (``doubtful``) and the stopped ones."""
        self._unchanged += plan.offline.unchanged
        self.stopped.update(*effects.stopped.values())

    def doubtful(self, context: ControllerContext) -> list[int]:
        """ZooKeeper is read where there seems to be nothing to do: a leader may have added the replica to its ISR, and
        it does not remove a dead follower that was caught up."""
        rows = sorted(set(self._unchanged).difference(self._read_again))
        self._unchanged = []
        self._read_again.update(rows)
        return rows


def leaving(replicas: Replicas) -> list[tuple[int, tuple[int, ...]]]:
    """(row, the brokers of its given replicas), ascending."""
    if len(replicas) == 1:
        ((broker, rows),) = replicas.items()
        gone = (broker,)
        return [(row, gone) for row in sorted(rows)]
    leaving: dict[int, list[int]] = {}
    for broker, rows in replicas.items():
        for row in rows:
            leaving.setdefault(row, []).append(broker)
    return [(row, tuple(gone)) for row, gone in sorted(leaving.items())]


def _without(isr: tuple[int, ...], gone: Collection[int], replicas: Collection[int]) -> tuple[int, ...] | None:
    """The ISR without the gone brokers; all of it if no replica would be left; None if it contains none of them."""
    left = tuple(r for r in isr if r not in gone)
    if len(left) == len(isr):
        return None
    return isr if set(left).isdisjoint(replicas) else left


def drop_replicas(table: PartitionTable, replicas: Replicas) -> None:
    """Take replicas that no longer exist out of their partitions' assignments."""
    for broker, rows in replicas.items():
        for row in rows:
            old = table.assignment(row)
            table.set_assignment(
                row,
                ReplicaAssignment(
                    tuple(r for r in old.replicas if r != broker),
                    tuple(r for r in old.adding if r != broker),
                    tuple(r for r in old.removing if r != broker),
                ),
            )
