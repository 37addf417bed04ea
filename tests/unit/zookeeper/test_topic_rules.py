"""What Kafka's admin tools accept and refuse: names and assignments."""

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES
from aiocontroller.zookeeper.topic_rules import (
    MAX_MESSAGE_LENGTH,
    TopicError,
    check_assignment,
    check_partition_count,
    check_topic_name,
    check_topic_znode,
    has_collision_chars,
    most_partitions,
    topic_znode_bytes_at_least,
    without_collision_chars,
)
from aiocontroller.zookeeper.znodes import encode_topic


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249])
def test_good_names(name):
    check_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a b", "a/b", "ä", "a\n", "a:b", "٣"])
def test_bad_names(name):
    with pytest.raises(TopicError) as caught:
        check_topic_name(name)
    assert caught.value.code == KafkaErrorCode.INVALID_TOPIC_EXCEPTION
    assert str(caught.value).startswith("Topic name ")


def test_collisions():
    assert has_collision_chars("a.b")
    assert has_collision_chars("a_b")
    assert not has_collision_chars("a-b")
    assert without_collision_chars("a.b") == without_collision_chars("a_b")
    assert without_collision_chars("a.b") != without_collision_chars("a-b")


def test_good_assignments():
    check_assignment("t", {0: (1, 2), 1: (2, 1)})
    check_assignment("t", {4: (1,), 3: (2,)}, first_partition=3)


@pytest.mark.parametrize(
    "assignment, first, says",
    [
        ({}, 0, "empty"),
        ({1: (1,)}, 0, "consecutive 0-based"),
        ({0: (1,), 2: (1,)}, 0, "consecutive 0-based"),
        ({0: (1,)}, 1, "consecutive 1-based"),
        ({0: ()}, 0, "replication factor of 0 for partition id 0"),
        ({0: (1, 1)}, 0, "Duplicate replica assignment found: partition 0 has [1, 1]"),
        ({0: (-1,)}, 0, "impossible broker"),
        ({0: (1,), 1: (1, 2)}, 0, "the same number of replicas"),
        ({1 << 20: (1,)}, 1 << 20, "are allowed"),
    ],
)
def test_bad_assignments(assignment, first, says):
    with pytest.raises(TopicError) as caught:
        check_assignment("t", assignment, first_partition=first)
    assert says in str(caught.value)


def znode(partitions, factor):
    """As the controller creates it, with one-digit ids and the topic id that it gets later."""
    replicas = ReplicaAssignment(tuple(range(factor)))
    return encode_topic(TopicAssignment("t", b"x" * 16, dict.fromkeys(range(partitions), replicas)))


@pytest.mark.parametrize("partitions, factor", [(1, 1), (9, 3), (10, 1), (101, 2), (12_345, 5)])
def test_size_by_counts_is_the_size_of_the_smallest_znode(partitions, factor):
    assert topic_znode_bytes_at_least(partitions, factor) == len(znode(partitions, factor))


@pytest.mark.parametrize("factor", [1, 2, 3, 9])
def test_most_partitions_is_where_the_znode_is_full(factor):
    most = most_partitions(factor)
    assert len(znode(most, factor)) <= MAX_DATA_BYTES < len(znode(most + 1, factor))
    check_partition_count("t", most, factor)
    check_topic_znode("t", znode(most, factor), most)
    for check in (
        lambda: check_partition_count("t", most + 1, factor),
        lambda: check_topic_znode("t", znode(most + 1, factor), most + 1),
    ):
        with pytest.raises(TopicError, match=f"{most + 1} partitions.*{MAX_DATA_BYTES} fit") as caught:
            check()
        assert caught.value.code == KafkaErrorCode.INVALID_PARTITIONS


def test_absurd_counts_are_refused_by_arithmetic():
    with pytest.raises(TopicError, match=r"found 2000000000 partitions with 2 replicas each, expected 7[0-9]{4} at"):
        check_partition_count("t", 2_000_000_000, 2, (1, 2, 3))
    assert most_partitions(2, 4) < most_partitions(2, 1)
    check_partition_count("t", -5, 0)


def test_message_quotes_no_more_than_answers_hold():
    with pytest.raises(TopicError) as caught:
        check_assignment("t" * 100_000, {})
    assert len(str(caught.value)) <= MAX_MESSAGE_LENGTH + 1
