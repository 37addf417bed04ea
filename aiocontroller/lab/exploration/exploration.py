"""Visits every state of the specification, breadth-first, so the first violation has a shortest trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from aiocontroller.lab.exploration.canonical import canonical
from aiocontroller.lab.exploration.invariants import Invariants, shown
from aiocontroller.lab.exploration.parts import Parts, States
from aiocontroller.lab.exploration.specification import Label, Specification, State, affected, roles, with_request

AT_ONCE = 1 << 18
"""The number of states whose steps are looked up together."""


class Progress(NamedTuple):
    depth: int
    states: int
    steps: int
    frontier: int
    """The number of states whose steps have not been taken yet."""
    cpu_s: float


class Explored(NamedTuple):
    progress: Progress
    exhausted: bool
    """Whether every state within the bounds was visited."""
    violations: tuple[str, ...] = ()
    trace: tuple[str, ...] = ()
    """The steps to the violation; no trace is shorter."""


def explore(
    specification: Specification,
    each: Callable[[Progress], None] = lambda progress: None,
    *,
    invariants: Invariants | None = None,
    most_states: int | None = None,
) -> Explored:
    """Explore until every state is visited, an invariant is violated, or ``most_states`` is reached.

    ``each`` is called after each depth.
    """
    began_s = time.process_time()
    invariants = invariants or Invariants()
    parts = Parts(specification, invariants)
    frontier = parts.first()
    levels, visited, taken = [frontier], Visited(frontier), 0

    def progress() -> Progress:
        spent_s = round(time.process_time() - began_s, 2)
        return Progress(len(levels) - 1, len(visited), taken, len(frontier), spent_s)

    while len(frontier):
        found: list[States] = []
        for some in _portions(frontier):
            steps = parts.steps(some)
            taken += len(steps.after)
            if steps.wrong.any():
                last = int(some[steps.source[steps.wrong].min()])
                lines, complaints = _trace(specification, invariants, _path(parts, levels, last))
                return Explored(progress()._replace(depth=len(levels)), False, complaints, lines)
            found.append(visited.new(np.unique(steps.after)))
        frontier = np.unique(np.concatenate(found))
        if len(frontier):
            levels.append(frontier)
            visited.add(frontier)
        each(progress())
        if most_states is not None and len(visited) >= most_states:
            break
    return Explored(progress(), not len(frontier))


class Visited:
    """A set of states, stored as a few sorted arrays."""

    def __init__(self, first: States) -> None:
        self._sorted = [first]

    def __len__(self) -> int:
        return sum(map(len, self._sorted))

    def new(self, states: States) -> States:
        for known in self._sorted:
            at = np.searchsorted(known, states)
            at[at == len(known)] = 0
            states = states[known[at] != states]
        return states

    def add(self, states: States) -> None:
        """Add new states, merging arrays of similar size: there are few arrays, and each state is seldom copied."""
        while self._sorted and len(self._sorted[-1]) <= 2 * len(states):
            states = np.concatenate([self._sorted.pop(), states])
            states.sort(kind="stable")
        self._sorted.append(states)


def _portions(states: States) -> Iterator[States]:
    for begin in range(0, len(states), AT_ONCE):
        yield states[begin : begin + AT_ONCE]


def _path(parts: Parts, levels: list[States], last: int) -> list[State]:
    """Return the states on a shortest path, found backwards: in each level a state with a step to the next one."""
    path = [last]
    for level in levels[-2::-1]:
        for some in _portions(level):
            steps = parts.steps(some)
            leads = steps.source[steps.after == path[-1]]
            if len(leads):
                path.append(int(some[leads.min()]))
                break
    return [parts.state(number) for number in reversed(path)]


def _trace(
    specification: Specification, invariants: Invariants, path: list[State]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Repeat the path to the violation with full states, in which nothing is forgotten and brokers keep their names."""
    now = specification.first()
    lines = [f"at first: {shown(now.control.znode)}"]
    for wanted in path[1:]:
        label, after = next(step for step in specification.steps(now) if canonical(specification, step[1]) == wanted)
        lines.append(_line(now, label, after))
        now = after
    for label, after, wrong in _judged(specification, invariants, now):
        if wrong:
            return (*lines, _line(now, label, after)), wrong
    raise AssertionError("the violation depends on names")


def _judged(
    specification: Specification, invariants: Invariants, s: State
) -> Iterator[tuple[Label, State, tuple[str, ...]]]:
    """Yield all steps, each with its violations."""
    for label, control, effect in specification.control_steps(s.control, roles(s.data)):
        data = affected(s.data, effect) if effect else s.data
        if data is not None:
            after = State(control, data)
            yield label, after, (*invariants.step(s.control, label, control, effect), *invariants.state(after))
    for label, data, request in specification.data_steps(s.data):
        after = State(with_request(s.control, request) if request else s.control, data)
        yield label, after, tuple(invariants.state(after))


def _line(before: State, label: Label, after: State) -> str:
    """Return a step in words."""
    name, who = label
    controllers = ("is elected", "loses its", "learns", "sees", "trusts", "suspects", "elects", "alters", "cannot")
    subject = "controller" if name.startswith(controllers) else "broker"
    text = f"{subject} {who[0]} {name} {', '.join(map(str, who[1:]))}".rstrip()
    znode = after.control.znode
    return text if znode == before.control.znode else f"{text}: {shown(znode)}"
