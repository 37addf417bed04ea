"""Elections: Kafka's own cases by name, and the batch against a dumb twin that elects one partition after the other."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import (
    NEVER_UNCLEAN,
    ElectionOutcome,
    Elections,
    Strategy,
    UncleanPolicy,
    controlled_shutdown_partition_leader_election,
    elect,
    offline_partition_leader_election,
    preferred_replica_partition_leader_election,
    reassign_partition_leader_election,
    recovery_state_after,
    without_online_isr,
)
from aiocontroller.core.ids import RECOVERED, RECOVERING, LeaderAndIsr, ReplicaAssignment
from aiocontroller.core.partition_state_machine import plan_elections
from tests.builders import broker, ctx, lead, leadership, row_of

# -- Kafka's PartitionLeaderElectionAlgorithmsTest ---------------------------------------------------------------------


def test_offline_partition_leader_election() -> None:
    outcome = offline_partition_leader_election((2, 4), (2, 4), {4}, False)
    assert outcome == ElectionOutcome(4, (4,), (4,))


def test_offline_partition_leader_election_last_isr_offline_unclean_leader_election_disabled() -> None:
    assert offline_partition_leader_election((2, 4), (2,), {4}, False) is None


def test_offline_partition_leader_election_last_isr_offline_unclean_leader_election_enabled() -> None:
    outcome = offline_partition_leader_election((2, 4), (2,), {4}, True)
    assert outcome == ElectionOutcome(4, (4,), (4,), unclean=True)


def test_reassign_partition_leader_election() -> None:
    assert reassign_partition_leader_election((2, 4), (2, 4), {4}) == ElectionOutcome(4, (2, 4), (2, 4))


def test_reassign_partition_leader_election_with_no_live_isr() -> None:
    assert reassign_partition_leader_election((2, 4), (2,), set()) is None


def test_reassign_partition_leader_election_with_empty_isr() -> None:
    assert reassign_partition_leader_election((2, 4), (), {2}) is None


def test_preferred_replica_partition_leader_election() -> None:
    assert preferred_replica_partition_leader_election((2, 4), (2, 4), {2, 4}) == ElectionOutcome(2, (2, 4), (2, 4))


def test_preferred_replica_partition_leader_election_preferred_replica_in_isr_not_live() -> None:
    assert preferred_replica_partition_leader_election((2, 4), (2,), set()) is None


def test_preferred_replica_partition_leader_election_preferred_replica_not_in_isr_live() -> None:
    assert preferred_replica_partition_leader_election((2, 4), (4,), {2, 4}) is None


def test_preferred_replica_partition_leader_election_preferred_replica_not_in_isr_not_live() -> None:
    assert preferred_replica_partition_leader_election((2, 4), (), set()) is None


def test_controlled_shutdown_partition_leader_election() -> None:
    outcome = controlled_shutdown_partition_leader_election((2, 4), (2, 4), {2, 4}, {2})
    assert outcome == ElectionOutcome(4, (4,), (2, 4))


def test_controlled_shutdown_partition_leader_election_last_isr_shutting_down() -> None:
    assert controlled_shutdown_partition_leader_election((2, 4), (2,), {2, 4}, {2}) is None


def test_controlled_shutdown_partition_leader_election_all_isr_simultaneously_shutdown() -> None:
    assert controlled_shutdown_partition_leader_election((2, 4), (2, 4), {2, 4}, {2, 4}) is None


# -- single facts ------------------------------------------------------------------------------------------------------


def test_offline_election_prefers_assignment_order() -> None:
    assert offline_partition_leader_election((3, 1, 2), (2, 1), {1, 2}, False) == ElectionOutcome(1, (2, 1), (1, 2))


def test_offline_election_prefers_a_clean_choice_when_both_are_allowed() -> None:
    assert offline_partition_leader_election((3, 1, 2), (2,), {1, 2, 3}, True) == ElectionOutcome(2, (2,), (3, 1, 2))


def test_no_assignment_no_leader() -> None:
    assert offline_partition_leader_election((), (1,), {1}, True) is None
    assert preferred_replica_partition_leader_election((), (1,), {1}) is None


@pytest.mark.parametrize("strategy", Strategy)
def test_a_partition_without_leadership_has_no_election(strategy: Strategy) -> None:
    """Not even by another partition's ISR: a row without one says -1, which Python would take for the last."""
    context = ctx(topics={"t": [[1, 2]]}, online=False)
    context.table.isrs.id((1, 2))
    assert elect(context, [0], strategy, UncleanPolicy(default=True)) == Elections([], [], [0])
    assert without_online_isr(context, [0]) == []


