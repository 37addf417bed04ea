"""What the canonical form forgets makes no difference: the same is reachable, and the same bugs are found."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from itertools import permutations

import numpy as np
import pytest

from aiocontroller.lab.exploration.canonical import canonical, normal_control, normal_data
from aiocontroller.lab.exploration.exploration import explore
from aiocontroller.lab.exploration.invariants import Invariants
from aiocontroller.lab.exploration.parts import Parts
from aiocontroller.lab.exploration.planted import PLANTED
from aiocontroller.lab.exploration.specification import (
    LEADER,
    NO_ID,
    Bounds,
    Message,
    Replica,
    Request,
    Specification,
    State,
    ZNode,
    members,
    roles,
)

ONE_TERM = Bounds(replicas=2, controllers=1, records=1, terms=1, changes=2)


class Remembering(Specification):
    """Versions and controller epochs are counted, and what is out of date may still be used."""

    fenced = False


def visible(s: State) -> Hashable:
    """What the invariants are about, but for the names of brokers."""
    replicas, control = s.data.replicas, s.control
    named = []
    for order in permutations(range(len(replicas))):
        name = {broker: place for place, broker in enumerate(order)} | {NO_ID: NO_ID}
        isr, registered = (sorted(name[b] for b in members(mask)) for mask in (control.znode.isr, control.registered))
        brokers = [(replicas[b].role, replicas[b].epoch, replicas[b].log, replicas[b].hw) for b in order]
        named.append((name[control.znode.leader], isr, registered, brokers))
    leader, isr, registered, brokers = min(named)
    seen = (leader, tuple(isr), tuple(registered), tuple(brokers))
    return (*seen, control.znode.epoch, control.faults, s.data.acknowledged)


def by_parts(specification: Specification) -> set[State]:
    parts = Parts(specification, Invariants())
    frontier, numbers = parts.first(), set(parts.first().tolist())
    while len(frontier):
        steps = parts.steps(frontier)
        assert not steps.wrong.any()
        frontier = np.array(sorted(set(steps.after.tolist()) - numbers), np.int64)
        numbers |= set(frontier.tolist())
    return {parts.state(number) for number in numbers}


def one_by_one(specification: Specification, form: Callable[[State], State]) -> set[State]:
    """Every state in this form, by the steps of one after another."""
    frontier = [form(specification.first())]
    states = set(frontier)
    while frontier:
        after = {form(after) for state in frontier for _, after in specification.steps(state)}
        frontier = list(after - states)
        states |= after
    return states


def test_nothing_is_lost_by_the_canonical_form() -> None:
    """Forgetting nothing at all, one state after another, against all that is done to make it fast."""
    plain = one_by_one(Remembering(ONE_TERM), lambda s: s)
    fast = by_parts(Specification(ONE_TERM))
    assert len(plain) > 3 * len(fast)
    assert {visible(s) for s in plain} == {visible(s) for s in fast}


@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(replicas=2, records=1, terms=2, changes=3),
        Bounds(replicas=2, records=2, terms=2, changes=2),
        Bounds(replicas=3, records=1, faults=0, terms=2, changes=3),
    ],
)
def test_what_fences_out_the_past_may_be_forgotten(bounds: Bounds) -> None:
    remembering, forgetting = by_parts(Remembering(bounds)), by_parts(Specification(bounds))
    assert len(remembering) > 20 * len(forgetting)
    assert {visible(s) for s in remembering} == {visible(s) for s in forgetting}


@pytest.mark.parametrize("name", [name for name, bug in PLANTED.items() if bug.fenced])
def test_planted_bugs_are_found_with_and_without_the_past(name: str) -> None:
    bounds = Bounds(records=1, elections=2)
    remembering = type("Remembering", (PLANTED[name],), {"fenced": False})
    found = [explore(kind(bounds), most_states=50_000) for kind in (PLANTED[name], remembering)]
    invariants = [sorted({violation.split(":")[0] for violation in explored.violations}) for explored in found]
    assert invariants[0] == invariants[1] != []
    assert found[0].progress.depth == found[1].progress.depth


def test_states_that_differ_by_names_are_one() -> None:
    specification = Specification()
    first = specification.first()
    dead = [
        next(after for label, after in specification.steps(first) if label == ("dies", (broker,))) for broker in (1, 2)
    ]
    assert dead[0] != dead[1]
    assert canonical(specification, dead[0]) == canonical(specification, dead[1])


@pytest.mark.parametrize(
    "bounds", [Bounds(replicas=3, records=1, faults=0), Bounds(replicas=3, controllers=1, records=0)]
)
def test_names_are_given_the_same_way_whatever_they_were(bounds: Bounds) -> None:
    specification = Specification(bounds)
    for s in by_parts(specification):
        assert canonical(specification, s) == s


def test_a_version_is_counted_from_the_one_in_zookeeper() -> None:
    specification = Specification()
    first = specification.first()
    seen, old = ZNode(0, 0, 0b011, 7), ZNode(0, 0, 0b111, 6)
    control = first.control._replace(
        znode=seen,
        messages=(Message(old, 0b100),),
        requests=(Request(0, 0, 0b001, 7), Request(0, 0, 0b101, 6)),
    )
    leader = Replica(LEADER, 0, (), isr=0b001, version=6, asked=0b101, ends=(-1,) * 3)
    data = first.data._replace(replicas=(leader, *first.data.replicas[1:]))
    after, zero = normal_control(specification, control, roles(data))
    assert zero == 7
    assert after.znode.version == 0
    assert after.requests == (Request(0, 0, 0b001, 0),)
    assert after.messages == ()  # nobody is behind epoch 0
    late = normal_data(specification, data, zero).replicas[0]
    assert (late.version, late.asked) == (-1, 0b101)
    removes = data._replace(replicas=(leader._replace(isr=0b111, asked=0b011), *data.replicas[1:]))
    assert normal_data(specification, removes, zero).replicas[0].asked == 0
