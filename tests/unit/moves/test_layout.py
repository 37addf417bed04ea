"""A plan is made from partitions that may change; the others weigh on their brokers all the same."""

from __future__ import annotations

import msgspec
import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import Broker, LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.moves.layout import check_brokers, layout_of
from aiocontroller.zookeeper.cluster_tree import Partition
from tests.unit.check.test_rules import A0, A1, tree

B0 = TopicPartition("b", 0)
SIZES = {A0: 5}


def test_of_a_healthy_cluster_everything_may_change() -> None:
    layout, left_out = layout_of(tree(), SIZES)
    assert layout == ({A0: (1, 2), A1: (2, 1), B0: (2, 3)}, {1: None, 2: None, 3: None}, SIZES, {}, {})
    assert left_out.explained() == {}


def test_other_topics_are_fixed() -> None:
    layout, left_out = layout_of(tree(), {}, ["b"])
    assert layout.replicas == {B0: (2, 3)}
    assert layout.fixed == {A0: (1, 2), A1: (2, 1)}
    assert left_out.explained() == {}
    with pytest.raises(BadInputError, match="found topic 'c', expected one that exists"):
        layout_of(tree(), {}, ["c"])


def test_what_is_under_way_or_leaderless_is_left_out_and_what_is_deleted_weighs_nothing() -> None:
    moving = Partition(A0, ReplicaAssignment((1, 2, 3), (3,), (1,)), LeaderAndIsr(1, 0, (1, 2), 7, 0))
    offline = Partition(A1, ReplicaAssignment((2, 1)), LeaderAndIsr(-1, 0, (2,), 7, 0))
    asked = Partition(TopicPartition("c", 0), ReplicaAssignment((1,)), LeaderAndIsr(1, 0, (1,), 7, 0))
    deleted = Partition(B0, ReplicaAssignment((2, 3)), LeaderAndIsr(2, 0, (2, 3), 7, 0))
    found = msgspec.structs.replace(
        tree(),
        partitions=[moving, offline, deleted, asked],
        deletions=["b"],
        reassignment={asked.name: (2,)},
        brokers={1: Broker(1, 1, (), "x"), 3: Broker(3, 3, (), "y")},
    )
    layout, left_out = layout_of(found, {})
    assert layout.replicas == {}
    assert layout.fixed == {A0: (2, 3), A1: (2, 1), asked.name: (1,)}
    assert layout.racks == {1: "x", 3: "y"}
    assert left_out.explained() == {
        "being reassigned": [A0, asked.name],
        "of topics being deleted": [B0],
        "without a live leader": [A1],
    }


def test_brokers_of_a_plan_are_known() -> None:
    gone = msgspec.structs.replace(tree(), brokers={1: Broker(1, 1, ())})
    check_brokers(gone, [3, 1], live=False)
    with pytest.raises(BadInputError, match="found broker 9, expected one of: 1, 2, 3"):
        check_brokers(gone, [3, 9], live=False)
    with pytest.raises(BadInputError, match="found broker 3, expected one of: 1"):
        check_brokers(gone, [3], live=True)
