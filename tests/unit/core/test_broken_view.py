"""Broken partitions by name."""

from __future__ import annotations

from aiocontroller.core import broken_view
from aiocontroller.core.apply import apply
from aiocontroller.core.broken_partitions import BrokenKind
from aiocontroller.core.broken_reasons import Clause
from aiocontroller.core.broken_view import BrokenPartition
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.context_changes import TimeSet, TopicsLoaded
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.states import PartitionState
from tests.builders import ctx, lead


def cluster() -> ControllerContext:
    context = ctx(3, {"t": [[1, 2, 3]] * 3, "u": [[2, 3]]})
    apply(context, TimeSet(5))
    lead(context, "t-2", 1, (1, 2))
    apply(context, TopicsLoaded(), TimeSet(9))
    context.remove_brokers([3])
    lead(context, "t-0", 1, (1, 2))
    context.table.set_state([1, 3], PartitionState.OfflinePartition)
    return context


def test_those_of_a_kind_in_the_order_in_which_they_broke() -> None:
    context = cluster()
    found = broken_view.broken_partitions(context, BrokenKind.UNDER_REPLICATED, 0, 10)
    dead = [Clause("broker 3 dead", 9)]
    assert found == [
        BrokenPartition("t", 2, 5, True, dead, 1, (1, 2, 3), (1, 2)),
        BrokenPartition("t", 0, 9, False, dead, 1, (1, 2, 3), (1, 2)),
    ]
    assert broken_view.broken_partitions(context, BrokenKind.UNDER_REPLICATED, 1, 10) == found[1:]
    assert broken_view.broken_partitions(context, BrokenKind.UNDER_REPLICATED, 0, 1) == found[:1]


def test_an_unknown_time_is_no_time() -> None:
    context = ctx(2, {"t": [ReplicaAssignment((1, 2, 3), (3,), (1,))]}, dead=[2])
    lead(context, "t-0", 1, (1,))
    [found] = broken_view.broken_partitions(context, BrokenKind.UNDER_REPLICATED, 0, 1)
    assert (found.since_us, found.at_least, found.adding, found.removing) == (None, True, (3,), (1,))


def test_how_many_are_broken() -> None:
    assert broken_view.counts(cluster()) == {"offline": 2, "under-replicated": 2, "under-min-isr": 0}


def test_the_topics_with_the_most_offline_partitions() -> None:
    context = cluster()
    context.table.set_state([0], PartitionState.OfflinePartition)
    assert broken_view.offline_by_topic(context, 5) == [("t", 2), ("u", 1)]
    assert broken_view.offline_by_topic(context, 1) == [("t", 2)]


def test_what_is_broken_about_a_partition() -> None:
    context = cluster()
    assert broken_view.kinds_of(context, 1) == [BrokenKind.OFFLINE]
    assert list(broken_view.among(context, BrokenKind.OFFLINE, range(4))) == [1, 3]
