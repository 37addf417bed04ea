"""Visits every state of the specification, breadth-first, so the first violation has a shortest trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from typing import NamedTuple, TypeVar

from aiocontroller.lab.exploration.canonical import canonical
from aiocontroller.lab.exploration.invariants import shown, violated
from aiocontroller.lab.exploration.specification import Label, Specification, State, Step

T = TypeVar("T", bound=Hashable)
Invariants = Callable[[State, Label, State], Iterator[str]]


class Progress(NamedTuple):
    depth: int
    states: int
    steps: int
    frontier: int
    """States whose steps were not taken yet."""
    cpu_s: float


class Explored(NamedTuple):
    progress: Progress
    exhausted: bool
    """Every state within the bounds was visited."""
    violations: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    """The steps to the violation; no other trace is shorter."""


def explore(
    specification: Specification,
    each: Callable[[Progress], None] = lambda progress: None,
    *,
    invariants: Invariants = violated,
    most_states: int | None = None,
) -> Explored:
    """Explore until all is visited, an invariant is violated, or there are too many states; ``each`` is called for
    each depth."""
    began_s = time.process_time()
    shared: dict[Hashable, Hashable] = {}

    def share(value: T) -> T:
        return shared.setdefault(value, value)  # type: ignore[return-value]

    def compact(s: State) -> State:
        """Share the parts with other states: they are nearly all of the memory."""
        s = canonical(specification, s)
        return s._replace(
            znode=share(s.znode),
            controllers=share(s.controllers),
            replicas=share(tuple(map(share, s.replicas))),
            messages=share(s.messages),
            requests=share(s.requests),
        )

    first = compact(specification.first())
    came_from: dict[State, State | None] = {first: None}
    frontier, depth, taken = [first], 0, 0

    def progress() -> Progress:
        return Progress(depth, len(came_from), taken, len(frontier), round(time.process_time() - began_s, 2))

    while frontier:
        found: list[State] = []
        for state in frontier:
            for label, after in specification.steps(state):
                taken += 1
                wrong = tuple(invariants(state, label, after))
                if wrong:
                    lines, complaints = _trace(specification, came_from, state, invariants)
                    return Explored(progress()._replace(depth=depth + 1), False, complaints, lines)
                after = compact(after)
                if after not in came_from:
                    came_from[after] = state
                    found.append(after)
        frontier = found
        depth += bool(found)
        each(progress())
        if most_states is not None and len(came_from) >= most_states:
            break
    return Explored(progress(), not frontier)


def _trace(
    specification: Specification, came_from: dict[State, State | None], last: State, invariants: Invariants
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Walk to the violation again, in states whose brokers keep their names."""
    path: list[State] = []
    state: State | None = last
    while state is not None:
        path.append(state)
        state = came_from[state]
    now = specification.first()
    lines = [f"at first: {shown(now.znode)}"]
    for wanted in path[-2::-1]:
        label, after = next(step for step in specification.steps(now) if canonical(specification, step[1]) == wanted)
        lines.append(_line(now, (label, after)))
        now = after
    for label, after in specification.steps(now):
        wrong = tuple(invariants(now, label, after))
        if wrong:
            return (*lines, _line(now, (label, after))), wrong
    raise AssertionError("the violation depends on names")


def _line(before: State, step: Step) -> str:
    """A step in words."""
    (name, who), after = step
    controllers = ("is elected", "loses its", "learns", "sees", "trusts", "suspects", "elects", "alters", "cannot")
    subject = "controller" if name.startswith(controllers) else "broker"
    text = f"{subject} {who[0]} {name} {', '.join(map(str, who[1:]))}".rstrip()
    if after.znode != before.znode:
        text += f": {shown(after.znode)}"
    return text
