"""Reassignment's decisions: what a request may ask for, in Kafka's words, and when a reassignment is complete."""

from __future__ import annotations

import re

import hypothesis.strategies as st
import pytest
from hypothesis import given

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.reassignment import (
    Refused,
    by_broker,
    check_target,
    in_sync_replica_stays,
    is_complete,
    without_controllers,
)
from tests.builders import ctx, lead


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
