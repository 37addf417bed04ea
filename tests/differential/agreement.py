"""Whether two plays of one scenario agree, step by step; what is compared is told in docs/differential.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from aiocontroller.zookeeper import paths
from tests.differential.allowances import (
    ALLOWANCES,
    CREATED_WITHOUT_LEADER,
    CREATED_WITHOUT_LEADER_ANSWERS,
    DELETED_STATES,
    DEPARTURES,
    MOVING,
    UNKNOWN_FIRST,
    Allowance,
    AtOnce,
    Sequel,
    moving_and_deleted,
    unknown_first,
    without_leadership,
    without_topics,
)
from tests.differential.stage import Moment, split
from tests.differential.told import Told

NOTHING = "(nothing)"


class Disagreement(NamedTuple):
    """``kafka`` and ``ours`` are lines for a person; ``where`` names what differs."""

    step: int
    text: str
    where: str
    kafka: Sequence[str]
    ours: Sequence[str]


class Ledger:
    """How often each rule has made two agree that did not."""

    def __init__(self) -> None:
        self.scenarios = 0
        self.compared = 0
        """Sequences of what one broker was told of one partition in one step."""
        self.fired: Counter[str] = Counter()

    @property
    def unused(self) -> list[str]:
        return [name for name in DEPARTURES if not self.fired[name]]


def disagreements(kafka: Sequence[Moment], ours: Sequence[Moment], ledger: Ledger) -> list[Disagreement]:
    """All of a scenario; empty when both agree."""
    ledger.scenarios += 1
    comparison = _Comparison(ledger)
    found = []
    for number, (theirs, own) in enumerate(zip(kafka, ours, strict=True), 1):
        for where, left, right in comparison.differences(theirs, own):
            found.append(Disagreement(number, theirs.step.text, where, left, right))
    return found


_Difference = tuple[str, list[str], list[str]]


class _Comparison:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._at_once = AtOnce()
        self._going: set[str] = set()
        """Topics that were being deleted when the last step was over, or this one."""
        self._apart: set[str] = set()
        """Topics whose ways have parted."""

    def differences(self, kafka: Moment, ours: Moment) -> Iterator[_Difference]:
        apart = moving_and_deleted(ours.znodes) - self._apart
        self._ledger.fired.update(MOVING for _ in apart)
        self._apart |= apart
        kafka, ours = (_without(moment, self._apart) for moment in (kafka, ours))
        yield from self._answers(kafka.answer, ours.answer)  # given before what follows from the request is done
        self._ledger.fired.update(self._at_once.see(kafka.step.dies, kafka.vacant, kafka.znodes, ours.znodes))
        going = set(kafka.znodes[paths.DELETE_TOPICS]) & set(ours.znodes[paths.DELETE_TOPICS])
        self._going |= going
        for broker, partition in sorted(kafka.told.keys() | ours.told.keys()):
            key = broker, partition
            theirs, own = self._at_once.told(partition, kafka.told.get(key, ())), ours.told.get(key, ())
            self._ledger.compared += 1
            if not self._agree(theirs, own) and not self._agree_on_deletion(partition, theirs, own):
                yield f"broker {broker}, partition {partition}", _lines(theirs), _lines(own)
        for broker in sorted(kafka.live.keys() | ours.live.keys()):
            yield from _values(
                f"live brokers as broker {broker} knows them", kafka.live.get(broker), ours.live.get(broker)
            )
        for path in sorted(kafka.znodes.keys() | ours.znodes.keys()):
            yield from self._znodes(path, kafka.znodes, ours.znodes)
        self._going = going

    def _answers(self, kafka: Any, ours: Any) -> Iterator[_Difference]:
        if isinstance(kafka, dict) and "partition" in kafka:
            kafka = self._at_once.values(kafka["partition"], kafka)
        if kafka != ours and unknown_first(kafka, ours):
            self._ledger.fired[UNKNOWN_FIRST] += 1
        elif (kafka, ours) == CREATED_WITHOUT_LEADER_ANSWERS:
            self._ledger.fired[CREATED_WITHOUT_LEADER] += 1
        else:
            yield from _values("the answer", kafka, ours)

    def _agree_on_deletion(self, partition: str, kafka: Sequel, ours: Sequel) -> bool:
        if split(partition).topic not in self._going or not self._agree(*map(without_leadership, (kafka, ours))):
            return False
        self._ledger.fired[DELETED_STATES] += 1
        return True

    def _agree(self, kafka: Sequel, ours: Sequel) -> bool:
        needed = [rule for rule in ALLOWANCES if not _same(kafka, ours, [r for r in ALLOWANCES if r is not rule])]
        if not _same(kafka, ours, ALLOWANCES):
            return False
        if kafka != ours:
            self._ledger.fired.update(rule.name for rule in needed)
        return True

    def _znodes(self, path: str, kafka: dict[str, Any], ours: dict[str, Any]) -> Iterator[_Difference]:
        theirs, own = kafka.get(path, NOTHING), ours.get(path, NOTHING)
        if path.endswith(" state"):
            partition = path.removesuffix(" state")
            theirs = self._at_once.values(partition, theirs)
            if theirs != own and split(partition).topic in self._going:
                self._ledger.fired[DELETED_STATES] += 1
                return
        yield from _values(f"znode {path}", theirs, own)


def _without(moment: Moment, topics: set[str]) -> Moment:
    told = {key: told for key, told in moment.told.items() if split(key[1]).topic not in topics}
    answer, znodes = (without_topics(values, topics) for values in (moment.answer, moment.znodes))
    return msgspec.structs.replace(moment, told=told, answer=answer, znodes=znodes)


def _same(kafka: Sequel, ours: Sequel, rules: Sequence[Allowance]) -> bool:
    """Whether the two are the same when these rules have done what they can, in turn until nothing changes."""
    return kafka == ours or _left(kafka, rules) == _left(ours, rules)


def _left(told: Sequel, rules: Sequence[Allowance]) -> Sequel:
    while True:
        before = told
        for rule in rules:
            told = rule.apply(told)
        if told == before:
            return told


def _values(where: str, kafka: Any, ours: Any) -> Iterator[_Difference]:
    if kafka != ours:
        yield where, [str(kafka)], [str(ours)]


def _lines(told: Sequence[Told]) -> list[str]:
    return [str(one) for one in told] or [NOTHING]
