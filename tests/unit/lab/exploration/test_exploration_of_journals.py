"""Journals are paths of the specification; damaged ones are not."""

from __future__ import annotations

import msgspec
import pytest

from aiocontroller.core import sick_brokers
from aiocontroller.core.election import Strategy
from aiocontroller.journal.records import Record
from aiocontroller.lab.exploration.journals import first_stray
from aiocontroller.lab.scenarios.plan import draw
from aiocontroller.lab.simulation import simulation
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.zoo import injected
from aiocontroller.lab.simulation.zoo_bugs import BUGS

SEEDS = (6, 8, 9)


def _journals(monkeypatch: pytest.MonkeyPatch, seed: int) -> list[list[Record]]:
    """The journals of a seed's controllers."""
    seen: list[simulation.Simulation] = []
    report = simulation.Simulation._report

    def reporting(self: simulation.Simulation, taken: dict[str, int]) -> SimulationReport:
        seen.append(self)
        return report(self, taken)

    monkeypatch.setattr(simulation.Simulation, "_report", reporting)
    simulation.simulate_plan(draw(seed))
    return [journal.records for journal in seen[0].journals]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_journals_of_a_seed_are_a_path(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """The simulation compares them itself, as it knows what no journal tells."""
    journals = _journals(monkeypatch, seed)
    assert any(record.leader is not None for records in journals for record in records), "nothing to compare"
    assert simulation.simulate(seed).violations == []


def test_the_journals_of_a_planted_bug_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    bug = next(bug for bug in BUGS if bug.name == "an election does not raise the leader epoch")
    found = []
    for seed in SEEDS:
        with injected(bug), monkeypatch.context() as patch:
            found.append(first_stray(_journals(patch, seed)))
    assert any(found)


def _record(seq: int, leader: int, leader_epoch: int, isr: list[int], version: int, kind: str = "partition") -> Record:
    return Record(
        1, seq, 1, 1, 0, kind, topic="t", partition=0, leader=leader, leader_epoch=leader_epoch, isr=isr,
        replicas=[1, 2, 3], controller_epoch=1, partition_epoch=version,
    )  # fmt: skip


FIRST = _record(1, 1, 0, [1, 2, 3], 0)


@pytest.mark.parametrize(
    "after",
    [
        _record(2, 2, 1, [2, 3], 1),
        _record(2, 1, 1, [1, 3], 1),
        _record(2, 1, 0, [1, 3], 1, "isr"),
        _record(2, 3, 1, [1, 2, 3], 1),
        _record(2, -1, 1, [1, 2, 3], 1),
        _record(2, 2, 2, [2], 2),
        msgspec.structs.replace(FIRST, seq=2),
    ],
)
def test_steps_are_accepted(after: Record) -> None:
    assert first_stray([[FIRST, after]]) is None


@pytest.mark.parametrize(
    "after",
    [
        _record(2, 2, 0, [2, 3], 1),
        _record(2, 1, 2, [1, 3], 1),
        _record(2, 4, 1, [4], 1),
        _record(2, 2, 1, [1, 3], 1),
        _record(2, 2, 1, [], 1),
        _record(2, 2, 1, [2, 3, 4], 1),
        _record(2, 2, 0, [1, 2, 3], 0),
        _record(2, 1, 0, [2, 3], 1, "isr"),
    ],
)
def test_what_is_no_step_is_named(after: Record) -> None:
    stray = first_stray([[FIRST, after]])
    assert stray is not None
    assert stray.record is after
    assert stray.before is FIRST


def test_two_controllers_of_one_epoch_are_named() -> None:
    elected = [Record(1, 1, 3, node, 0, "elected", controller_epoch=3) for node in (1, 2)]
    assert first_stray([[elected[0]], [elected[0]]]) is None
    assert first_stray([[elected[0]], [elected[1]]]) is not None


def test_a_topic_that_was_deleted_begins_anew() -> None:
    deleted = msgspec.structs.replace(FIRST, seq=2, kind="topic_deleted", partition=None, leader_epoch=None)
    other = _record(3, 2, 0, [2], 0)
    assert first_stray([[FIRST, deleted, other]]) is None
    stray = first_stray([[FIRST, other]])
    assert stray is not None
    assert str(stray).startswith(
        "t-0: leader 2, leader epoch 0, ISR [2], version 0 (partition by controller 1: None) after"
    )
    assert first_stray([[FIRST, other]], {"t"}) is None


def test_an_unrecorded_step_may_concern_another_broker() -> None:
    assert first_stray([[_record(1, 1, 0, [1], 0), _record(2, 1, 0, [1], 2)]]) is None


def test_an_unrecorded_step_may_be_an_election_from_outside_the_isr() -> None:
    """By logs, an eligible replica, or uncleanly: the journal of the controller that died would have told which."""
    offline = _record(1, -1, 3, [1], 3)
    assert first_stray([[offline, _record(2, 2, 4, [2, 3], 5, "isr")]]) is None
    assert first_stray([[offline, _record(2, 2, 4, [2], 4)]]) is not None, "a recorded one says so"


LOADED = Record(1, 1, 1, 1, 0, "loaded", brokers=[1, 2, 3])
DEAD = Record(1, 3, 1, 1, 0, "broker", broker=2, detail="dead")
HANDLED = Record(1, 4, 1, 1, 0, "event", event="BrokerChange")


def _term(*records: Record) -> list[Record]:
    """Records of one term, numbered without a gap."""
    return [msgspec.structs.replace(record, seq=seq) for seq, record in enumerate(records, 1)]


def test_a_broker_that_the_controller_knew_to_be_dead_takes_no_part() -> None:
    elected = _record(0, 2, 1, [2, 3], 1)
    initialized = msgspec.structs.replace(_record(0, 2, 0, [2, 3], 0), topic="u", detail="initialized")
    for after in (elected, initialized):
        assert first_stray([_term(LOADED, FIRST, HANDLED, after)]) is None
        stray = first_stray([_term(LOADED, FIRST, DEAD, HANDLED, after)])
        assert stray is not None
        assert "dead" in stray.why
        assert first_stray([_term(LOADED, FIRST, DEAD, after)]) is None, "the event that tells it is not over"
        back = msgspec.structs.replace(DEAD, detail="added")
        assert first_stray([_term(LOADED, FIRST, DEAD, HANDLED, back, after)]) is None
        assert first_stray([_term(FIRST, DEAD, HANDLED, after)]) is None, "it is not known who lived"


def test_what_others_wrote_may_need_a_broker_that_this_controller_knew_to_be_dead() -> None:
    read = msgspec.structs.replace(_record(0, 2, 1, [2, 3], 1), controller_epoch=0)
    by_its_leader, asked_for = _record(0, 1, 0, [1, 2], 1), _record(0, 1, 0, [1, 2], 1, "isr")
    for after in (read, by_its_leader, asked_for):
        assert first_stray([_term(LOADED, FIRST, DEAD, HANDLED, after)]) is None


def test_what_an_earlier_controller_wrote_before_it_ended_may_have_been_an_unclean_election() -> None:
    before = _record(0, -1, 1, [1], 1)
    read = msgspec.structs.replace(_record(1, 2, 2, [2], 2), controller_epoch=1, epoch=2)
    assert first_stray([[before, read]]) is None
    assert first_stray([[before, msgspec.structs.replace(read, epoch=1)]]) is not None


def test_only_what_the_journal_calls_unclean_or_eligible_may_come_from_outside_the_isr() -> None:
    """Such as an election of a better log, which then is alone in the ISR."""
    before, after = _record(0, -1, 1, [1], 1), _record(1, 2, 2, [2], 2)
    for words, allowed in ((", unclean", True), (", eligible", True), (", complete", True), ("", False)):
        recorded = msgspec.structs.replace(after, detail=f"OfflinePartitionLeaderElectionStrategy{words}")
        assert (first_stray([[before, recorded]]) is None) == allowed
        with_another = msgspec.structs.replace(recorded, isr=[1, 2])
        assert first_stray([[before, with_another]]) is not None


def test_of_a_term_with_missing_records_it_is_not_known_who_lived() -> None:
    elected = _record(0, 2, 1, [2, 3], 1)
    term = _term(LOADED, FIRST, DEAD, HANDLED, HANDLED, elected)
    assert first_stray([term]) is not None
    assert first_stray([[*term[:4], term[5]]]) is None


def test_a_dead_member_may_be_there_when_another_is_removed() -> None:
    """As where a reassignment drops a replica: only the leader removes those that lag (seed 1795626243229)."""
    assert first_stray([_term(LOADED, FIRST, DEAD, HANDLED, _record(0, 1, 1, [1, 2], 1))]) is None


@pytest.mark.parametrize("reason", [Strategy.CONTROLLED_SHUTDOWN.value, sick_brokers.REASON])
def test_a_dead_member_stays_where_only_the_broker_concerned_leaves_the_isr(reason: str) -> None:
    """A leader of an old protocol had just added the dead one, perhaps in a write that no journal records."""
    before, added = _record(0, 1, 1, [1, 3], 1), _record(0, 1, 1, [1, 2, 3], 2, "isr")
    moved = msgspec.structs.replace(_record(0, 3, 2, [2, 3], 3), detail=reason)
    for known in ((before,), (before, added)):
        assert first_stray([_term(LOADED, *known, DEAD, HANDLED, moved)]) is None
        for change in ({"detail": Strategy.OFFLINE.value}, {"leader": 2}, {"isr": [2]}, {"leader_epoch": 1}):
            wrong = msgspec.structs.replace(moved, **change)
            assert first_stray([_term(LOADED, *known, DEAD, HANDLED, wrong)]) is not None, change
    at_once = msgspec.structs.replace(moved, partition_epoch=2)
    assert first_stray([_term(LOADED, before, DEAD, HANDLED, at_once)]) is not None, "nobody had added it"


def test_of_an_isr_that_dies_at_once_any_member_may_stay_without_leading() -> None:
    leaderless = _record(0, -1, 1, [2], 1)
    assert first_stray([_term(LOADED, FIRST, DEAD, HANDLED, leaderless)]) is None
    not_in_sync = _record(0, -1, 1, [4], 1)
    assert first_stray([_term(LOADED, FIRST, DEAD, HANDLED, not_in_sync)]) is not None


def test_the_last_member_of_an_isr_stays_though_it_is_dead() -> None:
    alone = _record(0, 2, 0, [2], 0)
    assert first_stray([_term(LOADED, alone, DEAD, HANDLED, _record(0, -1, 1, [2], 1))]) is None
