"""What differs between memory and ZooKeeper, and what the two are to agree on."""

from __future__ import annotations

import msgspec
import pytest

from aiocontroller.core.audit import (
    Above,
    DifferenceKind,
    FoundState,
    compare_brokers,
    compare_states,
    compare_topic,
    compare_topics,
    plan_repairs,
    reconciled,
)
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.effects import Effects, Entered, LeaderAndIsrRequests
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.core.leadership_changes import Written
from aiocontroller.core.states import PartitionState
from tests.builders import ctx, leadership

NOTHING = Above(-1, -1)
ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


@pytest.fixture
def context() -> ControllerContext:
    made = ctx(2, {"t": [[1, 2], [2, 1]]})
    made.table.set_topic_id(made.table.topic_by_name["t"], ID)
    for row in (0, 1):
        made.table.set_leadership(row, leadership(1, (1, 2), leader_epoch=4, partition_epoch=9))
        made.table.set_state([row], PartitionState.OnlinePartition)
    return made


def assignment(topic_id: bytes = ID, **partitions: list[int]) -> TopicAssignment:
    found = {int(number[1:]): ReplicaAssignment(tuple(replicas)) for number, replicas in partitions.items()}
    return TopicAssignment("t", topic_id, found)


def kinds(context: ControllerContext, found: TopicAssignment) -> list[tuple[DifferenceKind, str]]:
    return [finding.key for finding in compare_topic(context, context.table.topic_by_name["t"], found)]


def test_topic_that_is_the_same_differs_in_nothing(context: ControllerContext) -> None:
    assert kinds(context, assignment(p0=[1, 2], p1=[2, 1])) == []


@pytest.mark.parametrize("topic_id", [OTHER_ID, NO_TOPIC_ID])
def test_topic_with_another_id_is_compared_no_further(context: ControllerContext, topic_id: bytes) -> None:
    assert kinds(context, assignment(topic_id, p0=[2])) == [(DifferenceKind.TOPIC_ID, "topic t")]


def test_each_partition_that_differs_is_named(context: ControllerContext) -> None:
    assert kinds(context, assignment(p0=[2, 1], p2=[1])) == [
        (DifferenceKind.PARTITIONS, "t-1"),
        (DifferenceKind.PARTITIONS, "t-2"),
        (DifferenceKind.ASSIGNMENT, "t-0"),
    ]


def test_what_is_being_reassigned_is_left_out(context: ControllerContext) -> None:
    context.partitions_being_reassigned[0] = None
    assert kinds(context, assignment(p0=[2, 1], p1=[2, 1])) == []


def test_states_that_differ(context: ControllerContext) -> None:
    known = context.table.leadership(0)
    assert known is not None
    found = list(compare_states(context, [0, 1], [known, None], brokers_write=False))
    assert [f.key for f in found] == [(DifferenceKind.MISSING_STATE, "t-1")]
    for change in ("leader", "leader_epoch", "controller_epoch", "partition_epoch", "recovery_state"):
        other = msgspec.structs.replace(known, **{change: 77})
        (finding,) = compare_states(context, [0], [other], brokers_write=False)
        assert finding.key == (DifferenceKind.STATE, "t-0"), change


def test_isr_that_its_leader_may_write_is_no_difference(context: ControllerContext) -> None:
    known = context.table.leadership(0)
    assert known is not None
    shrunk = msgspec.structs.replace(known, isr=(1,), partition_epoch=10)
    assert not list(compare_states(context, [0], [shrunk], brokers_write=True))
    assert list(compare_states(context, [0], [shrunk], brokers_write=False))
    without_leader = msgspec.structs.replace(shrunk, isr=(2,))
    raised = msgspec.structs.replace(shrunk, leader_epoch=5)
    for odd in (without_leader, raised):
        assert list(compare_states(context, [0], [odd], brokers_write=True))


def test_leader_that_is_not_registered(context: ControllerContext) -> None:
    context.remove_brokers([1])
    states = [context.table.leadership(row) for row in (0, 1)]
    found = list(compare_states(context, [0, 1], states, brokers_write=False))
    assert [f.key for f in found] == [(DifferenceKind.DEAD_LEADER, "t-0"), (DifferenceKind.DEAD_LEADER, "t-1")]
    context.table.set_state([0], PartitionState.OfflinePartition)  # then it is known
    assert len(list(compare_states(context, [0, 1], states, brokers_write=False))) == 1


def test_lists(context: ControllerContext) -> None:
    _, second = context.brokers.values()
    moved = msgspec.structs.replace(second, rack="elsewhere")
    third = msgspec.structs.replace(second, id=3)
    found = list(compare_brokers(context, [moved, third], ()))
    assert [f.subject for f in found] == ["broker 1", "broker 2", "broker 3"]
    assert not list(compare_brokers(context, [second], {1}))
    assert [f.subject for f in compare_topics(context, ["u", "v"], {"v"})] == ["topic u", "topic t"]
    assert not list(compare_topics(context, ["t"]))


# -- repair ------------------------------------------------------------------------------------------------------------


def settled(context: ControllerContext, found: LeaderAndIsr | None, above: Above = NOTHING) -> LeaderAndIsr:
    result = reconciled(context, 0, found, above)
    assert result is not None
    return result


