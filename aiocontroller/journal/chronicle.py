"""What has happened lately, in words: one sentence for each event, made from its records in the journal.

    broker 2 died: 19 leaders elected, 40 ISRs without it, 3 partitions without a leader, in 43 ms

A chronicle receives every record as it is appended.  It counts partitions and keeps none, so that an event of a million
partitions costs no more than one of a single partition.  It also keeps the failovers, with their steps.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec

from aiocontroller.journal.pace import Pace

EVENTS_KEPT = 200
FAILOVERS_KEPT = 10
CAUSES_KEPT = 10

BROKERS = {
    "added": "broker {} started",
    "bounced": "broker {} restarted",
    "dead": "broker {} died",
    "controlled shutdown": "broker {} shuts down",
    "log directory failed": "a log directory of broker {} failed",
}
"""Detail of a record of the kind ``broker`` -> its sentence."""
SUSPICIONS = {
    "alarm": "{} seems to be dead ({})",
    "false alarm": "{} answers again",
    "heard elsewhere": "{} is silent to the active controller and answers a standby",
    "held": "many brokers seem to be dead at once, so none is suspected",
    "registration removed": "{}: its registration was removed, since it restarted before its session ended",
}
"""Event of a record of the kind ``suspicion`` -> its sentence, with the peer and the detail."""
_SICKNESS = {
    "sick": "broker {} was judged sick: {}",
    "held": "too many brokers seem sick, or too often, to judge one",
    "well again": "broker {} is well again",
    "taken back": "broker {} is no longer treated as sick",
}


class Happening(msgspec.Struct, frozen=True):
    """An event that did something; ``at_us`` is in microseconds since 1970."""

    at_us: int
    text: str


class FailoverStep(msgspec.Struct, frozen=True):
    """A step of a failover, and how long it took."""

    step: str
    duration_us: int


class Failover(msgspec.Struct):
    """A term's beginning; ``ended_us``: when this process lost the role again."""

    epoch: int
    at_us: int
    steps: list[FailoverStep] = []
    partitions: int | None = None
    ended_us: int | None = None


