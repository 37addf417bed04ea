"""When the rest of some work will have ended, and when nobody can say."""

from __future__ import annotations

import itertools

from aiocontroller.journal.pace import LEAST_ENDED, STEP_US, WINDOW_US, Expectation, Pace

S = 1_000_000
T0 = 1_700_000_000 * S  # a multiple of STEP_US


def test_no_work() -> None:
    assert Pace().expectation(T0, 0) == Expectation(0, None, None)


def test_an_even_pace() -> None:
    pace = Pace()
    pace.left(T0, 100)
    for n in range(1, 11):
        pace.one_ended(T0 + n * 10 * S)
        pace.left(T0 + n * 10 * S, 100 - n)
    found = pace.expectation(T0 + 100 * S, 90)
    assert (found.ended, found.since_us) == (10, T0)
    assert found.expected_us is not None
    assert abs(found.expected_us - (T0 + 1000 * S)) < 60 * S  # the step's rounding, times what is left


def test_it_says_nothing_before_enough_have_ended() -> None:
    pace = Pace()
    pace.left(T0, 100)
    for n in range(LEAST_ENDED):
        assert pace.expectation(T0 + 60 * S, 100 - n) == Expectation(n, T0, None)
        pace.one_ended(T0 + n * S)
    assert pace.expectation(T0 + 60 * S, 100 - LEAST_ENDED).expected_us is not None


def test_what_stands_still_is_expected_later_and_then_never() -> None:
    pace = Pace()
    pace.left(T0, 100)
    for n in range(10):
        pace.one_ended(T0 + n * S)
    ends = [pace.expectation(T0 + 60 * S * n, 90).expected_us for n in range(1, 9)]
    assert all(one is not None and other is not None and one < other for one, other in itertools.pairwise(ends))
    assert pace.expectation(T0 + WINDOW_US + 20 * S, 90) == Expectation(10, T0, None)


def test_only_the_latest_minutes_count() -> None:
    pace = Pace()
    pace.left(T0, 1000)
    for n in range(500):  # fast once, slow now
        pace.one_ended(T0 + n)
    later = T0 + 3 * WINDOW_US
    for n in range(10):
        pace.one_ended(later - n * 60 * S)
    found = pace.expectation(later, 10).expected_us
    assert found is not None
    assert found - later > 500 * S


def test_a_new_work_begins_when_the_last_piece_has_ended() -> None:
    pace = Pace()
    pace.left(T0, 5)
    for n in range(5):
        pace.one_ended(T0 + n * S)
    pace.left(T0 + 5 * S, 0)
    pace.left(T0 + 50 * S, 8)
    assert pace.expectation(T0 + 60 * S, 8) == Expectation(0, T0 + 50 * S, None)


def test_it_changes_once_a_step_and_keeps_little() -> None:
    pace = Pace()
    pace.left(T0, 2_000_000)
    for n in range(100_000):
        pace.one_ended(T0 + n * 20_000)
    assert len(pace._ends) <= WINDOW_US // STEP_US + 1
    at = T0 + 100_000 * 20_000
    at -= at % STEP_US
    assert len({pace.expectation(at + n * S, 7) for n in range(STEP_US // S)}) == 1


def test_a_clock_that_is_set_back_expects_nothing_from_the_past() -> None:
    pace = Pace()
    pace.left(T0, 10)
    for n in range(5):
        pace.one_ended(T0 + n * S)
    found = pace.expectation(T0 - 3600 * S, 5)
    assert found.expected_us is None
    pace.one_ended(T0 - 3600 * S)
    assert (pace.expectation(T0 + 9 * S, 5).expected_us or 0) > T0
