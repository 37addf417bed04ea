"""Steps that are looked up are those of the specification."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from aiocontroller.lab.exploration.canonical import canonical
from aiocontroller.lab.exploration.invariants import Invariants
from aiocontroller.lab.exploration.parts import Parts, Table
from aiocontroller.lab.exploration.planted import PLANTED
from aiocontroller.lab.exploration.specification import Bounds, Specification
from tests.unit.lab.exploration.test_canonical import by_parts, one_by_one


@pytest.mark.parametrize(
    "specification",
    [
        Specification(Bounds(replicas=2, records=2)),
        Specification(Bounds(replicas=3, records=1, faults=0)),
        PLANTED["AlterPartition: partition epoch ignored"](Bounds(replicas=2, records=0, terms=1, changes=2)),
    ],
    ids=lambda specification: type(specification).__name__,
)
def test_the_same_states_are_reached_one_by_one(specification: Specification) -> None:
    assert by_parts(specification) == one_by_one(specification, lambda s: canonical(specification, s))


def test_every_step_is_taken_once() -> None:
    specification = Specification(Bounds(replicas=3, records=1))
    parts = Parts(specification, Invariants())
    states = parts.first()
    for _ in range(6):
        steps = parts.steps(states)
        for i, number in enumerate(states.tolist()):
            after = [parts.state(n) for n in steps.after[steps.source == i].tolist()]
            expected = [canonical(specification, after) for _, after in specification.steps(parts.state(number))]
            assert Counter(after) == Counter(expected)
        states = np.unique(steps.after)[:50]


def test_a_table_computes_each_pair_once() -> None:
    asked = []

    def product(a: int, b: int) -> int:
        asked.append((a, b))
        return a * b

    table = Table(product)
    a, b = np.array([3, 500, 3], np.int32), np.array([7, 20, 7], np.int32)
    for _ in range(2):
        assert table(a, b).tolist() == [21, 10_000, 21]
    assert sorted(asked) == [(3, 7), (500, 20)]
    assert table(a[:0], b[:0]).tolist() == []
