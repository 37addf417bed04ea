"""The bug zoo: known bugs of Kafka's controller, and some of our own, put back into the program to see who finds them.

A harness that finds nothing says little until it is known what it would find.  Each bug is a wrong variant of a
function, in place while the ``with`` block runs; ``hunt`` counts the seeds until some invariant complains.

The names KAFKA-n are those of Kafka's issue tracker.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

from aiocontroller.chaos.plan import draw
from aiocontroller.chaos.simulation import simulate_plan

Patch = tuple[Any, Any, Any]
"""(object or dict, attribute or key, what stands there instead)"""

TRIES = 5
MOST_SEEDS = 200
SEEDS_APART = 100_000


class Bug(NamedTuple):
    name: str
    source: str
    """Where it was seen: an issue of Kafka's, a seed that found it here, or what it guards against."""
    patches: Callable[[], list[Patch]]
    harmless: str = ""
    """Why the program stands it, where it does: then not to be found is right."""


@contextmanager
def injected(bug: Bug) -> Iterator[None]:
    """The bug is in the program inside the block."""
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
    """What became of one bug: per try the number of seeds that it took, or None."""

    bug: str
    seeds: list[int | None]
    complaints: dict[str, int]
    """Invariant that complained first -> in how many tries."""

    @property
    def found(self) -> int:
        return sum(seeds is not None for seeds in self.seeds)

    @property
    def median(self) -> float | None:
        """Tries that found nothing count as one seed more than was tried."""
        if self.found * 2 <= len(self.seeds):
            return None
        return statistics.median(MOST_SEEDS + 1 if seeds is None else seeds for seeds in self.seeds)


def attempt(bug: Bug, number: int, most: int = MOST_SEEDS) -> tuple[int | None, str]:
    """One try: (seeds until found or None, the first complaint).  A seed that fails without the bug does not count."""
    for count in range(1, most + 1):
        plan = draw(number * SEEDS_APART + count)
        with injected(bug):
            report = simulate_plan(plan)
        if any("TypeError" in violation for violation in report.violations):
            return None, f"misfit: {report.violations[0]}"  # the variant does not fit the function any more
        if not report.ok and simulate_plan(plan).ok:
            return count, report.violations[0]
    return None, ""


def invariant_of(complaint: str) -> str:
    """``I5`` of a complaint's text, ``bug`` of a handler that raised, ``context`` of what a context must be."""
    text = complaint.partition("of peace: ")[2] or complaint
    head = text.split(":", 1)[0]
    if head.startswith("one leader"):
        return "one leader"
    return head.split(" ", 1)[0]