@pytest.mark.parametrize(
    "policy, allowed",
    [
        (NEVER_UNCLEAN, []),
        (UncleanPolicy(default=True), ["a-0", "b-0", "c-0"]),
        (UncleanPolicy(default=False, topics={"b": True, "c": False}), ["b-0"]),
        (UncleanPolicy(default=True, topics={"b": True, "c": False}), ["a-0", "b-0"]),
    ],
)
def test_a_topics_own_setting_overrides_the_default(policy: UncleanPolicy, allowed: list[str]) -> None:
    context = ctx(topics={t: [[1, 2]] for t in "abc"}, dead=[1])
    rows = [lead(context, f"{t}-0", 1, (1,)) for t in "abc"]
    elections = elect(context, rows, Strategy.OFFLINE, policy)
    assert elections.rows == [row_of(context, name) for name in allowed]
    assert sorted(elections.rows + elections.failed) == rows
    assert all(outcome.unclean for outcome in elections.outcomes)


def test_only_an_offline_election_may_be_unclean() -> None:
    context = ctx(topics={"t": [[1, 2]]}, dead=[1])
    row = lead(context, "t-0", 1, (1,))
    for strategy in set(Strategy) - {Strategy.OFFLINE}:
        assert elect(context, [row], strategy, UncleanPolicy(default=True)).failed == [row]


@pytest.mark.parametrize(
    "unclean, current, supported, after",
    [
        (True, RECOVERED, True, RECOVERING),
        (True, RECOVERED, False, RECOVERED),
        (False, RECOVERED, True, RECOVERED),
        (False, RECOVERING, True, RECOVERING),
    ],
)
def test_recovery_state_after_an_election(unclean: bool, current: int, supported: bool, after: int) -> None:
    assert recovery_state_after(ElectionOutcome(1, (1,), (1,), unclean), current, supported) == after


# -- the dumb twin -----------------------------------------------------------------------------------------------------


@dataclass
class Dumb:
    """A partition and what its cluster looks like from there; no memo, no interning, no batch."""

    topic: str
    assignment: ReplicaAssignment
    leadership: LeaderAndIsr | None
    registered: set[int]
    shutting_down: set[int]
    failed_dirs: set[int]

    def online(self, replica: int, including_shutting_down: bool = False) -> bool:
        if replica not in self.registered:
            return False
        if replica in self.shutting_down and not including_shutting_down:
            return False
        return replica not in self.failed_dirs

    def elect(self, strategy: Strategy, unclean: bool) -> tuple[int, list[int], list[int], bool] | None:
        if self.leadership is None:
            return None
        isr, replicas = self.leadership.isr, self.assignment.replicas
        if strategy is Strategy.OFFLINE:
            recipients = [r for r in replicas if self.online(r)]
            for r in replicas:
                if self.online(r) and r in isr:
                    return r, [i for i in isr if self.online(i)], recipients, False
            for r in replicas:
                if self.online(r) and unclean:
                    return r, [r], recipients, True
        elif strategy is Strategy.REASSIGN:
            target = [r for r in replicas if r not in self.assignment.removing]
            for r in target:
                if self.online(r) and r in isr:
                    return r, list(isr), list(replicas), False
        elif strategy is Strategy.PREFERRED:
            if self.online(replicas[0]) and replicas[0] in isr:
                return replicas[0], list(isr), list(replicas), False
        else:
            recipients = [r for r in replicas if self.online(r, including_shutting_down=True)]
            for r in replicas:
                if self.online(r, including_shutting_down=True) and r in isr and r not in self.shutting_down:
                    return r, [i for i in isr if i not in self.shutting_down], recipients, False
        return None

    def next(self, strategy: Strategy, unclean: bool, epoch: int, supported: bool) -> LeaderAndIsr | None:
        elected = self.elect(strategy, unclean)
        if elected is None or self.leadership is None:
            return None
        leader, isr, _, was_unclean = elected
        state = RECOVERING if was_unclean and supported else self.leadership.recovery_state
        before = self.leadership
        return LeaderAndIsr(leader, before.leader_epoch + 1, tuple(isr), epoch, before.partition_epoch, state)


