"""Finds, from brokers' own answers, which replica's log is the best, and how much is lost if a given one leads.

Theory.  A log is as good as its last record: the log whose last record has the highest leader epoch is the best, and
among these the longest (KIP-101).  Of two logs with the same last epoch one is the beginning of the other.  A log with
an older last epoch may end with records that the best log lacks: the two diverge where their common epochs do.

 * A broker reports where an epoch ends in its log or, if it does not know the epoch, where the next lower one that it
   knows ends.  Answers grow with the epoch, so the last epoch *with records* is the lowest that ends at the log's end;
   ``last_epoch`` finds it.  Epochs above may be *phantoms*: a leader enters its epoch before it writes anything.
 * An epoch above all those that the broker knows gets no answer; it, too, would end at the log's end.
 * Membership of the ISR is not evidence here: a power failure may have cost the log its end.
 * But an awaited replica has followed the last leader, and only what is committed is ever deleted from the beginning of
   a log (by retention, or DeleteRecords).  So records that other logs have before its first offset were deleted, not
   lost.  It need not have any records: retention empties the log of an idle topic.  If an older log led in its place,
   the offsets of committed records would be assigned again, and consumers that have read past them would miss the new
   records.
 * Without epochs a longer log may be another one: a leader whose session has expired appends records until it learns
   of its successor.  So a log that is only longer does not lead in place of an awaited replica's that has records.
 * What a replica holds is unknown if it does not answer.  That matters only if it may have been the last to hold
   something acknowledged (``awaited``).

Searches are generators: they yield epochs to ask about, and are sent the answers.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.ids import NO_TOPIC_ID, TopicPartition
from aiocontroller.core.text import brokers_named, plural

NO_RECORDS = -1
"""The last epoch of an empty log, and of one whose records have no epochs (message format before Kafka 0.11)."""
UNKNOWN_EPOCH = -2
"""The last epoch of a log whose broker cannot tell epochs (before Kafka 2.7)."""
NOT_IN_TIME = "it has not answered in time"
"""Why a broker is silent that has not answered yet, neither with a log's end nor with an error."""
MAX_EPOCH = (1 << 31) - 1
MAX_QUESTIONS = 80
"""Each search ends after at most about 64 coherent answers."""


class Question(NamedTuple):
    """Which brokers to ask about their logs of one partition."""

    partition: TopicPartition
    leader_epoch: int
    """The partition's; the last epochs of its logs are near it."""
    brokers: tuple[int, ...]
    """Those to be asked."""
    awaited: tuple[int, ...] = ()
    """Those that may have been the last to hold something acknowledged, alive or not."""
    isr: tuple[int, ...] = ()
    epochs: tuple[int, ...] = ()
    """The broker epochs of those to be asked: once a broker has started again, its answer is void."""
    topic_id: bytes = NO_TOPIC_ID
    """The topic's: logs of an earlier topic of the same name say nothing."""


class LogEnd(NamedTuple):
    """Where one replica's log ends."""

    epoch: int
    """The leader epoch of its last record, NO_RECORDS or UNKNOWN_EPOCH."""
    end_offset: int
    """The offset that the next record would have."""
    start_offset: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether it has no records, or no longer has any."""
        return self.start_offset >= self.end_offset

    def __str__(self) -> str:
        if self.is_empty:
            return f"is empty at offset {self.end_offset:,}"
        return f"ends at {self.end_offset:,}" + (f" of epoch {self.epoch}" if self.epoch >= 0 else "")


class EpochEnd(NamedTuple):
    """An epoch of a log, and the offset where it ends."""

    epoch: int
    end_offset: int


class IncoherentAnswersError(Exception):
    """A broker's answers contradict each other: its log changes while it is asked, or it is not what it claims."""


Search = Generator[int, EpochEnd | None, int]
"""Yields epochs to ask the broker about; is sent the answer, None for an epoch above all that it knows."""


