"""How stale followers are, computed from the ends of logs."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.staleness import SETTLE_S, Lag, Staleness, Watched

P, Q, R = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("t", 2)
W = Watched(1, 5, (2, 3), (1, 2))


def watching(*partitions: TopicPartition) -> Staleness:
    it = Staleness()
    it.watch(dict.fromkeys(partitions, W), 0.0)
    return it


def play(it: Staleness, partition: TopicPartition, leader: list[int], follower: list[int], begins_s: float) -> float:
    """Five observations a second; returns the time of the last."""
    now_s = begins_s
    for led, followed in zip(leader, follower, strict=True):
        it.ended(1, {partition: led}, now_s)
        it.ended(2, {partition: followed}, now_s)
        now_s += 0.2
    return now_s - 0.2


def test_a_follower_that_stands_still_becomes_staler_while_the_leader_goes_on() -> None:
    it = watching(P)
    now_s = play(it, P, list(range(10, 30)), [10] * 20, SETTLE_S)
    assert abs(it.pairs(now_s)[1, 2].seconds - 3.6) < 1e-6


def test_it_stays_stale_while_its_producers_wait_for_it() -> None:
    it = watching(P)
    now_s = play(it, P, [10, *[20] * 19], [10] * 20, SETTLE_S)
    assert abs(it.pairs(now_s)[1, 2].seconds - 3.6) < 1e-6


def test_a_follower_a_little_behind_is_stale_by_that_little() -> None:
    it = watching(P)
    ends = list(range(0, 400, 10))
    now_s = play(it, P, ends, [0, 0, *ends[:-2]], SETTLE_S)
    assert abs(it.pairs(now_s)[1, 2].seconds - 0.2) < 1e-6


def test_what_is_not_written_to_tells_nothing() -> None:
    it = watching(P)
    now_s = play(it, P, [10] * 30, [10] * 30, SETTLE_S)
    assert it.pairs(now_s) == {}
    assert it.busy(now_s + 20) == []


def test_a_partition_stays_watched_while_a_follower_is_behind() -> None:
    it = watching(P, Q)
    play(it, Q, [10] * 30, [10] * 30, SETTLE_S)
    now_s = play(it, P, [10] * 30, [9] * 30, SETTLE_S)
    assert it.busy(now_s + 20) == [P]


def test_one_replica_that_is_stuck_alone_is_not_the_brokers_fault() -> None:
    it = watching(P, Q, R)
    ends = list(range(20))
    for partition, followed in ((P, [0] * 20), (Q, ends), (R, ends)):
        now_s = play(it, partition, ends, followed, SETTLE_S)
    assert it.pairs(now_s) == {(1, 2): Lag(0.0, True)}
    assert it.worst_s(2, now_s) > 1 > it.worst_s(3, now_s) == 0


def test_a_partition_that_is_hardly_written_to_does_not_hide_one_that_is() -> None:
    it = watching(P, Q)
    play(it, P, [0] * 15 + [1] * 5, [0] * 15 + [1] * 5, SETTLE_S)
    now_s = play(it, Q, list(range(20)), [0] * 20, SETTLE_S)
    assert it.pairs(now_s)[1, 2].seconds > 1
    assert it.busy(now_s) == [Q, P], "it stays watched rather than the quiet one"


def test_partitions_count_as_much_as_they_are_written_to() -> None:
    """Each quiet one got a record that was copied at once, so none of them is stale."""
    it = watching(P, Q, R)
    once = [0] * 15 + [1] * 5
    for quiet in (P, Q):
        play(it, quiet, once, once, SETTLE_S)
    now_s = play(it, R, list(range(20)), [0] * 20, SETTLE_S)
    assert it.pairs(now_s)[1, 2].seconds > 1


@pytest.mark.parametrize("stuck", [(P,), (P, Q), (P, Q, R)])
@pytest.mark.parametrize("written", list(product((1, 3), repeat=3)))
def test_a_pair_is_stale_where_half_of_what_is_written_waits(
    stuck: tuple[TopicPartition, ...], written: tuple[int, ...]
) -> None:
    """Every ``written``-th observation of a partition finds more; those that are ``stuck`` copy nothing."""
    it = watching(P, Q, R)
    for partition, every in zip((P, Q, R), written, strict=True):
        ends = [n // every for n in range(30)]
        now_s = play(it, partition, ends, [0] * 30 if partition in stuck else ends, SETTLE_S)
    activity = {partition: 29 // every for partition, every in zip((P, Q, R), written, strict=True)}
    waits = 2 * sum(activity[partition] for partition in stuck) >= sum(activity.values())
    assert (it.pairs(now_s)[1, 2].seconds > 1) == waits


def test_a_leader_that_was_not_observed_makes_nobody_stale() -> None:
    """What it was written meanwhile may be new."""
    it = watching(P)
    now_s = play(it, P, list(range(10)), list(range(10)), SETTLE_S)
    later_s = play(it, P, list(range(50, 60)), [9, *range(50, 59)], now_s + 5)
    assert it.pairs(later_s)[1, 2].seconds <= 0.2 + 1e-6


def test_what_was_seen_before_a_follower_slept_does_not_count() -> None:
    it = watching(P)
    now_s = play(it, P, list(range(20)), [0] * 20, SETTLE_S)
    assert it.pairs(now_s)[1, 2].seconds > 1
    it.slept(3)
    assert it.pairs(now_s)[1, 2].seconds > 1
    it.slept(2)
    assert it.pairs(now_s) == {}
    now_s = play(it, P, [20] * 7, [0] * 7, now_s + 0.2)
    assert it.pairs(now_s)[1, 2].seconds > 4, (
        "of its leader it is still known since when it had what the follower lacks"
    )


def test_a_partition_without_its_followers_is_only_seen_to_be_written_to() -> None:
    it = Staleness()
    scout = W._replace(followers=())
    it.watch({P: scout, Q: scout}, 0.0)
    for end in range(10):
        it.ended(1, {P: end, Q: 7}, SETTLE_S + 0.2 * end)
        it.ended(2, {P: 0}, SETTLE_S + 0.2 * end)
    now_s = SETTLE_S + 1.8
    assert (it.pairs(now_s), it.busy(now_s), it.busy(0.4)) == ({}, [P], [P])
    assert it.watch({P: W}, now_s) == [], "the same leader, of which enough is known"
    now_s = play(it, P, list(range(10, 17)), [0] * 7, now_s + 0.2)
    assert it.pairs(now_s)[1, 2].seconds > 2


def test_a_follower_outside_of_the_isr_is_told_apart() -> None:
    it = watching(P)
    now_s = SETTLE_S
    for end in range(20):
        it.ended(1, {P: end}, now_s)
        it.ended(3, {P: 0}, now_s)
        now_s += 0.2
    assert not it.pairs(now_s - 0.2)[1, 3].in_sync


def test_a_new_leader_gets_time() -> None:
    it = watching(P)
    play(it, P, list(range(20)), [0] * 20, SETTLE_S)
    later = W._replace(leader_epoch=6)
    assert it.watch({P: later}, 10.0) == [later]
    assert it.watch({P: later, Q: W}, 10.0) == []
    it.watch({P: later}, 10.0)
    now_s = play(it, P, list(range(20, 33)), [0] * 13, 10.0)
    assert it.pairs(now_s) == {}
    assert it.busy(now_s) == [P]


def test_a_log_that_was_truncated_begins_anew() -> None:
    it = watching(P)
    play(it, P, list(range(10, 20)), list(range(10, 20)), SETTLE_S)
    now_s = play(it, P, list(range(5, 15)), list(range(5, 15)), SETTLE_S + 2)
    assert it.pairs(now_s)[1, 2].seconds == 0


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=5, max_size=60),
    st.integers(0, 4),
)
def test_staleness_is_the_age_of_what_is_missing(steps: list[tuple[int, bool]], first: int) -> None:
    """Beside a direct definition over the whole history."""
    it = watching(P)
    now_s, leader, follower = SETTLE_S, first, first
    it.ended(1, {P: first}, now_s)
    history = [(now_s, first)]
    worst: list[tuple[float, float]] = []
    for written, copies in steps:
        now_s += 0.2
        leader += written
        follower = leader if copies else follower
        history.append((now_s, leader))
        it.ended(1, {P: leader}, now_s)
        it.ended(2, {P: follower}, now_s)
        lacked_s = min((at_s for at_s, end in history if end > follower), default=now_s)
        worst.append((now_s, now_s - lacked_s))
    found = it.pairs(now_s).get((1, 2))
    expected = max(lag_s for at_s, lag_s in worst if now_s - at_s <= 2.0)
    if found is not None:
        assert abs(found.seconds - expected) < 1e-6
    else:
        assert len(steps) <= 6 or expected == 0
