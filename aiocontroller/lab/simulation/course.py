"""The runs of a campaign that proceeds in rounds, in which earlier runs decide what later ones do.

A round's runs depend only on what the runs of earlier rounds reached, merged in the order of the rounds.  So a campaign
is a function of its first seed, its number of runs and its options, and does not depend on its number of processes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from aiocontroller.lab.scenarios.forks import Fork, format_forks, parse_forks, recipe
from aiocontroller.lab.scenarios.plan import Plan, draw
from aiocontroller.lab.simulation.branching import Branching
from aiocontroller.lab.simulation.report import SimulationReport

ROUND = 20
"""New seeds in each round."""
RARE = 0.02
"""A mark is rare if at most one run of earlier rounds has reached it, or at most this share of them."""


KEPT = 3
"""Runs that are kept for a mark."""
LEADS = (0, 1, 5, 20, 100)
"""How many await points before a mark a neighbour departs from the run that it repeats."""
FIRST_NEIGHBOUR = 1_000
"""Branches of neighbours have higher numbers; those of ``Branching`` lower ones."""


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


def perform(task: Task, drawn: Callable[[int], Plan] = draw, judged: Sequence[str] = ()) -> list[SimulationReport]:
    """Return the reports of the futures, and then that of the run itself."""
    plan = msgspec.structs.replace(drawn(task.seed), forks=task.forks)
    return Branching(plan, task.common, task.futures, judged).run()


class Course:
    """The rounds of a campaign with these seeds, whose runs fork into ``futures``.

    ``steer`` is the percentage of the runs after the first round that are neighbours of others: they repeat a run that
    has reached a rare mark up to shortly before it, and draw the rest again.
    """

    def __init__(self, seeds: range, *, futures: int = 0, steer: int = 0) -> None:
        self._seeds = seeds
        """The seeds of the rounds to come."""
        self._futures, self._steer = futures, steer
        self._runs = 0
        self._reached: Counter[str] = Counter()
        """How many runs have reached each mark."""
        self._leading: dict[str, list[tuple[int, list[Fork], int]]] = {}
        """Maps marks to runs that reached them while they were rare: seed, forks, and await points before the mark."""
        self._chance = random.Random(f"steer {seeds.start}")
        self._neighbours = 0

    def round(self) -> list[Task]:
        """Return the next round's runs; none at the end."""
        seeds, self._seeds = self._seeds[:ROUND], self._seeds[ROUND:]
        common = frozenset(mark for mark, runs in self._reached.items() if runs > max(1, RARE * self._runs))
        futures = self._futures if self._runs else 0
        tasks = [Task(seed, "", common, futures) for seed in seeds]
        rare = [mark for mark in self._leading if mark not in common]
        if rare:
            near = len(seeds) * self._steer // (100 - self._steer)
            tasks += [Task(*self._neighbour(self._chance.choice(rare)), common, futures) for _ in range(near)]
        return tasks

    def _neighbour(self, mark: str) -> tuple[int, str]:
        """Return the seed and the forks of a run that repeats a kept one until shortly before the mark."""
        self._neighbours += 1
        seed, forks, at_await = self._chance.choice(self._leading[mark])
        earliest = forks[-1].at_await + 1 if forks else 1
        fork = Fork(max(earliest, at_await - self._chance.choice(LEADS)), FIRST_NEIGHBOUR + self._neighbours)
        return seed, format_forks([*forks, fork])

    def learn(self, reports: Sequence[SimulationReport]) -> None:
        """Take in the reports of a round's own runs, without their futures, in the order of the round."""
        for report in reports:
            self._runs += 1
            self._reached.update(report.marks.keys())
            forks = parse_forks(report.forks)
            for mark, at_await in report.rare.items():
                is_after_forks = not forks or forks[-1].at_await < at_await
                if is_after_forks and len(leading := self._leading.setdefault(mark, [])) < KEPT:
                    leading.append((report.seed, forks, at_await))
