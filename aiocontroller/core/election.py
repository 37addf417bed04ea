"""Leader election: Kafka's four strategies, over many partitions at once.

Theory.  A strategy is a scalar rule over one partition's tuples (the four functions named as in Kafka's
``PartitionLeaderElectionAlgorithms``).  ``elect`` applies it to a batch and caches each answer by its inputs: the
interned assignment, the interned ISR, the replicas on failed directories, and whether an unclean choice is allowed.  A
broker that dies leaves thousands of partitions but only dozens of such combinations.

A replica is *online* when its broker is live (neither shutting down nor suspected to be dead) and its log directory
works.  Replicas are tried in the order of the assignment, or in that of ``leader_preferences``: first those of the
ISR, then the eligible ones (``core.eligible_replicas``).  A non-replica in the ISR keeps none of them from leading.  A
suspicion justifies no election from outside the ISR: a suspected broker may hold records and serve clients.  Nor does
the absence of a broker that is about to be taken in (``ControllerContext.returning``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.eligible_replicas import NONE_UNPROVEN, eligible_replicas, may_lead
from aiocontroller.core.ids import NO_LEADER, RECOVERING, MinIsr, ReplicaAssignment
from aiocontroller.core.partitions import NO_ISR

Replicas = tuple[int, ...]


class Strategy(Enum):
    """Kafka's strategies, by the names that its logs have."""

    OFFLINE = "OfflinePartitionLeaderElectionStrategy"
    REASSIGN = "ReassignPartitionLeaderElectionStrategy"
    PREFERRED = "PreferredReplicaPartitionLeaderElectionStrategy"
    CONTROLLED_SHUTDOWN = "ControlledShutdownPartitionLeaderElectionStrategy"


class UncleanPolicy(NamedTuple):
    """Which partitions may be led from outside their ISR when no member of it is online."""

    default: bool = False
    topics: dict[str, bool] | None = None
    """Topics whose own ``unclean.leader.election.enable`` overrides the default."""

    def allows(self, topic: str) -> bool:
        """Whether a replica outside the ISR may lead; a topic without a setting of its own has the default."""
        return self.default if self.topics is None else self.topics.get(topic, self.default)


NEVER_UNCLEAN = UncleanPolicy()
NO_MIN_ISRS: Mapping[str, MinIsr] = {}


class ElectionOutcome(NamedTuple):
    """A rule's result for one partition."""

    leader: int
    isr: Replicas
    recipients: Replicas
    """Brokers that get a LeaderAndIsr."""
    unclean: bool = False
    """The leader is neither in the ISR nor eligible."""
    complete: bool = False
    """It is unclean, and yet loses nothing: the leader's log is proven to have all that the others have."""


class Spare(NamedTuple):
    """What decides, beside a partition's ISR, which replicas may lead (``core.eligible_replicas``)."""

    eligible: Replicas = ()
    unproven: frozenset[int] = NONE_UNPROVEN

    def candidates(self, isr: Replicas, online: Collection[int]) -> Replicas:
        """The online replicas that may lead; all of them are equally good."""
        return may_lead(isr, online, self.eligible, self.unproven)

    def isr(self, leader: int, isr: Replicas) -> Replicas:
        """The ISR under this leader: without unproven members, and of an eligible leader alone."""
        if leader not in isr:
            return (leader,)
        return tuple(r for r in isr if r == leader or r not in self.unproven) if self.unproven else isr


NO_SPARE = Spare()


class Elections(NamedTuple):
    """A batch's outcomes, in parallel columns; ``failed`` are the rows for which the strategy finds no leader."""

    rows: list[int]
    outcomes: list[ElectionOutcome]
    failed: list[int]
    unasked: Sequence[int] = ()
    """Rows whose replicas must first be asked how far their logs reach."""
    waiting: Mapping[int, Replicas] = {}
    """The failed rows that wait until these brokers report their logs."""
    by_logs: Sequence[int] = ()
    """Rows for which the logs have decided, not the ISR."""


