"""What a soak takes for growth."""

from __future__ import annotations

import pytest

from aiocontroller.lab.storms.processes import WEIGHTS, draw_round
from aiocontroller.lab.storms.soak import ENDING, LIMITS, SOAKING, Sample, courses


def samples(controller: int, what: str, values: list[float]) -> list[Sample]:
    rest = dict.fromkeys(LIMITS, 1.0)
    return [Sample(controller, number, rest | {what: value}) for number, value in enumerate(values, 1)]


@pytest.mark.parametrize("what", LIMITS)
def test_steady_growth_is_found_in_every_quantity(what: str) -> None:
    factor, more = LIMITS[what]
    steady = [100.0] * 4 + [100.0] * 8 + [100 * factor + more] * 4
    assert all(course.flat for course in courses(samples(1, what, steady)))
    growing = steady[:-4] + [100 * factor + more + 1] * 4
    (found,) = [course for course in courses(samples(1, what, growing)) if not course.flat]
    assert (found.what, found.start, found.second_quarter, found.largest) == (what, 100, 100, growing[-1])


def test_what_warms_up_or_rises_once_does_not_grow() -> None:
    for values in ([50.0, 200, 200, 200, 200, 200, 200, 200], [100.0] * 6 + [900] + [100] * 5):
        assert all(course.flat for course in courses(samples(1, "memory_mib", values)))


def test_each_controller_is_judged_by_itself() -> None:
    both = samples(1, "tasks", [5.0] * 8) + samples(2, "tasks", [5.0] * 6 + [90, 90])
    assert [course.controller for course in courses(both) if not course.flat] == [2]
    assert courses(samples(1, "tasks", [5.0] * 3)) == []


def test_no_step_ends_a_controller() -> None:
    assert WEIGHTS.keys() >= ENDING
    assert not ENDING & SOAKING.keys()
    assert SOAKING.keys() <= WEIGHTS.keys()
    drawn = [step.kind for number in range(20) for step in draw_round(1, number, SOAKING, pausing_s=3.0)]
    assert set(drawn) <= SOAKING.keys()
    assert {"fill_disk", "expire_controller", "cut_controller", "reassign", "delete_topic"} <= set(drawn)
