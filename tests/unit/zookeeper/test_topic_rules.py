"""What Kafka's admin tools accept and refuse: names and assignments."""

import pytest

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.zookeeper.topic_rules import (
    TopicError,
    check_assignment,
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
