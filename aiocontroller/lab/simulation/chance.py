"""The random numbers of a run, and its forks: the await points from which it draws other ones (``scenarios.forks``)."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable, Collection
from typing import NamedTuple

from aiocontroller.lab.scenarios.forks import Fork, parse_forks
from aiocontroller.lab.scenarios.plan import Plan


class Lookout(NamedTuple):
    """Watches for rare marks, after the plan's own forks and while steps are left."""

    common: Collection[str]
    """Marks that are not rare."""
    found: Callable[[int], Fork | None] = lambda number: None
    """Called with the number of the next await point after a rare mark that is new to the run.  The fork that it
    returns takes place there."""


class Chance:
    """Everything that draws has a source of its own, seeded by its name and by the run's lineage: seed and forks."""

    def __init__(self, plan: Plan, lookout: Lookout | None = None) -> None:
        self.lineage = str(plan.seed)
        self._sources: list[tuple[str, random.Random]] = []
        self._to_come = deque(parse_forks(plan.forks))
        self.forks: list[Fork] = []
        """Those that have taken place."""
        self._lookout = lookout
        self._awaits = 0
        self._steps_left = True
        self._is_new = False
        """A rare mark was reached after the last await point."""
        self.rare: dict[str, int] = {}
        """Maps the rare marks that were reached while steps were left to the number of await points before each."""

    def source(self, name: str) -> random.Random:
        made = random.Random(f"{self.lineage} {name}")
        self._sources.append((name, made))
        return made

    def reached(self, mark: str) -> None:
        """The run has reached a mark for the first time."""
        if self._lookout is not None and self._steps_left and mark not in self._lookout.common:
            self.rare[mark] = self._awaits
            self._is_new = True

    def at_await(self, number: int, *, steps_left: bool) -> bool:
        """Return whether the run forks here; if so, its sources have new seeds."""
        self._awaits, self._steps_left = number, steps_left
        fork, is_new, self._is_new = None, self._is_new, False
        if self._to_come:
            if self._to_come[0].at_await == number:
                fork = self._to_come.popleft()
        elif is_new and steps_left and self._lookout is not None:
            fork = self._lookout.found(number)
        if fork is None:
            return False
        self.forks.append(fork)
        self.lineage += f" {fork}"
        for name, source in self._sources:
            source.seed(f"{self.lineage} {name}")
        return True


class FirstTimes(Counter[str]):
    """Counts marks, and calls ``first`` when one is counted for the first time."""

    def __init__(self, first: Callable[[str], None]) -> None:
        super().__init__()
        self._first = first

    def __missing__(self, mark: str) -> int:
        self._first(mark)
        return 0
