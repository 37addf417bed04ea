"""The judge of sickness over every short history, beside rules that are read off the history itself.

One step of a history is a second.  In each, a free broker is well, sick in a way of SICK, frozen or restarts, or we
sleep.  The other brokers are well.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiocontroller.core.sickness import SicknessLimits
from tests.unit.core.sick_cluster import DISK, FAR, FROZEN, MUTE, SLOW, WELL, SickCluster

RESTART, SLEEP = "restart", "we sleep"
STALE = (DISK, MUTE, FAR)
SICK = (*STALE, SLOW)
ALL = (WELL, *SICK, FROZEN, RESTART, SLEEP)

pytestmark = pytest.mark.timeout(400)  # thousands of histories, on a machine that may be busy

History = tuple[tuple[str, ...], ...]
"""For each second: what each free broker does."""


def settled(brokers: int) -> SickCluster:
    it = SickCluster(range(1, brokers + 1))
    it.run(8)
    assert it.sick is None
    return it


def play(it: SickCluster, step: tuple[str, ...]) -> None:
    for broker, condition in enumerate(step, start=1):
        it.condition[broker] = WELL if condition in (RESTART, SLEEP) else condition
        if condition == RESTART:
            it.restart(broker)
    if SLEEP in step:
        it.sleep(1.2)
    it.run(1)


def histories(brokers: int, free: int, length: int, conditions: tuple[str, ...]) -> Iterator[tuple[History, list[int]]]:
    """Every history with who was sick after each second (0: nobody); histories share the play of what they share."""

    def grow(it: SickCluster, history: History, sick: list[int]) -> Iterator[tuple[History, list[int]]]:
        if len(history) == length:
            yield history, sick
            return
        for step in product(conditions, repeat=free):
            after = copy.deepcopy(it)
            play(after, step)
            yield from grow(after, (*history, step), [*sick, after.sick or 0])

    return grow(settled(brokers), (), [])


def test_every_history_of_one_broker() -> None:
    verdicts = 0
    for history, sick in histories(3, 1, 4, ALL):
        case = f"{history}: {sick}"
        did = [step[0] for step in history]
        assert set(sick) <= {0, 1}, case  # nobody else
        for second, broker in enumerate(sick):
            if broker and not (second and sick[second - 1]):
                verdicts += 1
                last = did[max(0, second - 1) : second + 1]
                assert set(last) & set(SICK), case  # it was sick just now
                assert not set(did[max(0, second - 1) : second + 1]) & {RESTART, SLEEP}, case
        for second in range(2, len(did)):
            ill = did[second - 2 : second + 1]
            if len(set(ill)) == 1 and ill[0] in STALE and not set(did[: second - 2]) & {RESTART, SLEEP, FROZEN}:
                assert sick[second] == 1, case  # three seconds of one sickness never escape
    assert verdicts > 500


@pytest.mark.parametrize("conditions", [(WELL, DISK, FROZEN), (DISK, MUTE)])
def test_every_history_of_two_brokers(conditions: tuple[str, ...]) -> None:
    for history, sick in histories(4, 2, 3, conditions):
        case = f"{history}: {sick}"
        assert set(sick) <= {0, 1, 2}, case
        for second, broker in enumerate(sick):
            if broker and not (second and sick[second - 1]):
                mine = {step[broker - 1] for step in history[: second + 1]}
                assert mine & {DISK, MUTE}, case
            if second and sick[second - 1]:
                assert sick[second] == sick[second - 1], case  # the one that is judged stays so, and alone


STEPS = st.tuples(st.sampled_from((1, 2, 3, 4)), st.sampled_from(ALL), st.integers(1, 15))


@settings(max_examples=25)
@given(st.lists(STEPS, min_size=1, max_size=6), st.booleans())
def test_nobody_is_judged_without_a_fault_of_its_own(steps: list[tuple[int, str, int]], idle: bool) -> None:
    it = SickCluster((1, 2, 3, 4), SicknessLimits(healthy_s=1.0))
    it.idle = idle
    it.run(8)
    faulty = set[int]()
    for broker, condition, ticks in steps:
        it.condition[broker] = WELL if condition in (RESTART, SLEEP) else condition
        if condition == RESTART:
            it.restart(broker)
        if condition == SLEEP:
            it.sleep(ticks * 0.2)
        if condition in ((SLOW, FAR) if idle else SICK):
            faulty.add(broker)
        it.run(ticks * 0.2)
        assert it.sick is None or it.sick in faulty
    it.condition.update(dict.fromkeys(it.condition, WELL))
    it.run(30)
    assert it.sick is None
    assert it.judge.held == ()