def test_lost_state_comes_back_with_a_higher_epoch(context: ControllerContext) -> None:
    assert settled(context, None) == LeaderAndIsr(1, 5, (1, 2), context.epoch, -1)


def test_what_zookeeper_says_holds(context: ControllerContext) -> None:
    assert settled(context, leadership(2, (2,), leader_epoch=0, partition_epoch=0)) == LeaderAndIsr(
        2, 5, (2,), context.epoch, 0
    )
    assert settled(context, leadership(2, (2,), leader_epoch=8, partition_epoch=3)).leader_epoch == 9
    assert settled(context, leadership(2, (2,), leader_epoch=8), Above(20, 0)).leader_epoch == 21


def test_a_broker_without_a_replica_neither_leads_nor_is_in_the_isr(context: ControllerContext) -> None:
    found = settled(context, leadership(9, (9, 2), leader_epoch=4))
    assert (found.leader, found.isr) == (-1, (2,))
    only_non_replicas = settled(context, leadership(9, (9,), leader_epoch=4))
    assert (only_non_replicas.leader, only_non_replicas.isr) == (-1, (1, 2))


def test_leader_outside_the_isr_leads_no_more(context: ControllerContext) -> None:
    found = settled(context, leadership(2, (1,), leader_epoch=4))
    assert (found.leader, found.isr) == (-1, (1,))


@pytest.mark.parametrize("found", [None, leadership(1, (1, 2), leader_epoch=6)])
def test_a_leader_that_is_not_alive_leads_no_more(context: ControllerContext, found: LeaderAndIsr | None) -> None:
    context.begin_shutdown(1)
    assert settled(context, found).leader == 1, "it has asked for its shutdown, and leads until it is moved"
    context.offline_dirs[1] = {0}
    assert settled(context, found).leader == -1
    context.offline_dirs.clear()
    context.remove_brokers([1])
    epoch = 5 if found is None else 7
    assert settled(context, found) == LeaderAndIsr(-1, epoch, (1, 2), context.epoch, -1 if found is None else 0)


def test_nothing_is_made_up(context: ControllerContext) -> None:
    never_led = ctx(2, {"t": [[1, 2]]}, online=False)
    assert reconciled(never_led, 0, None, NOTHING) is None
    assert reconciled(never_led, 0, leadership(9, (9,)), NOTHING) is None


def test_plan_has_what_to_write_for_whom_and_above_which_version(context: ControllerContext) -> None:
    first, second = leadership(2, (2,), leader_epoch=3, partition_epoch=1), None
    plan = plan_repairs(context, [FoundState(0, first, Above(6, 30)), FoundState(1, second, NOTHING)])
    assert plan.decisions == Decisions(
        [0, 1],
        [LeaderAndIsr(2, 7, (2,), context.epoch, 1), LeaderAndIsr(1, 5, (1, 2), context.epoch, -1)],
        [(1, 2), (2, 1)],
    )
    assert plan.above == [30, 9]  # what was noted, and memory's own
    assert plan.hopeless == []


def test_plan_leaves_out_what_has_been_written_above_all_epochs_since_it_was_found(context: ControllerContext) -> None:
    known = context.table.leadership(0)
    assert known is not None
    epochs = known.leader_epoch, known.partition_epoch

    def planned(leader_epoch: int, partition_epoch: int) -> list[int]:
        found = msgspec.structs.replace(known)
        return plan_repairs(context, [FoundState(0, found, Above(leader_epoch, partition_epoch))]).decisions.rows

    assert epochs == (4, 9)
    assert planned(3, 8) == []
    assert planned(4, 8) == [0]  # brokers that have this epoch would not accept the present state
    assert planned(3, 9) == [0]
    assert planned(5, 10) == [0]
    another = FoundState(0, msgspec.structs.replace(known, isr=(1,)), Above(3, 8))
    assert plan_repairs(context, [another]).decisions.rows == [0]


def test_plan_leaves_new_partitions_to_the_election_of_their_first_leader() -> None:
    never_led = ctx(2, {"t": [[1, 2]]}, online=False)
    plan = plan_repairs(never_led, [FoundState(0, leadership(1, (1, 2)), NOTHING)])
    assert (plan.decisions, plan.above, plan.hopeless) == (Decisions.none(), [], [])


def test_plan_names_what_it_cannot_repair_and_goes_on(context: ControllerContext) -> None:
    context.table.set_leadership(0, leadership(-1, ()))
    states = [FoundState(0, leadership(9, (9,)), NOTHING), FoundState(1, None, NOTHING)]
    plan = plan_repairs(context, states)
    assert plan.hopeless == [0]
    assert plan.decisions.rows == [1]
    assert plan.above == [9]


def test_what_was_not_written_has_no_effects(context: ControllerContext) -> None:
    plan = plan_repairs(context, [FoundState(0, None, NOTHING), FoundState(1, None, NOTHING)])
    second = plan.decisions.select([1])
    effects = plan.effects(context, Written(second, conflicts=[0]))
    assert effects == Effects((Entered([1], None, "audit"),), (LeaderAndIsrRequests([1], [(2, 1)]),))
    # Brokers have the partition already, perhaps with what the audit corrects: so they get it again, not as new.
    assert not effects.leader_and_isr[0].is_new
