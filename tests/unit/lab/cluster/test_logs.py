"""The logs of simulated brokers, compared with a log that is a plain list of records."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiocontroller.lab.cluster.logs import (
    UNKNOWN_END,
    Disk,
    EpochEnd,
    Log,
    Run,
    are_the_same,
    between,
    deleted,
    shown,
    with_beginning,
)

Record = tuple[int, int]
"""(epoch, leader)"""


class Step(NamedTuple):
    kind: str
    epoch: int
    leader: int
    number: int


STEPS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["append", "begin", "truncate"]),
        st.integers(0, 2),
        st.integers(1, 3),
        st.integers(0, 4),
    ),
    max_size=12,
)
WITH_DELETIONS = st.lists(
    st.builds(
        Step,
        st.sampled_from(["append", "begin", "truncate", "delete"]),
        st.integers(0, 2),
        st.integers(1, 3),
        st.integers(0, 4),
    ),
    max_size=12,
)
GONE: Record = (-1, -1)


class Plain:
    """A list of records, and where each epoch began."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.began: list[tuple[int, int]] = []

    def take(self, log: Log, step: Step) -> None:
        epoch = max((e for e, _ in self.began), default=0) + step.epoch
        if step.kind == "delete":
            log.hw = max(log.end - step.epoch, 0)
            log.delete_before(log.end - step.number + step.leader)
            self.delete(min(log.hw, len(self.records) - step.number + step.leader))
            return
        if step.kind == "truncate":
            log.truncate(max(log.end - step.number, 0))
            del self.records[max(len(self.records) - step.number, 0) :]
            self.began = [(e, at) for e, at in self.began if at < len(self.records)]
            return
        if all(e < epoch for e, _ in self.began) and (step.kind == "begin" or step.number):
            self.began.append((epoch, len(self.records)))
        if step.kind == "begin":
            log.begin(epoch, step.leader)
        elif step.number:
            assert log.append(epoch, step.leader, step.number) == len(self.records)
            self.records += [(epoch, step.leader)] * step.number

    def delete(self, before: int) -> None:
        if before > self.records.count(GONE):
            self.records[:before] = [GONE] * before
            known = [epoch for epoch, at in self.began if at <= before][-1]
            self.began = [(known, before), *((epoch, at) for epoch, at in self.began if at > before)]

    def end_for(self, epoch: int) -> EpochEnd:
        if not self.began or epoch > self.began[-1][0]:
            return UNKNOWN_END
        later = [at for e, at in self.began if e > epoch]
        known = [e for e, _ in self.began if e <= epoch]
        return EpochEnd(known[-1] if known else epoch, later[0] if later else len(self.records))


def records(log: Log) -> list[Record]:
    found: list[Record] = []
    for run in log.runs:
        found += [run[:2]] * (run.end - len(found))
    return found


def played(steps: list[Step]) -> tuple[Log, Plain]:
    log, plain = Log(), Plain()
    for step in steps:
        plain.take(log, step)
    return log, plain


@given(WITH_DELETIONS)
def test_it_holds_what_a_list_would(steps: list[Step]) -> None:
    log, plain = played(steps)
    assert records(log) == plain.records
    assert (log.start, log.end) == (plain.records.count(GONE), len(plain.records))
    assert log.epoch == (plain.began[-1][0] if plain.began else -1)
    assert [log.end_for(epoch) for epoch in range(12)] == [plain.end_for(epoch) for epoch in range(12)]


@given(WITH_DELETIONS, WITH_DELETIONS)
def test_where_two_logs_diverge(ours: list[Step], theirs: list[Step]) -> None:
    one, other = played(ours)[0], played(theirs)[0]
    pairs = enumerate(zip(records(one), records(other), strict=False))
    both = ((offset, pair) for offset, pair in pairs if GONE not in pair)
    expected = next((offset for offset, (left, right) in both if left != right), None)
    assert one.diverges_at(other) == other.diverges_at(one) == expected
    same = expected is None and one.end == other.end
    assert are_the_same(one.runs, other.runs) == are_the_same(other.runs, one.runs) == same


@given(WITH_DELETIONS, WITH_DELETIONS)
def test_what_a_log_has_deleted_is_taken_from_an_earlier_one(later: list[Step], earlier: list[Step]) -> None:
    one, other = played(later)[0], played(earlier)[0]
    found = records(Log(with_beginning(one.runs, other.runs)))
    assert found[one.start :] == records(one)[one.start :]
    assert found[: one.start] == (records(other) if other.end >= one.start else records(one))[: one.start]


@given(STEPS, st.integers(0, 20), st.integers(0, 20))
def test_a_part_of_a_log(steps: list[Step], start: int, end: int) -> None:
    log, plain = played(steps)
    copy = Log(log.between(0, start))
    assert records(copy) == plain.records[:start]
    if copy.end == start:
        copy.copy_from(start, log.between(start, end))
        assert records(copy) == plain.records[: max(start, end)]
    assert all(run.end > start for run in between(log.runs, start, end))


