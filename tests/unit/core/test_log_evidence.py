"""Which log is the best and what an election loses, against logs that are lists of records."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiocontroller.core.log_evidence import (
    MAX_EPOCH,
    NO_RECORDS,
    UNKNOWN_EPOCH,
    EpochEnd,
    Evidence,
    IncoherentAnswersError,
    LogEnd,
    divergence,
    is_complete,
    last_epoch,
    loss,
)


class Log(NamedTuple):
    """A replica's log: the epoch of each record, and the broker's epochs, of which some have no records."""

    records: tuple[int, ...]
    phantoms: frozenset[int] = frozenset()
    """Epochs above the last record's that this replica led without writing."""
    start: int = 0

    @property
    def end(self) -> LogEnd:
        epoch = self.records[-1] if len(self.records) > self.start else NO_RECORDS
        return LogEnd(epoch, len(self.records), self.start)

    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), as a broker's cache of leader epochs has them."""
        found: list[tuple[int, int]] = []
        for offset, epoch in enumerate(self.records):
            if not found or found[-1][0] != epoch:
                found.append((epoch, offset))
        gone = [entry for entry in found if entry[1] <= self.start]
        kept = [entry for entry in found if entry[1] > self.start]
        if gone:
            kept.insert(0, (gone[-1][0], max(self.start, gone[-1][1])))
        for epoch in sorted(self.phantoms):
            kept = [entry for entry in kept if entry[1] < len(self.records)] + [(epoch, len(self.records))]
        return kept

    def answer(self, epoch: int) -> EpochEnd | None:
        """Kafka's ``LeaderEpochFileCache.endOffsetFor``; None for its undefined epoch."""
        entries = self.entries()
        if not entries or epoch > entries[-1][0]:
            return None
        if epoch == entries[-1][0]:
            return EpochEnd(epoch, len(self.records))
        higher = next(start for known, start in entries if known > epoch)
        floor = [known for known, _ in entries if known <= epoch]
        return EpochEnd(floor[-1] if floor else epoch, higher)


def ask(search: Generator[int, EpochEnd | None, int], log: Log) -> tuple[int, int]:
    """(result, number of questions)."""
    answer: EpochEnd | None = None
    asked = 0
    try:
        question = next(search)
        while True:
            asked += 1
            answer = log.answer(question)
            question = search.send(answer)
    except StopIteration as end:
        return end.value, asked


def result_of(search: Generator[int, EpochEnd | None, int], answers: Sequence[EpochEnd | None]) -> int | None:
    """The result after these answers; None if the search goes on."""
    try:
        next(search)
        for answer in answers:
            search.send(answer)
    except StopIteration as end:
        found: int = end.value
        return found
    return None


near = st.integers(0, 12)


@st.composite
def logs(draw: st.DrawFn, epochs: st.SearchStrategy[int] = near) -> Log:
    records = tuple(sorted(draw(st.lists(epochs, max_size=12))))
    last = records[-1] if records else -1
    phantoms = frozenset(last + 1 + n for n in draw(st.lists(st.integers(0, 5), max_size=2)))
    return Log(records, phantoms, draw(st.integers(0, len(records))) if draw(st.booleans()) else 0)


@settings(max_examples=400, deadline=None)
@given(log=logs(), expected=st.integers(-1, 20))
def test_the_last_epoch_with_records_is_found(log: Log, expected: int) -> None:
    assert ask(last_epoch(log.end, expected), log)[0] == log.end.epoch


@settings(max_examples=100, deadline=None)
@given(log=logs(st.sampled_from([0, 1, 2, 1000, 70_000, MAX_EPOCH - 1])), expected=st.integers(-1, MAX_EPOCH))
def test_distant_epochs_are_found_in_few_questions(log: Log, expected: int) -> None:
    found, questions = ask(last_epoch(log.end, expected), log)
    assert found == log.end.epoch
    assert questions <= 64


def test_the_usual_search_takes_three_questions() -> None:
    """The state's leader epoch is one above the last leader's, since it says that nobody leads."""
    assert ask(last_epoch(LogEnd(0, 3), 8), Log((5, 7, 7))) == (7, 3)


def test_a_log_without_epochs_is_told_from_one_of_epoch_zero() -> None:
    """Message formats before Kafka 0.11 have no epochs: the broker knows none."""
    assert result_of(last_epoch(LogEnd(0, 10), 2), [None] * 3) == NO_RECORDS


