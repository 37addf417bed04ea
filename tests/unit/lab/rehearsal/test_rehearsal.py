"""Rehearsals of small clusters: what they measure, that they repeat themselves, and that a bug does not pass."""

from __future__ import annotations

import logging

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.lab.rehearsal.rehearsal import (
    DEATH,
    FAILOVER,
    MIGRATION,
    MOVES,
    RESTARTS,
    ROLE,
    SESSION_S,
    Event,
    Rehearsed,
    Result,
    events,
    rehearse,
)
from aiocontroller.lab.rehearsal.stage import stage
from aiocontroller.lab.simulation.zoo import injected
from aiocontroller.lab.simulation.zoo_data import ALL_BUGS
from aiocontroller.zookeeper.cluster_tree import Partition
from tests.unit.lab.rehearsal.trees import healthy, random_tree, tree_of

logging.getLogger().addHandler(logging.NullHandler())
LONGEST_S = SESSION_S + 1.5
"""A session ends within a tick after its time, and then leaders are elected."""
BUGS = (
    "an election does not raise the leader epoch",
    "the list of brokers is not watched again",
    "only the new leader hears of an election",
    "the loss of a broker is handled 5 s late",
)


def of(rehearsed: Rehearsed) -> dict[Event, Result]:
    return {result.event: result for result in rehearsed.results}


def test_every_event_takes_place_and_deaths_cost_a_session() -> None:
    staged = stage(healthy([11, 12, 13, 14], 8, 3, min_isr=2), 100)
    found = rehearse(staged, {}, 1)
    assert found.violations == ()
    results = of(found)
    assert list(results) == events(staged, {})
    assert [event.kind for event in results] == [FAILOVER, *[DEATH] * 4, RESTARTS, MOVES, ROLE, MIGRATION]
    for event, result in results.items():
        if event.kind == DEATH and result.went.leaderless:
            assert 1.0 < result.went.leaderless_s < LONGEST_S + (4.0 if result.also else 0.0)
        if event.kind in (FAILOVER, ROLE):
            assert (result.went.leaderless, result.went.leaders_moved) == (0, 0)
        assert result.went.under_min_isr == 0
    assert results[Event(MOVES)].went.leaders_moved <= 3 * 8
    assert results[Event(RESTARTS)].went.leaders_moved >= 8
    assert any(result.went.acknowledged for result in results.values())


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    staged = stage(healthy([1, 2, 3], 4, 2), 100)
    first = rehearse(staged, {}, 3)
    assert rehearse(staged, {}, 3) == first
    assert rehearse(staged, {}, 4).digest != first.digest


def test_with_two_replicas_the_survivor_has_the_last_copy_and_records_are_at_risk() -> None:
    staged = stage(healthy([1, 2, 3], 6, 2), 100)
    deaths = [result.went for event, result in of(rehearse(staged, {}, 1)).items() if event.kind == DEATH]
    assert all(went.last_copy == 4 and went.last_copy_s >= 3.0 for went in deaths)
    assert all(went.under_min_isr == 0 for went in deaths)
    assert sum(went.at_risk for went in deaths) > 0


def test_where_all_replicas_are_needed_a_death_refuses_producers() -> None:
    staged = stage(healthy([1, 2, 3], 6, 2, min_isr=2), 100)
    deaths = [result.went for event, result in of(rehearse(staged, {}, 1)).items() if event.kind == DEATH]
    assert all(went.under_min_isr == 4 and went.at_risk == 0 for went in deaths)


def test_a_sampled_partition_counts_for_all_that_it_stands_for() -> None:
    staged = stage(healthy([1, 2, 3], 300, 2), 3)
    deaths = [result.went for event, result in of(rehearse(staged, {}, 1)).items() if event.kind == DEATH]
    assert {went.last_copy for went in deaths} == {200}


def test_a_given_plan_is_carried_out() -> None:
    staged = stage(healthy([1, 2, 3], 3, 2), 100)
    found = rehearse(staged, {TopicPartition("orders", 0): (3, 1), TopicPartition("orders", 1): (2,)}, 1)
    assert found.violations == ()
    assert Event(MOVES) in of(found)


def test_a_move_that_cannot_end_is_a_violation_that_names_it() -> None:
    away = Partition(TopicPartition("t", 0), ReplicaAssignment((1, 2)), LeaderAndIsr(2, 0, (2,), 1, 0))
    here = Partition(TopicPartition("t", 1), ReplicaAssignment((1, 3)), LeaderAndIsr(1, 0, (1, 3), 1, 0))
    staged = stage(tree_of([away, here], [1, 3]), 100)  # the only replica in sync of t-0 is away
    found = rehearse(staged, {TopicPartition("t", 0): (3,)}, 1)
    assert found.violations == ("waited for 120 s in vain until the replicas have moved",)


def test_a_cluster_where_nothing_can_be_moved_is_rehearsed_without_it() -> None:
    staged = stage(healthy([1, 2], 2, 2), 100)
    assert Event(MOVES) not in events(staged, {})
    assert Event(MOVES) in events(staged, {TopicPartition("orders", 0): (1,)})


@pytest.mark.parametrize("seed", [0, 5, 9, 12, 20, 24, 31, 57])
def test_clusters_in_any_state_are_rehearsed_without_a_false_alarm(seed: int) -> None:
    try:
        staged = stage(random_tree(seed), 50)
    except BadInputError:
        pytest.skip("nothing in it can be rehearsed")
    assert rehearse(staged, {}, seed).violations == ()


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_of_the_controller_does_not_pass(name: str) -> None:
    staged = stage(healthy([1, 2, 3], 6, 3), 100)
    with injected(next(bug for bug in ALL_BUGS if bug.name == name)):
        assert rehearse(staged, {}, 1).violations
