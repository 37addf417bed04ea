"""The bug zoo: known bugs of Kafka's controller and of this one, put back into the program to see whether seeds find
them.

Seeds without violations prove little unless the simulation is known to find bugs.  Each bug replaces a function by a
wrong variant while a ``with`` block runs; ``attempt`` counts the seeds until an invariant is violated.

The names KAFKA-n are those of Kafka's issue tracker.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from aiocontroller.lab.scenarios.plan import Plan, draw, restarts
from aiocontroller.lab.simulation.course import Course, perform
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.simulation import DATA_RULES, simulate_plan

Patch = tuple[Any, Any, Any]
"""(object or dict, attribute or key, replacement)"""

TRIES = 5
MOST_SEEDS = 200
SEEDS_APART = 100_000
MACHINE_MADE = "scripts/mutate"


class Bug(NamedTuple):
    name: str
    source: str
    """Where the bug was seen: an issue of Kafka's, a seed that found it here, the design decision that prevents it, or,
    for one never seen, ``MACHINE_MADE`` and the mutant's key."""
    patches: Callable[[], list[Patch]]
    harmless: str = ""
    """If the bug cannot cause a violation, the reason; the seeds are then right not to find it."""
    data: bool = False
    """All seeds have brokers with logs, and only what becomes of records is judged."""
    warm: bool = False
    """All seeds have a warm standby; other bugs are hunted with cold ones, which fail over by other steps."""
    restarts: bool = False
    """All seeds have plans of the family ``restarts``."""

    @property
    def origin(self) -> str:
        if self.source.startswith(MACHINE_MADE):
            return "mutant"
        return "Kafka's history" if self.source.startswith(("KAFKA-", "KIP-")) else "by hand"


@contextmanager
def injected(bug: Bug) -> Iterator[None]:
    """Inject the bug for the duration of the block."""
    undo: list[Patch] = []
    for target, name, wrong in bug.patches():
        if isinstance(target, dict):
            undo.append((target, name, target[name]))
            target[name] = wrong
        else:
            undo.append((target, name, vars(target)[name]))
            setattr(target, name, wrong)
    try:
        yield
    finally:
        for target, name, right in reversed(undo):
            if isinstance(target, dict):
                target[name] = right
            else:
                setattr(target, name, right)


class Hunt(msgspec.Struct, frozen=True):
    """The result of hunting one bug: for each try, the number of runs until it was found, or None."""

    bug: str
    seeds: list[int | None]
    complaints: dict[str, int]
    """Maps the invariant of the first complaint to the number of tries."""
    cpu_s: list[float]
    """Processor seconds of all tries, in their order."""

    @property
    def found(self) -> int:
        return sum(seeds is not None for seeds in self.seeds)

    @property
    def cpu_s_per_find(self) -> float | None:
        """Return the processor seconds of all tries, including those that found nothing, for each find."""
        return round(sum(self.cpu_s) / self.found, 1) if self.found else None

    @property
    def median(self) -> float | None:
        """Return the median; a try that found nothing counts as one seed more than the maximum."""
        if self.found * 2 <= len(self.seeds):
            return None
        return statistics.median(MOST_SEEDS + 1 if seeds is None else seeds for seeds in self.seeds)


def attempt(
    bug: Bug, number: int, most: int = MOST_SEEDS, *, branch: int = 0, steer: int = 0
) -> tuple[int | None, str]:
    """Try once to find a bug; return the number of runs until it was found, or None, and the first complaint.

    A run that fails even without the bug does not count.  ``branch`` and ``steer`` are those of campaigns.
    """
    first = number * SEEDS_APART + 1
    course = Course(range(first, first + most), futures=branch, steer=steer)
    judged = DATA_RULES if bug.data else ()
    count = 0
    while count < most and (tasks := course.round()):
        own = []
        for task in tasks:
            with injected(bug):
                reports = perform(task, lambda seed: _drawn(bug, seed), judged)
            for report in reports[: most - count]:
                count += 1
                if any("TypeError" in violation for violation in report.violations):
                    return (
                        None,
                        f"misfit: {report.violations[0]}",
                    )  # the variant no longer fits the function's signature
                if not report.ok and _is_clean(bug, report, judged):
                    return count, report.violations[0]
            own.append(reports[-1])
        course.learn(own)
    return None, ""


def _drawn(bug: Bug, seed: int) -> Plan:
    if bug.restarts:
        return restarts(seed)
    plan = draw(seed).with_data() if bug.data else draw(seed)
    return msgspec.structs.replace(
        plan, warm=bug.warm, controllers=max(2, plan.controllers) if bug.warm else plan.controllers
    )


def _is_clean(bug: Bug, report: SimulationReport, judged: Sequence[str]) -> bool:
    return simulate_plan(msgspec.structs.replace(_drawn(bug, report.seed), forks=report.forks), judged).ok


def invariant_of(complaint: str) -> str:
    """Return the invariant of a complaint's text, such as ``I5``; ``bug`` for an exception, ``context`` for a wrong
    context."""
    text = complaint.partition("of peace: ")[2] or complaint
    head = text.split(":", 1)[0]
    if head.startswith("one leader"):
        return "one leader"
    return head.split(" ", 1)[0]
