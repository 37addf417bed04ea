"""Reassignment's decisions: what a request may ask for, in Kafka's words, and when a reassignment is complete."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aiocontroller.core.apply import apply
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.context_changes import ReassignmentsBegun, ReassignmentsEnded
from aiocontroller.core.effects import Effects, LeaderAndIsrRequests, SharedLeaderAndIsrRequests
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.reassignment import (
    NonReplicas,
    PhaseU,
    Refused,
    begun,
    by_broker,
    check_entries,
    check_target,
    check_targets,
    completed_by_election,
    effects_of_commit,
    effects_of_dropping,
    effects_of_phase_a,
    effects_of_phase_u,
    entries_left,
    epochs_not_raised,
    in_sync_replica_stays,
    is_complete,
    leaders_that_stay,
    led_by_dropped,
    led_by_non_replicas,
    no_longer_in_sync,
    non_replicas_in_isrs,
    not_moved,
    plan_commit,
    plan_non_replicas,
    plan_phase_b,
    plan_phase_u,
    queued_topics,
    ready_for_phase_b,
    reassignments_to_resume,
    replicas_to_create,
    still_non_replicas,
    uncommitted,
    untold,
    without_controllers,
)
from aiocontroller.core.replica_state_machine import set_replica_states
from aiocontroller.core.states import ReplicaState
from tests.builders import ctx, lead

MOVE = ReplicaAssignment((3, 1, 2), adding=(3,), removing=(2,))
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def cluster(assignment: ReplicaAssignment = ReplicaAssignment((1, 2, 3))) -> ControllerContext:  # noqa: B008  # immutable
    """t-0 as given; brokers 1 to 6, of which 5 shuts down and 6 is dead."""
    context = ctx(6, {"t": [assignment]}, shutting_down=[5], dead=[6])
    if assignment.being_reassigned:
        context.partitions_being_reassigned[0] = None
    return context


@pytest.mark.parametrize(
    "target, found",
    [
        ([], "empty replica list"),
        ([1, 2, 1], "a replica twice in 1, 2, 1"),
        ([1, -1], "negative broker id in 1, -1"),
        ([1, 5], r"brokers 5 are not live \(live: 1, 2, 3, 4\)"),
        ([1, 6, 99], "brokers 6, 99 are not live"),
    ],
)
def test_what_may_not_be_asked_for(target: list[int], found: str) -> None:
    refused = check_target(cluster(), 0, target)
    assert isinstance(refused, Refused)
    assert refused.code is KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert re.search(found, refused.message)


def test_only_added_replicas_must_be_live() -> None:
    """A reassignment may keep, and bring to the front, a broker that is down."""
    assert check_target(cluster(ReplicaAssignment((6, 1))), 0, [6, 2]) == ReplicaAssignment((6, 2, 1), (2,), (1,))


def test_a_reassignment_begins_overrides_and_is_taken_back() -> None:
    begun = check_target(cluster(), 0, [4, 1])
    assert begun == ReplicaAssignment((4, 1, 2, 3), (4,), (2, 3))
    assert isinstance(begun, ReplicaAssignment)
    assert check_target(cluster(begun), 0, [2, 1]) == ReplicaAssignment((2, 1, 3), (), (3,))
    assert check_target(cluster(begun), 0, None) == ReplicaAssignment((1, 2, 3))
    assert check_target(cluster(begun), 0, [4, 1]) == begun


def test_the_last_replica_in_sync_is_not_dropped() -> None:
    """Broker 4 was added, came into sync and is all that is left: another override must not delete it."""
    context = cluster(ReplicaAssignment((1, 4), adding=(4,), removing=(1,)))
    lead(context, "t-0", 4, isr=(4,))
    refused = check_target(context, 0, (3,))
    assert isinstance(refused, Refused)
    assert "data would be lost" in refused.message
    context.partitions_being_reassigned[0] = None
    assert isinstance(check_target(context, 0, None), Refused)
    assert check_target(context, 0, (4, 3)) == ReplicaAssignment((4, 3, 1), adding=(4, 3), removing=(1,))


def test_nothing_to_take_back() -> None:
    refused = check_target(cluster(), 0, None)
    assert isinstance(refused, Refused)
    assert refused.code is KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize(
    "assignment, isr, complete",
    [
        (ReplicaAssignment((1, 2)), (1,), True),  # nothing to move
        (ReplicaAssignment((3, 2, 1), (3,), (1,)), (1, 2), False),
        (ReplicaAssignment((3, 2, 1), (3,), (1,)), (1, 3), False),  # all of the target, not only what is added
        (ReplicaAssignment((3, 2, 1), (3,), (1,)), (2, 3), True),
        (ReplicaAssignment((1, 2, 3), (), (3,)), (1, 2, 3), True),
    ],
)
def test_when_a_reassignment_is_complete(assignment: ReplicaAssignment, isr: tuple[int, ...], complete: bool) -> None:
    context = cluster(assignment)
    lead(context, "t-0", isr[0], isr)
    assert is_complete(context, 0) is complete


def test_replicas_by_broker() -> None:
    assert by_broker({7: (2, 1), 3: (2,), 5: ()}) == {1: [7], 2: [3, 7]}
    assert list(by_broker({0: (3, 1, 2)})) == [1, 2, 3]


@given(
    st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True).map(tuple),
    st.sets(st.integers(1, 6), max_size=3),
    st.lists(st.integers(1, 6), unique=True),
    st.integers(0, 20),
)
def test_other_brokers_in_the_places_of_controllers(
    replicas: tuple[int, ...], controllers: set[int], live: list[int], spread: int
) -> None:
    """The others keep their places."""
    live = [b for b in live if b not in controllers]
    assignment = ReplicaAssignment(replicas)
    after = without_controllers(assignment, controllers, live, spread)
    if controllers.isdisjoint(replicas):
        assert after == assignment
        return
    assert controllers.isdisjoint(after.replicas)
    assert len(set(after.replicas)) == len(after.replicas)
    assert [r for r in after.replicas if r in replicas] == [r for r in replicas if r not in controllers]
    others, wanted = set(live) - set(replicas), controllers & set(replicas)
    assert len(after.replicas) == len(replicas) - max(0, len(wanted) - len(others))
    if len(others) >= len(wanted):
        assert all(new in others for old, new in zip(replicas, after.replicas, strict=True) if old in controllers)


def test_broker_0_is_a_broker() -> None:
    context = ctx([0, 1], {"t": [[1]]})
    assert check_target(context, 0, [0]) == ReplicaAssignment((0, 1), (0,), (1,))


@pytest.mark.parametrize(
    "isr, kept, stays",
    [
        ((1, 2), (1, 2, 3), True),  # none is dropped
        ((1, 2), (1, 4), True),  # a live one stays
        ((1, 2), (3, 4), False),  # none of them stays
        ((6,), (1, 4), False),  # the dead one was all that was in sync
        ((6,), (6, 4), True),  # it stays, and no other could lead either
        ((6, 1), (6, 4), False),  # it stays, but the dropped one could lead and it cannot
    ],
)
def test_which_assignments_keep_an_in_sync_replica(isr: tuple[int, ...], kept: tuple[int, ...], stays: bool) -> None:
    context = cluster(ReplicaAssignment((1, 2, 3, 6) if 6 in isr else (1, 2, 3)))
    lead(context, "t-0", isr[0], isr=isr)
    assert in_sync_replica_stays(context, 0, ReplicaAssignment(kept)) is stays


def test_nothing_is_lost_where_there_was_never_a_leader() -> None:
    context = ctx(3, {"t": [[1, 2]]}, online=False)
    assert in_sync_replica_stays(context, 0, ReplicaAssignment((3,)))


# -- requests ----------------------------------------------------------------------------------------------------------


def test_each_partition_of_a_request_has_its_verdict() -> None:
    context = ctx(3, {"t": [[1, 2], [1, 2], [1, 2]], "going": [[1]]})
    context.queue_topic_deletion(["going"])
    checked = check_targets(context, [(T0, [1, 3]), (T1, None), (TopicPartition("going", 0), [2])])
    assert checked.wanted == {0: ReplicaAssignment((1, 3, 2), (3,), (2,))}
    assert {tp: why.code for tp, why in checked.refused.items()} == {
        T1: KafkaErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        TopicPartition("going", 0): KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_entries_of_the_znode() -> None:
    """Dead targets are waited for; what is under way to the same target goes on, unless it is complete."""
    context = ctx(3, {"t": [[1, 2], MOVE, *[[1, 2]] * 3, *[[1]] * 3]}, dead=[3])
    lead(context, "t-1", 1, (1, 2))
    lead(context, "t-4", 3, (3,))
    context.controllers = frozenset((9,))
    entries = [*enumerate(([3, 1], [3, 1], [], [1, 9], [2, 1])), (6, [-1, 1]), (7, [2**31, 1]), (8, [1])]
    asked = [(TopicPartition("t", number), target) for number, target in entries]
    checked = check_entries(context, asked, {1})
    assert checked.wanted == {0: ReplicaAssignment((3, 1, 2), (3,), (2,)), 4: ReplicaAssignment((2, 1))}
    assert {tp.partition: why.message for tp, why in checked.refused.items()} == dict.fromkeys(
        (2, 3, 6, 7, 8), "is impossible"
    )
    assert check_entries(context, [(T1, [3, 1])], set()).wanted == {1: MOVE}, "it was not begun in this term"
    lead(context, "t-1", 1, (1, 3))
    assert check_entries(context, [(T1, [3, 1])], {1}).wanted == {1: MOVE}, "it is complete"
    lead(context, "t-0", 1, (1,))
    assert check_entries(context, [(T0, [2])], set()).refused == {}
    context.table.set_assignment(0, ReplicaAssignment((2, 1), adding=(1,)))
    assert check_entries(context, [(T0, [3])], set()).refused[T0].message == "would lose data"


def test_finished_entries_leave_the_znode_and_newer_ones_stay() -> None:
    context = ctx(3, {"t": [[1, 2], [1, 2], [1, 2]]})
    requested = {T0: [1, 2], T1: [2, 3], T2: [3]}
    assert entries_left(context, requested, {T0, T1}, only_finished=True) == {T1: [2, 3], T2: [3]}
    assert entries_left(context, requested, {T0, T1}, only_finished=False) == {T2: [3]}


def test_who_goes_on() -> None:
    context = ctx(3, {"t": [MOVE, MOVE, [1, 2]], "u": [MOVE]}, dead=[3])
    lead(context, "t-0", 1, (1, 2))
    lead(context, "u-0", 1, (1, 2))
    context.begin_reassignments([3, 1, 0])
    assert ready_for_phase_b(context, [0, 1, 2]) == [1], "2 is in sync, but is not being reassigned"
    assert reassignments_to_resume(context, [2]) == [1], "2 is in none of the targets"
    assert reassignments_to_resume(context, [3]) == [0, 1, 3]
    context.queue_topic_deletion(["u"])
    assert queued_topics(context, [0, 3, 3]) == ["u"]
    context.end_reassignments([3, 2])
    assert list(context.partitions_being_reassigned) == [1, 0]


# -- phases ------------------------------------------------------------------------------------------------------------


def test_phase_u_begins_cancels_and_repeats() -> None:
    at_rest = ReplicaAssignment((1, 2))
    context = ctx(3, {"t": [[1, 2], MOVE, MOVE, [1, 2]]})
    lead(context, "t-1", 3, (3, 1), leader_epoch=5)
    lead(context, "t-2", 1, (1, 2))
    wanted = {0: MOVE, 1: at_rest, 2: MOVE, 3: at_rest}
    phase = plan_phase_u(context, wanted)
    states = {1: {3: ReplicaState.OnlineReplica}}
    assert phase == PhaseU({0: MOVE, 1: at_rest}, {0: at_rest, 1: MOVE}, {1: [3]}, {0: 0, 1: 5}, {3: at_rest}, states)
    apply(context, Effects(assigned=phase.wanted))
    assert led_by_dropped(context, phase.dropped) == [1]
    lead(context, "t-1", 1, (3, 1), leader_epoch=5)
    assert led_by_dropped(context, phase.dropped) == []


def test_what_could_not_be_written_goes_back() -> None:
    context = ctx(3, {"t": [[1, 2], MOVE]})
    phase = plan_phase_u(context, {0: MOVE, 1: ReplicaAssignment((1, 2))})
    apply(context, Effects(assigned=phase.wanted))
    effects = effects_of_phase_u(phase, {1: "no room"})
    back = (({3: [1]}, ReplicaState.OnlineReplica),)
    requests = [LeaderAndIsrRequests([1], [(3, 1, 2)])]
    assert effects == Effects(leader_and_isr=requests, assigned={1: MOVE}, replicas=back)
    assert (phase.dropped_without(()), phase.dropped_without({1: "no room"})) == ({1: [3]}, {})


@pytest.mark.parametrize("state", [ReplicaState.NewReplica, ReplicaState.OfflineReplica, ReplicaState.OnlineReplica])
def test_a_replica_that_was_to_go_keeps_its_state_if_it_stays(state: ReplicaState) -> None:
    """Otherwise its broker would hear nothing of the partition when it restarts."""
    context = ctx(3, {"t": [MOVE]})
    set_replica_states(context.table, {3: [0]}, state)
    phase = plan_phase_u(context, {0: ReplicaAssignment((1, 2))})
    apply(context, Effects(assigned=phase.wanted))
    apply(context, effects_of_phase_u(phase, {0: "no room"}))
    assert context.table.replica_state(0, 3) is state


def test_a_replica_that_was_never_made_is_not_made_by_going_back() -> None:
    context = ctx(3, {"t": [MOVE]})
    set_replica_states(context.table, {3: [0]}, ReplicaState.NonExistentReplica)
    phase = plan_phase_u(context, {0: ReplicaAssignment((1, 2))})
    apply(context, Effects(assigned=phase.wanted))
    apply(context, effects_of_phase_u(phase, {0: "no room"}))
    assert context.table.assignment(0) == MOVE
    assert context.table.replica_state(0, 3) is ReplicaState.NonExistentReplica


def test_what_was_there_already_and_could_not_be_written_has_nothing_to_go_back_to() -> None:
    context = ctx(2, {"t": [[1, 2]]})
    phase = plan_phase_u(context, {0: ReplicaAssignment((1, 2))})
    assert effects_of_phase_u(phase, {0: "another topic"}) == Effects(leader_and_isr=[LeaderAndIsrRequests([], [])])


def test_only_what_takes_another_back_is_cancelled() -> None:
    at_rest, other = ReplicaAssignment((1, 2)), ReplicaAssignment((1, 2, 4), (4,), (2,))
    context = ctx(4, {"t": [MOVE, MOVE, at_rest, at_rest]})
    phase = plan_phase_u(context, {0: at_rest, 1: other, 2: at_rest, 3: other})
    apply(context, begun(phase, [0, 1, 2, 3]))
    assert list(context.partitions_being_reassigned) == [0, 1, 2, 3]
    assert list(context.cancelled_reassignments) == [0], "1 is overridden, 2 and 3 were at rest"
    apply(context, ReassignmentsBegun([0]))
    assert context.cancelled_reassignments == {}, "it moves again"
    apply(context, begun(phase, [0]))
    apply(context, ReassignmentsEnded([0]))
    assert context.cancelled_reassignments == {}
    apply(context, begun(phase, [0]))
    context.tell_of_reassignments([], untold=[1])
    context.remove_topic(context.table.topic_by_name["t"])
    assert context.cancelled_reassignments == {}, "the row may be another partition's now"
    assert context.untold_reassignments == {}


def test_what_no_other_event_resumes() -> None:
    """0 is ready, 1 waits for its target, and 2 waits too, but its replicas have not been told."""
    context = ctx(3, {"t": [MOVE, MOVE, MOVE]})
    for name, isr in (("t-0", (1, 2, 3)), ("t-1", (1, 2)), ("t-2", (1, 2))):
        lead(context, name, 1, isr)
    assert uncommitted(context) == []
    context.begin_reassignments([2, 1, 0])
    context.tell_of_reassignments([0, 1, 2], untold=[2])
    assert uncommitted(context) == [0, 2]
    assert [completed_by_election(context, rows) for rows in ([0, 1], [1, 2], [])] == [True, False, False]
    apply(context, Effects(assigned={0: ReplicaAssignment((3, 1))}))
    assert not completed_by_election(context, [0]), "phase B is under way"
    apply(context, ReassignmentsEnded([0, 1, 2]))
    assert uncommitted(context) == []


def test_dropped_replicas_are_stopped_under_a_new_epoch() -> None:
    context = ctx(3, {"t": [MOVE, MOVE, MOVE]})
    phase = plan_phase_u(context, dict.fromkeys(range(3), ReplicaAssignment((1, 2))))
    lead(context, "t-1", 1, (1, 2), leader_epoch=1)
    assert epochs_not_raised(context, phase, {2: "refused"}) == [0]
    context.debts.set(3, "t", {0: b"", 2: b""}, 0)
    apply(context, Effects(assigned=phase.wanted))
    effects = effects_of_dropping(context, phase, {2: "refused"}, [0])
    assert effects == Effects(leader_and_isr=[LeaderAndIsrRequests([0], [(1, 2)])], owed=[context.debts.get(3, "t", 0)])
    context.remove_topic(context.table.topic_by_name["t"])
    assert epochs_not_raised(context, phase, ()) == []
    assert effects_of_dropping(context, phase, (), []).owed == []


def test_phase_a_tells_the_old_and_creates_the_new() -> None:
    context = ctx(3, {"t": [MOVE, MOVE]})
    set_replica_states(context.table, {3: [0, 1]}, ReplicaState.NonExistentReplica)
    assert effects_of_phase_a(context, [1]) == Effects(
        leader_and_isr=[SharedLeaderAndIsrRequests((1, 2), (1,)), SharedLeaderAndIsrRequests((3,), (1,), is_new=True)]
    )
    assert replicas_to_create(context, [1]) == {3: [1]}
    fresh = ctx(3, {"t": [MOVE]}, online=False)
    assert replicas_to_create(fresh, [0]) == {3: [0]}, "its first election informs the replica"
    set_replica_states(context.table, {3: [0, 1]}, ReplicaState.NewReplica)
    assert replicas_to_create(context, [0, 1]) == {}
    assert (untold(context, [0, 1], [1]), untold(fresh, [0], [])) == ([0], [])


def phase_b_context() -> ControllerContext:
    """The leader of 0 stays, those of the others are removed; the whole target of 2 is dead."""
    context = ctx(4, {"t": [MOVE, MOVE, ReplicaAssignment((4, 2), (4,), (2,)), MOVE]}, dead=[4])
    for name, leader, isr in (("t-0", 1, (1, 2, 3)), ("t-1", 2, (1, 2, 3)), ("t-2", 2, (4, 2)), ("t-3", 2, (1, 2, 3))):
        lead(context, name, leader, isr)
    set_replica_states(context.table, {3: [0, 1]}, ReplicaState.NewReplica)
    return context


def test_phase_b_moves_leaders_into_the_target() -> None:
    context = phase_b_context()
    phase = plan_phase_b(context, [0, 1, 2, 3])
    assert (phase.added, phase.unelectable, phase.moving) == ({3: [0, 1]}, [2], [1, 3])
    assert phase.targets() == dict.fromkeys((0, 1, 3), ReplicaAssignment((3, 1)))
    assert not_moved(context, phase, {3}) == [1]
    phase = phase.without([1])
    assert leaders_that_stay(context, phase, {3}) == [0]
    assert phase.removed() == {0: (2,), 3: (2,)}


def test_only_what_nothing_is_lost_with_is_committed() -> None:
    context = phase_b_context()
    phase = plan_phase_b(context, [0, 1, 3])
    apply(context, Effects(assigned=phase.targets()))
    lead(context, "t-0", 1, (1, 3))
    lead(context, "t-1", 1, (1, 3))
    safe, removed = plan_commit(context, phase)
    assert (list(safe.before), removed) == ([0, 1], {0: (2,), 1: (2,)}), "in 3 the removed replica is in sync"
    context.debts.set(2, "t", {0: b"", 1: b""}, 0)
    effects = effects_of_commit(context, phase, {0}, removed)
    assert effects.assigned == {1: MOVE, 3: MOVE}
    assert effects.leader_and_isr == [LeaderAndIsrRequests([1, 3], [(3, 1, 2), (3, 1, 2)])]
    assert effects.owed == [context.debts.get(2, "t", 0)]
    apply(context, effects)
    assert context.table.replica_state(3, 2) is ReplicaState.OnlineReplica, "as before"


def test_only_replicas_that_were_sent_something_are_removed() -> None:
    grows = ReplicaAssignment((1, 2, 3), adding=(3,))
    context = ctx(3, {"t": [grows, MOVE]}, online=False)
    lead(context, "t-0", 1, (1, 2, 3))
    phase = plan_phase_b(context, [0, 1])
    assert phase.removed() == {1: (2,)}, "nothing goes from 0"
    safe, removed = plan_commit(context, phase)
    assert (list(safe.before), removed) == ([0, 1], {}), "1 never had a leader"


# -- brokers in ISRs that are no replicas ------------------------------------------------------------------------------


def test_leftovers_of_a_controller_that_ended() -> None:
    context = ctx(3, {"t": [[1, 2], [1, 2], [1, 2]]})
    assert non_replicas_in_isrs(context) == {}
    lead(context, "t-1", 1, (1, 3, 2))
    assert non_replicas_in_isrs(context) == {1: (3,)}
    context.read_with_non_replicas = {0: (2,), 1: (3, 1)}
    assert still_non_replicas(context) == {0: [], 1: [3]}


def test_replicas_in_sync_lead_instead_of_brokers_that_are_none() -> None:
    context = ctx(4, {"t": [[1, 2]] * 5, "going": [[1]]}, dead=[2])
    states = (("t-0", 3, (3, 1)), ("t-1", 3, (3, 2)), ("t-2", 3, (3,)), ("t-3", 1, (1, 3)), ("going-0", 3, (3, 1)))
    for name, leader, isr in states:
        lead(context, name, leader, isr)
    context.queue_topic_deletion(["going"])
    found = {0: [3], 1: [3], 2: [3], 3: [3], 4: [], 5: [3]}
    assert led_by_non_replicas(context, found) == [0], "2 is dead, t-2 has no other replica in sync, 1 leads t-3"


def test_non_replicas_go_where_a_replica_leads() -> None:
    context = ctx(3, {"t": [[1, 2]] * 4, "going": [[1]]})
    for name, leader, isr in (("t-0", 1, (1, 3)), ("t-1", 3, (3,)), ("going-0", 1, (1, 3))):
        lead(context, name, leader, isr)
    context.queue_topic_deletion(["going"])
    plan = plan_non_replicas(context, {0: [3], 1: [3], 2: [3], 3: [], 4: [3]})
    assert plan == NonReplicas({0: [3], 2: [3]}, {0: [3]}), "1 would have no leader"
    assert no_longer_in_sync(context, plan) == {2: [3]}
    lead(context, "t-0", 1, (1, 2))
    assert no_longer_in_sync(context, plan) == {0: [3], 2: [3]}


def test_non_replicas_go_while_a_deletion_waits_for_a_reassignment() -> None:
    """Else the reassignment would not end: its commit waits until nobody else is in sync."""
    context = ctx(3, {"going": [ReplicaAssignment((1, 2), removing=(2,)), [1, 2]]})
    lead(context, "going-0", 3, (3, 1))
    context.partitions_being_reassigned[0] = None
    context.queue_topic_deletion(["going"])
    assert led_by_non_replicas(context, {0: [3]}) == [0]
    lead(context, "going-0", 1, (1, 3))
    lead(context, "going-1", 1, (1, 3))
    assert plan_non_replicas(context, {0: [3], 1: [3]}).all == {0: [3]}, "1 is only to be deleted"
