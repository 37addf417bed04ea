"""What can be said of a cluster in a line, the same of a simulated one and of real processes: to tell it, to demand it.

expect leader orders-0 2           2 leads; ``none``: nobody does
expect isr orders-0 2,3            in any order
expect controller 2                by number; ``none``; ``any``
expect epoch 102                   /controller_epoch, or a higher one: ``102+``
expect topic orders gone           or ``there``
expect broker 3 gone               or ``there``: its registration
expect believes 3 orders-0 2       what broker 3 has been told of who leads it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from aiocontroller.chaos.history import Partition
from aiocontroller.chaos.words import WordsError, partition, replicas
from aiocontroller.core.ids import LeaderAndIsr

EXPECT_WITHIN_S = 60.0
FORMS = ("leader", "isr", "controller", "epoch", "topic", "broker", "believes")


class Facts(msgspec.Struct, frozen=True):
    """``controller`` is the number of the one whose session owns ``/controller``, though it be dead; ``believed`` holds
    (leader, leader epoch)."""

    controller: int | None
    controller_runs: bool
    epoch: int
    brokers: frozenset[int]
    states: Mapping[Partition, LeaderAndIsr]
    topics: frozenset[str]
    believed: Mapping[int, Mapping[Partition, tuple[int, int]]]


NOTHING = Facts(None, False, 0, frozenset(), {}, frozenset(), {})


def judge(words: Sequence[str], facts: Facts) -> str | None:
    """What is found instead of what is expected; None when it holds.  WordsError for what nobody can expect."""
    try:
        what, *rest = words
        found, expected = _FOUND[what](rest, facts)
    except (KeyError, ValueError, IndexError):
        raise WordsError(f"expect {' '.join(words)}: found no such form, expected one of {', '.join(FORMS)}") from None
    if found == expected or (expected == "any" and found != "none"):
        return None
    if what == "epoch" and expected.endswith("+") and int(found) >= int(expected[:-1]):
        return None
    return f"expected {' '.join(words)}, found {found}"


def named(word: str) -> Partition:
    found = partition(word)
    return found.topic, found.partition


def _leader(words: Sequence[str], facts: Facts) -> tuple[str, str]:
    state = facts.states.get(named(words[0]))
    return ("none" if state is None or state.leader < 0 else str(state.leader)), words[1]


def _isr(words: Sequence[str], facts: Facts) -> tuple[str, str]:
    state = facts.states.get(named(words[0]))
    return _listed(() if state is None else state.isr), _listed(replicas(words[1]))


def _listed(ids: Sequence[int]) -> str:
    return ",".join(map(str, sorted(ids)))


def _controller(words: Sequence[str], facts: Facts) -> tuple[str, str]:
    return ("none" if facts.controller is None else str(facts.controller)), words[0]


def _believes(words: Sequence[str], facts: Facts) -> tuple[str, str]:
    known = facts.believed.get(int(words[0]), {}).get(named(words[1]))
    return ("none" if known is None else str(known[0])), words[2]


_FOUND = {
    "leader": _leader,
    "isr": _isr,
    "controller": _controller,
    "epoch": lambda words, facts: (str(facts.epoch), words[0]),
    "topic": lambda words, facts: ("there" if words[0] in facts.topics else "gone", words[1]),
    "broker": lambda words, facts: ("there" if int(words[0]) in facts.brokers else "gone", words[1]),
    "believes": _believes,
}


def changes(before: Facts, after: Facts) -> Iterator[str]:
    """What is different, a line each, in a fixed order."""
    if _office(before) != _office(after):
        yield _office(after)
    for broker in sorted(before.brokers - after.brokers):
        yield f"broker {broker} is gone"
    for broker in sorted(after.brokers - before.brokers):
        yield f"broker {broker} is registered"
    for name in sorted({*before.states, *after.states}):
        state = after.states.get(name)
        if state is None:
            yield f"{name[0]}-{name[1]} is deleted"
        elif _said(before.states.get(name)) != _said(state):
            yield f"{name[0]}-{name[1]}: {_said(state)}"
    earlier = dict(_beliefs(before))
    later = dict(_beliefs(after))
    for broker, belief in later.items():
        if earlier.get(broker) != belief:
            yield f"broker {broker} believes: {belief}"
    for broker in sorted(set(earlier) - set(later)):
        if broker in after.believed:
            yield f"broker {broker} knows what is true again"


def _office(facts: Facts) -> str:
    if facts.controller is None:
        return f"nobody is in office, epoch {facts.epoch}"
    dead = "" if facts.controller_runs else ", and is dead"
    return f"controller {facts.controller} is in office, epoch {facts.epoch}{dead}"


def _said(state: LeaderAndIsr | None) -> str:
    if state is None:
        return ""
    leader = "no leader" if state.leader < 0 else f"leader {state.leader}"
    return f"{leader}, leader epoch {state.leader_epoch}, ISR {','.join(map(str, state.isr))}"


def _beliefs(facts: Facts) -> Iterator[tuple[int, str]]:
    """What brokers have been told and is not so any more."""
    for broker, known in sorted(facts.believed.items()):
        wrong = [
            f"{topic}-{number} is led by {leader} in epoch {epoch}"
            for (topic, number), (leader, epoch) in sorted(known.items())
            if (state := facts.states.get((topic, number))) is None
            or (state.leader, state.leader_epoch) != (leader, epoch)
        ]
        if wrong:
            yield broker, "; ".join(wrong)
