"""The pauses and cuts of the false-alarm suite, and what each may cost.  Pure.

In a case only one broker dies, killed in the middle, so each suspicion of another broker is a false alarm.
"""

from __future__ import annotations

import enum

import msgspec

STALL_S = 1.0
"""The longest stall that a false alarm may add to the one that the fault itself causes."""
DETECTED_WITHIN_S = 1.0
"""The longest time from the SIGKILL of a broker until its partitions have other leaders in ZooKeeper."""


class Fault(enum.Enum):
    NOTHING = "nothing"
    PAUSE = "broker stopped"
    COLLECTOR = "broker stopped again and again"
    REQUESTS = "cut: controller to broker"
    ANSWERS = "cut: broker's answers"
    BROKERS_REQUESTS = "cut: broker to controller"
    CONTROLLER = "controller stopped"


class Case(msgspec.Struct, frozen=True):
    """One fault: it lasts for ``on_s`` and happens ``times`` times, with pauses of ``off_s``."""

    fault: Fault
    on_s: float
    times: int = 1
    off_s: float = 0.0

    @property
    def name(self) -> str:
        often = f"{self.times} x " if self.times > 1 else ""
        return f"{self.fault.value}, {often}{self.on_s:g} s"

    @property
    def seconds(self) -> float:
        return self.times * self.on_s + (self.times - 1) * self.off_s

    @property
    def own_stall_s(self) -> float:
        """The stall that the fault causes by itself: a stopped broker acknowledges nothing."""
        return self.on_s if self.fault in (Fault.PAUSE, Fault.COLLECTOR) else 0.0

    def edges_s(self) -> list[tuple[float, bool]]:
        """Return the times at which the fault begins (True) and ends (False), since its first beginning."""
        begins = [n * (self.on_s + self.off_s) for n in range(self.times)]
        return [edge for at in begins for edge in ((at, True), (at + self.on_s, False))]


CASES = (
    *(Case(Fault.PAUSE, seconds) for seconds in (0.1, 0.3, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0)),
    Case(Fault.COLLECTOR, 0.3, 5, 0.2),
    Case(Fault.COLLECTOR, 0.7, 5, 0.3),
    Case(Fault.COLLECTOR, 1.2, 3, 0.5),
    Case(Fault.COLLECTOR, 2.0, 2, 1.0),
    *(Case(Fault.REQUESTS, seconds) for seconds in (0.5, 1.0, 2.0, 5.0, 10.0)),
    *(Case(Fault.ANSWERS, seconds) for seconds in (2.0, 10.0)),
    *(Case(Fault.BROKERS_REQUESTS, seconds) for seconds in (2.0, 10.0)),
    *(Case(Fault.CONTROLLER, seconds) for seconds in (0.5, 2.0, 10.0)),
)
"""The 24 cases of the suite."""
PEACE = Case(Fault.NOTHING, 2.0)
"""The kill alone, for comparison."""


class Outcome(msgspec.Struct, frozen=True):
    """The cost of one case.  Times in seconds; stalls are the longest time without an acknowledged record on one
    partition."""

    case: str
    uptime_s: float
    alarms: int
    """False alarms: suspicions of brokers that were not killed, by all controllers."""
    moves: int
    """The most leader changes of any partition without a replica on the killed broker."""
    outside_s: float
    """The longest time that a broker that was not killed spent outside an ISR."""
    outside_after_s: float
    """The part of that time after the fault had ended."""
    stall_led_s: float
    """Longest stall of the partitions that the struck broker led."""
    stall_others_s: float
    """Longest stall of the partitions that it followed."""
    stall_killed_s: float
    """Longest stall of the partitions with a replica on the killed broker."""
    detected_s: float
    """From the SIGKILL until ZooKeeper had another leader for everything that the killed broker led."""
    lost: int
    load: float
    """The machine's load average of the last minute."""
    misses: tuple[str, ...] = ()


def misses_of(outcome: Outcome, case: Case) -> tuple[str, ...]:
    """Return the goals that the case missed."""
    missed = []
    allowed_s = case.own_stall_s + STALL_S
    for whose, stall_s in (("led", outcome.stall_led_s), ("others", outcome.stall_others_s)):
        if stall_s > allowed_s:
            missed.append(f"{whose}: stalled for {stall_s:.1f} s, expected at most {allowed_s:.1f} s")
    if outcome.detected_s > DETECTED_WITHIN_S:
        missed.append(f"the kill was detected after {outcome.detected_s:.1f} s, expected {DETECTED_WITHIN_S:.1f} s")
    if outcome.lost:
        missed.append(f"{outcome.lost} acknowledged records are lost")
    return tuple(missed)
