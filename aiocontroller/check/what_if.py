"""Predicts a cluster's state if brokers died or shut down, or if replicas moved; the controller's own core decides.

The context is filled from ZooKeeper as in a failover, and every decision counts as written.  Nothing leaves this
process.  Time and load play no part: whatever is late in a real cluster is on time here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from aiocontroller.check.cluster_context import context_of
from aiocontroller.check.rules import UNCLEAN, is_true, min_isr
from aiocontroller.core import broker_changes, controlled_shutdown
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import BrokersRemoved, ShutdownBegun
from aiocontroller.core.decisions import commit
from aiocontroller.core.effects import Effects, Entered, Replicas
from aiocontroller.core.election import Strategy, UncleanPolicy
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import NO_LEADER, TopicPartition
from aiocontroller.core.leadership_changes import LeadershipChange, LeadershipFacts, Written
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.reassignment import check_targets
from aiocontroller.core.states import PartitionState, ReplicaState
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.cluster_tree import ClusterTree


class Leadership(NamedTuple):
    """Of one partition; ``leader`` is -1 if no live broker leads."""

    leader: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]


class WhatIf:
    """A copy of a cluster to try changes on; ``tree`` is not changed.

    ``configs`` override the dynamic defaults, for topics without a setting of their own.  Partitions whose state cannot
    be read are left out.  Topics that are being deleted are not reported: no leaders are elected for them.
    """

    def __init__(self, tree: ClusterTree, configs: Mapping[str, str] | None = None) -> None:
        default = {**tree.broker_configs.get(paths.DEFAULT_ENTITY, {}), **(configs or {})}
        own = {name: is_true(found, UNCLEAN) for name, found in tree.topic_configs.items() if UNCLEAN in found}
        self._facts = LeadershipFacts(UncleanPolicy(is_true(default, UNCLEAN), own))
        self.min_isr = min_isr(tree, default)
        self.racks = {broker.id: broker.rack for broker in tree.brokers.values()}
        self.written = 0
        """States written so far."""
        self.uncleanly: set[TopicPartition] = set()
        """Partitions that got a leader from outside the ISR."""
        self._context = context_of(tree)

    # -- what may happen -------------------------------------------------------------------------------------------

    def kill(self, brokers: Collection[int]) -> None:
        """Let these brokers die at the same time; BadInputError for a broker that is not registered."""
        self._check(brokers)
        context = self._context
        apply(context, BrokersRemoved(sorted(brokers)))
        replicas = broker_changes.replicas_on(context, sorted(brokers))
        leaderless = psm.partitions_with_offline_leader(context)
        valid = psm.check_valid_previous_states(context.table, leaderless, PartitionState.OfflinePartition).valid
        apply(context, Effects((Entered(valid, PartitionState.OfflinePartition),)))
        staying = broker_changes.replicas_to_take_offline(context, replicas)
        self._elect_and_take_offline(psm.partitions_to_bring_online(context), Strategy.OFFLINE, staying)

    def shut_down(self, broker: int) -> None:
        """Let a broker do a controlled shutdown, and end; BadInputError as for ``kill``."""
        self._check((broker,))
        context = self._context
        apply(context, ShutdownBegun(broker))
        moves = controlled_shutdown.plan_moves(context, broker, controlled_shutdown.hosted(context, broker))
        self._elect_and_take_offline(moves.led, Strategy.CONTROLLED_SHUTDOWN, {broker: moves.followed})
        self.kill((broker,))

    def move(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Reassign partitions, up to the end of the reassignment, when all new replicas are in sync.

        Without a live leader to copy from, a reassignment does not end.  BadInputError naming the first target refused.
        """
        context = self._context
        checked = check_targets(context, targets.items())
        for tp, refused in checked.refused.items():
            raise BadInputError(f"{tp} to {list(targets[tp])}: {refused.message}")
        table = context.table
        leaderless = []
        for row, assignment in checked.wanted.items():
            known = table.leadership(row)
            if known is None or known.leader not in context.brokers:
                table.set_assignment(row, assignment)
                continue
            table.set_assignment(row, type(assignment)(assignment.target))
            table.set_leadership(row, _with_isr(known, assignment.target))
            if known.leader not in assignment.target:
                leaderless.append(row)
        rsm.initialize_replica_states(context)
        self._carry_out(psm.LeaderElection(leaderless, Strategy.REASSIGN))

    def _check(self, brokers: Iterable[int]) -> None:
        for broker in brokers:
            if broker not in self._context.brokers:
                there = ", ".join(map(str, sorted(self._context.brokers))) or "none"
                raise BadInputError(f"found broker {broker}, expected one that is registered: {there}")

    # -- the result ------------------------------------------------------------------------------------------------

    def leaderships(self) -> dict[TopicPartition, Leadership]:
        """Return the leadership of every partition, except those of topics that are being deleted."""
        table, found = self._context.table, {}
        for row in table.rows():
            if table.topic(row).deleting:
                continue
            known = table.leadership(row)
            leads = NO_LEADER if known is None or known.leader not in self._context.brokers else known.leader
            isr = () if known is None else known.isr
            found[table.topic_partition(row)] = Leadership(leads, isr, table.replicas(row))
        return found

    @property
    def brokers(self) -> frozenset[int]:
        """The live brokers."""
        return frozenset(self._context.brokers)

    # -- the core, with a ZooKeeper that accepts everything --------------------------------------------------------

    def _elect_and_take_offline(self, rows: Sequence[int], strategy: Strategy, replicas: Replicas) -> None:
        context, table = self._context, self._context.table
        new = [row for row in rows if table.isr_of[row] == NO_ISR]
        led = [row for row in rows if table.isr_of[row] != NO_ISR]
        self._carry_out(psm.Initialization(new))
        election = psm.LeaderElection(led, strategy)
        electing = frozenset(election.undecided)
        self._carry_out(election)
        valid = rsm.check_valid_previous_states(table, replicas, ReplicaState.OfflineReplica).valid
        others = {broker: [row for row in sorted(own) if row not in electing] for broker, own in valid.items()}
        self._carry_out(rsm.IsrShrinking(others))
        again = rsm.among({b: sorted(own) for b, own in valid.items()}, sorted(electing.difference(election.done)))
        self._carry_out(rsm.IsrShrinking(again))
        apply(context, Effects(replicas=[(valid, ReplicaState.OfflineReplica)]))

    def _carry_out(self, change: LeadershipChange[Any]) -> None:
        context, table = self._context, self._context.table
        rows, change.undecided = change.undecided, []
        if not rows:
            return
        plan = change.plan(context, rows, self._facts)
        decided = plan.decisions
        commit(table, decided, [max(was.partition_epoch, -1) + 1 for was in decided.leaderships])
        change.done += decided.rows
        self.written += len(decided.rows)
        effects = plan.effects(context, Written(decided))
        change.carried_out(plan, effects)
        apply(context, effects)
        if isinstance(plan, psm.ElectionPlan):
            self.uncleanly |= {table.topic_partition(row) for row in plan.unclean}


