"""Incidents: the times during which something was broken, each as a timeline with phases.  Pure.

An incident begins with the first event after which a partition has no leader or too few in-sync replicas, and ends with
the first after which all have both.  What happened since the previous event is its cause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import msgspec

INCIDENTS_KEPT = 30
PHASES_KEPT = 30
"""Of one incident: a cluster that flaps for a day has more, and the last ones are dropped."""
HEALED = "every partition has its leader and its replicas in sync"
LED = "every partition has a leader"


class Phase(msgspec.Struct, frozen=True):
    """What happened in an incident, in words; ``at_us`` is in microseconds since 1970."""

    at_us: int
    text: str


class Incident(msgspec.Struct):
    """One incident; times are in microseconds since 1970, and ``worst`` has the most partitions of each kind."""

    began_us: int
    found_so: bool
    """It had begun before the cluster was read."""
    ended_us: int | None = None
    worst: dict[str, int] = {}
    phases: list[Phase] = []
    more_phases: int = 0


class Incidents:
    """The latest incidents; ``observe`` is called after each event, and costs O(1)."""

    def __init__(self) -> None:
        self.latest: deque[Incident] = deque(maxlen=INCIDENTS_KEPT)
        self._before: dict[str, int] = {}

    @property
    def open(self) -> Incident | None:
        """The incident that goes on; None: nothing is broken."""
        return self.latest[-1] if self.latest and self.latest[-1].ended_us is None else None

    def observe(self, now_us: int, counts: Mapping[str, int], causes: Sequence[str], *, found_so: bool = False) -> None:
        """``counts``: partitions of each kind, the first kind those without a leader; ``causes``: what has happened."""
        incident = self.open
        if incident is None and not any(counts.values()):
            return
        if incident is None:
            incident = Incident(now_us, found_so, None, {}, [])
            self.latest.append(incident)
            self._before = {}
        for text in causes:
            self._add(incident, now_us, text)
        changed = {kind: count for kind, count in counts.items() if count != self._before.get(kind, 0)}
        self._before = dict(counts)
        worse = {kind: count for kind, count in changed.items() if count > incident.worst.get(kind, 0)}
        incident.worst |= worse
        without_leader = next(iter(counts))
        if not any(counts.values()):
            incident.ended_us = now_us
            self._add(incident, now_us, HEALED)
        elif changed.get(without_leader) == 0:
            self._add(incident, now_us, LED)

    def cut(self, now_us: int, text: str) -> None:
        """End the open incident: the role is lost, and another controller observes the rest."""
        incident = self.open
        if incident is not None:
            self._add(incident, now_us, text)
            incident.ended_us = now_us

    def _add(self, incident: Incident, at_us: int, text: str) -> None:
        if len(incident.phases) < PHASES_KEPT or text == HEALED:
            incident.phases.append(Phase(at_us, text))
        else:
            incident.more_phases += 1
