"""Which of a broker's logs are by another clock than its others, as facts tell that stand in several of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark")

from aiocontroller.analytics.appenders import (
    CONTRARY,
    CORRECTED,
    FEW,
    NO_ZONE,
    PARTLY,
    Appender,
    Shift,
    clocks_of_logs,
    describe_clock,
    differing,
)
from aiocontroller.analytics.schema import CLOCKS, CONTROLLER_LOG, JOURNAL_SOURCE, SERVER_LOG, STATE_CHANGE_LOG

S = 1_000_000
HOUR_US = 3_600 * S
Facts = dict[str, dict[Appender, list[int]]]


def of(node: int, source: str) -> Appender:
    return Appender("c", node, source)


OWN, STATES, SEEN = of(2, SERVER_LOG), of(2, STATE_CHANGE_LOG), of(1, CONTROLLER_LOG)
TIMES = [n * n * 97 * S for n in range(1, 12)]


def facts_of(*pairs: tuple[str, Appender, Iterable[int]]) -> Facts:
    facts: Facts = {}
    for fact, appender, times in pairs:
        facts.setdefault(fact, {})[appender] = sorted(times)
    return facts


def later(times: Iterable[int], by_us: int) -> list[int]:
    return [us + by_us for us in times]


def found(facts: Facts) -> list[tuple[Appender, int, str]]:
    return [(shift.appender, shift.ahead_us, shift.method) for shift in differing(facts)]


def cluster(**ahead_us: int) -> Facts:
    """Two brokers, the first of them controller; the logs named are so much ahead."""

    def at(appender: Appender, times: Sequence[int]) -> tuple[Appender, list[int]]:
        name = f"{appender.source.partition('.')[0].replace('-', '_')}_{appender.node}"
        return appender, later(times, ahead_us.get(name, 0))

    up, acts, leads = TIMES[:4], TIMES[2:9], TIMES[1:8]
    states = {f"led t-{n} 5": later([us], n) for n, us in enumerate(TIMES)}
    rows = [
        ("up 2", *at(OWN, up)), ("up 2", *at(SEEN, later(up, 90_000))),
        ("acts 1", *at(SEEN, acts)), ("acts 1", *at(of(1, STATE_CHANGE_LOG), later(acts, 40_000))),
        ("fetches 2", *at(OWN, leads)), ("fetches 2", *at(STATES, leads)),
    ]  # fmt: skip
    for fact, times in states.items():
        rows += [(fact, *at(of(1, STATE_CHANGE_LOG), times)), (fact, *at(STATES, later(times, 2_000)))]
    return facts_of(*rows)


def test_logs_of_one_clock_differ_in_nothing() -> None:
    assert found(cluster()) == []


@pytest.mark.parametrize("ahead_us", [2 * HOUR_US, -HOUR_US, 5 * HOUR_US + HOUR_US // 2, -HOUR_US // 4, 14 * HOUR_US])
@pytest.mark.parametrize("name", ["server_2", "controller_1"])
def test_a_log_of_another_zone_is_found_and_corrected_exactly(name: str, ahead_us: int) -> None:
    log = {"server_2": OWN, "controller_1": SEEN}[name]
    # As many logs of its broker are one way as the other: the rest of the cluster decides.
    assert found(cluster(**{name: ahead_us})) == [(log, ahead_us, CORRECTED)]


def test_a_whole_broker_in_another_zone_is_no_matter_of_its_logs() -> None:
    assert found(cluster(server_2=HOUR_US, state_change_2=HOUR_US)) == []


def test_no_zones_differ_by_seven_minutes() -> None:
    shift = found(cluster(server_2=7 * 60 * S))
    assert shift == [(OWN, 7 * 60 * S, NO_ZONE)]


def test_one_fact_proves_nothing_and_two_are_too_few() -> None:
    one, two = TIMES[:1], TIMES[:2]
    assert found(facts_of(("ends 2", OWN, later(one, HOUR_US)), ("ends 2", of(2, CONTROLLER_LOG), one))) == []
    shifts = found(facts_of(("ends 2", OWN, later(two, HOUR_US)), ("ends 2", of(2, CONTROLLER_LOG), two)))
    ((_, ahead_us, method),) = shifts
    assert (abs(ahead_us), method) == (HOUR_US, FEW)


def test_many_states_of_one_moment_are_one_fact() -> None:
    """A broker that comes back is told the states of all its partitions, by the old numbers."""
    states = {f"led t-{n} 5": 100 * S + n for n in range(50)}
    rows = [(fact, STATES, [us + HOUR_US]) for fact, us in states.items()]
    rows += [(fact, OWN, [us]) for fact, us in states.items()]
    assert found(facts_of(*rows)) == []


def test_facts_that_contradict_each_other_correct_nothing() -> None:
    times, others = TIMES[:4], TIMES[5:7]
    other = of(2, CONTROLLER_LOG)
    facts = facts_of(
        ("up 2", OWN, later(times, HOUR_US)), ("up 2", STATES, times),
        ("ends 2", OWN, later(others, 5 * 60 * S)), ("ends 2", other, others),
        ("acts 2", STATES, TIMES), ("acts 2", other, TIMES),
    )  # fmt: skip
    assert found(facts) == [(OWN, HOUR_US, CONTRARY)]


@pytest.mark.parametrize("first_us, then_us", [(0, HOUR_US), (2 * HOUR_US, HOUR_US), (HOUR_US, 0)])
def test_a_log_whose_zone_changes_is_not_corrected(first_us: int, then_us: int) -> None:
    facts = cluster()
    half = TIMES[4]
    for times in facts.values():
        if OWN in times:
            times[OWN] = [us + (first_us if us < half else then_us) for us in times[OWN]]
    ((log, ahead_us, method),) = found(facts)
    assert (log, method) == (OWN, PARTLY)
    assert ahead_us in (HOUR_US, 2 * HOUR_US)


def test_brokers_that_restart_by_the_clock_change_no_zone() -> None:
    """Every quarter of an hour one restarts, and is told states that others were told a quarter before."""
    quarters = [n * 900 * S for n in range(30)]
    states = {f"led t-{n} 5": us for n, us in enumerate(quarters)}
    rows = [(fact, STATES, [us]) for fact, us in states.items()]
    rows += [
        (fact, of(3, STATE_CHANGE_LOG), [us + (900 * S if n % 3 == 0 else 0)])
        for n, (fact, us) in enumerate(states.items())
    ]
    assert found(facts_of(*rows)) == []


def test_repetitions_at_regular_times_are_clear_only_where_other_facts_are() -> None:
    """Every five minutes, in both logs: any multiple of five minutes is as likely, as far as these tell."""
    regular = [n * 300 * S for n in range(40)]
    facts = facts_of(("acts 2", of(2, CONTROLLER_LOG), later(regular, 2 * HOUR_US)), ("acts 2", STATES, regular))
    assert found(facts) == []
    facts |= facts_of(("ends 2", of(2, CONTROLLER_LOG), later(TIMES[:5], 2 * HOUR_US)), ("ends 2", STATES, TIMES[:5]))
    ((_, ahead_us, method),) = found(facts)
    assert (abs(ahead_us), method) == (2 * HOUR_US, CORRECTED)


def test_a_journal_is_never_odd() -> None:
    ours = of(1_000_001, JOURNAL_SOURCE)
    facts = facts_of(("up 2", OWN, later(TIMES, HOUR_US)), ("up 2", ours, TIMES), ("state t-0 1", STATES, [5 * S]))
    assert found(facts) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.floats(0.3, 1.0), st.integers(-20, 40), st.booleans())
def test_no_loss_of_lines_leads_to_a_wrong_correction(seed: int, kept: float, quarters: int, at_an_end: bool) -> None:
    """Logs of which each has lost its own lines, at an end or anywhere: a shift is found as it is, or not at all."""
    chance = random.Random(seed)
    ahead_us = quarters * HOUR_US // 4
    times = sorted(chance.randrange(20 * 86_400) * S for _ in range(chance.randrange(2, 25)))
    logs = {log: [us + chance.randrange(400_000) for us in times] for log in (OWN, STATES, of(2, CONTROLLER_LOG), SEEN)}
    for log, of_log in logs.items():
        if at_an_end:
            cut = int(len(of_log) * (1 - kept) * chance.random())
            logs[log] = of_log[cut:] if chance.random() < 0.5 else of_log[: len(of_log) - cut]
        else:
            logs[log] = [us for us in of_log if chance.random() < kept]
    logs[OWN] = later(logs[OWN], ahead_us)
    shifts = found(facts_of(*(("up 2", log, of_log) for log, of_log in logs.items() if of_log)))
    # Of two logs, either may be ahead.
    right = {(OWN, ahead_us), *((log, -ahead_us) for log in logs if log != OWN)}
    assert {shift[:2] for shift in shifts if shift[2] == CORRECTED} <= right
    if quarters == 0:
        assert shifts == []
    elif kept == 1.0 and len(times) > 3:
        assert shifts == [(OWN, ahead_us, CORRECTED)]


@pytest.mark.parametrize(
    "method, ahead_us, words",
    [
        (CORRECTED, 2 * HOUR_US, "is 2:00:00 ahead of its other logs, as in another time zone; its times were "),
        (CORRECTED, -HOUR_US // 2, "is 0:30:00 behind its other logs, as in another time zone; its times were "),
        (NO_ZONE, 433 * S, "is 0:07:13 ahead of its other logs, and its times are unknown: no time zones differ"),
        (PARTLY, HOUR_US, "is 1:00:00 ahead of its other logs, and its times are unknown: the difference changed"),
        (FEW, HOUR_US, "is 1:00:00 ahead of its other logs, and its times are unknown: too few records show it"),
        (CONTRARY, HOUR_US, "is 1:00:00 ahead of its other logs, and its times are unknown: other records contradict"),
    ],
)
def test_words_name_the_log_and_its_file(method: str, ahead_us: int, words: str) -> None:
    (row,) = clocks_of_logs([Shift(OWN, "b/server.log", ahead_us, 120_000, 7, method)])
    text = describe_clock(dict(zip(CLOCKS.names, row, strict=True)))
    assert text.startswith(f"server.log of broker 2 (b/server.log) {words}")
    assert ("7 facts agree, half of them to within 0.1 s" in text) == (method == CORRECTED)


def test_thousands_of_brokers_take_seconds(record_property: Any) -> None:
    chance = random.Random(1)
    facts: Facts = {}
    for node in range(1, 301):
        times = sorted(chance.randrange(20 * 86_400) * S for _ in range(12))
        facts |= facts_of(
            (f"up {node}", of(node, SERVER_LOG), times), (f"up {node}", SEEN, times),
            (f"fetches {node}", of(node, SERVER_LOG), times),
            (f"fetches {node}", of(node, STATE_CHANGE_LOG), later(times, HOUR_US if node % 50 == 0 else 0)),
        )  # fmt: skip
    assert [shift[0].node for shift in found(facts)] == [50, 100, 150, 200, 250, 300]
