"""Throttles name the replicas that send and receive, as Kafka's own tool does, and join what was there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.throttles import (
    FOLLOWER_REPLICAS,
    LEADER_REPLICAS,
    RATES,
    beside,
    put_back,
    replicas,
    throttles,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_replicas_that_send_and_that_receive_are_named_and_all_their_brokers() -> None:
    found = throttles({A1: (2, 3), A0: (1, 2), B0: (1, 2)}, {A1: (2, 4), A0: (3, 2), B0: (2, 1)}, 1000)
    assert found == {
        ("topics", "a"): {LEADER_REPLICAS: "0:1,0:2,1:2,1:3", FOLLOWER_REPLICAS: "0:3,1:4"},
        **{("brokers", str(broker)): dict.fromkeys(RATES, "1000") for broker in (1, 2, 3, 4)},
    }


def test_what_copies_nothing_throttles_nothing() -> None:
    assert throttles({B0: (1, 2), A0: (1,)}, {B0: (2, 1), A0: (1,)}, 1000) == {}
    assert throttles({A0: (1, 2)}, {A0: (1,)}, 1000) == {}


def test_lists_are_joined_and_all_is_all() -> None:
    wanted = {LEADER_REPLICAS: "0:1,0:2", FOLLOWER_REPLICAS: "0:3", RATES[0]: "5"}
    assert beside(wanted, {}) == wanted
    assert beside(wanted, {LEADER_REPLICAS: "7:1, 0:2", FOLLOWER_REPLICAS: "*", RATES[0]: "9"}) == {
        LEADER_REPLICAS: "7:1,0:2,0:1",
        FOLLOWER_REPLICAS: "*",
        RATES[0]: "5",
    }
    assert beside(wanted, {LEADER_REPLICAS: "", FOLLOWER_REPLICAS: None}) == wanted


def test_what_is_there_already_stays_as_it_is_written() -> None:
    assert beside({FOLLOWER_REPLICAS: "0:3"}, {FOLLOWER_REPLICAS: " 0:3, 7:1"}) == {FOLLOWER_REPLICAS: " 0:3, 7:1"}


@pytest.mark.parametrize(
    "replaced, present, left",
    [
        (None, "0:3,1:3", None),
        (None, None, None),
        ("9:9", "9:9,0:3,1:3", "9:9"),
        (" 9:9, 8:8", "9:9,8:8,0:3", " 9:9, 8:8"),  # as it was written
        ("9:9", "9:9", "9:9"),  # nothing was set yet
        ("0:3", "0:3,1:3", "0:3"),  # theirs, too
        ("*", "*", "*"),
        (None, "0:3,5:6", "5:6"),  # another move has begun meanwhile
        ("9:9,8:8", "8:8,0:3", "8:8"),  # another has ended
        ("9:9", "*", "*"),
        ("9:9", None, None),
    ],
)
def test_lists_are_put_back_and_others_changes_stay(replaced: str | None, present: str | None, left: str) -> None:
    now = {} if present is None else {FOLLOWER_REPLICAS: present}
    assert put_back({FOLLOWER_REPLICAS: replaced}, [0, 1], [], now) == {FOLLOWER_REPLICAS: left}


def test_a_rate_is_removed_if_a_move_has_set_it() -> None:
    replaced = dict.fromkeys(RATES)
    assert put_back(replaced, (), [5, 7], dict.fromkeys(RATES, "7")) == dict.fromkeys(RATES)
    assert put_back(replaced, (), [5, 7], {RATES[0]: "5", RATES[1]: "9"}) == {RATES[0]: None, RATES[1]: "9"}
    assert put_back(replaced, (), [5, 7], {}) == dict.fromkeys(RATES)


LISTS = st.lists(st.sampled_from(["0:1", "0:3", "1:3", "9:9", "8:8", "*"]), unique=True, max_size=4).map(",".join)


@given(LISTS, LISTS)
def test_what_is_added_and_put_back_leaves_what_was(was: str, value: str) -> None:
    present = {FOLLOWER_REPLICAS: was} if was else {}
    wanted = {FOLLOWER_REPLICAS: ",".join(each for each in replicas(value) if each.startswith(("0:", "1:")))}
    replaced = {FOLLOWER_REPLICAS: present.get(FOLLOWER_REPLICAS)}
    assert put_back(replaced, [0, 1], [], beside(wanted, present)) == replaced
