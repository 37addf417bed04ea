"""What Kafka's admin tools accept and refuse: names, assignments, configuration."""

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.zookeeper.topic_rules import (
    TOPIC_CONFIGS,
    TopicError,
    check_assignment,
    check_topic_configs,
    check_topic_name,
    collides,
    has_collision_chars,
)


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
    assert collides("a.b", "a_b")
    assert not collides("a.b", "a-b")


def test_good_assignments():
    check_assignment("t", {0: (1, 2), 1: (2, 1)})
    check_assignment("t", {4: (1,), 3: (2,)}, first_partition=3)


@pytest.mark.parametrize(
    "assignment, first, says",
    [
        ({}, 0, "empty"),
        ({1: (1,)}, 0, "expected 0 to 0"),
        ({0: (1,), 2: (1,)}, 0, "expected 0 to 1"),
        ({0: (1,)}, 1, "expected 1 to 1"),
        ({0: ()}, 0, "has no replicas"),
        ({0: (1, 1)}, 0, "names a broker twice: [1, 1]"),
        ({0: (-1,)}, 0, "impossible broker"),
        ({0: (1,), 1: (1, 2)}, 0, "[1, 2] replicas"),
        ({1 << 20: (1,)}, 1 << 20, "are allowed"),
    ],
)
def test_bad_assignments(assignment, first, says):
    with pytest.raises(TopicError) as caught:
        check_assignment("t", assignment, first_partition=first)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    "name, values",
    [
        ("cleanup.policy", ["compact", "delete", "compact,delete", " compact , delete", ""]),
        ("compression.type", ["zstd", "producer"]),
        ("compression.gzip.level", ["-1", "1", "9"]),
        ("retention.ms", ["-1", "9223372036854775807", " 5 "]),
        ("retention.bytes", ["-5"]),
        ("min.insync.replicas", ["1", "+2"]),
        ("min.cleanable.dirty.ratio", ["0", "0.5", "1"]),
        ("unclean.leader.election.enable", ["true", "FALSE"]),
        ("leader.replication.throttled.replicas", ["", "*", "0:1,2:30"]),
        ("message.timestamp.type", ["CreateTime"]),
    ],
)
def test_good_values(name, values):
    for value in values:
        check_topic_configs("t", {name: value})


@pytest.mark.parametrize(
    "name, values",
    [
        ("cleanup.policy", ["shred", "delete,"]),
        ("compression.type", ["ZSTD", ""]),
        ("compression.gzip.level", ["0", "10"]),
        ("retention.ms", ["-2", "9223372036854775808", "1e3", "", "1_0", "soon"]),
        ("min.insync.replicas", ["0", "2147483648"]),
        ("min.cleanable.dirty.ratio", ["1.1", "x", "nan"]),
        ("unclean.leader.election.enable", ["1", "yes"]),
        ("leader.replication.throttled.replicas", ["1", "1:x", "*,1:1"]),
        ("message.timestamp.type", ["createtime"]),
        ("no.such.config", ["1"]),
    ],
)
def test_bad_values(name, values):
    for value in values:
        with pytest.raises(TopicError, match="Topic 't'") as caught:
            check_topic_configs("t", {name: value})
        assert caught.value.code == KafkaErrorCode.INVALID_CONFIG
        assert name in str(caught.value)


def test_lags_must_not_cross():
    check_topic_configs("t", {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(TopicError, match="more than"):
        check_topic_configs("t", {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


def test_the_table_is_in_order():
    assert list(TOPIC_CONFIGS) == sorted(TOPIC_CONFIGS)
