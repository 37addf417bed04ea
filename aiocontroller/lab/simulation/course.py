"""The runs of a campaign of which earlier ones decide what later ones do: it goes round by round.

A round's runs depend only on what the runs of earlier rounds reached, merged in the order of the rounds.  So a campaign
is a function of its first seed, its number of runs and its options, whatever its processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from aiocontroller.lab.scenarios.forks import recipe
from aiocontroller.lab.scenarios.plan import Plan, draw
from aiocontroller.lab.simulation.branching import Branching
from aiocontroller.lab.simulation.simulation import Report

ROUND = 40
"""New seeds of a round."""
RARE = 0.02
"""A mark is rare if at most this share of the runs of earlier rounds has reached it."""


class Task(NamedTuple):
    """One run, with the futures into which it forks at rare marks."""

    seed: int
    forks: str
    common: frozenset[str]
    """Marks that are not rare; membership only."""
    futures: int

    @property
    def recipe(self) -> str:
        return recipe(self.seed, self.forks)


def perform(task: Task, drawn: Callable[[int], Plan] = draw, judged: Sequence[str] = ()) -> list[Report]:
    """Return the reports of the futures, and at last that of the run itself."""
    plan = msgspec.structs.replace(drawn(task.seed), forks=task.forks)
    return Branching(plan, task.common, task.futures, judged).run()


class Course:
    """The rounds of a campaign with so many seeds from ``first`` on, whose runs fork into ``futures``."""

    def __init__(self, first: int, seeds: int, *, futures: int = 0) -> None:
        self._seeds = range(first, first + seeds)
        """Those to come."""
        self._futures = futures
        self._runs = 0
        self._reached: Counter[str] = Counter()
        """How many runs have reached each mark."""

    def round(self) -> list[Task]:
        """Return the next round's runs; none at the end."""
        seeds, self._seeds = self._seeds[:ROUND], self._seeds[ROUND:]
        common = frozenset(mark for mark, runs in self._reached.items() if runs > RARE * self._runs)
        return [Task(seed, "", common, self._futures if self._runs else 0) for seed in seeds]

    def learn(self, reports: Sequence[Report]) -> None:
        """Take the reports of a round's own runs, without their futures, in its order."""
        for report in reports:
            self._runs += 1
            self._reached.update(report.marks.keys())