IDS = (1, 2, 3, 4, 5)
some_ids = st.lists(st.sampled_from(IDS), unique=True, max_size=4)


@st.composite
def partitions(draw: st.DrawFn) -> Dumb:
    assignment = ReplicaAssignment(tuple(draw(some_ids.filter(bool))))
    if draw(st.booleans()):
        assignment = assignment.reassign_to(draw(some_ids.filter(bool)))
    in_sync = assignment.replicas if draw(st.integers(0, 3)) else IDS  # perhaps with non-replicas
    isr = draw(st.lists(st.sampled_from(in_sync), unique=True, min_size=1))
    known = LeaderAndIsr(
        draw(st.sampled_from((-1, *isr))),
        draw(st.integers(0, 9)),
        tuple(isr),
        draw(st.integers(0, 5)),
        draw(st.integers(0, 9)),
        draw(st.sampled_from((RECOVERED, RECOVERING))),
    )
    leadership = known if draw(st.integers(0, 9)) else None
    failed = set(draw(some_ids) if draw(st.booleans()) else []).intersection(assignment.replicas)
    return Dumb(draw(st.sampled_from("abc")), assignment, leadership, set(), set(), failed)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[ControllerContext, list[Dumb]]:
    """A context and the same partitions as dumb ones, in the order of their rows."""
    dumbs: list[Dumb] = draw(st.lists(partitions(), min_size=1, max_size=24))
    registered = draw(st.lists(st.sampled_from(IDS), unique=True))
    shutting_down = draw(st.lists(st.sampled_from(registered), unique=True, max_size=2)) if registered else []
    if draw(st.booleans()):
        for dumb in dumbs:
            dumb.failed_dirs = set()
    context = ControllerContext(epoch=7, epoch_zk_version=7)
    context.add_brokers(broker(i) for i in registered)
    for going in shutting_down:
        context.begin_shutdown(going)
    topics = {name: context.table.add_topic(name) for name in "abc"}
    for dumb in dumbs:
        dumb.registered, dumb.shutting_down = set(registered), set(shutting_down)
        topic = topics[dumb.topic]
        row = context.table.add_partition(topic, len(topic.rows), dumb.assignment)
        if dumb.leadership is not None:
            context.table.set_leadership(row, dumb.leadership)
        for replica in dumb.failed_dirs:
            context.set_offline_dir_replicas(replica, [row], [])
    return context, dumbs


policies = st.builds(
    UncleanPolicy,
    default=st.booleans(),
    topics=st.none() | st.dictionaries(st.sampled_from("abc"), st.booleans()),
)


