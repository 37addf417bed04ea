"""When an incident begins and ends, and what its timeline has."""

from __future__ import annotations

from aiocontroller.core.incidents import HEALED, INCIDENTS_KEPT, LED, PHASES_KEPT, Incidents, Phase


def counts(offline: int = 0, small: int = 0) -> dict[str, int]:
    return {"offline": offline, "under-replicated": small}


def test_from_the_first_broken_partition_to_the_last() -> None:
    told = Incidents()
    told.observe(1, counts(), ["broker 9 started"])
    assert told.open is None
    told.observe(2, counts(3, 5), ["broker 2 died"])
    told.observe(3, counts(3, 9), [])
    told.observe(4, counts(0, 9), ["2 leaders elected"])
    told.observe(5, counts(0, 1), [])
    told.observe(6, counts(), ["broker 2 started"])
    told.observe(7, counts(), [])
    [incident] = told.latest
    assert told.open is None
    assert (incident.began_us, incident.ended_us, incident.found_so) == (2, 6, False)
    assert incident.worst == {"offline": 3, "under-replicated": 9}
    assert incident.phases == [
        Phase(2, "broker 2 died"),
        Phase(4, "2 leaders elected"),
        Phase(4, LED),
        Phase(6, "broker 2 started"),
        Phase(6, HEALED),
    ]


def test_a_second_one_knows_nothing_of_the_first() -> None:
    told = Incidents()
    for at, broken in ((1, 5), (2, 0), (3, 5), (4, 0)):
        told.observe(at, counts(broken), [], found_so=at == 1)
    first, second = told.latest
    assert (first.found_so, second.found_so) == (True, False)
    assert first.worst == second.worst == {"offline": 5}
    assert second.phases == [Phase(4, HEALED)]


def test_when_the_role_is_lost_nobody_knows_how_it_ends() -> None:
    told = Incidents()
    told.cut(1, "lost")
    told.observe(2, counts(1), [])
    told.cut(3, "this controller lost the role")
    [incident] = told.latest
    assert (incident.ended_us, incident.phases) == (3, [Phase(3, "this controller lost the role")])


def test_what_is_kept_is_bounded() -> None:
    told = Incidents()
    for at in range(1000):
        told.observe(at, counts(1 + at % 7), [f"event {at}", "and more"])
    told.observe(1000, counts(), [])
    [incident] = told.latest
    assert (len(incident.phases), incident.more_phases) == (PHASES_KEPT + 1, 2000 - PHASES_KEPT)
    assert incident.phases[-1].text == HEALED
    for at in range(200):
        told.observe(at, counts(at % 2), [])
    assert len(told.latest) == INCIDENTS_KEPT
