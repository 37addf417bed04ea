"""When an incident begins and ends, and what its timeline has."""

from __future__ import annotations

from aiocontroller.core.incidents import HEALED, INCIDENTS_KEPT, LED, PHASES_KEPT, Incidents, Phase


def counts(offline: int = 0, small: int = 0) -> dict[str, int]:
    return {"offline": offline, "under-replicated": small}


def test_from_the_first_broken_partition_to_the_last() -> None:
    incidents = Incidents()
    incidents.observe(1, counts(), ["broker 9 started"])
    assert incidents.open is None
    incidents.observe(2, counts(3, 5), ["broker 2 died"])
    incidents.observe(3, counts(3, 9), [])
    incidents.observe(4, counts(0, 9), ["2 leaders elected"])
    incidents.observe(5, counts(0, 1), [])
    incidents.observe(6, counts(), ["broker 2 started"])
    incidents.observe(7, counts(), [])
    [incident] = incidents.latest
    assert incidents.open is None
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
    incidents = Incidents()
    for at, broken in ((1, 5), (2, 0), (3, 5), (4, 0)):
        incidents.observe(at, counts(broken), [], found_so=at == 1)
    first, second = incidents.latest
    assert (first.found_so, second.found_so) == (True, False)
    assert first.worst == second.worst == {"offline": 5}
    assert second.phases == [Phase(4, HEALED)]


def test_when_the_role_is_lost_nobody_knows_how_it_ends() -> None:
    incidents = Incidents()
    incidents.cut(1, "lost")
    incidents.observe(2, counts(1), [])
    incidents.cut(3, "this controller lost the role")
    [incident] = incidents.latest
    assert (incident.ended_us, incident.phases) == (3, [Phase(3, "this controller lost the role")])


def test_what_is_kept_is_bounded() -> None:
    incidents = Incidents()
    for at in range(1000):
        incidents.observe(at, counts(1 + at % 7), [f"event {at}", "and more"])
    incidents.observe(1000, counts(), [])
    [incident] = incidents.latest
    assert (len(incident.phases), incident.more_phases) == (PHASES_KEPT + 1, 2000 - PHASES_KEPT)
    assert incident.phases[-1].text == HEALED
    for at in range(200):
        incidents.observe(at, counts(at % 2), [])
    assert len(incidents.latest) == INCIDENTS_KEPT