def last_epoch(end: LogEnd, expected: int) -> Search:
    """The epoch of the log's last record; NO_RECORDS if no record has one.  ``end.epoch`` is ignored.

    ``expected``: an epoch near which it may be.  O(log distance) questions.  Raises IncoherentAnswersError.
    """
    if end.is_empty:
        return NO_RECORDS
    low, high, named, step = -1, MAX_EPOCH, False, 1
    ask = min(max(expected, 0), MAX_EPOCH - 1)
    for _ in range(MAX_QUESTIONS):
        answer = yield ask
        if answer is None:
            high, named = ask, False
        elif answer.end_offset == end.end_offset and low < answer.epoch <= ask:
            step = step if named else 1
            high, named = answer.epoch, True
        elif answer.end_offset < end.end_offset and answer.epoch <= ask:
            low = ask
        else:
            raise IncoherentAnswersError(f"epoch {ask} ends at {answer}, and the log at {end.end_offset}")
        if high - low == 1:
            break
        if low == -1:
            ask = max(high - step, 0)
        elif high == MAX_EPOCH:
            ask = min(low + step, MAX_EPOCH - 1)
        else:
            ask = (low + high) // 2
        step *= 2
    if named:
        return high
    if high == 0:
        return NO_RECORDS
    raise IncoherentAnswersError(f"no epoch after {low} is known, but the log goes on to {end.end_offset}")


class Side(NamedTuple):
    """A question about one of two logs: the better one, or the other."""

    of_better: bool
    epoch: int


def divergence(better: LogEnd, other: LogEnd) -> Generator[Side, EpochEnd | None, int]:
    """The offset up to which ``other`` is the beginning of ``better``; the two differ from there on.

    It is found as a follower finds it (KIP-595): the two are asked in turn for the end of the highest epoch that both
    may have.  Both must have records with epochs.  Raises IncoherentAnswersError.
    """
    if other.epoch == better.epoch:
        return min(other.end_offset, better.end_offset)
    epoch, end_offset = other.epoch, other.end_offset
    for _ in range(MAX_QUESTIONS):
        answer = yield Side(True, epoch)
        if answer is None or answer.epoch > epoch:
            raise IncoherentAnswersError(f"epoch {epoch} is not known to a log that has later ones: {answer}")
        if answer.epoch == epoch:
            return min(answer.end_offset, end_offset)
        back = yield Side(False, answer.epoch)
        if back is None or back.epoch > answer.epoch:
            raise IncoherentAnswersError(f"epoch {answer.epoch} is not known to a log that has later ones: {back}")
        epoch, end_offset = back.epoch, min(end_offset, back.end_offset)
        if back.epoch == answer.epoch:
            return min(answer.end_offset, end_offset)
    raise IncoherentAnswersError("the last common epoch of two logs was not found")


class Evidence(NamedTuple):
    """What is known of one partition's logs."""

    ends: Mapping[int, LogEnd]
    """Broker -> where its log ends."""
    silent: Mapping[int, str] = {}
    """Broker -> why it has not answered."""
    diverging: Mapping[int, int] = {}
    """Broker -> offset where its log diverges from the best one, where that is known."""
    unheard: Collection[int] = ()
    """The silent brokers that have not answered anything at all: they have just started, or hang."""

    @property
    def epochs_known(self) -> bool:
        """Whether logs can be compared by their epochs; if not, only their lengths count."""
        return UNKNOWN_EPOCH not in [end.epoch for end in self.ends.values()]

    def best(self, candidates: Sequence[int], awaited: Collection[int] = ()) -> int | None:
        """The candidate with the best log, the first among equals; None if none of them has answered.

        A log that ends before the log of an awaited candidate begins does not count; nor does one that ends just there,
        unless it is awaited itself.  Of logs without epochs an awaited one with records is better than a longer one
        that is not awaited.
        """
        epochs_known = self.epochs_known
        answered = [(broker, self.ends[broker], broker in awaited) for broker in candidates if broker in self.ends]
        deleted = max([end.start_offset for _, end, is_awaited in answered if is_awaited], default=-1)
        best, highest = None, (UNKNOWN_EPOCH - 1, False, 0)
        for broker, end, is_awaited in answered:
            if end.end_offset >= deleted + (not is_awaited):
                epoch = end.epoch if epochs_known else UNKNOWN_EPOCH
                rank = (epoch, epoch < 0 and is_awaited and not end.is_empty, end.end_offset)
                if rank > highest:
                    best, highest = broker, rank
        return best

    def is_proven_better(self, best: int, other: int, awaited: Collection[int] = ()) -> bool:
        """Whether the best log surely has every committed record of the other; lengths alone prove nothing."""
        if best not in self.ends or other not in self.ends:
            return False
        better, than = self.ends[best], self.ends[other]
        later = self.epochs_known and better.epoch >= 0
        return later or than.is_empty or (best in awaited and than.end_offset < better.start_offset)


