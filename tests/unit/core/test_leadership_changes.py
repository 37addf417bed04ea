"""Changes of leaderships without a driver: plans, what follows from what was written, what is read again."""

from __future__ import annotations

from collections import deque
from typing import Any

from aiocontroller.core.alter_partition import AlterPartitionResult, IsrChange, refused_non_replicas, take_disjoint
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions, commit
from aiocontroller.core.effects import Effects, Entered, LeaderAndIsrRequests
from aiocontroller.core.election import Strategy, UncleanPolicy
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import AlterPartitionReceived
from aiocontroller.core.leadership_changes import LeadershipChange, LeadershipFacts, Written
from aiocontroller.core.partition_state_machine import EpochRise, Initialization, LeaderElection
from aiocontroller.core.replica_state_machine import IsrShrinking
from aiocontroller.core.request_content import AlterPartition
from aiocontroller.core.states import PartitionState
from tests.builders import ctx, lead, leadership

Online = PartitionState.OnlinePartition


NO_FACTS = LeadershipFacts()


def carry_out(
    context: ControllerContext,
    change: LeadershipChange[Any],
    facts: LeadershipFacts = NO_FACTS,
    *,
    refused: tuple[int, ...] = (),
) -> Effects:
    """One piece, as the driver takes it: all is written but the refused rows, which conflict."""
    rows, change.undecided = change.undecided, []
    plan = change.plan(context, rows, facts)
    done = plan.decisions.select([at for at, row in enumerate(plan.decisions.rows) if row not in refused])
    commit(context.table, done, [state.partition_epoch + 1 for state in done.leaderships])
    change.done += done.rows
    effects: Effects = plan.effects(context, Written(done, refused))
    change.carried_out(plan, effects)
    return effects


def test_a_plan_changes_nothing() -> None:
    context = ctx(brokers=[2], topics={"t": [[1, 2], [1, 2]]})
    before = [context.table.leadership(row) for row in (0, 1)]
    changes: list[LeadershipChange[Any]] = [
        LeaderElection([0, 1], Strategy.OFFLINE),
        IsrShrinking({1: [0, 1]}),
        EpochRise([0, 1]),
        Initialization([0, 1]),
    ]
    for change in changes:
        plans = [change.plan(context, change.undecided, LeadershipFacts()) for _ in range(2)]
        assert plans[0] == plans[1]
        assert plans[0].decisions.rows == [0, 1]
    assert [context.table.leadership(row) for row in (0, 1)] == before


# -- elections ---------------------------------------------------------------------------------------------------------


def test_only_topics_that_need_an_unclean_leader_are_asked_for() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2]], "u": [[1, 3]], "v": [[1, 2]]}, dead=[1])
    lead(context, "u-0", 1, (1,))
    rows = [0, 1, 2]
    assert LeaderElection(rows, Strategy.OFFLINE).topics_asked_for(context, rows) == ["u"]
    assert LeaderElection(rows, Strategy.PREFERRED).topics_asked_for(context, rows) == []
    assert LeaderElection(rows, Strategy.OFFLINE, force_unclean=True).topics_asked_for(context, rows) == []


def test_unclean_elections_need_a_policy_or_force() -> None:
    for facts, force, leader in (
        (LeadershipFacts(), False, 1),
        (LeadershipFacts(UncleanPolicy(False, {"t": True})), False, 2),
        (LeadershipFacts(UncleanPolicy(True, {"t": False})), False, 1),
        (LeadershipFacts(), True, 2),
    ):
        context = ctx(brokers=2, topics={"t": [[1, 2]]}, dead=[1])
        lead(context, "t-0", 1, (1,))
        election = LeaderElection([0], Strategy.OFFLINE, force_unclean=force)
        effects = carry_out(context, election, facts)
        assert context.table.leader[0] == leader
        assert effects.unclean_elections == (leader == 2)
        assert election.failed.keys() == (set() if leader == 2 else {0})


def test_old_brokers_do_not_know_the_recovery_state() -> None:
    for supported in (True, False):
        context = ctx(brokers=2, topics={"t": [[1, 2]]}, dead=[1])
        lead(context, "t-0", 1, (1,))
        carry_out(
            context,
            LeaderElection([0], Strategy.OFFLINE, force_unclean=True),
            LeadershipFacts(recovery_supported=supported),
        )
        assert context.table.recovery_state[0] == int(supported)