@pytest.mark.parametrize(
    "answers, words",
    [
        ([EpochEnd(5, 11)], "epoch 5 ends at .*11.* and the log at 10"),  # it has grown since
        ([EpochEnd(6, 10)], "epoch 5 ends at"),  # not asked about
        ([EpochEnd(-1, 10)], "epoch 5 ends at"),
        ([EpochEnd(6, 3)], "epoch 5 ends at"),
        ([EpochEnd(5, 4), None], "no epoch after 5 is known"),  # then epoch 6 must be known
    ],
)
def test_incoherent_answers_are_errors(answers: list[EpochEnd | None], words: str) -> None:
    with pytest.raises(IncoherentAnswersError, match=words):
        result_of(last_epoch(LogEnd(0, 10), 5), answers)


@settings(max_examples=200, deadline=None)
@given(data=st.data(), expected=st.integers(0, MAX_EPOCH))
def test_any_answers_end_the_search(data: st.DataObject, expected: int) -> None:
    """A hostile broker can neither keep us asking nor have us ask for an epoch that is none."""
    search = last_epoch(LogEnd(0, 10), expected)
    offsets = st.one_of(st.integers(-5, 15), st.integers(-(2**63), 2**63 - 1))
    answers = st.one_of(st.none(), st.builds(EpochEnd, st.one_of(st.integers(-5, 40), st.just(expected)), offsets))
    try:
        asked = next(search)
        for _ in range(100):
            assert 0 <= asked <= MAX_EPOCH
            asked = search.send(data.draw(answers))
    except (StopIteration, IncoherentAnswersError):
        return
    raise AssertionError("it goes on asking")


# -- divergence --------------------------------------------------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Log]:
    """Logs that one partition may have: leaders of rising epochs write, replicas copy, some lose their ends."""
    replicas: list[list[int]] = [[] for _ in range(draw(st.integers(2, 4)))]
    for epoch in range(draw(st.integers(1, 6))):
        leader = draw(st.integers(0, len(replicas) - 1))
        replicas[leader] += [epoch] * draw(st.integers(0, 4))
        for number, records in enumerate(replicas):
            if number == leader or draw(st.booleans()):
                continue
            common = common_prefix(records, replicas[leader])
            upto = draw(st.integers(common, len(replicas[leader])))
            replicas[number] = replicas[leader][:upto]
        if draw(st.integers(0, 4)) == 0:
            lost = draw(st.integers(0, len(replicas) - 1))
            del replicas[lost][draw(st.integers(0, len(replicas[lost]))) :]
    return [Log(tuple(records)) for records in replicas]


def common_prefix(one: Any, two: Any) -> int:
    same = 0
    for a, b in zip(one, two, strict=False):
        if a != b:
            break
        same += 1
    return same


def diverge(better: Log, other: Log) -> int:
    search = divergence(better.end, other.end)
    try:
        question = next(search)
        while True:
            log = better if question.of_better else other
            question = search.send(log.answer(question.epoch))
    except StopIteration as end:
        found: int = end.value
    return found


def gathered(found: list[Log]) -> Evidence:
    evidence = Evidence({number: log.end for number, log in enumerate(found)})
    best = evidence.best(list(evidence.ends))
    assert best is not None
    diverging = {
        number: diverge(found[best], log)
        for number, log in enumerate(found)
        if log.records and found[best].records and number != best
    }
    return evidence._replace(diverging=diverging)


@settings(max_examples=400, deadline=None)
@given(histories())
def test_the_loss_is_what_the_records_say(found: list[Log]) -> None:
    evidence = gathered(found)
    best = evidence.best(list(evidence.ends))
    assert best is not None
    for number, offset in evidence.diverging.items():
        assert offset == common_prefix(found[best].records, found[number].records)
    for leader in evidence.ends:
        missing = {(offset, epoch) for log in found for offset, epoch in enumerate(log.records)} - set(
            enumerate(found[leader].records)
        )
        bound = loss(evidence, leader, ())
        assert bound.is_bounded
        assert len(missing) <= bound.records <= sum(len(log.records) for log in found)
        if leader == best:
            assert (bound.records == 0) == (not missing)
        awaited = [number for number in range(len(found) + 1) if number % 2 == leader % 2]
        lost = loss(evidence, leader, awaited)
        assert is_complete(evidence, leader, awaited) == (lost.records == 0 and lost.is_bounded)


@settings(max_examples=200, deadline=None)
@given(histories())
def test_the_best_log_lacks_nothing_of_its_epoch(found: list[Log]) -> None:
    evidence = gathered(found)
    best = evidence.best(list(evidence.ends))
    assert best is not None
    for log in found:
        assert found[best].end[:2] >= log.end[:2]
        if log.end.epoch == found[best].end.epoch:
            assert found[best].records[: len(log.records)] == log.records