class Loss(NamedTuple):
    """The most that an election may lose."""

    records: int
    """The most records that the reported logs hold and the leader's log lacks."""
    unknown: tuple[int, ...]
    """Awaited brokers that have not answered: what they alone held is lost, too."""
    words: str
    """The same for people."""

    @property
    def is_bounded(self) -> bool:
        """Whether ``records`` is all that may be lost."""
        return not self.unknown


def loss(evidence: Evidence, leader: int, awaited: Collection[int]) -> Loss:
    """What is lost when this broker leads; ``awaited`` may have been the last to hold something acknowledged."""
    unknown = tuple(broker for broker in sorted(awaited) if broker != leader and broker not in evidence.ends)
    if leader not in evidence.ends:
        if leader not in unknown:
            unknown = tuple(sorted((*unknown, leader)))
        reason = f"broker {leader} has not reported where its log ends ({evidence.silent.get(leader, 'not asked')})"
        return Loss(0, unknown, f"{reason}: how many records are lost is unknown")
    best = evidence.best(list(evidence.ends))
    lost: dict[int, int] = {}
    clauses = [f"broker {leader} {evidence.ends[leader]}"]
    for broker, end in evidence.ends.items():
        if broker == leader:
            continue
        more = _only_in(evidence, broker, leader, best)
        lost[end.epoch] = max(lost.get(end.epoch, 0), more)
        clauses.append(
            f"broker {broker} {end}" + (f", up to {plural(more, 'record')} of which are lost" if more else "")
        )
    clauses += [f"broker {broker} has not answered ({evidence.silent.get(broker, 'not asked')})" for broker in unknown]
    total = sum(lost.values())
    if unknown:
        verdict = f"up to {plural(total, 'record')} lost, and what only {brokers_named(unknown)} held"
    else:
        verdict = f"up to {plural(total, 'record')} lost" if total else "nothing that these logs hold is lost"
    return Loss(total, unknown, f"{'; '.join(clauses)}: {verdict}")


def is_complete(evidence: Evidence, leader: int, awaited: Collection[int]) -> bool:
    """Whether this broker's log is proven to have everything: ``loss`` would find nothing lost, and nothing unknown."""
    best = evidence.best(list(evidence.ends))
    return {leader, *awaited} <= evidence.ends.keys() and not any(
        _only_in(evidence, broker, leader, best) for broker in evidence.ends if broker != leader
    )


def _only_in(evidence: Evidence, broker: int, leader: int, best: int | None) -> int:
    """How many records the broker's log may have that the leader's lacks; ``best``: the best of all logs."""
    end, leading = evidence.ends[broker], evidence.ends[leader]
    if end.epoch == leading.epoch and end.epoch >= 0:
        common = min(end.end_offset, leading.end_offset)
    else:
        common = min(_shared_with_best(evidence, broker, best), _shared_with_best(evidence, leader, best))
    return max(0, end.end_offset - max(common, end.start_offset))


def _shared_with_best(evidence: Evidence, broker: int, best: int | None) -> int:
    """The offset up to which, at least, the broker's log is the beginning of the best one.

    Two logs agree up to the smaller of their two offsets.
    """
    end = evidence.ends[broker]
    if broker == best or (best is not None and 0 <= end.epoch == evidence.ends[best].epoch):
        return end.end_offset
    return evidence.diverging.get(broker, end.start_offset)
