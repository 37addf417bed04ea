"""Forks: the points of a run from which everything is drawn again, written as ``1234:3,2000:1``.

``1234:3`` stands for the third alternative future that begins at the controllers' 1,234th await point.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple

from aiocontroller.core.errors import BadInputError


class Fork(NamedTuple):
    at_await: int
    """Counts the await points of the controllers' handlers from 1."""
    branch: int

    def __str__(self) -> str:
        return f"{self.at_await}:{self.branch}"


def parse_forks(text: str) -> list[Fork]:
    """Parse forks.  Raises BadInputError if one is malformed, or if they are not in order."""
    forks: list[Fork] = []
    for word in filter(None, text.split(",")):
        at_await, _, branch = word.partition(":")
        if not (at_await.isdecimal() and branch.isdecimal() and int(at_await) and int(branch)):
            raise BadInputError(f"found the fork {word!r}, expected such as 1234:3: an await point and a branch")
        forks.append(Fork(int(at_await), int(branch)))
    if any(one.at_await >= other.at_await for one, other in pairwise(forks)):
        raise BadInputError(f"found the forks {text!r}, expected them in the order of their await points")
    return forks


def format_forks(forks: Iterable[Fork]) -> str:
    return ",".join(map(str, forks))


def recipe(seed: int, forks: str) -> str:
    """Return the text that must follow ``simulate --seed`` to repeat a run."""
    return " --fork ".join([str(seed), *filter(None, forks.split(","))])
