"""What comes next while replicas move: phases, bounds, pace, and who begins."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.moving import (
    CALM_LOOKS,
    Health,
    MoveBounds,
    MovePace,
    MovePhase,
    MoveView,
    Now,
    adapted,
    exceeded,
    first_pace,
    health,
    misordered,
    next_step,
    phase,
    to_stop,
)

T = [TopicPartition("t", number) for number in range(6)]
BOUNDS = MoveBounds(
    at_once=2, rate=800, least_rate=100, absent=0, under_replicated=0, answer_ms=500, patience_s=60, hold_s=600
)
WELL = Health((), 0, 0, 1.0)
LIVE = frozenset({1, 2, 3, 4})
PACE = MovePace(200)


def at(*replicas: int, leader: int | None = None, isr: tuple[int, ...] | None = None) -> Now:
    return Now(ReplicaAssignment(replicas), replicas[0] if leader is None else leader, replicas if isr is None else isr)


def under_way(origin: tuple[int, ...], target: tuple[int, ...], isr: tuple[int, ...] | None = None) -> Now:
    return Now(ReplicaAssignment(origin).reassign_to(target), origin[0], origin if isr is None else isr)


@pytest.mark.parametrize(
    "now, expected",
    [
        (at(3, 2), MovePhase.DONE),
        (at(1, 2), MovePhase.WAITING),
        (at(2, 3), MovePhase.WAITING),
        (under_way((1, 2), (3, 2)), MovePhase.MOVING),
        (under_way((3, 2), (1, 2)), MovePhase.OPPOSITE),
        (under_way((1, 2), (4, 2)), MovePhase.BUSY),
        (at(1, 2, leader=-1), MovePhase.LEADERLESS),
        (None, MovePhase.GONE),
    ],
)
def test_a_partition_is_in_one_phase(now: Now | None, expected: MovePhase) -> None:
    assert phase((3, 2), (1, 2), now, LIVE) is expected


def test_a_partition_waits_for_a_new_broker_that_is_away_and_for_no_other() -> None:
    assert phase((3, 2), None, at(1, 2), {1, 2}) is MovePhase.AWAY
    assert phase((3, 2), None, at(1, 2), {1, 3}) is MovePhase.WAITING


def test_health_counts_what_the_bounds_are_about() -> None:
    before = MoveView({T[0]: at(1, 2), T[1]: at(1, 2), T[2]: at(1, 5), T[3]: under_way((1, 2), (3, 2))}, LIVE)
    now = MoveView(
        {
            T[0]: at(1, 2, isr=(1,)),  # has lost a live replica
            T[1]: at(1, 2),
            T[2]: at(1, 5, isr=(1,)),  # a dead one
            T[3]: under_way((1, 2), (3, 2), (1, 2)),  # the new one is not expected to be in sync
        },
        LIVE,
        answer_ms=7,
    )
    assert health(now, before) == Health((5,), 2, 1, 7)
    assert health(now, None).shrunk == 0


def test_a_replica_that_a_move_removes_does_not_count() -> None:
    leaving = under_way((1, 2), (1, 3), (1, 3))
    assert health(
        MoveView({T[0]: leaving}, LIVE), MoveView({T[0]: under_way((1, 2), (1, 3), (1, 2, 3))}, LIVE)
    ) == Health((), 0, 0, 0)


def test_each_exceeded_bound_is_said() -> None:
    assert exceeded(WELL, BOUNDS) == ()
    assert exceeded(Health((7, 9), 3, 0, 501), BOUNDS) == (
        "brokers away: 7, 9 (at most 0)",
        "under-replicated: 3 partitions (at most 0)",
        "a broker answers in 501 ms (at most 500)",
    )


def view(*nows: Now, live: frozenset[int] = LIVE) -> MoveView:
    return MoveView(dict(zip(T, nows, strict=False)), live)


def test_few_at_once_begin_and_brokers_take_turns() -> None:
    plan = {T[0]: (3,), T[1]: (3,), T[2]: (4,), T[3]: (4,)}
    found = next_step(plan, {}, view(at(1), at(1), at(1), at(1)), BOUNDS, PACE, WELL, 0)
    assert found.begin == {T[0]: (3,), T[2]: (4,)}
    found = next_step(plan, {}, view(under_way((1,), (3,)), at(1), at(1), at(1)), BOUNDS, PACE, WELL, 0)
    assert found.begin == {T[2]: (4,)}
    full = next_step(plan, {}, view(under_way((1,), (3,)), under_way((1,), (3,)), at(1)), BOUNDS, PACE, WELL, 0)
    assert full.begin == {}
    assert full.held == ()
    assert not full.over


def test_nothing_begins_beyond_a_bound() -> None:
    found = next_step({T[0]: (3,)}, {}, view(at(1)), BOUNDS, PACE, Health((9,), 0, 0, 0), 0)
    assert found.begin == {}
    assert found.held == ("brokers away: 9 (at most 0)",)


def test_a_move_to_a_dead_broker_is_taken_back_after_a_while() -> None:
    moving = view(under_way((1,), (3,)), live=frozenset({1}))
    away = Health((3,), 0, 0, 0)
    pace = adapted(PACE, away, BOUNDS, held=True, at_s=10)
    assert next_step({T[0]: (3,)}, {}, moving, BOUNDS, pace, away, 69).take_back == []
    pace = adapted(pace, away, BOUNDS, held=True, at_s=69)
    assert next_step({T[0]: (3,)}, {}, moving, BOUNDS, pace, away, 70).take_back == [T[0]]
    back = view(under_way((1,), (3,)))
    assert next_step({T[0]: (3,)}, {}, back, BOUNDS, pace, WELL, 70).take_back == [], "it has returned just now"
    pace = adapted(pace, WELL, BOUNDS, held=False, at_s=71)
    assert pace.away_since_s == ()


def test_the_opposite_direction_is_taken_back_and_what_others_move_is_waited_for() -> None:
    plan, opposite = {T[0]: (1,), T[1]: (1,)}, {T[0]: (3,), T[1]: (3,)}
    found = next_step(plan, opposite, view(under_way((1,), (3,)), under_way((1,), (4,))), BOUNDS, PACE, WELL, 0)
    assert found.take_back == [T[0]]
    assert to_stop(plan, opposite, view(under_way((1,), (3,)), under_way((3,), (1,)))) == [T[0], T[1]]
    found = next_step(plan, opposite, view(at(1), under_way((1,), (4,))), BOUNDS, PACE, WELL, 0)
    assert found.held == ("being moved by another client: 1 partitions",)


def test_what_the_controller_refused_lets_others_begin() -> None:
    plan = {T[0]: (3,), T[1]: (3,), T[2]: (3,)}
    found = next_step(plan, {}, view(at(1), at(1), at(1)), BOUNDS, PACE, WELL, 0, {T[0]: "NO"})
    assert list(found.begin) == [T[1], T[2]]
    alone = next_step({T[0]: (3,)}, {}, view(at(1)), BOUNDS, PACE, WELL, 0, {T[0]: "NO"})
    assert alone.held == ("refused by the controller: 1 partitions (NO)",)


def test_a_move_is_over_when_all_is_moved_or_gone_and_preferred_leaders_are_elected() -> None:
    plan = {T[0]: (3, 1), T[1]: (3, 1), T[5]: (3,)}
    found = next_step(plan, {}, view(at(3, 1, leader=1), at(3, 1, leader=1, isr=(1,))), BOUNDS, PACE, WELL, 0)
    assert found.over
    assert found.elect == [T[0]], "only who is in sync can lead"
    assert found.phases[T[5]] is MovePhase.GONE


def test_the_rate_falls_at_once_and_rises_slowly() -> None:
    pace = first_pace(BOUNDS)
    assert pace.rate == 200
    for _ in range(CALM_LOOKS):
        pace = adapted(pace, WELL, BOUNDS, held=False, at_s=0)
    assert pace.rate == 300
    assert adapted(pace, Health((), 0, 1, 0), BOUNDS, held=False, at_s=0).rate == 150
    assert adapted(pace, Health((9,), 0, 0, 0), BOUNDS, held=True, at_s=5) == MovePace(100, 0, 5, ((9, 5),))


@given(st.lists(st.builds(Health, st.just(()), st.integers(0, 1), st.integers(0, 2), st.floats(0, 1000))))
def test_the_rate_stays_within_its_bounds(looks: list[Health]) -> None:
    pace = first_pace(BOUNDS)
    for look in looks:
        pace = adapted(pace, look, BOUNDS, held=False, at_s=0)
        assert BOUNDS.least_rate <= pace.rate <= BOUNDS.rate


@given(st.data())
def test_no_step_exceeds_what_may_move_at_once(data: st.DataObject) -> None:
    nows = [at(1), under_way((1,), (3,)), at(3), under_way((1,), (4,)), at(1, leader=-1)]
    drawn = [data.draw(st.sampled_from(nows)) for _ in T]
    plan = dict.fromkeys(T, (3,))
    found = next_step(plan, {}, view(*drawn), BOUNDS, PACE, WELL, 0)
    moving = [each is MovePhase.MOVING for each in found.phases.values()]
    assert sum(moving) + len(found.begin) <= max(BOUNDS.at_once, sum(moving))
    assert all(found.phases[tp] is MovePhase.WAITING for tp in found.begin)
    assert found.over == all(now == at(3) for now in drawn)


def test_a_cancelled_move_has_left_another_order() -> None:
    opposite = {T[0]: (1, 2), T[1]: (1, 2), T[2]: (1, 2), T[3]: (1, 2), T[4]: (1, 2)}
    found = view(at(2, 1), at(1, 2), at(3, 2), under_way((2, 1), (2, 3)))
    assert misordered(opposite, found) == {T[0]: (1, 2)}


def test_what_somebody_moves_on_is_left_to_them() -> None:
    plan, opposite = {T[0]: (3,), T[1]: (3,), T[2]: (3,)}, dict.fromkeys(T[:3], (1,))
    now = view(at(2), under_way((3,), (1,)), at(3))
    found = next_step(plan, opposite, now, BOUNDS, PACE, WELL, 0, arrived=plan.keys())
    assert list(found.phases.values()) == [MovePhase.TAKEN, MovePhase.TAKEN, MovePhase.DONE]
    assert (found.begin, found.take_back, found.held) == ({}, [], ())
    assert found.over


@given(st.data())
def test_who_begins_agrees_with_the_dumb_way(data: st.DataObject) -> None:
    """One after the other, each time the first of those whose new brokers receive least."""
    brokers = st.lists(st.integers(1, 5), unique=True, min_size=1, max_size=3).map(tuple)
    partitions = [TopicPartition("t", number) for number in range(data.draw(st.integers(1, 12)))]
    plan = {tp: data.draw(brokers) for tp in partitions}
    moving = {tp for tp in partitions if data.draw(st.booleans())}
    nows = {}
    for tp in partitions:
        origin = data.draw(brokers)
        nows[tp] = under_way(origin, plan[tp]) if tp in moving and origin != plan[tp] else at(*origin)
    now = MoveView(nows, frozenset(range(1, 6)))
    bounds = BOUNDS._replace(at_once=data.draw(st.integers(1, 12)))
    found = next_step(plan, {}, now, bounds, PACE, WELL, 0)
    receiving = Counter(
        broker for tp in partitions if found.phases[tp] is MovePhase.MOVING for broker in nows[tp].assignment.adding
    )
    waiting = [tp for tp in partitions if found.phases[tp] is MovePhase.WAITING]
    expected = []
    for _ in range(bounds.at_once - sum(each is MovePhase.MOVING for each in found.phases.values())):
        if waiting:
            new = {tp: [b for b in plan[tp] if b not in nows[tp].assignment.replicas] for tp in waiting}
            tp = min(waiting, key=lambda tp: max((receiving[b] for b in new[tp]), default=0))
            waiting.remove(tp)
            receiving.update(new[tp])
            expected.append(tp)
    assert list(found.begin) == expected