@pytest.mark.parametrize("answer", [None, EpochEnd(4, 9)])
def test_incoherent_answers_about_divergence_are_errors(answer: EpochEnd | None) -> None:
    search = divergence(LogEnd(5, 10), LogEnd(3, 8))
    assert next(search) == (True, 3)
    with pytest.raises(IncoherentAnswersError, match="epoch 3 is not known"):
        search.send(answer)


# -- ranking -----------------------------------------------------------------------------------------------------------


def test_a_longer_log_of_an_older_epoch_is_worse() -> None:
    evidence = Evidence({1: LogEnd(3, 900), 2: LogEnd(4, 500), 3: LogEnd(4, 499)})
    assert evidence.best([1, 2, 3]) == 2
    assert evidence.best([1, 3]) == 3
    assert evidence.best([4]) is None


def test_among_equals_the_order_of_the_candidates_decides() -> None:
    evidence = Evidence({1: LogEnd(4, 500), 2: LogEnd(4, 500)})
    assert evidence.best([2, 1]) == 2
    assert evidence.best([1, 2]) == 1


def test_an_empty_log_is_the_worst() -> None:
    """Also one whose records have all been deleted at a high offset: the others' records are on a disk."""
    assert Evidence({1: LogEnd(NO_RECORDS, 900, 900), 2: LogEnd(0, 1)}).best([1, 2]) == 2


@pytest.mark.parametrize("end, best", [(100, 1), (900, 1), (901, 2)])
def test_what_an_awaited_replica_has_deleted_is_no_reason_for_an_older_log(end: int, best: int) -> None:
    """Only what is committed is deleted; with the older log as leader, committed offsets would be written again."""
    evidence = Evidence({1: LogEnd(NO_RECORDS, 900, 900), 2: LogEnd(0, end)})
    assert evidence.best([2, 1], awaited=(1, 3)) == best
    assert evidence.best([2], awaited=(1, 3)) == 2
    lost = loss(evidence, best, ())
    assert (lost.records, lost.is_bounded) == (0, True)


@pytest.mark.parametrize("end, best", [(899, 2), (900, 1), (950, 1)])
def test_an_awaited_log_that_ends_before_what_another_has_deleted_is_no_better_than_others(end: int, best: int) -> None:
    """Both were awaited, and broker 1 has lost its end with the power: committed offsets would be written again."""
    evidence = Evidence({1: LogEnd(4, end), 2: LogEnd(NO_RECORDS, 900, 900), 3: LogEnd(4, 890)})
    assert evidence.best([1, 2, 3], awaited=(1, 2)) == best
    assert evidence.best([1, 3], awaited=(1, 2)) == 1


ends = st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 9)).map(
    lambda drawn: LogEnd(drawn[0] if drawn[1] != drawn[2] else NO_RECORDS, max(drawn[1:]), min(drawn[1:]))
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.integers(1, 4), ends, min_size=1), st.sets(st.integers(1, 4)))
def test_no_log_leads_that_lacks_what_an_awaited_one_has_deleted(found: dict[int, LogEnd], awaited: set[int]) -> None:
    best = Evidence(found).best(sorted(found), awaited)
    assert best is not None
    assert all(found[best].end_offset >= end.start_offset for broker, end in found.items() if broker in awaited)


def test_lengths_decide_if_one_broker_cannot_tell_epochs() -> None:
    evidence = Evidence({1: LogEnd(5, 10), 2: LogEnd(UNKNOWN_EPOCH, 11), 3: LogEnd(6, 9)})
    assert evidence.best([1, 2, 3]) == 2
    assert evidence.best([1, 3]) == 1


@pytest.mark.parametrize("epoch", [UNKNOWN_EPOCH, NO_RECORDS])
@pytest.mark.parametrize("start, best", [(0, 1), (10, 2)])
def test_a_log_without_epochs_that_is_only_longer_is_no_better_than_an_awaited_one(
    epoch: int, start: int, best: int
) -> None:
    """Its end may be what a deposed leader wrote alone; but a log without records has nothing that could be lost."""
    evidence = Evidence({1: LogEnd(epoch, 10, start), 2: LogEnd(epoch, 11), 3: LogEnd(epoch, 9)})
    assert evidence.best([1, 2, 3], awaited=(1, 3)) == best
    assert evidence.best([2, 3], awaited=(1, 3)) == 3
    assert evidence.best([3, 1], awaited=(1, 3)) == 1


