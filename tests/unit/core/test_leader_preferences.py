"""Brokers that should not lead, and racks that should: every election honours them unless no other replica can lead."""

from __future__ import annotations

import msgspec
import pytest

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Strategy, UncleanPolicy, elect
from aiocontroller.core.election_requests import refusal
from aiocontroller.core.events import ElectionType
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.leader_balance import (
    Imbalance,
    hosted_by_avoided,
    leader_imbalance,
    leaders_to_move,
    partitions_to_rebalance,
)
from aiocontroller.core.leader_preferences import NO_PREFERENCES, LeaderPreferences, unchanged
from aiocontroller.core.partition_state_machine import plan_initialization
from tests.builders import broker, ctx, lead, row_of
from tests.unit.core.playing import Played


def imbalance(context: ControllerContext) -> list[Imbalance]:
    return Played(context, leader_imbalance(context)).result


def rebalanced(context: ControllerContext, percentage: int) -> list[int]:
    return Played(context, partitions_to_rebalance(context, percentage)).result


AVOID_1 = LeaderPreferences(frozenset({1}))
NORTH = LeaderPreferences(racks=frozenset({"north"}))


def preferring(preferences: LeaderPreferences, context: ControllerContext) -> ControllerContext:
    context.leader_preferences = preferences
    return context


def elected(context: ControllerContext, strategy: Strategy, unclean: UncleanPolicy | None = None) -> int | None:
    """The leader of t-0 by the strategy; None if there is none."""
    outcomes = elect(context, [row_of(context, "t-0")], strategy, unclean or UncleanPolicy()).outcomes
    return outcomes[0].leader if outcomes else None


def to_move(context: ControllerContext) -> list[int]:
    return leaders_to_move(context, hosted_by_avoided(context))


def test_without_preferences_the_assignment_decides() -> None:
    assert NO_PREFERENCES.order({1: broker(1)}) is unchanged
    assert not NO_PREFERENCES.any
    assert unchanged((2, 1)) == (2, 1)


def test_replicas_in_a_preferred_rack_come_first_and_brokers_to_avoid_last() -> None:
    racks = {1: "north", 2: "south", 3: "north", 4: None}
    brokers = {each: msgspec.structs.replace(broker(each), rack=rack) for each, rack in racks.items()}
    order = LeaderPreferences(frozenset({3}), frozenset({"north"})).order(brokers)
    assert order((2, 3, 4, 1, 9)) == (1, 2, 4, 9, 3)  # 9 is not registered, so it has no rack


@pytest.mark.parametrize(
    "strategy, isr, dead, leaving, leader",
    [
        (Strategy.OFFLINE, (1, 2, 3), [], [], 2),
        (Strategy.OFFLINE, (1, 2, 3), [2, 3], [], 1),
        (Strategy.OFFLINE, (1,), [], [], 1),
        (Strategy.REASSIGN, (1, 3), [], [], 3),
        (Strategy.REASSIGN, (1,), [], [], 1),
        (Strategy.PREFERRED, (1, 2, 3), [], [], 2),
        (Strategy.PREFERRED, (1, 3), [], [], None),
        (Strategy.CONTROLLED_SHUTDOWN, (1, 2, 3), [], [2], 3),
        (Strategy.CONTROLLED_SHUTDOWN, (1, 2), [], [2], 1),
    ],
)
def test_every_strategy_avoids_the_broker_while_another_replica_can_lead(
    strategy: Strategy, isr: tuple[int, ...], dead: list[int], leaving: list[int], leader: int | None
) -> None:
    context = preferring(AVOID_1, ctx(3, {"t": [[1, 2, 3]]}, dead=dead, shutting_down=leaving))
    lead(context, "t-0", 2 if 2 in isr else 1, isr)
    assert elected(context, strategy) == leader