def _with_isr(known: Any, isr: tuple[int, ...]) -> Any:
    return type(known)(known.leader, known.leader_epoch, isr, known.controller_epoch, known.partition_epoch)


# -- before and after --------------------------------------------------------------------------------------------------


class WhatIfOutcome(NamedTuple):
    """Partitions by what happens to them, each with its leadership before and after; a partition may be in several."""

    offline: dict[TopicPartition, tuple[Leadership, Leadership]]
    """Led before, and no longer."""
    unclean: dict[TopicPartition, tuple[Leadership, Leadership]]
    under_min_isr: dict[TopicPartition, tuple[Leadership, Leadership]]
    """With a leader that now refuses producers with acks=all, and did not before."""
    last_replica: dict[TopicPartition, tuple[Leadership, Leadership]]
    """With one live replica in sync, where there were several."""
    new_leader: dict[TopicPartition, tuple[Leadership, Leadership]]
    leaders: dict[int, tuple[int, int]]
    """Broker -> number of partitions that it leads, before and after; every broker that was live or has a replica."""
    replicas: dict[int, tuple[int, int]]
    """The same brokers -> number of their replicas, before and after."""
    written: int


def outcome(
    what_if: WhatIf, before: Mapping[TopicPartition, Leadership], alive_before: Collection[int]
) -> WhatIfOutcome:
    """Compare with ``before``, the leaderships when brokers ``alive_before`` were live."""
    after, alive = what_if.leaderships(), what_if.brokers
    found = WhatIfOutcome({}, {}, {}, {}, {}, {}, {}, what_if.written)
    for name, was in before.items():
        now = after[name]
        in_sync, had = [b for b in now.isr if b in alive], [b for b in was.isr if b in alive_before]
        least = what_if.min_isr.get(name.topic, 1)
        for condition, group in (
            (was.leader != NO_LEADER and now.leader == NO_LEADER, found.offline),
            (name in what_if.uncleanly, found.unclean),
            (now.leader != NO_LEADER and len(in_sync) < least <= len(had), found.under_min_isr),
            (now.leader != NO_LEADER and len(in_sync) == 1 < len(had), found.last_replica),
            (now.leader not in (NO_LEADER, was.leader), found.new_leader),
        ):
            if condition:
                group[name] = (was, now)
    counted = [[_counts(each.values(), column) for each in (before, after)] for column in ("leader", "replicas")]
    brokers = sorted(set(alive_before).union(*chain.from_iterable(counted)) - {NO_LEADER})
    for counts, (earlier, later) in zip((found.leaders, found.replicas), counted, strict=True):
        counts.update({broker: (earlier[broker], later[broker]) for broker in brokers})
    return found


def _counts(leaderships: Iterable[Leadership], column: str) -> Counter[int]:
    if column == "leader":
        return Counter(each.leader for each in leaderships)
    return Counter(broker for each in leaderships for broker in each.replicas)