TAILS = st.tuples(st.integers(0, 4), st.lists(st.integers(0, 3), max_size=3))
"""How much of the common part is missing, and the records of each later epoch."""


def continued(common: list[Step], tail: tuple[int, list[int]], first_epoch: int) -> Log:
    """A log whose later epochs are every second one from ``first_epoch`` on."""
    log = played(common)[0]
    log.truncate(max(log.end - tail[0], 0))
    for number, count in enumerate(tail[1]):
        log.begin(first_epoch + 2 * number, first_epoch)
        log.append(first_epoch + 2 * number, first_epoch, count)
    return log


@given(STEPS, TAILS, TAILS)
def test_a_follower_that_truncates_as_answered_agrees_with_its_leader(
    common: list[Step], ours: tuple[int, list[int]], theirs: tuple[int, list[int]]
) -> None:
    follower, leader = continued(common, ours, 100), continued(common, theirs, 101)
    agreed = follower.diverges_at(leader)
    agreed = min(follower.end, leader.end) if agreed is None else agreed
    leader.begin(200, 101)
    for _ in range(40):
        answer = leader.end_for(follower.epoch)
        if follower.epoch == -1 or (answer.epoch == follower.epoch and answer.end >= follower.end):
            break
        follower.truncate(follower.truncation(answer)[0])
    else:
        raise AssertionError("it never ends")
    assert follower.diverges_at(leader) is None
    assert follower.end == agreed or answer == UNKNOWN_END


def test_an_epoch_without_records_ends_where_the_next_begins() -> None:
    log = Log()
    log.begin(0, 1)
    log.append(0, 1, 5)
    log.begin(3, 2)
    assert log.end_for(3) == (3, 5)
    log.begin(4, 1)
    log.append(4, 1, 1)
    assert log.end_for(3) == (3, 5)
    assert log.end_for(2) == (0, 5)
    assert log.end_for(4) == (4, 6)
    assert log.end_for(5) == UNKNOWN_END


def test_an_unknown_epoch_truncates_to_the_high_watermark() -> None:
    log = Log([Run(7, 1, 9)])
    log.hw = 4
    assert log.truncation(UNKNOWN_END) == (4, True)


def test_wrong_appends_are_refused() -> None:
    log = Log([Run(3, 1, 2)])
    with pytest.raises(ValueError, match="found epoch 2, expected at least 3"):
        log.append(2, 1, 1)
    with pytest.raises(ValueError, match="found offset 5, expected 2"):
        log.copy_from(5, [Run(3, 1, 6)])


def test_what_a_kill_and_what_a_loss_of_power_leaves() -> None:
    disk = Disk()
    log = disk.create(("t", 0), b"T" * 16).log
    log.append(0, 1, 4)
    log.hw = 3
    disk.flush()
    log.append(0, 1, 4)
    log.hw = 7
    killed = disk.reopen()
    again = killed.logs["t", 0].log
    assert (again.end, again.hw, again.flushed) == (8, 3, 4)
    log.append(0, 1, 1)  # the dead process
    assert again.end == 8
    assert killed.power_cut() == {("t", 0): (4, 8)}
    assert killed.power_cut() == {}
    assert (again.end, again.hw) == (4, 3)
    killed.delete(("t", 0))
    assert killed.find(("t", 0)) is None


def test_retention_deletes_only_what_is_committed() -> None:
    disk = Disk()
    log = disk.create(("t", 0), bytes(16)).log
    log.append(3, 1, 10)
    disk.retain(2)
    assert log.runs == [Run(3, 1, 10)]
    log.hw = 9
    disk.retain(2)
    assert (log.runs, log.between(0, 9)) == ([deleted(8), Run(3, 1, 10)], [Run(3, 1, 9)])
    disk.retain(0)
    assert log.runs == [deleted(9), Run(3, 1, 10)]


def test_an_emptied_log_still_knows_its_last_epoch() -> None:
    log = Log()
    log.append(3, 1, 10)
    log.begin(5, 2)
    log.hw = 10
    log.delete_before(20)
    assert (log.start, log.end, log.epoch, log.end_for(5)) == (10, 10, 5, EpochEnd(5, 10))
    assert log.end_for(4) == EpochEnd(4, 10)


def test_a_loss_of_power_takes_nothing_back_that_retention_has_deleted() -> None:
    disk = Disk()
    log = disk.create(("t", 0), bytes(16)).log
    log.append(3, 1, 10)
    log.hw = 10
    disk.retain(2)
    assert disk.power_cut() == {("t", 0): (8, 10)}
    found = disk.reopen().logs["t", 0].log
    assert (found.runs, found.hw) == ([deleted(8)], 8)


def test_shown() -> None:
    assert shown([deleted(7)]) == "nothing, and begins at 7"
    assert shown([Run(0, 1, 2), Run(1, 2, 2), Run(2, 1, 3)]) == "0-1 of epoch 0 by broker 1, 2-2 of epoch 2 by broker 1"
    assert repr(Log()) == "<nothing, hw 0>"
