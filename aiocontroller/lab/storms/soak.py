"""A soak: controllers run through thousands of changes and faults, and their resource usage must not grow.

It is the storm of ``storms.processes`` without the faults that end a controller's process, and with less time between
steps.  After each round, when the cluster is whole, each controller's process is measured (``processes.resources``).
The last quarter is compared with the second, since the first warms caches and pools.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from aiocontroller.lab.processes.cluster import Shape
from aiocontroller.lab.processes.resources import Resources
from aiocontroller.lab.scenarios.plan import ScenarioStep
from aiocontroller.lab.storms.processes import WEIGHTS, Storm, draw_round

ENDING = frozenset({"kill_controller", "stop_controller", "trap_controller", "start_controller", "jump_clock"})
SOAKING = {
    **{kind: weight for kind, weight in WEIGHTS.items() if kind not in ENDING},
    "reassign": 15,
    "elect_preferred": 6,
    "create_topic": 10,
    "delete_topic": 6,
    "expire_controller": 5,
}
"""How often each kind of step is drawn: a storm's steps that leave controllers' processes alive, with more work."""
PAUSES_S = (0.0, 0.02, 0.1, 0.3)
PAUSING_S = 6.0
LEAST_ROUNDS = 12
"""With fewer rounds, the first quarter would be no warm-up: a controller may not have been active yet."""
JOURNAL_BYTES = 2 << 20

LIMITS: Mapping[str, tuple[float, float]] = {
    "memory_mib": (1.10, 10),
    "objects": (1.10, 10_000),
    "descriptors": (1.0, 15),
    "threads": (1.0, 5),
    "tasks": (1.0, 15),
    "queued_events": (1.0, 50),
    "timers": (1.0, 20),
    "watches": (1.10, 50),
    "waiting_records": (1.0, 5_000),
    "journal_mib": (1.10, 2 * JOURNAL_BYTES / (1 << 20)),
}
"""Limits for the last quarter's median, as (factor, number): the second quarter's times the factor, plus the number."""

_SHOWN = {
    "memory_mib": "memory, MiB",
    "objects": "Python objects",
    "descriptors": "descriptors",
    "threads": "threads",
    "tasks": "tasks",
    "queued_events": "queued events",
    "timers": "timers",
    "watches": "ZooKeeper watches",
    "waiting_records": "records in memory",
    "journal_mib": "journal on disk, MiB",
}


class Sample(msgspec.Struct, frozen=True):
    """One controller after one round."""

    controller: int
    round: int
    held: dict[str, float]
    """Quantities by the names of ``LIMITS``."""


class Course(msgspec.Struct, frozen=True):
    """How one quantity of one controller developed; medians over the samples of a quarter."""

    controller: int
    what: str
    start: float
    """The value of the first sample."""
    second_quarter: float
    last_quarter: float
    largest: float
    flat: bool


class Verdict(msgspec.Struct, frozen=True):
    """The result of a soak."""

    seed: int
    seconds: float
    rounds: int
    steps: dict[str, int]
    elections: int
    """The number of partition states written."""
    failovers: int
    courses: list[Course]
    violations: list[str]

    @property
    def ok(self) -> bool:
        return not self.violations


class Soak(Storm):
    """Runs once, for at least ``LEAST_ROUNDS``."""

    def __init__(self, shape: Shape, seed: int, seconds: float, *, progress: Callable[[str], None]) -> None:
        bound = {"aiocontroller.journal.retention.bytes": str(JOURNAL_BYTES)}
        shape = msgspec.structs.replace(shape, controller_properties={**bound, **shape.controller_properties})
        super().__init__(shape, seed, seconds, progress=progress)
        self.samples: list[Sample] = []
        self._processes: dict[int, int] = {}

    async def soak(self) -> Verdict:
        """Play the soak and judge it."""
        rounds = await self._play()
        found = courses(self.samples)
        growing = [
            f"controller {c.controller}: {_SHOWN[c.what]} grew from {c.second_quarter:g} to {c.last_quarter:g}"
            for c in found
            if not c.flat
        ]
        return Verdict(
            self.seed,
            round(self._passed_s, 1),
            rounds,
            dict(sorted(self._steps.taken.items())),
            self._replay.history.writes,
            self._replay.history.controller_epoch,
            found,
            [*self._problems, *growing],
        )

    def _drawn(self, number: int) -> list[ScenarioStep]:
        return draw_round(self.seed, number, SOAKING, pauses_s=PAUSES_S, pausing_s=PAUSING_S)

    def _time_is_up(self, rounds: int) -> bool:
        return rounds >= LEAST_ROUNDS and super()._time_is_up(rounds)

    async def _round(self, number: int, steps: Sequence[ScenarioStep]) -> None:
        await super()._round(number, steps)
        if not self._problems:
            for controller, actor in self.cluster.controllers.items():
                held = msgspec.convert(await self.cluster.ask(controller, "POST", "/debug/resources"), Resources)
                assert actor.child is not None
                if self._processes.setdefault(controller, actor.child.pid) != actor.child.pid:
                    self._problems.append(f"bug: controller {controller} has another process than at the start")
                journal_mib = {"journal_mib": _mib(actor.folder / "journal")}
                self.samples.append(Sample(controller, number, msgspec.structs.asdict(held) | journal_mib))

    async def _violations(self) -> list[str]:
        """Return the violations, without those from journals, whose oldest files are gone."""
        return list(map(str, self._replay.history.violations)) + self._tracebacks()


def courses(samples: Sequence[Sample]) -> list[Course]:
    """Judge each quantity of each controller with at least four samples, which are in the order of the rounds."""
    found = []
    for controller in sorted(Counter(sample.controller for sample in samples)):
        own = [sample.held for sample in samples if sample.controller == controller]
        quarter = len(own) // 4
        if not quarter:
            continue
        for what, (factor, more) in LIMITS.items():
            values = [held[what] for held in own]
            second = statistics.median(values[quarter : 2 * quarter])
            last = statistics.median(values[-quarter:])
            flat = last <= second * factor + more
            found.append(Course(controller, what, values[0], second, last, max(values), flat))
    return found


def rows(verdict: Verdict) -> list[tuple[object, ...]]:
    """Return the table of ``courses``: controller, quantity, start, second quarter, last quarter, largest, verdict."""
    return [
        (
            course.controller,
            _SHOWN[course.what],
            *(f"{value:g}" for value in (course.start, course.second_quarter, course.last_quarter, course.largest)),
            "flat" if course.flat else "GROWS",
        )
        for course in verdict.courses
    ]


def _mib(folder: Path) -> float:
    sizes = []
    for path in folder.iterdir():
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # completed or deleted at this moment
            continue
    return round(sum(sizes) / (1 << 20), 1)
