"""Auto leader balance: the arithmetic of Kafka's ``checkAndTriggerAutoLeaderRebalance``."""

from __future__ import annotations

import math

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from aiocontroller.core import leader_balance
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.leader_balance import Imbalance, leader_imbalance, partitions_to_rebalance
from aiocontroller.core.steps import Breathe
from tests.builders import ctx, lead, leadership, row_of
from tests.unit.core.playing import Played


def imbalance(context: ControllerContext) -> list[Imbalance]:
    return Played(context, leader_imbalance(context)).result


def rebalanced(context: ControllerContext, percentage: int) -> list[int]:
    return Played(context, partitions_to_rebalance(context, percentage)).result


def preferred(count: int, elsewhere: int) -> ControllerContext:
    """``count`` partitions that prefer broker 1, of which broker 2 leads the first ``elsewhere``."""
    context = ctx(2, {"t": [[1, 2]] * count})
    for number in range(elsewhere):
        lead(context, f"t-{number}", 2, (2, 1))
    return context


@pytest.mark.parametrize(
    "count, elsewhere, percentage, moved",
    [
        (10, 0, 0, 0),
        (10, 1, 10, 0),  # exactly the allowed share is allowed
        (10, 2, 10, 2),
        (100, 10, 10, 0),
        (100, 11, 10, 11),
        (3, 1, 33, 1),  # 33.3 % > 33 %
        (3, 1, 34, 0),
        (5, 5, 100, 0),  # never more than 100 %
        (1, 1, 0, 1),
    ],
)
def test_more_than_the_allowed_share_is_moved_back(count: int, elsewhere: int, percentage: int, moved: int) -> None:
    assert rebalanced(preferred(count, elsewhere), percentage) == list(range(moved))


@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
def test_others_may_run_after_so_many_partitions(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 20, seven are examined twice: whether they are led by another, and whether they can be moved."""
    monkeypatch.setattr(leader_balance, "PARTITIONS_AT_ONCE", at_once)
    context = preferred(20, 7)
    played = Played(context, partitions_to_rebalance(context, 10))
    assert played.result == list(range(7))
    assert played.steps == [Breathe()] * (math.ceil(20 / at_once) + math.ceil(7 / at_once))


def test_rows_without_partitions_are_left_out_of_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leader_balance, "PARTITIONS_AT_ONCE", 2)
    context = ctx(2, {"gone": [[1, 2]] * 3, "t": [[1, 2]] * 3})
    lead(context, "t-1", 2, (2, 1))
    context.table.remove_topic(context.table.topic_by_name["gone"])
    assert rebalanced(context, 10) == [row_of(context, "t-1")]
    assert [list(rows) for rows in context.table.slices(2)] == [[], [3], [4, 5]]


def test_each_preferred_broker_has_its_own_share() -> None:
    context = ctx(3, {"t": [[1, 2], [2, 1], [2, 3], [3, 1]]})
    lead(context, "t-1", 1, (1, 2))
    lead(context, "t-3", -1, (3,))
    assert imbalance(context) == [Imbalance(1, 1, []), Imbalance(2, 2, [1]), Imbalance(3, 1, [3])]
    assert [i.ratio for i in imbalance(context)] == [0.0, 0.5, 1.0]
    assert rebalanced(context, 10) == [1, 3]
    assert rebalanced(context, 50) == [3]


def test_a_group_counts_partitions_without_leadership_but_does_not_move_them() -> None:
    context = preferred(4, 1)
    context.table.isr_of[3] = -1
    context.table.leader[3] = -1
    assert imbalance(context) == [Imbalance(1, 4, [0])]


def test_only_a_preferred_replica_that_is_online_and_in_sync_gets_its_partitions_back() -> None:
    context = ctx(4, {"t": [[1, 2]] * 4, "u": [[3, 2]], "v": [[4, 2]]}, dead=[3], shutting_down=[4])
    for name, isr in (("t-0", (2, 1)), ("t-1", (2,)), ("t-2", (2, 1)), ("u-0", (2,)), ("v-0", (2, 4))):
        lead(context, name, 2, isr)
    context.set_offline_dir_replicas(1, [row_of(context, "t-2")], [])
    assert [(i.broker, len(i.not_led)) for i in imbalance(context)] == [(1, 3), (3, 1), (4, 1)]
    assert rebalanced(context, 10) == [row_of(context, "t-0")]


def test_topics_being_deleted_do_not_count() -> None:
    context = ctx(2, {"t": [[1, 2]], "u": [[1, 2]]})
    lead(context, "t-0", 2, (2, 1))
    context.table.set_topic_deleting(context.table.topic_by_name["t"], True)
    assert imbalance(context) == [Imbalance(1, 1, [])]
    assert rebalanced(context, 0) == []


def test_removed_topics_and_gaps_between_partitions_are_passed_over() -> None:
    context = ctx(2, {"t": [[1, 2]], "u": [[1, 2]]})
    context.table.remove_topic(context.table.topic_by_name["t"])
    context.table.add_partition(context.table.topic_by_name["u"], 3, context.table.assignment(1))
    assert imbalance(context) == [Imbalance(1, 2, [])]


def test_no_partitions_no_ratio() -> None:
    assert imbalance(ctx()) == []
    assert Imbalance(1, 0, []).ratio == 0.0


def test_an_empty_assignment_has_no_preferred_replica() -> None:
    assert imbalance(ctx(2, {"t": [[]]}, online=False)) == []


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.permutations((1, 2, 3)), st.sampled_from((-1, 1, 2, 3))), max_size=20),
    st.sampled_from((0, 10, 33, 50, 99)),
)
def test_after_the_move_no_broker_exceeds_its_share(partitions: list[tuple[list[int], int]], percentage: int) -> None:
    """With every replica online and in sync, one pass is enough, and it moves nothing where the share is kept."""
    context = ctx(3, {"t": [replicas for replicas, _ in partitions]})
    for row, (_, leader) in enumerate(partitions):
        context.table.set_leadership(row, leadership(leader, (1, 2, 3)))
    before = {i.broker: i for i in imbalance(context)}
    moved = rebalanced(context, percentage)
    assert moved == sorted(p for i in before.values() if i.ratio > percentage / 100 for p in i.not_led)
    for row in moved:
        context.table.set_leadership(row, leadership(context.table.replicas(row)[0], (1, 2, 3)))
    assert all(i.ratio <= percentage / 100 for i in imbalance(context))


def test_every_preferred_broker_is_counted_once_and_broker_0_is_one() -> None:
    context = ctx([0, 1], {"t": [[0, 1], [0, 1], [1, 0]]})
    found = {i.broker: (i.preferred, list(i.not_led)) for i in imbalance(context)}
    assert found == {0: (2, []), 1: (1, [])}