@pytest.mark.parametrize("isr, moved", [((1, 2), []), ((1, 2, 3), [0])])
def test_leaders_do_not_leave_a_broker_to_avoid_for_a_sick_one(isr: tuple[int, ...], moved: list[int]) -> None:
    """The election would leave them where they are, each time with a higher epoch."""
    context = preferring(AVOID_1._replace(sick=2), ctx(3, {"t": [[1, 2, 3]]}))
    lead(context, "t-0", 1, isr)
    assert to_move(context) == moved
    assert elected(context, Strategy.REASSIGN) == (3 if moved else 1)


def test_an_unclean_election_avoids_the_broker_too() -> None:
    context = preferring(AVOID_1, ctx(3, {"t": [[1, 2, 3]]}, dead=[3]))
    lead(context, "t-0", 3, (3,))
    assert elected(context, Strategy.OFFLINE, UncleanPolicy(default=True)) == 2


def test_a_new_partition_is_led_by_another_and_all_replicas_are_in_sync() -> None:
    context = preferring(AVOID_1, ctx(2, {"t": [[1, 2]], "u": [[1]]}))
    decisions, failed = plan_initialization(context, context.table.rows())
    assert [(each.leader, each.isr) for each in decisions.leaderships] == [(2, (1, 2)), (1, (1,))]
    assert failed == []


def test_the_preferred_leader_is_the_first_by_preference() -> None:
    context = preferring(AVOID_1, ctx(2, {"t": [[1, 2]]}))
    lead(context, "t-0", 1, (1, 2))
    assert imbalance(context) == [Imbalance(2, 1, [0])]
    assert rebalanced(context, 10) == [0]  # although the first replica leads
    assert refusal(context, 0, ElectionType.PREFERRED) is None
    lead(context, "t-0", 2, (1, 2))
    assert rebalanced(context, 10) == []
    assert refusal(context, 0, ElectionType.PREFERRED) is not None


def test_leaders_go_to_the_preferred_rack() -> None:
    context = preferring(NORTH, ctx(2, {"t": [[1, 2]]}))
    context.add_brokers([msgspec.structs.replace(context.brokers[2], rack="north")])
    lead(context, "t-0", 1, (1, 2))
    assert rebalanced(context, 10) == [0]
    assert elected(context, Strategy.PREFERRED) == 2
    assert to_move(context) == []  # a rack is a preference, nothing to hurry for


@pytest.mark.parametrize(
    "leader, isr, dead, moved",
    [
        (1, (1, 2), [], True),
        (2, (1, 2), [], False),
        (1, (1,), [], False),
        (1, (1, 2), [2], False),
    ],
)
def test_a_broker_to_avoid_loses_what_another_can_lead(
    leader: int, isr: tuple[int, ...], dead: list[int], moved: bool
) -> None:
    context = preferring(AVOID_1, ctx(2, {"t": [[1, 2]], "u": [[2]]}, dead=dead))
    lead(context, "t-0", leader, isr)
    assert to_move(context) == ([row_of(context, "t-0")] if moved else [])


def test_nothing_moves_between_two_brokers_to_avoid() -> None:
    context = preferring(LeaderPreferences(frozenset({1, 2})), ctx(2, {"t": [[1, 2]]}))
    lead(context, "t-0", 2, (1, 2))
    assert to_move(context) == []


def test_replicas_that_a_reassignment_will_remove_hear_of_the_new_leader() -> None:
    """The former leader is one of them; if it did not hear, it would go on as leader until the reassignment ends."""
    moving = ReplicaAssignment((2, 3, 1), adding=(2,), removing=(1,))
    context = preferring(AVOID_1, ctx(3, {"t": [moving]}))
    lead(context, "t-0", 1, (1, 3))
    [outcome] = elect(context, to_move(context), Strategy.REASSIGN).outcomes
    assert outcome.leader == 3
    assert set(outcome.recipients) == {1, 2, 3}


def test_partitions_with_the_same_replicas_differ_in_failed_directories_and_deletion() -> None:
    context = preferring(AVOID_1, ctx(2, {"t": [[1, 2]] * 3, "u": [[1, 2]]}))
    context.table.topic(row_of(context, "u-0")).deleting = True
    assert to_move(context) == [0, 1, 2]
    context.offline_dirs[2] = {row_of(context, "t-1")}
    assert to_move(context) == [0, 2]