def offline_partition_leader_election(
    replicas: Replicas, isr: Replicas, online: Collection[int], unclean_allowed: bool, spare: Spare = NO_SPARE
) -> ElectionOutcome | None:
    """The first assigned replica that is online and may lead; without one, if that is allowed, the first online one."""
    alive = tuple(r for r in replicas if r in online)
    candidates = spare.candidates(isr, alive)
    for leader in alive:
        if leader in candidates:
            return ElectionOutcome(leader, spare.isr(leader, tuple(r for r in isr if r in online)), alive)
    if unclean_allowed and alive:
        return ElectionOutcome(alive[0], (alive[0],), alive, unclean=True)
    return None


def reassign_partition_leader_election(
    target: Replicas, isr: Replicas, online: Collection[int], spare: Spare = NO_SPARE
) -> ElectionOutcome | None:
    """The first target replica that is online and may lead; the ISR stays."""
    candidates = spare.candidates(isr, online)
    leader = next((r for r in target if r in candidates), None)
    return None if leader is None else ElectionOutcome(leader, spare.isr(leader, isr), target)


def preferred_replica_partition_leader_election(
    replicas: Replicas, isr: Replicas, online: Collection[int], spare: Spare = NO_SPARE
) -> ElectionOutcome | None:
    """The head of the assignment, if it is online and may lead; the ISR stays."""
    if not replicas or replicas[0] not in spare.candidates(isr, online):
        return None
    return ElectionOutcome(replicas[0], spare.isr(replicas[0], isr), replicas)


def controlled_shutdown_partition_leader_election(
    replicas: Replicas,
    isr: Replicas,
    online_or_shutting_down: Collection[int],
    shutting_down: Collection[int],
    spare: Spare = NO_SPARE,
) -> ElectionOutcome | None:
    """The first assigned replica that stays and may lead; brokers shutting down leave the ISR, and get a LeaderAndIsr
    as well."""
    alive = tuple(r for r in replicas if r in online_or_shutting_down)
    staying = tuple(r for r in alive if r not in shutting_down)
    candidates = spare.candidates(isr, staying)
    leader = next((r for r in staying if r in candidates), None)
    if leader is None:
        return None
    return ElectionOutcome(leader, spare.isr(leader, tuple(r for r in isr if r not in shutting_down)), alive)


def elect(
    context: ControllerContext,
    rows: Iterable[int],
    strategy: Strategy,
    unclean: UncleanPolicy = NEVER_UNCLEAN,
    min_isrs: Mapping[str, MinIsr] = NO_MIN_ISRS,
) -> Elections:
    """Apply the strategy; reads the context, changes nothing.  Partitions without leadership are skipped.

    ``min_isrs``: of topics whose partitions have eligible replicas, as ZooKeeper has them now.
    """
    table = context.table
    assignment_of, isr_of, topic_of = table.assignment_of, table.isr_of, table.topic_of
    assignments, isrs = table.assignments.values, table.isrs.values
    rule = _rule(context, strategy)
    may_be_unclean = strategy is Strategy.OFFLINE and (unclean.default or bool(unclean.topics))
    allowed_of_topic: dict[int, bool] = {}
    with_eligible, leader_of, unclean_spare = table.eligible, table.leader, Spare((), context.unproven_brokers())
    memo: dict[tuple[int, int, Replicas, bool, Spare], ElectionOutcome | None] = {}
    elections = Elections([], [], [])
    for row in rows:
        if isr_of[row] == NO_ISR:
            elections.failed.append(row)
            continue
        failed_dirs = context.offline_dir_replicas(row) if context.offline_dirs else ()
        allowed = False
        if may_be_unclean:
            topic = topic_of[row]
            if topic not in allowed_of_topic:
                allowed_of_topic[topic] = unclean.allows(table.topic(row).name)
            allowed = allowed_of_topic[topic]
        spare = unclean_spare if unclean_spare.unproven and leader_of[row] == NO_LEADER else NO_SPARE
        if row in with_eligible:
            spare = spare._replace(eligible=eligible_replicas(context, row, min_isrs.get(table.topic(row).name)))
        key = (assignment_of[row], isr_of[row], failed_dirs, allowed, spare)
        if key in memo:
            outcome = memo[key]
        else:
            outcome = memo[key] = rule(assignments[key[0]], isrs[key[1]], failed_dirs, allowed, spare)
        if outcome is None:
            elections.failed.append(row)
        else:
            elections.rows.append(row)
            elections.outcomes.append(outcome)
    return elections


