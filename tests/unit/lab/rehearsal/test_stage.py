"""What of a tree is rehearsed, and what stands for what."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.lab.rehearsal.stage import MOST_BROKERS, MOST_EPOCH, stage
from aiocontroller.zookeeper import znodes
from aiocontroller.zookeeper.cluster_tree import Partition
from tests.unit.lab.rehearsal.trees import healthy, random_tree, tree_of


def one(number: int, replicas: tuple[int, ...], state: LeaderAndIsr | None) -> Partition:
    return Partition(TopicPartition("t", number), ReplicaAssignment(replicas), state)


def test_brokers_are_numbered_from_one_and_those_away_are_there() -> None:
    found = stage(tree_of([one(0, (1005, 7), LeaderAndIsr(7, 3, (7,), 2, 9))], live=[7, 31]), 10)
    assert found.brokers == (7, 31, 1005)
    assert found.alive == {1, 2}
    (staged,) = found.partitions
    assert staged.assignment.replicas == (3, 1)
    assert staged.state == LeaderAndIsr(1, 3, (1,), 2, 0)
    assert [found.id_of(number) for number in (1, 2, 3)] == [7, 31, 1005]


def test_of_many_partitions_one_of_each_shape_is_chosen_and_the_frequent_ones_first() -> None:
    tree = healthy([1, 2, 3], 100, 2)  # three shapes: of 34, 33 and 33 partitions
    odd = one(0, (3, 1), LeaderAndIsr(1, 0, (1,), 1, 0))
    topics = {**tree.topics, "t": tree_of([odd], [1]).topics["t"]}
    tree = msgspec.structs.replace(tree, partitions=[*tree.partitions, odd], topics=topics)
    found = stage(tree, 4)
    assert sorted(staged.stands_for for staged in found.partitions) == [1, 33, 33, 34]
    assert (found.found, found.stood_for, found.rare, found.sampled) == (101, 101, 0, True)
    found = stage(tree, 3)
    assert (len(found.partitions), found.stood_for, found.rare) == (3, 100, 1)
    assert not stage(tree, 101).sampled


def test_what_is_needed_is_chosen_before_what_is_frequent() -> None:
    name = TopicPartition("orders", 77)
    found = stage(healthy([1, 2, 3], 100, 2), 2, needed=[name])
    assert [(staged.name, staged.stands_for) for staged in found.partitions] == [
        (TopicPartition("orders", 0), 34),
        (name, 1),
    ]


@pytest.mark.parametrize(
    "partition",
    [
        one(0, (), None),
        one(0, (1, 1), None),
        one(0, (1, 2), LeaderAndIsr(1, 0, (2,), 1, 0)),
        one(0, (1, 2), LeaderAndIsr(3, 0, (3,), 1, 0)),
        one(0, (1, 2), LeaderAndIsr(-1, 0, (), 1, 0)),
        one(0, (1, 2), None),
    ],
)
def test_what_contradicts_itself_or_cannot_be_read_is_left_out_and_counted(partition: Partition) -> None:
    good = Partition(TopicPartition("u", 0), ReplicaAssignment((1,)), LeaderAndIsr(1, 0, (1,), 1, 0))
    found = stage(tree_of([partition, good], [1, 2]), 10)
    assert ([staged.name.topic for staged in found.partitions], found.left_out) == (["u"], 1)
    with pytest.raises(BadInputError, match="1 partitions, none of which can be rehearsed"):
        stage(tree_of([partition], [1, 2]), 10)


def test_topics_being_deleted_are_left_out_and_those_never_led_are_not() -> None:
    new = one(0, (1,), None)
    assert stage(tree_of([new], [1], without_state=[new.name]), 10).partitions[0].state is None
    with pytest.raises(BadInputError, match="none of which"):
        stage(tree_of([new], [1], without_state=[new.name], deletions=["t"]), 10)


def test_topics_that_share_an_id_are_left_out_and_those_without_an_id_share_none() -> None:
    state = LeaderAndIsr(1, 0, (1,), 1, 0)
    made = [Partition(TopicPartition(name, 0), ReplicaAssignment((1, 2)), state) for name in ("t", "u", "v")]
    tree = tree_of(made, [1, 2])
    copied = msgspec.structs.replace(tree.topics["u"], topic_id=tree.topics["t"].topic_id)
    found = stage(msgspec.structs.replace(tree, topics={**tree.topics, "u": copied}), 10)
    assert ([staged.name.topic for staged in found.partitions], found.left_out) == (["v"], 2)
    assert stage(tree_of(made, [1, 2], with_ids=False), 10).left_out == 0


def test_a_cluster_without_brokers_or_with_too_many_is_refused() -> None:
    with pytest.raises(BadInputError, match="found no registered broker"):
        stage(tree_of([one(0, (1,), None)], []), 10)
    many = range(MOST_BROKERS + 1)
    with pytest.raises(BadInputError, match="found 101 brokers, expected 100 at most"):
        stage(tree_of([one(0, (0,), LeaderAndIsr(0, 0, (0,), 1, 0))], many), 10)


@given(st.integers(0, 10_000))
@settings(max_examples=60)
def test_every_znode_can_be_read_by_a_controller(seed: int) -> None:
    try:
        found = stage(random_tree(seed), 20)
    except BadInputError:
        return
    states = 0
    for path, data in found.znodes().items():
        parts = path.split("/")
        if path.endswith("/state"):
            assert isinstance(znodes.decode_partition_state(path, data, 0), LeaderAndIsr)
            states += 1
        elif path.startswith("/brokers/topics/"):
            assert znodes.decode_topic(parts[3], data).topic == parts[3]  # type: ignore[union-attr]
    assert states == sum(staged.state is not None for staged in found.partitions)


@pytest.mark.parametrize("epoch", [MOST_EPOCH + 1, 2**31 - 1])
def test_an_epoch_that_elections_would_raise_above_the_highest_is_refused(epoch: int) -> None:
    tree = healthy([1, 2], 2, 2)
    with pytest.raises(BadInputError, match=f"/controller_epoch: found {epoch}, expected at most 1999999000"):
        stage(msgspec.structs.replace(tree, controller_epoch=epoch), 10)
    damaged = one(0, (1, 2), LeaderAndIsr(1, 0, (1, 2), epoch, 0))
    fit = Partition(TopicPartition("u", 0), ReplicaAssignment((1,)), LeaderAndIsr(1, 0, (1,), MOST_EPOCH, 0))
    found = stage(tree_of([damaged, fit], [1, 2], epoch=MOST_EPOCH), 10)
    assert ([staged.name.topic for staged in found.partitions], found.left_out) == (["u"], 1)