@settings(max_examples=300)
@given(clusters(), policies, st.booleans(), st.randoms(use_true_random=False))
def test_batch_election_agrees_with_the_dumb_one(
    cluster: tuple[ControllerContext, list[Dumb]], policy: UncleanPolicy, supported: bool, random: Random
) -> None:
    context, dumbs = cluster
    for strategy in Strategy:
        rows = list(range(len(dumbs)))
        random.shuffle(rows)  # the answer may not depend on the order
        decisions, elections = plan_elections(context, rows, strategy, policy, recovery_supported=supported)
        expected = [(row, dumbs[row].next(strategy, policy.allows(dumbs[row].topic), 7, supported)) for row in rows]
        assert list(zip(decisions.rows, decisions.leaderships, strict=True)) == [
            e for e in expected if e[1] is not None
        ]
        assert elections.failed == [row for row, leadership in expected if leadership is None]
        for row, outcome, recipients in zip(decisions.rows, elections.outcomes, decisions.recipients, strict=True):
            elected = dumbs[row].elect(strategy, policy.allows(dumbs[row].topic))
            assert elected is not None
            assert list(recipients) == elected[2]
            assert outcome.unclean is elected[3]


@settings(max_examples=100)
@given(clusters())
def test_which_partitions_need_the_unclean_setting(cluster: tuple[ControllerContext, list[Dumb]]) -> None:
    context, dumbs = cluster
    assert without_online_isr(context, range(len(dumbs))) == [
        row
        for row, dumb in enumerate(dumbs)
        if dumb.leadership is not None
        and not any(dumb.online(r) for r in dumb.assignment.replicas if r in dumb.leadership.isr)
    ]


@settings(max_examples=100)
@given(clusters(), policies)
def test_planning_changes_nothing(cluster: tuple[ControllerContext, list[Dumb]], policy: UncleanPolicy) -> None:
    context, dumbs = cluster
    for strategy in Strategy:
        plan_elections(context, range(len(dumbs)), strategy, policy)
    assert [context.table.leadership(row) for row in range(len(dumbs))] == [dumb.leadership for dumb in dumbs]


# -- leader epochs: the sums that Kafka's tests pin --------------------------------------------------------------------


def written(context: ControllerContext, row: int, strategy: Strategy) -> LeaderAndIsr:
    decisions, _ = plan_elections(context, [row], strategy)
    assert decisions.rows == [row]
    return decisions.leaderships[0]


def test_an_election_raises_the_leader_epoch_by_one_and_says_whose_it_was() -> None:
    context = ctx(topics={"t": [[1, 2, 3]]}, epoch=4, dead=[1])
    row = lead(context, "t-0", 1, (1, 2, 3), leader_epoch=7, partition_epoch=9, controller_epoch=2)
    assert written(context, row, Strategy.OFFLINE) == leadership(
        2, (2, 3), leader_epoch=8, partition_epoch=9, controller_epoch=4
    )


def test_a_controlled_shutdown_removes_every_leaving_broker_from_the_isr() -> None:
    context = ctx(topics={"t": [[1, 2, 3]]}, shutting_down=[1, 2])
    row = row_of(context, "t-0")
    assert written(context, row, Strategy.CONTROLLED_SHUTDOWN).isr == (3,)


def test_a_suspicion_is_no_ground_for_an_unclean_election() -> None:
    """The one in sync may live: a broker we do not hear, which may serve clients."""
    context = ctx(3, {"t": [[1, 2, 3]]})
    lead(context, "t-0", -1, (1,))
    rows, allowed = [row_of(context, "t-0")], UncleanPolicy(True)
    context.suspect([1])
    assert elect(context, rows, Strategy.OFFLINE, allowed).failed == rows
    context.remove_brokers([1])
    (outcome,) = elect(context, rows, Strategy.OFFLINE, allowed).outcomes
    assert (outcome.leader, outcome.unclean) == (2, True)


def test_a_suspect_is_treated_as_one_that_shuts_down() -> None:
    context = ctx(3, {"t": [[1, 2, 3]]})
    lead(context, "t-0", 1, (1, 2, 3))
    context.suspect([1])
    (outcome,) = elect(context, [0], Strategy.CONTROLLED_SHUTDOWN).outcomes
    assert (outcome.leader, outcome.isr, outcome.recipients) == (2, (2, 3), (1, 2, 3))
    assert elect(context, [0], Strategy.PREFERRED).failed == [0]
    context.trust([1])
    assert elect(context, [0], Strategy.PREFERRED).failed == []
