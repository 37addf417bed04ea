"""The cases of the false-alarm suite, what they may cost, and how that is measured and shown."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from aiocontroller.lab.cluster.load.tally import LoadVerdict
from aiocontroller.lab.kafka.alarm_cases import CASES, Case, Fault, Outcome, misses_of
from aiocontroller.lab.storms.alarms import Report, show

CHEAP = Outcome(
    case="?",
    uptime_s=10,
    alarms=1,
    moves=1,
    outside_s=1.2,
    outside_after_s=0.9,
    stall_led_s=0.4,
    stall_others_s=0.2,
    stall_killed_s=0.3,
    detected_s=0.1,
    lost=0,
    load=1.0,
)
CUT = Case(Fault.REQUESTS, 10.0)


def test_there_are_24_of_every_kind_and_length() -> None:
    assert len({case.name for case in CASES}) == len(CASES) == 24
    assert {case.fault for case in CASES} == set(Fault) - {Fault.NOTHING}
    pauses = [case.on_s for case in CASES if case.fault is Fault.PAUSE]
    assert (min(pauses), max(pauses)) == (0.1, 10.0)


def test_when_a_fault_begins_and_ends() -> None:
    assert CUT.edges_s() == [(0.0, True), (10.0, False)]
    again = Case(Fault.COLLECTOR, 0.5, times=2, off_s=0.25)
    assert again.edges_s() == [(0.0, True), (0.5, False), (0.75, True), (1.25, False)]
    assert (again.seconds, again.name) == (1.25, "broker stopped again and again, 2 x 0.5 s")


@pytest.mark.parametrize(
    "case, changes, missed",
    [
        (CUT, {}, 0),
        (CUT, {"stall_led_s": 1.01}, 1),
        (CUT, {"stall_others_s": 1.01, "stall_led_s": 8.7}, 2),
        (Case(Fault.PAUSE, 10.0), {"stall_led_s": 10.9}, 0),
        (Case(Fault.PAUSE, 10.0), {"stall_led_s": 11.1}, 1),
        (Case(Fault.COLLECTOR, 1.0, 3, 0.5), {"stall_led_s": 2.1}, 1),
        (Case(Fault.CONTROLLER, 10.0), {"stall_others_s": 1.01}, 1),
        (CUT, {"detected_s": 1.01}, 1),
        (CUT, {"lost": 1}, 1),
    ],
)
def test_what_a_case_may_cost(case: Case, changes: dict[str, float], missed: int) -> None:
    """A broker that stands still holds up clients by itself; a cut link of the controller does not."""
    assert len(misses_of(msgspec.structs.replace(CHEAP, **changes), case)) == missed


def test_a_miss_is_shown_and_is_a_violation() -> None:
    missed = msgspec.structs.replace(CHEAP, case=CUT.name, detected_s=2.0)
    missed = msgspec.structs.replace(missed, misses=misses_of(missed, CUT))
    fine = LoadVerdict(acknowledged=9, lost=0, doubled=0, reordered=0, redelivered=0, errors=())
    report = Report("3.9.1", {}, [CHEAP, missed], {"java": fine}, "")
    assert not report.ok
    assert Report("3.9.1", {}, [CHEAP], {"java": fine}, "").ok
    assert not Report("3.9.1", {}, [CHEAP], {"java": fine}, "it stopped").ok
    console = Console(file=io.StringIO(), width=160)
    show(report, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "the kill was detected after 2.0 s, expected 1.0 s" in shown
    assert f"{CUT.name} *" in shown