_Rule = Callable[[ReplicaAssignment, Replicas, Replicas, bool, Spare], ElectionOutcome | None]


def _rule(context: ControllerContext, strategy: Strategy) -> _Rule:
    """The strategy's scalar rule, bound to the brokers that are live now."""
    live = context.live
    order = context.leader_order()
    registered = frozenset(context.brokers)
    leaving, suspected, returning = context.leaving, frozenset(context.suspected), context.returning

    def online(assignment: ReplicaAssignment, failed: Replicas) -> frozenset[int]:
        return live.intersection(assignment.replicas).difference(failed)

    def unless_heard_from(isr: Replicas, spare: Spare) -> Spare:
        """No replica is eligible while an ISR member is suspected: it may hold more than they do, and serve clients."""
        return spare if suspected.isdisjoint(isr) else spare._replace(eligible=())

    match strategy:
        case Strategy.OFFLINE:
            return lambda a, isr, failed, unclean, spare: offline_partition_leader_election(
                order(a.replicas),
                isr,
                live.difference(failed),
                unclean and suspected.isdisjoint(isr) and returning.isdisjoint(a.replicas),
                unless_heard_from(isr, spare),
            )
        case Strategy.REASSIGN:
            return lambda a, isr, failed, _, spare: _sent_to(
                a.replicas,
                reassign_partition_leader_election(
                    order(a.target), isr, online(a, failed), unless_heard_from(isr, spare)
                ),
            )
        case Strategy.PREFERRED:
            return lambda a, isr, failed, _, spare: preferred_replica_partition_leader_election(
                order(a.replicas), isr, online(a, failed), unless_heard_from(isr, spare)
            )
        case Strategy.CONTROLLED_SHUTDOWN:
            return lambda a, isr, failed, _, spare: controlled_shutdown_partition_leader_election(
                order(a.replicas), isr, registered.difference(failed), leaving, unless_heard_from(isr, spare)
            )


def _sent_to(replicas: Replicas, outcome: ElectionOutcome | None) -> ElectionOutcome | None:
    """The outcome, sent to all these replicas.

    Until a reassignment ends, the replicas to be removed still follow, or one of them led: they must be sent the new
    leader.
    """
    return None if outcome is None else outcome._replace(recipients=replicas)


def without_online_isr(context: ControllerContext, rows: Sequence[int]) -> list[int]:
    """The partitions with leadership but without an online in-sync replica: only these need the unclean setting."""
    table, memo = context.table, dict[tuple[int, int], bool]()
    found = []
    for row in rows:
        isr = table.isr_of[row]
        if isr == NO_ISR:
            continue
        key = (isr, table.assignment_of[row])
        if context.offline_dirs:
            dead = not any(context.is_replica_online(row, r) for r in table.replicas(row) if r in table.isr(row))
        elif key in memo:
            dead = memo[key]
        else:
            dead = memo[key] = context.live.intersection(table.replicas(row)).isdisjoint(table.isr(row))
        if dead:
            found.append(row)
    return found


def with_online_replica(context: ControllerContext, rows: Iterable[int]) -> list[int]:
    """The partitions with leadership that have an online replica, in sync or not."""
    table, live, memo = context.table, context.live, dict[int, bool]()
    found = []
    for row in rows:
        if table.isr_of[row] == NO_ISR:
            continue
        assignment = table.assignment_of[row]
        if context.offline_dirs:
            lives = any(context.is_replica_online(row, replica) for replica in table.replicas(row))
        elif assignment in memo:
            lives = memo[assignment]
        else:
            lives = memo[assignment] = not live.isdisjoint(table.replicas(row))
        if lives:
            found.append(row)
    return found


def recovery_state_after(outcome: ElectionOutcome, current: int, recovery_supported: bool) -> int:
    """RECOVERING after an unclean election where brokers know the state (inter.broker.protocol.version >= 3.2)."""
    return RECOVERING if outcome.unclean and recovery_supported else current