class Chronicle:
    """The latest events and failovers.  The caller passes times, in microseconds since 1970."""

    def __init__(self) -> None:
        self.events: deque[Happening] = deque(maxlen=EVENTS_KEPT)
        self.failovers: deque[Failover] = deque(maxlen=FAILOVERS_KEPT)
        self.reassignments = Pace()
        self.deletions = Pace()
        self._clear()

    def _clear(self) -> None:
        self._causes: list[str] = []
        self._facts: list[str] = []
        self._counts: dict[str, int] = {}

    # -- what the journal says ---------------------------------------------------------------------------------------

    def heard(self, kind: str, at_us: int, fields: Mapping[str, Any]) -> None:
        """Take in an appended record."""
        match kind:
            case "request" | "response" | "write" | "event":
                return
            case "broker" if fields.get("detail") in BROKERS:
                self._cause(BROKERS[str(fields.get("detail"))].format(fields.get("broker")))
            case "suspicion" if fields.get("event") in SUSPICIONS:
                who = f"{fields.get('state')} {fields.get('broker')}"
                self._cause(SUSPICIONS[str(fields.get("event"))].format(who, fields.get("detail")))
            case "sickness" if fields.get("event") in _SICKNESS:
                self._cause(_SICKNESS[str(fields.get("event"))].format(fields.get("broker"), fields.get("detail")))
            case "session":
                self.events.append(Happening(at_us, f"session with ZooKeeper: {str(fields.get('detail')).lower()}"))
            case "elected":
                self.failovers.append(Failover(fields.get("controller_epoch") or 0, at_us, []))
                self._cause(f"this controller took the role, epoch {fields.get('controller_epoch')}")
            case "failover" | "reload":
                self._step(FailoverStep(str(fields.get("event")), fields.get("duration_us") or 0), kind)
            case "loaded":
                if self.failovers:
                    self.failovers[-1].partitions = fields.get("partitions")
                topics, partitions = fields.get("count") or 0, fields.get("partitions") or 0
                of_topics, of_partitions = _of(topics, "topics"), _of(partitions, "partitions")
                self._fact(f"loaded {topics:,} {of_topics} with {partitions:,} {of_partitions}")
            case "resigned":
                self._cause(f"this controller lost the role, epoch {fields.get('controller_epoch')}")
                if self.failovers:
                    self.failovers[-1].ended_us = at_us
            case _:
                self._others(kind, at_us, fields)

    def _others(self, kind: str, at_us: int, fields: Mapping[str, Any]) -> None:
        match kind:
            case "topic_deleted":
                self.deletions.one_ended(at_us)
                self._fact(f"topic {fields.get('topic')} deleted")
            case "reassigned":
                cancelled = fields.get("detail") == "cancelled"
                what = "reassignment of {} cancelled" if cancelled else "{} reassigned"
                if not cancelled:
                    self.reassignments.one_ended(at_us)
                replicas = ",".join(map(str, fields.get("replicas") or ()))
                self._fact(f"{what.format(_partition(fields))}: replicas are {replicas}")
            case "recovery" if fields.get("event") == "elected":
                self._fact(f"{_partition(fields)} is led by its best log, on {fields.get('leader')}")
            case "setting":
                self._fact(f"setting {fields.get('detail')}")
            case "finding":
                self._fact(f"the audit repairs: {fields.get('event')}")
            case "fault":
                self._cause(f"{fields.get('event')} failed: {fields.get('detail')}")
            case "bad_znode":
                self._fact(f"unreadable: {fields.get('detail')}")

    def _step(self, step: FailoverStep, kind: str) -> None:
        if self.failovers and kind == "failover":
            self.failovers[-1].steps.append(step)

    def heard_partitions(self, kind: str, count: int, entering: int, to_state: str | None, detail: str | None) -> None:
        """Take in the appended records of ``count`` partitions, each with this state and detail; ``entering`` had
        another state before."""
        if kind == "isr":
            what = "ISRs changed by their leaders"
        elif detail == "deletion":
            what = "partitions to be deleted"
        elif to_state == "OfflinePartition":
            what, count = "partitions lost their leader", entering
        elif detail == "initialized":
            what = "partitions created"
        elif detail == "OfflineReplica":
            what = "ISRs lost a replica"
        elif to_state == "OnlinePartition":
            what = "leaders elected" + (" uncleanly" if str(detail).endswith(", unclean") else "")
        else:
            return
        if count:
            self._counts[what] = self._counts.get(what, 0) + count

    # -- what follows ------------------------------------------------------------------------------------------------

    def event_ended(self, at_us: int, took_us: int, detail: str, asked: str = "") -> list[str]:
        """End the event, all of whose records have been taken in.  ``asked``: who requested what.

        Returns causes and lasting effects for a timeline, as one text or none.
        """
        counts = [f"{n:,} {_of(n, what)}" for what, n in self._counts.items()]
        causes = [*self._causes, asked] if asked else self._causes
        summary = ": ".join(filter(None, (" and ".join(causes), ", ".join([*counts, *self._facts]))))
        if detail:
            summary = f"{summary}; {detail}" if summary else detail
        causes = list(self._causes)  # a request by itself breaks nothing
        lasting = [text for text in counts if "leader" in text and "ISR" not in text]
        self._clear()
        if summary:
            self.events.append(Happening(at_us, f"{summary}, in {microseconds(took_us)}"))
        return [": ".join(filter(None, (" and ".join(causes), ", ".join(lasting))))] if causes or lasting else []

    def _cause(self, text: str) -> None:
        if len(self._causes) < CAUSES_KEPT:
            self._causes.append(text)

    def _fact(self, text: str) -> None:
        if len(self._facts) < CAUSES_KEPT:
            self._facts.append(text)


def _partition(fields: Mapping[str, Any]) -> str:
    return f"{fields.get('topic')}-{fields.get('partition')}"


def _of(count: int, what: str) -> str:
    """``1 leader elected`` of ``leaders elected``."""
    if count != 1:
        return what
    noun, _, rest = what.partition(" ")
    return f"{noun.removesuffix('s')} {rest.replace('their', 'its')}".rstrip()


def microseconds(us: float) -> str:
    """The time in the unit that is easiest to read."""
    if us < 1000:
        return f"{us:.0f} µs"
    if us < 1_000_000:
        return f"{us / 1e3:.1f} ms"
    return f"{us / 1e6:.2f} s"
