"""Replica assignments and reassignments: what Kafka's ``ControllerContextTest`` pins about ``ReplicaAssignment``."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.core.ids import Broker, Endpoint, ReplicaAssignment, TopicPartition

ids = st.lists(st.integers(0, 9), min_size=1, max_size=6, unique=True).map(tuple)


@pytest.mark.parametrize(
    "assignment, being_reassigned, origin, target",
    [
        (ReplicaAssignment((1, 2, 3, 4, 5, 6), (2, 3, 4), (1, 5, 6)), True, (1, 5, 6), (2, 3, 4)),
        (ReplicaAssignment((1, 2, 3, 4), (), (1, 4)), True, (1, 2, 3, 4), (2, 3)),
        (ReplicaAssignment((1, 2, 3, 4), (4,), (2,)), True, (1, 2, 3), (1, 3, 4)),
        (ReplicaAssignment((1, 2, 3, 4, 5, 6)), False, (1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6)),
    ],
)
def test_partition_replica_assignment(
    assignment: ReplicaAssignment, being_reassigned: bool, origin: tuple[int, ...], target: tuple[int, ...]
) -> None:
    assert assignment.being_reassigned is being_reassigned
    assert assignment.origin == origin
    assert assignment.target == target


@pytest.mark.parametrize(
    "before, target, after",
    [
        ((1, 2, 3, 4), (4, 2, 5, 3), ReplicaAssignment((4, 2, 5, 3, 1), (5,), (1,))),
        ((1, 2, 3), (4, 5, 6), ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))),
        ((1, 2, 3), (3, 1, 2), ReplicaAssignment((3, 1, 2))),
    ],
)
def test_reassign_to_begins(before: tuple[int, ...], target: tuple[int, ...], after: ReplicaAssignment) -> None:
    assert ReplicaAssignment(before).reassign_to(target) == after
    assert after.target == target


@pytest.mark.parametrize(
    "assignment",
    [
        ReplicaAssignment((1, 2, 3)),
        ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3)),
        ReplicaAssignment((4, 2, 3, 1), (4,), (1,)),
    ],
)
def test_reassign_to_idempotence(assignment: ReplicaAssignment) -> None:
    assert assignment.reassign_to(assignment.target) == assignment


def test_reassign_to_overrides_and_cancels() -> None:
    assignment = ReplicaAssignment((1, 2, 3))
    first = assignment.reassign_to((4, 5, 6))
    assert first == ReplicaAssignment((4, 5, 6, 1, 2, 3), (4, 5, 6), (1, 2, 3))
    assert first.reassign_to((7, 8, 9)) == ReplicaAssignment((7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3))
    assert assignment.reassign_to((7, 8, 9)) == ReplicaAssignment((7, 8, 9, 1, 2, 3), (7, 8, 9), (1, 2, 3))
    assert first.reassign_to((1, 2, 3)) == assignment


@given(ids, ids, ids)
def test_reassign_to_keeps_origin_and_target(
    before: tuple[int, ...], first: tuple[int, ...], second: tuple[int, ...]
) -> None:
    """However often a reassignment is overridden, its target is the last one and its origin the same brokers."""
    overridden = ReplicaAssignment(before).reassign_to(first).reassign_to(second)
    assert overridden == ReplicaAssignment(before).reassign_to(second) or set(before) & set(first)
    assert overridden.target == second
    assert set(overridden.origin) == set(before)
    assert set(overridden.replicas) == set(before) | set(second)
    assert len(set(overridden.replicas)) == len(overridden.replicas)
    assert overridden.being_reassigned == (set(before) != set(second))


def test_topic_partition_reads_as_kafka_writes_it() -> None:
    assert str(TopicPartition("a-b", 3)) == "a-b-3"


def test_a_brokers_endpoint_by_listener() -> None:
    inside, outside = Endpoint("INSIDE", "a", 1), Endpoint("OUTSIDE", "b", 2, "SSL")
    broker = Broker(1, 7, (inside, outside))
    assert broker.endpoint("OUTSIDE") is outside
    assert broker.endpoint("CONTROL") is None
