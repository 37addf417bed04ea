"""Replica placement gives Kafka's results (facts that ``AdminRackAwareTest`` pins), and keeps its promises."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.replica_placement import (
    PlacementError,
    assign_replicas_to_brokers,
    rack_alternated,
    start_index_of_new_partitions,
)

Assignment = dict[int, tuple[int, ...]]

SIX = {0: "rack1", 1: "rack2", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"}


def in_racks(racks: dict[int, str]) -> list[tuple[int, str | None]]:
    return sorted(racks.items())


def without_racks(ids: list[int]) -> list[tuple[int, str | None]]:
    return [(i, None) for i in ids]


def racks_of(assignment: Assignment, racks: dict[int, str]) -> list[int]:
    """The number of different racks of each partition."""
    return [len({racks[r] for r in replicas}) for replicas in assignment.values()]


def leaders(assignment: Assignment) -> Counter[int]:
    return Counter(replicas[0] for replicas in assignment.values())


def replicas(assignment: Assignment) -> Counter[int]:
    return Counter(r for replicas in assignment.values() for r in replicas)


# -- Kafka's own results -----------------------------------------------------------------------------------------------


def test_rack_alternated_broker_list_and_assignment() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert rack_alternated(racks) == [0, 3, 1, 5, 4, 2]
    assert rack_alternated({b: r for b, r in racks.items() if b != 5}) == [0, 3, 1, 4, 2]
    assert assign_replicas_to_brokers(in_racks(racks), 7, 3, start_index=0) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


def test_replica_assignment_without_racks() -> None:
    assert assign_replicas_to_brokers(without_racks([0, 1, 2, 3, 4]), 10, 3, start_index=0, first_partition=-1) == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


@pytest.mark.parametrize("start_index", range(6))
@pytest.mark.parametrize("start_shift", range(6))
@pytest.mark.parametrize(
    "racks, partitions, replication_factor, first_partition",
    [
        (SIX, 6, 3, 0),  # testAssignmentWithRackAware, …WithRandomStartIndex
        (SIX, 12, 2, 0),  # testAssignmentWith2ReplicasRackAware
        (SIX, 6, 2, 0),  # …With6Partitions
        ({0: "rack1", 1: "rack2", 4: "rack3"}, 3, 2, 0),  # …With6PartitionsAnd3Brokers
        ({6 + b: r for b, r in SIX.items()}, 12, 2, 12),  # testRackAwareExpansion
        (
            {**SIX, 6: "rack1", 7: "rack2", 8: "rack2", 9: "rack3", 10: "rack1", 11: "rack3"},
            96,
            3,
            0,
        ),  # testLargeNumberPartitionsAssignment
    ],
)
def test_even_racks_give_an_even_distribution(
    racks: dict[int, str],
    partitions: int,
    replication_factor: int,
    first_partition: int,
    start_index: int,
    start_shift: int,
) -> None:
    assignment = assign_replicas_to_brokers(
        in_racks(racks),
        partitions,
        replication_factor,
        start_index=start_index,
        first_partition=first_partition,
        start_shift=start_shift,
    )
    assert list(assignment) == list(range(first_partition, first_partition + partitions))
    assert set(racks_of(assignment, racks)) == {replication_factor}
    assert leaders(assignment) == dict.fromkeys(racks, partitions // len(racks))
    assert replicas(assignment) == dict.fromkeys(racks, partitions * replication_factor // len(racks))


def test_uneven_replicas_still_get_a_rack_each() -> None:
    assignment = assign_replicas_to_brokers(in_racks(SIX), 13, 3, start_index=0)
    assert set(racks_of(assignment, SIX)) == {3}


@pytest.mark.parametrize("start_index", range(6))
def test_uneven_racks_still_get_even_leaders(start_index: int) -> None:
    racks = {0: "rack1", 1: "rack1", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack1"}
    assignment = assign_replicas_to_brokers(in_racks(racks), 12, 3, start_index=start_index)
    assert set(racks_of(assignment, racks)) == {3}
    assert leaders(assignment) == dict.fromkeys(racks, 2)


@pytest.mark.parametrize("start_index", range(6))
@pytest.mark.parametrize("replication_factor, distinct_racks", [(5, 3), (2, 2)])
def test_more_and_fewer_replicas_than_racks(start_index: int, replication_factor: int, distinct_racks: int) -> None:
    racks = {0: "rack1", 1: "rack2", 2: "rack2", 3: "rack3", 4: "rack3", 5: "rack2"}
    assignment = assign_replicas_to_brokers(in_racks(racks), 6, replication_factor, start_index=start_index)
    assert {len(set(replicas)) for replicas in assignment.values()} == {replication_factor}
    assert set(racks_of(assignment, racks)) == {distinct_racks}


@pytest.mark.parametrize("start_index", range(6))
def test_single_rack(start_index: int) -> None:
    racks = dict.fromkeys(range(6), "rack1")
    assignment = assign_replicas_to_brokers(in_racks(racks), 6, 3, start_index=start_index)
    assert {len(set(replicas)) for replicas in assignment.values()} == {3}
    assert leaders(assignment) == dict.fromkeys(racks, 1)


def test_skips_a_broker_that_already_has_a_replica() -> None:
    racks = {0: "a", 1: "b", 2: "c", 3: "a", 4: "a"}
    assignment = assign_replicas_to_brokers(in_racks(racks), 6, 4, start_index=2, first_partition=-1)
    assert [len(set(replicas)) for replicas in assignment.values()] == [4] * 6


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "partitions, replication_factor, code, message",
    [
        (0, 0, KafkaErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0."),
        (10, 0, KafkaErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0."),
        (10, 6, KafkaErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor: 6 larger than available brokers: 5."),
        (10, 5, KafkaErrorCode.INVALID_REPLICA_ASSIGNMENT, r"racks: brokers \[4\] have none while \[0, 1, 2, 3\]"),
    ],
)
def test_invalid_parameters(partitions: int, replication_factor: int, code: KafkaErrorCode, message: str) -> None:
    brokers: list[tuple[int, str | None]] = [(0, "rack1"), (1, "rack3"), (2, "rack3"), (3, "rack2"), (4, None)]
    with pytest.raises(PlacementError, match=message) as caught:
        assign_replicas_to_brokers(brokers, partitions, replication_factor, start_index=0)
    assert caught.value.code == code


def test_a_broker_named_twice_is_refused() -> None:
    with pytest.raises(PlacementError, match="expected each id once"):
        assign_replicas_to_brokers(without_racks([1, 2, 1]), 1, 2, start_index=0)


# -- adding partitions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first_replica, index", [(1, 0), (2, 1), (3, 2), (5, 2), (7, 0)])
def test_start_index_of_new_partitions(first_replica: int, index: int) -> None:
    assert start_index_of_new_partitions(without_racks([1, 2, 5]), first_replica) == index


def test_added_partitions_continue_the_round_robin() -> None:
    """Partitions 0..9 made at once equal 0..3 made first and 4..9 added, but for the shift, which starts afresh."""
    brokers = without_racks([0, 1, 2, 3, 4])
    whole = assign_replicas_to_brokers(brokers, 10, 1, start_index=2)
    added = assign_replicas_to_brokers(brokers, 6, 1, start_index=2, first_partition=4)
    assert added == {p: whole[p] for p in range(4, 10)}


# -- properties --------------------------------------------------------------------------------------------------------


@st.composite
def requests(draw: st.DrawFn) -> tuple[list[tuple[int, str | None]], int, int, int, int, int]:
    ids = draw(st.lists(st.integers(0, 40), min_size=1, max_size=9, unique=True).map(sorted))
    if draw(st.booleans()):
        brokers: list[tuple[int, str | None]] = [(i, draw(st.sampled_from("abcd"))) for i in ids]
    else:
        brokers = without_racks(ids)
    small = st.integers(0, 12)
    replication_factor = draw(st.integers(1, len(ids)))
    return brokers, draw(st.integers(1, 30)), replication_factor, draw(small), draw(small), draw(small)


@given(requests())
def test_promises(request: tuple[list[tuple[int, str | None]], int, int, int, int, int]) -> None:
    brokers, partitions, replication_factor, start_index, first_partition, start_shift = request
    assignment = assign_replicas_to_brokers(
        brokers,
        partitions,
        replication_factor,
        start_index=start_index,
        first_partition=first_partition,
        start_shift=start_shift,
    )
    assert list(assignment) == list(range(first_partition, first_partition + partitions))
    racks = {b: r for b, r in brokers if r is not None}
    for found in assignment.values():
        assert len(found) == len(set(found)) == replication_factor
        assert set(found) <= {b for b, _ in brokers}
        if racks:
            assert len({racks[r] for r in found}) == min(replication_factor, len(set(racks.values())))
    led = leaders(assignment)
    counts = [led[b] for b, _ in brokers]
    assert max(counts) - min(counts) <= 1
    if not racks and partitions % len(brokers) == 0 and first_partition % len(brokers) == 0:
        # A whole number of rounds: within a round the shift is constant, so every broker is follower n exactly once.
        held = replicas(assignment)
        assert {held[b] for b, _ in brokers} == {partitions * replication_factor // len(brokers)}