@pytest.mark.parametrize(
    "better, other, awaited, proven",
    [
        (LogEnd(5, 10), LogEnd(5, 9), (), True),
        (LogEnd(0, 10), LogEnd(NO_RECORDS, 90), (), True),
        (LogEnd(NO_RECORDS, 11), LogEnd(NO_RECORDS, 10), (1, 2), False),
        (LogEnd(UNKNOWN_EPOCH, 11), LogEnd(UNKNOWN_EPOCH, 10), (1, 2), False),
        (LogEnd(6, 11), LogEnd(UNKNOWN_EPOCH, 10), (1, 2), False),
        (LogEnd(NO_RECORDS, 11), LogEnd(NO_RECORDS, 10, 10), (), True),
        (LogEnd(NO_RECORDS, 20, 11), LogEnd(NO_RECORDS, 10), (1,), True),
        (LogEnd(NO_RECORDS, 20, 10), LogEnd(NO_RECORDS, 10), (1,), False),
        (LogEnd(NO_RECORDS, 20, 11), LogEnd(NO_RECORDS, 10), (2,), False),
    ],
)
def test_length_alone_proves_nothing(better: LogEnd, other: LogEnd, awaited: tuple[int, ...], proven: bool) -> None:
    """A longer log without epochs may be another one; but nothing is lost of an empty log, or of what was deleted."""
    assert Evidence({1: better, 2: other}).is_proven_better(1, 2, awaited) == proven


def test_a_log_that_is_not_known_proves_nothing() -> None:
    evidence = Evidence({1: LogEnd(5, 10)})
    assert not evidence.is_proven_better(1, 2)
    assert not evidence.is_proven_better(2, 1)


# -- words -------------------------------------------------------------------------------------------------------------


def test_nothing_is_lost_if_all_that_matter_have_answered() -> None:
    found = loss(Evidence({2: LogEnd(17, 1_204_311), 1: LogEnd(17, 1_204_390)}), 1, (1, 2))
    assert (found.records, found.unknown) == (0, ())
    assert found.words == (
        "broker 1 ends at 1,204,390 of epoch 17; broker 2 ends at 1,204,311 of epoch 17: "
        "nothing that these logs hold is lost"
    )


def test_a_worse_log_that_is_chosen_by_hand_costs_the_difference() -> None:
    found = loss(Evidence({2: LogEnd(17, 1_204_311), 1: LogEnd(17, 1_204_390)}), 2, (1, 2))
    assert (found.records, found.is_bounded) == (79, True)
    assert found.words == (
        "broker 2 ends at 1,204,311 of epoch 17; broker 1 ends at 1,204,390 of epoch 17, "
        "up to 79 records of which are lost: up to 79 records lost"
    )


def test_what_an_awaited_broker_held_is_unknown() -> None:
    evidence = Evidence({1: LogEnd(0, 100), 2: LogEnd(1, 500)}, {3: "it is not registered"}, {1: 100})
    found = loss(evidence, 2, (3,))
    assert (found.records, found.unknown, found.is_bounded) == (0, (3,), False)
    assert found.words == (
        "broker 2 ends at 500 of epoch 1; broker 1 ends at 100 of epoch 0; "
        "broker 3 has not answered (it is not registered): up to 0 records lost, and what only broker 3 held"
    )


def test_a_beginning_of_the_best_log_costs_the_rest_of_it() -> None:
    """Three brokers died one after the other, and the first one is to lead."""
    found = loss(Evidence({1: LogEnd(0, 100), 2: LogEnd(2, 250)}, diverging={1: 100}), 1, ())
    assert found.records == 150


def test_a_leader_that_has_not_told_bounds_nothing() -> None:
    found = loss(Evidence({}, {1: "it is silent"}), 1, (2, 3))
    assert found.unknown == (1, 2, 3)
    assert (
        found.words
        == "broker 1 has not reported where its log ends (it is silent): how many records are lost is unknown"
    )


def test_records_of_an_unrelated_epoch_may_all_be_lost() -> None:
    """Where logs diverge was not found out: the bound holds nevertheless."""
    found = loss(Evidence({1: LogEnd(1, 500, 20), 2: LogEnd(2, 100)}), 2, ())
    assert found.records == 480
    assert "broker 1 ends at 500 of epoch 1, up to 480 records of which are lost" in found.words


def test_an_empty_log_says_so() -> None:
    assert "broker 2 is empty at offset 7" in loss(Evidence({1: LogEnd(1, 5), 2: LogEnd(-1, 7, 7)}), 1, ()).words
