"""The partition state machine's decisions (Kafka's ``ZkPartitionStateMachine``).

New -> Online *initialises* a partition: its first live replica leads, all live ones are in sync.  Offline -> Online and
Online -> Online *elect* by a strategy.  Every other transition changes memory only.  This module decides what to write,
and what follows once it is written; the controller's shell carries both out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

from aiocontroller.core.columns import take
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.effects import Effects, Entered, LeaderAndIsrRequests
from aiocontroller.core.election import (
    NEVER_UNCLEAN,
    NO_MIN_ISRS,
    Elections,
    Strategy,
    UncleanPolicy,
    elect,
    recovery_state_after,
    with_online_replica,
    without_online_isr,
)
from aiocontroller.core.ids import INITIAL_LEADER_EPOCH, NO_LEADER, RECOVERED, LeaderAndIsr, MinIsr
from aiocontroller.core.leadership_changes import LeadershipChange, LeadershipFacts, Written
from aiocontroller.core.partitions import NO_ISR, PartitionTable
from aiocontroller.core.states import VALID_PREVIOUS_PARTITION_STATES, PartitionState
from aiocontroller.core.text import brokers_named
from aiocontroller.core.unclean_recovery import BY_RULE, Recovery, RowEvidence, choose_best_logs

COMPARED_AT_ONCE = 500
"""Partitions whose logs are compared before other tasks may run: each takes ten times as long as others."""


class Checked(NamedTuple):
    """Rows that may make a transition, and rows that may not."""

    valid: list[int]
    refused: list[int]


def check_valid_previous_states(table: PartitionTable, rows: Sequence[int], target: PartitionState) -> Checked:
    """Which partitions may make the transition to the target state, by the table of ``states``."""
    allowed = {int(s) for s in VALID_PREVIOUS_PARTITION_STATES[target]}
    [states] = take(rows, table.state)
    if allowed.issuperset(states):
        return Checked(list(rows), [])
    legal = [state in allowed for state in states]
    return Checked(list(compress(rows, legal)), [row for row, ok in zip(rows, legal, strict=True) if not ok])


def initialize_partition_states(context: ControllerContext) -> None:
    """Set the states at failover: New without leadership, Online with an online leader, else Offline."""
    table = context.table
    rows = table.rows()
    isrs, leaders = take(rows, table.isr_of, table.leader)
    away = set(leaders).difference(context.live)
    table.set_state(rows, PartitionState.OnlinePartition)
    if away or context.offline_dirs:
        offline = [
            row
            for row, leader in zip(rows, leaders, strict=True)
            if leader in away or (context.offline_dirs and not context.is_replica_online(row, leader))
        ]
        table.set_state(offline, PartitionState.OfflinePartition)
    if NO_ISR in isrs:
        new = list(compress(rows, map(NO_ISR.__eq__, isrs)))
        table.set_state(new, PartitionState.NewPartition)


def partitions_to_bring_online(
    context: ControllerContext, topic: str | None = None, among: Iterable[int] | None = None
) -> list[int]:
    """Every New or Offline partition, ascending, except of topics that are being deleted.

    Those of one ``topic``, or ``among`` some rows, ascending, if given.
    """
    table = context.table
    waiting = sorted(table.not_online) if among is None else [row for row in among if row in table.not_online]
    rows = context.staying(waiting)
    return rows if topic is None else [row for row in rows if table.topic(row).name == topic]


def partitions_with_offline_leader(context: ControllerContext) -> list[int]:
    """The partitions whose leader is not online, ascending, except those of topics being deleted.

    Only partitions with a replica that is not online are looked at.  A suspected leader may still be alive: it stays
    leader if no other in-sync replica can replace it.
    """
    table = context.table
    rows = table.partitions_on_brokers(b for b in table.brokers_with_replicas() if b not in context.live)
    if context.offline_dirs:
        rows = sorted(set(rows).union(*context.offline_dirs.values()))
    isrs, leaders = take(rows, table.isr_of, table.leader)
    if context.offline_dirs:
        online = map(context.is_replica_online, rows, leaders)
    else:
        online = map(context.live.__contains__, leaders)
    away = [row for row, isr, lives in zip(rows, isrs, online, strict=True) if isr != NO_ISR and not lives]
    if context.suspected:
        away = [row for row in away if not _may_lead_unheard(context, row)]
    return context.staying(away)


def _may_lead_unheard(context: ControllerContext, row: int) -> bool:
    leader = context.table.leader[row]
    return leader in context.suspected and context.is_replica_online(row, leader, include_shutting_down=True)


def plan_initialization(context: ControllerContext, rows: Sequence[int]) -> tuple[Decisions, list[int]]:
    """The first leadership of New partitions, and the rows of those without a live replica."""
    table, live, order = context.table, context.live, context.leader_order()
    decisions, failed = Decisions.none(), []
    memo: dict[int, tuple[int, ...]] = {}
    first: dict[tuple[int, ...], LeaderAndIsr] = {}
    for row in rows:
        assignment = table.assignment_of[row]
        alive = memo.get(assignment)
        if alive is None or context.offline_dirs:
            alive = memo[assignment] = tuple(
                r for r in table.replicas(row) if r in live and context.is_replica_online(row, r)
            )
        if not alive:
            failed.append(row)
            continue
        if alive not in first:
            first[alive] = LeaderAndIsr(order(alive)[0], INITIAL_LEADER_EPOCH, alive, context.epoch, -1, RECOVERED)
        decisions.rows.append(row)
        decisions.leaderships.append(first[alive])
        decisions.recipients.append(alive)
    return decisions, failed


class InitializationPlan(NamedTuple):
    """First leaders of New partitions."""

    decisions: Decisions
    leaderless: list[int]
    """Partitions without a live replica."""

    def effects(self, context: ControllerContext, written: Written) -> Effects:
        """The created partitions become Online and are sent to their live replicas as new."""
        return effects_of_initialization(written.done)


class Initialization(LeadershipChange[InitializationPlan]):
    """The first leaders of New partitions.

    A state that exists already was written by an earlier attempt of ours whose answer was lost, or by an earlier term.
    Kafka leaves such a partition New and leaderless until the next failover; here the state is adopted, and the row
    becomes undecided: it needs an ordinary election.
    """

    creates = True
    recorded = False

    def __init__(self, rows: Sequence[int]) -> None:
        super().__init__(rows)
        self.leaderless: list[int] = []

    def plan(self, context: ControllerContext, rows: Sequence[int], facts: LeadershipFacts) -> InitializationPlan:
        """A state for each row with a live replica; O(rows)."""
        return InitializationPlan(*plan_initialization(context, rows))

    def carried_out(self, plan: InitializationPlan, effects: Effects) -> None:
        """Collect the rows that stay New, since no replica is live."""
        self.leaderless += plan.leaderless


def effects_of_initialization(done: Decisions) -> Effects:
    """``done``: the states that were created."""
    return Effects(
        (Entered(done.rows, PartitionState.OnlinePartition, "initialized"),),
        (LeaderAndIsrRequests(done.rows, done.recipients, is_new=True),),
    )


def plan_elections(
    context: ControllerContext,
    rows: Sequence[int],
    strategy: Strategy,
    unclean: UncleanPolicy = NEVER_UNCLEAN,
    *,
    recovery_supported: bool = True,
    evidence: RowEvidence | None = None,
    recovery: Recovery = BY_RULE,
    min_isrs: Mapping[str, MinIsr] = NO_MIN_ISRS,
) -> tuple[Decisions, Elections]:
    """New leadership by the strategy, leader epochs raised by one; ``Elections.failed`` keep their leadership.

    ``evidence``: of the logs, where these decide, by ``recovery`` or in unclean elections; None: elect as Kafka does.
    """
    table, epoch = context.table, context.epoch
    leader_epoch, partition_epoch, recovery_state = table.leader_epoch, table.partition_epoch, table.recovery_state
    elections = elect(context, rows, strategy, unclean, min_isrs)
    if evidence is not None:
        elections = choose_best_logs(context, elections, evidence, recovery, strategy=strategy, unclean=unclean)
    decisions = Decisions(
        elections.rows,
        [
            LeaderAndIsr(
                outcome.leader,
                leader_epoch[row] + 1,
                outcome.isr,
                epoch,
                partition_epoch[row],
                recovery_state_after(outcome, recovery_state[row], recovery_supported),
            )
            for row, outcome in zip(elections.rows, elections.outcomes, strict=True)
        ],
        [outcome.recipients for outcome in elections.outcomes],
    )
    return decisions, elections


def effects_of_elections(
    strategy: Strategy,
    unclean: Collection[int],
    done: Decisions,
    eligible: Collection[int] = (),
    complete: Collection[int] = (),
) -> Effects:
    """``unclean``, ``eligible``: the rows whose new leader was not in the ISR; ``complete``: those of ``unclean`` that
    lose nothing.  The journal tells them apart."""
    uncleanly = [row for row in done.rows if row in unclean]
    by_ending = {
        "": [row for row in done.rows if row not in unclean and row not in eligible],
        ", unclean": [row for row in uncleanly if row not in complete],
        ", eligible": [row for row in done.rows if row in eligible],
        ", complete": [row for row in uncleanly if row in complete],
    }
    online = PartitionState.OnlinePartition
    return Effects(
        tuple([Entered(rows, online, strategy.value + ending) for ending, rows in by_ending.items() if rows]),
        (LeaderAndIsrRequests(done.rows, done.recipients),),
        unclean_elections=len(uncleanly),
    )


class ElectionPlan(NamedTuple):
    """Leaders by a strategy."""

    decisions: Decisions
    strategy: Strategy
    unclean: Collection[int]
    failed: list[int]
    """Partitions for which the strategy finds no leader."""
    unasked: Sequence[int] = ()
    """Partitions whose replicas must first be asked how far their logs reach."""
    eligible: Collection[int] = ()
    """Partitions whose new leader is an eligible replica."""
    waiting: Mapping[int, tuple[int, ...]] = {}
    """The failed partitions that wait until these brokers report their logs."""
    by_logs: Collection[int] = ()
    """Partitions whose leader the logs have decided."""
    complete: Collection[int] = ()
    """Those of ``unclean`` whose new leader's log is proven to have everything."""

    def effects(self, context: ControllerContext, written: Written) -> Effects:
        """The elected partitions become Online and are sent to their recipients; unclean elections are counted."""
        return effects_of_elections(self.strategy, self.unclean, written.done, self.eligible, self.complete)


