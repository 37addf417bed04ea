"""Facts about a cluster, simulated or real, one per line: a run reports them, and scenarios expect them.

The forms, and what else they accept:

    expect leader orders-0 2           the leader's id, or ``none``
    expect isr orders-0 2,3            in any order
    expect controller 2                the controller's number, ``none`` or ``any``
    expect epoch 102                   ``/controller_epoch``; ``102+`` accepts a higher one
    expect topic orders gone           or ``there``
    expect broker 3 gone               or ``there``: whether it is registered
    expect believes 3 orders-0 2       the leader according to the last request that broker 3 accepted
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.lab.checkers.history import Partition
from aiocontroller.lab.scenarios.arguments import StepArgumentError, partition, replicas

EXPECT_WITHIN_S = 60.0
FORMS = ("leader", "isr", "controller", "epoch", "topic", "broker", "believes")


class Facts(msgspec.Struct, frozen=True):
    """The state of a cluster at one moment.

    ``controller`` is the number of the controller whose session owns ``/controller``, even if its process is dead.
    ``believed`` maps each broker to the (leader, leader epoch) that it was last sent for each partition.
    """

    controller: int | None
    controller_runs: bool
    epoch: int
    brokers: frozenset[int]
    states: Mapping[Partition, LeaderAndIsr]
    topics: frozenset[str]
    believed: Mapping[int, Mapping[Partition, tuple[int, int]]]


NOTHING = Facts(None, False, 0, frozenset(), {}, frozenset(), {})


def judge(arguments: Sequence[str], facts: Facts) -> str | None:
    """Return how the facts differ from the expectation; None if it holds.  Raises StepArgumentError if it is
    malformed."""
    try:
        what, *rest = arguments
        found, expected = _FOUND[what](rest, facts)
    except (KeyError, ValueError, IndexError):
        raise StepArgumentError(
            f"expect {' '.join(arguments)}: found no such form, expected one of {', '.join(FORMS)}"
        ) from None
    if found == expected or (expected == "any" and found != "none"):
        return None
    if what == "epoch" and expected.endswith("+") and int(found) >= int(expected[:-1]):
        return None
    return f"expected {' '.join(arguments)}, found {found}"


def named(word: str) -> Partition:
    found = partition(word)
    return found.topic, found.partition


def _leader(arguments: Sequence[str], facts: Facts) -> tuple[str, str]:
    state = facts.states.get(named(arguments[0]))
    return ("none" if state is None or state.leader < 0 else str(state.leader)), arguments[1]


def _isr(arguments: Sequence[str], facts: Facts) -> tuple[str, str]:
    state = facts.states.get(named(arguments[0]))
    return _listed(() if state is None else state.isr), _listed(replicas(arguments[1]))


def _listed(ids: Sequence[int]) -> str:
    return ",".join(map(str, sorted(ids)))


def _controller(arguments: Sequence[str], facts: Facts) -> tuple[str, str]:
    return ("none" if facts.controller is None else str(facts.controller)), arguments[0]


def _believes(arguments: Sequence[str], facts: Facts) -> tuple[str, str]:
    known = facts.believed.get(int(arguments[0]), {}).get(named(arguments[1]))
    return ("none" if known is None else str(known[0])), arguments[2]


_FOUND = {
    "leader": _leader,
    "isr": _isr,
    "controller": _controller,
    "epoch": lambda arguments, facts: (str(facts.epoch), arguments[0]),
    "topic": lambda arguments, facts: ("there" if arguments[0] in facts.topics else "gone", arguments[1]),
    "broker": lambda arguments, facts: ("there" if int(arguments[0]) in facts.brokers else "gone", arguments[1]),
    "believes": _believes,
}


def changes(before: Facts, after: Facts) -> Iterator[str]:
    """Yield the differences, one per line, in a fixed order."""
    if _term(before) != _term(after):
        yield _term(after)
    for broker in sorted(before.brokers - after.brokers):
        yield f"broker {broker} is gone"
    for broker in sorted(after.brokers - before.brokers):
        yield f"broker {broker} is registered"
    for name in sorted({*before.states, *after.states}):
        state = after.states.get(name)
        if state is None:
            yield f"{name[0]}-{name[1]} is deleted"
        elif _in_words(before.states.get(name)) != _in_words(state):
            yield f"{name[0]}-{name[1]}: {_in_words(state)}"
    earlier = dict(_beliefs(before))
    later = dict(_beliefs(after))
    for broker, belief in later.items():
        if earlier.get(broker) != belief:
            yield f"broker {broker} believes: {belief}"
    for broker in sorted(set(earlier) - set(later)):
        if broker in after.believed:
            yield f"broker {broker} is up to date again"


def _term(facts: Facts) -> str:
    if facts.controller is None:
        return f"no controller is active, epoch {facts.epoch}"
    dead = "" if facts.controller_runs else ", and is dead"
    return f"controller {facts.controller} is active, epoch {facts.epoch}{dead}"


def _in_words(state: LeaderAndIsr | None) -> str:
    if state is None:
        return ""
    leader = "no leader" if state.leader < 0 else f"leader {state.leader}"
    return f"{leader}, leader epoch {state.leader_epoch}, ISR {','.join(map(str, state.isr))}"


def _beliefs(facts: Facts) -> Iterator[tuple[int, str]]:
    """Yield the outdated beliefs of each broker."""
    for broker, known in sorted(facts.believed.items()):
        wrong = [
            f"{topic}-{number} is led by {leader} in epoch {epoch}"
            for (topic, number), (leader, epoch) in sorted(known.items())
            if (state := facts.states.get((topic, number))) is None
            or (state.leader, state.leader_epoch) != (leader, epoch)
        ]
        if wrong:
            yield broker, "; ".join(wrong)
