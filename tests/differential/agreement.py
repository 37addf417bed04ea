"""Whether two plays of one scenario agree, step by step; docs/differential.md says what is compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from aiocontroller.zookeeper import paths
from tests.differential.allowances import (
    DELETED_STATES,
    DEPARTURES,
    GONE,
    GRANTED,
    MOVING,
    AtOnce,
    as_written,
    deletes,
    gone_already,
    granted_to_an_old_leader,
    moving_and_deleted,
    without_leadership,
    without_topics,
)
from tests.differential.observed_cluster import WITNESS, Moment, split
from tests.differential.sent import Sent
from tests.differential.sequels import (
    ENDS_ALIKE,
    FELL_BEHIND,
    METADATA_AT_ONCE,
    TERM_OF_THE_WRITE,
    Sequel,
    Terms,
    ends_alike,
    explained,
    last_states,
    leadership_before_metadata,
)

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
        """Sequences of what one broker was sent of one partition in one step."""
        self.fired: Counter[str] = Counter()

    @property
    def unused(self) -> list[str]:
        return [name for name in DEPARTURES if not self.fired[name]]


def disagreements(
    kafka: Sequence[Moment], ours: Sequence[Moment], ledger: Ledger, *, warm: bool = False
) -> list[Disagreement]:
    """All of a scenario; empty when both agree.  ``warm``: our failovers are those of a warm standby."""
    ledger.scenarios += 1
    comparison = _Comparison(ledger, warm)
    found = []
    for number, (theirs, own) in enumerate(zip(kafka, ours, strict=True), 1):
        for where, left, right in comparison.differences(theirs, own):
            found.append(Disagreement(number, theirs.step.text, where, left, right))
    return found


_Difference = tuple[str, list[str], list[str]]


class _Comparison:
    def __init__(self, ledger: Ledger, warm: bool) -> None:
        self._ledger = ledger
        self._warm = warm
        self._at_once = AtOnce()
        self._terms = Terms()
        self._ours_before: dict[str, Any] = {}
        self._going: set[str] = set()
        """Topics that were being deleted when the last step was over, or this one."""
        self._apart: set[str] = set()
        """Topics whose ways have parted."""
        self._gone: set[str] = set()
        """Those of them that are gone here, and wait there for a broker."""
        self._stopped: set[tuple[int, str]] = set()
        """(broker, partition) that got a StopReplica here that deletes."""
        self._hanging: set[int] = set()

    def differences(self, kafka: Moment, ours: Moment) -> Iterator[_Difference]:
        apart = moving_and_deleted(ours.znodes) - self._apart
        self._ledger.fired.update(MOVING for _ in apart)
        self._hanging = (self._hanging | set(kafka.step.hangs)) - set(kafka.step.wakes) - set(kafka.step.dies)
        answering = {live[0] for live in kafka.live.get(WITNESS, ())} - self._hanging
        gone = gone_already(kafka.znodes, ours.znodes, answering) - self._apart - apart
        self._ledger.fired.update(GONE for _ in gone)
        granted = granted_to_an_old_leader(kafka.answer, ours.answer, ours.sent) - self._apart
        self._ledger.fired.update(GRANTED for _ in granted)
        self._gone |= gone
        yield from self._stops(kafka, ours)
        self._apart |= apart | gone | granted
        kafka, ours = (_without(moment, self._apart) for moment in (kafka, ours))
        yield from self._answers(kafka.answer, ours.answer)  # given before what follows from the request is done
        self._terms.see(kafka.znodes)
        warm = self._warm and self._terms.failed_over
        at_once = self._at_once.see(kafka.step.dies, kafka.vacant, kafka.znodes, ours.znodes, warm=warm)
        self._ledger.fired.update(at_once)
        going = set(kafka.znodes[paths.DELETE_TOPICS]) & set(ours.znodes[paths.DELETE_TOPICS])
        self._going |= going
        for broker, partition in sorted(kafka.sent.keys() | ours.sent.keys()):
            key = broker, partition
            self._ledger.compared += 1
            yield from self._sent(broker, partition, kafka.sent.get(key, ()), ours.sent.get(key, ()), ours)
        for broker in sorted(kafka.live.keys() | ours.live.keys()):
            if self._gone and broker not in ours.live:
                continue  # it was sent no topic but the mark's, which does not count as heard
            yield from _values(
                f"live brokers as broker {broker} knows them", kafka.live.get(broker), ours.live.get(broker)
            )
        for path in sorted(kafka.znodes.keys() | ours.znodes.keys()):
            yield from self._znodes(path, kafka.znodes, ours.znodes)
        self._going, self._ours_before = going, ours.znodes

    def _stops(self, kafka: Moment, ours: Moment) -> Iterator[_Difference]:
        """Of a topic that is gone here: brokers that delete it there have got that StopReplica here, by that step."""
        self._stopped |= {key for key, sent in ours.sent.items() if deletes(sent)}
        for key, theirs in sorted(kafka.sent.items()):
            broker, partition = key
            if split(partition).topic in self._gone and deletes(theirs) and key not in self._stopped:
                where = f"broker {broker}, partition {partition}, which is gone here"
                yield where, _lines(theirs), _lines(ours.sent.get(key, ()))

    def _answers(self, kafka: Any, ours: Any) -> Iterator[_Difference]:
        if isinstance(kafka, dict) and "partition" in kafka:
            kafka = self._at_once.values(kafka["partition"], kafka)
        yield from _values("the answer", kafka, ours)

    def _sent(self, broker: int, partition: str, kafka: Sequel, ours: Sequel, moment: Moment) -> Iterator[_Difference]:
        by = self._rules(broker, partition, kafka, ours, moment)
        if by is None and (moment.step.dies or moment.step.text.startswith("fail-log-dir")):
            by = self._rules(broker, partition, kafka, leadership_before_metadata(broker, ours), moment)
            by = None if by is None else [METADATA_AT_ONCE, *by]
        if by is None:
            theirs = self._at_once.sent(partition, self._terms.sent(partition, kafka))
            yield f"broker {broker}, partition {partition}", _lines(theirs), _lines(ours)
        else:
            self._ledger.fired.update(by)

    def _rules(self, broker: int, partition: str, kafka: Sequel, ours: Sequel, moment: Moment) -> Sequence[str] | None:
        """The rules that explain what one broker was sent of one partition; None if they do not."""
        if kafka == ours:
            return ()
        written = self._terms.sent(partition, kafka)
        theirs = self._at_once.sent(partition, written)
        by = explained(broker, theirs, ours)
        if (
            by is not None
            and written != kafka
            and explained(broker, self._at_once.sent(partition, kafka), ours) is None
        ):
            by.append(TERM_OF_THE_WRITE)
        if by is None and self._warm and self._terms.failed_over and ends_alike(theirs, ours):
            by = [ENDS_ALIKE]
        if by is None and broker in moment.step.wakes and last_states(theirs, ours):
            by = [FELL_BEHIND]
        if by is None and split(partition).topic in self._going:
            state = self._ours_before.get(f"{partition} state") or moment.znodes.get(f"{partition} state")
            by = explained(broker, *map(without_leadership, (theirs, ours)))
            by = None if by is None or not as_written(ours, state) else [*by, DELETED_STATES]
        return by

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
    sent = {key: sent for key, sent in moment.sent.items() if split(key[1]).topic not in topics}
    answer, znodes = (without_topics(values, topics) for values in (moment.answer, moment.znodes))
    return msgspec.structs.replace(moment, sent=sent, answer=answer, znodes=znodes)


def _values(where: str, kafka: Any, ours: Any) -> Iterator[_Difference]:
    if kafka != ours:
        yield where, [str(kafka)], [str(ours)]


def _lines(sent: Sequence[Sent]) -> list[str]:
    return [str(one) for one in sent] or [NOTHING]