class LeaderElection(LeadershipChange[ElectionPlan]):
    """Elects leaders by a strategy."""

    def __init__(
        self,
        rows: Sequence[int],
        strategy: Strategy,
        *,
        force_unclean: bool = False,
        evidence: RowEvidence | None = None,
        recovery: Recovery = BY_RULE,
    ) -> None:
        super().__init__(rows)
        self.strategy = strategy
        self.unasked: list[int] = []
        self.from_logs: set[int] = set()  # membership only
        """Rows with a leader that the logs have decided, or that is unclean."""
        self._force_unclean = force_unclean
        self._evidence = evidence
        self.at_once = COMPARED_AT_ONCE if evidence else None
        self._recovery = recovery
        self._hopeless: list[int] = []
        """Rows that no replica can lead according to memory, not checked in ZooKeeper yet."""
        self._read_again: set[int] = set()  # membership only

    def topics_asked_for(self, context: ControllerContext, rows: Sequence[int]) -> list[str]:
        """The topics of partitions without an online in-sync replica, which might get an unclean leader, of those whose
        logs may decide, and of those with eligible replicas."""
        table = context.table
        asks_for_policy = self.strategy is Strategy.OFFLINE and not self._force_unclean
        needy = without_online_isr(context, rows) if asks_for_policy else []
        if asks_for_policy and self._recovery.compares:
            needy += [row for row in rows if table.leader[row] == NO_LEADER]
        if table.eligible:
            needy += [row for row in rows if row in table.eligible]
        return list(dict.fromkeys(table.topic(row).name for row in needy))

    def plan(self, context: ControllerContext, rows: Sequence[int], facts: LeadershipFacts) -> ElectionPlan:
        """Leaders by the strategy; ``facts`` say which topics allow unclean ones."""
        unclean = UncleanPolicy(True) if self._force_unclean else facts.unclean
        decisions, elections = plan_elections(
            context,
            rows,
            self.strategy,
            unclean,
            recovery_supported=facts.recovery_supported,
            evidence=self._evidence,
            recovery=self._recovery,
            min_isrs=facts.min_isrs,
        )
        outcomes = dict(zip(decisions.rows, elections.outcomes, strict=True))
        table = context.table
        eligible = {
            row
            for row, outcome in outcomes.items()
            if not outcome.unclean and row in table.eligible and outcome.leader not in table.isr(row)
        }
        return ElectionPlan(
            decisions,
            self.strategy,
            {row for row, outcome in outcomes.items() if outcome.unclean},
            elections.failed,
            elections.unasked,
            eligible,
            elections.waiting,
            elections.by_logs,
            {row for row, outcome in outcomes.items() if outcome.complete},
        )

    def carried_out(self, plan: ElectionPlan, effects: Effects) -> None:
        """Collect the rows without a leader with the reason, to be read again (``doubtful``)."""
        self.failed.update(dict.fromkeys(plan.failed, f"no replica qualifies by the {self.strategy.value}"))
        self._hopeless += plan.failed
        self.failed.update(
            (row, f"it waits for {brokers_named(of)} to report the ends of logs") for row, of in plan.waiting.items()
        )
        self.unasked += plan.unasked
        self.from_logs.update(plan.unclean, plan.by_logs)
        self.failed.update(dict.fromkeys(plan.unasked, "its replicas are being asked how far their logs reach"))

    def doubtful(self, context: ControllerContext) -> list[int]:
        """ZooKeeper is read before the conclusion that no replica can lead (Kafka always reads first).

        Brokers with inter.broker.protocol.version below 2.7 write ISRs themselves, so a replica that is out of sync in
        memory may be in sync.  Partitions with no replica online cannot gain from it and are skipped.
        """
        hopeless, self._hopeless = self._hopeless, []
        rows = [row for row in with_online_replica(context, hopeless) if row not in self._read_again]
        self._read_again.update(rows)
        return rows


def plan_leader_epochs(context: ControllerContext, rows: Sequence[int]) -> Decisions:
    """The same leadership with leader epochs raised by one; partitions without leadership are left out."""
    table = context.table
    led = [row for row in rows if table.isr_of[row] != NO_ISR]
    return Decisions(
        led,
        [
            LeaderAndIsr(
                table.leader[row],
                table.leader_epoch[row] + 1,
                table.isr(row),
                context.epoch,
                table.partition_epoch[row],
                table.recovery_state[row],
            )
            for row in led
        ],
        [()] * len(led),
    )


class EpochPlan(NamedTuple):
    """Higher leader epochs."""

    decisions: Decisions

    def effects(self, context: ControllerContext, written: Written) -> Effects:
        """None: brokers get the epochs with a later request."""
        return Effects()


class EpochRise(LeadershipChange[EpochPlan]):
    """Raises leader epochs and changes nothing else."""

    def plan(self, context: ControllerContext, rows: Sequence[int], facts: LeadershipFacts) -> EpochPlan:
        """The rows that have a leadership, with the next leader epoch."""
        return EpochPlan(plan_leader_epochs(context, rows))