def test_memory_may_be_wrong_about_who_can_lead_and_is_checked_once() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2], [1]]}, dead=[1])
    lead(context, "t-0", 1, (1,))
    election = LeaderElection([0, 1], Strategy.OFFLINE)
    carry_out(context, election)
    reason = "no replica qualifies by the OfflinePartitionLeaderElectionStrategy"
    assert election.failed == dict.fromkeys((0, 1), reason)
    assert election.doubtful(context) == [0], "1 has no replica online"
    assert election.doubtful(context) == []
    lead(context, "t-0", 1, (1, 2), partition_epoch=5)
    election.reopen([0])
    assert (election.undecided, list(election.failed)) == ([0], [1])
    carry_out(context, election)
    assert (election.done, context.table.leader[0]) == ([0], 2)
    assert election.doubtful(context) == []


def test_first_leaders_and_partitions_without_a_live_replica() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2], [9]]}, online=False)
    first = Initialization([0, 1])
    effects = carry_out(context, first)
    assert (first.done, first.leaderless) == ([0], [1])
    assert effects == Effects(
        (Entered([0], Online, "initialized"),), (LeaderAndIsrRequests([0], [(1, 2)], is_new=True),)
    )


def test_epochs_rise_and_nothing_else() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2], [1, 2]]})
    rise = EpochRise([0, 1])
    assert carry_out(context, rise, refused=(1,)) == Effects()
    assert rise.done == [0]
    assert list(context.table.leader_epoch) == [1, 0]


# -- ISRs --------------------------------------------------------------------------------------------------------------


def test_a_shrinking_stops_replicas_and_looks_again_where_nothing_was_to_do() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2, 3], [2, 3, 1]]})
    lead(context, "t-1", 2, (2, 3))
    shrinking = IsrShrinking({1: [1, 0]}, stop=True)
    lead(context, "t-0", 2, (2, 1))
    carry_out(context, shrinking)
    assert context.table.isr(0) == (2,)
    assert shrinking.stopped == {0, 1}
    assert shrinking.doubtful(context) == [1]
    assert shrinking.doubtful(context) == []
    assert IsrShrinking({}).undecided == []


def request(broker: int, *changes: AlterPartition, answers: list[object]) -> AlterPartitionReceived:
    return AlterPartitionReceived(
        reply=Reply(answers.append), broker=broker, broker_epoch=100 + broker, version=3, partitions=changes
    )


def alter(partition: int, isr: tuple[int, ...], partition_epoch: int = 0) -> AlterPartition:
    return AlterPartition("t", partition, 0, isr, 0, partition_epoch)


def test_leaders_requests_are_answered_partition_by_partition() -> None:
    context = ctx(brokers=3, topics={"t": [[1, 2], [1, 2], [1, 2], [1, 2]]})
    answers: list[object] = []
    event = request(1, alter(0, (1,)), alter(1, (1,)), alter(2, (1, 3)), alter(9, (1,)), answers=answers)
    taken = take_disjoint(context, deque([event]))
    change = IsrChange(taken.requests)
    assert change.undecided == [0, 1, 2]
    plan = change.plan(context, change.undecided, LeadershipFacts())
    assert change.needs_confirmation(plan), "an unknown partition is one only for the active controller"
    effects = carry_out(context, change, refused=(1,))
    assert effects.isrs == [0]
    assert effects.answers == [
        (
            event,
            [
                AlterPartitionResult("t", 0, KafkaErrorCode.NONE, leadership(1, (1,), partition_epoch=1)),
                AlterPartitionResult("t", 1, KafkaErrorCode.INVALID_UPDATE_VERSION),
                AlterPartitionResult("t", 2, KafkaErrorCode.INVALID_REQUEST),
                AlterPartitionResult("t", 9, KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ],
        )
    ]
    assert answers == [], "the controller answers"
    assert refused_non_replicas(context, change.judged) == {2: [3]}


def test_what_zookeeper_refuses_for_another_reason_is_an_unknown_error() -> None:
    context = ctx(brokers=2, topics={"t": [[1, 2]]})
    event = request(1, alter(0, (1,)), answers=[])
    plan = IsrChange(take_disjoint(context, deque([event])).requests).plan(context, [0], LeadershipFacts())
    [(_, answer)] = plan.effects(context, Written(Decisions.none())).answers
    assert answer == [AlterPartitionResult("t", 0, KafkaErrorCode.UNKNOWN_SERVER_ERROR)]
