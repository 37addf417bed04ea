"""Throttles name the replicas that send and receive, as Kafka's own tool does, and join what was there."""

from __future__ import annotations

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, RATES, beside, throttles

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
