"""Topics' assignments in their znodes: merged with what others have written, and what is said of those that fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest

from aiocontroller.controller.assignment_writes import write_assignments
from aiocontroller.controller.leadership_writes import TOPIC_REPLACED
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import ControllersKnown
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.core.reassignment import debts_of
from aiocontroller.zookeeper.codec import MAX_DATA_BYTES
from aiocontroller.zookeeper.errors import TOO_LARGE, Code
from aiocontroller.zookeeper.kafka_zk_client import TopicAssignments
from aiocontroller.zookeeper.writes import Writes
from aiocontroller.zookeeper.znodes import BadZNode
from tests.unit.controller.pure_cluster import PureCluster, cluster, run

MOVED = ReplicaAssignment((3, 1, 2), (3,), (2,))


@pytest.fixture
def it() -> PureCluster:
    return cluster(1, 2, 3, t=[[1, 2], [2, 1]], u=[[1, 2]])


def row(it: PureCluster, topic: str, number: int = 0) -> int:
    return it.shell.context.table.row(topic, number)


def answering(it: PureCluster, monkeypatch: pytest.MonkeyPatch, code_of: Callable[[str], int]) -> list[str]:
    """ZooKeeper answers plain writes with these codes, of which OK is carried out; the topics that were written."""
    asked: list[str] = []
    write = it.znodes.set_topic_assignments

    async def answer(assignments: Sequence[TopicAssignment], *, fence: int) -> Writes:
        writes = Writes(len(assignments))
        for i, assignment in enumerate(assignments):
            asked.append(assignment.topic)
            writes.code[i] = code_of(assignment.topic)
            if writes.code[i] == Code.OK:
                await write([assignment], fence=fence)
        return writes

    monkeypatch.setattr(it.znodes, "set_topic_assignments", answer)
    return asked


def foreign_write(it: PureCluster, topic: str) -> None:
    """Another process adds a partition."""
    found = it.znodes.topics[topic]
    partitions = found.partitions | {len(found.partitions): ReplicaAssignment((1,))}
    it.znodes.topics[topic] = msgspec.structs.replace(found, partitions=partitions, version=found.version + 1)


def test_partitions_that_others_have_added_stay(it: PureCluster) -> None:
    foreign_write(it, "t")
    assert run(write_assignments(it.shell, {row(it, "t", 1): MOVED}, {})) == {}
    assert it.znodes.topics["t"].partitions == {
        0: ReplicaAssignment((1, 2)),
        1: MOVED,
        2: ReplicaAssignment((1,)),
    }
    assert it.znodes.topics["u"].version == 0


def test_a_topic_that_has_gone_fails_alone(it: PureCluster) -> None:
    rows = row(it, "t"), row(it, "u")
    del it.znodes.topics["t"]
    failed = run(write_assignments(it.shell, dict.fromkeys(rows, MOVED), {}))
    assert failed == {rows[0]: "its topic znode is gone or cannot be read"}
    assert it.znodes.topics["u"].partitions == {0: MOVED}


NO_STATES: dict[TopicPartition, LeaderAndIsr] = {}


@pytest.mark.parametrize(
    "topic_id, states_stay, written",
    [(b"o" * 16, True, False), (b"o" * 16, False, False), (NO_TOPIC_ID, False, False), (NO_TOPIC_ID, True, True)],
)
def test_a_topic_that_was_made_anew_keeps_its_own_assignment(
    it: PureCluster, topic_id: bytes, states_stay: bool, written: bool
) -> None:
    """A foreign client has made it, and the controller has not looked since (seed 1795864319314).  An old tool that
    drops the id makes no other topic."""
    anew = msgspec.structs.replace(it.znodes.topics["t"], topic_id=topic_id)
    it.znodes.topics["t"] = anew
    it.znodes.states = it.znodes.states if states_stay else dict(NO_STATES)
    moved = {row(it, "t"): MOVED, row(it, "u"): MOVED}
    failed = run(write_assignments(it.shell, moved, {row(it, "t"): [2]}))
    assert failed == ({} if written else {row(it, "t"): TOPIC_REPLACED})
    assert (it.znodes.topics["t"] != anew) is bool(it.znodes.debts.held) is written
    assert it.znodes.topics["u"].partitions == {0: MOVED}
    assert it.shell.auditor._is_urgent == (set() if written else {"t"})


def test_a_damaged_znode_is_reported(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def read(topics: Sequence[str], *, watch: bool) -> TopicAssignments:
        assert not watch, "it has a watch already"
        found = TopicAssignments()
        found.bad = [BadZNode("/brokers/topics/t", "{", "JSON")]
        return found

    monkeypatch.setattr(it.znodes, "get_topic_assignments", read)
    assert row(it, "t") in run(write_assignments(it.shell, {row(it, "t"): MOVED}, {}))
    assert list(it.shell.bad_paths()) == ["/brokers/topics/t"]


@pytest.mark.parametrize("losses, written", [(15, True), (16, False)])
def test_a_topic_that_others_write_all_the_time_is_tried_sixteen_times(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch, losses: int, written: bool
) -> None:
    def code_of(topic: str) -> int:
        nonlocal losses
        losses -= 1
        return Code.OK if losses < 0 else Code.BAD_VERSION

    asked = answering(it, monkeypatch, code_of)
    failed = run(write_assignments(it.shell, {row(it, "t"): MOVED}, {}))
    assert len(asked) == 16
    assert failed == ({} if written else {row(it, "t"): "its topic znode changed 16 times meanwhile"})


def test_what_zookeeper_refuses_is_not_tried_again_and_is_named(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = answering(it, monkeypatch, {"t": TOO_LARGE, "u": int(Code.NO_AUTH)}.__getitem__)
    rows = row(it, "t", 0), row(it, "t", 1), row(it, "u")
    failed = run(write_assignments(it.shell, dict.fromkeys(rows, MOVED), {}))
    assert asked == ["t", "u"]
    assert failed[rows[0]] == failed[rows[1]]
    assert "znode of topic 't' would have" in failed[rows[0]]
    assert "with 2 more reassignments" in failed[rows[0]]
    assert "/brokers/topics/u" in failed[rows[2]]
    assert "NO_AUTH" in failed[rows[2]]
    assert "written with" not in failed[rows[2]]


# -- with debts --------------------------------------------------------------------------------------------------------


def test_removed_replicas_are_owed_in_the_same_write(it: PureCluster) -> None:
    topic_id = it.znodes.topics["t"].topic_id
    assert run(write_assignments(it.shell, {row(it, "t"): MOVED, row(it, "u"): MOVED}, {row(it, "t"): [2]})) == {}
    assert it.znodes.topics["t"].partitions[0] == it.znodes.topics["u"].partitions[0] == MOVED
    assert it.znodes.debts.held == {(2, "t"): ({0: topic_id}, 0)}
    assert [(debt.broker, debt.topic, debt.partition) for debt in it.shell.context.debts] == [(2, "t", 0)]


def test_replicas_that_are_wanted_again_are_no_longer_owed(it: PureCluster) -> None:
    run(write_assignments(it.shell, {row(it, "t"): MOVED}, {row(it, "t"): [2]}))
    assert it.znodes.debts.held
    run(write_assignments(it.shell, {row(it, "t"): ReplicaAssignment((3, 2))}, {}))
    assert (it.znodes.debts.held, len(it.shell.context.debts)) == ({}, 0)


def test_debts_that_another_has_written_are_read_again_and_written_with_the_topic(it: PureCluster) -> None:
    """An operator gives debts up by deleting their znodes."""
    run(write_assignments(it.shell, {row(it, "t"): MOVED}, {row(it, "t"): [2]}))
    it.znodes.debts.held.clear()
    other = ReplicaAssignment((1, 3, 2), (3,), (2,))
    assert run(write_assignments(it.shell, {row(it, "t", 1): other}, {row(it, "t", 1): [2]})) == {}
    assert it.znodes.topics["t"].partitions[1] == other
    assert it.znodes.debts.held[2, "t"][0].keys() == {1}


def test_neither_is_written_where_a_parent_of_the_debt_is_refused(
    it: PureCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(epoch: int, brokers: Sequence[int], *, fence: int) -> dict[int, int]:
        return dict.fromkeys(brokers, int(Code.NO_AUTH))

    monkeypatch.setattr(it.znodes.debts, "prepare", refuse)
    before = it.znodes.topics["t"]
    [why] = run(write_assignments(it.shell, {row(it, "t"): MOVED}, {row(it, "t"): [2]})).values()
    assert "/brokers/topics/t" in why
    assert "written with" in why
    assert it.znodes.topics["t"] == before
    assert (it.znodes.debts.held, len(it.shell.context.debts)) == ({}, 0)


def test_a_topic_too_large_for_its_znode_is_not_sent(it: PureCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []

    async def note(groups: Sequence[object], *, fence: int) -> list[int]:
        sent.extend(groups)
        return [0] * len(groups)

    monkeypatch.setattr(it.znodes.debts, "write_with_topics", note)
    many = ReplicaAssignment(tuple(range(MAX_DATA_BYTES // 2)))
    [why] = run(write_assignments(it.shell, {row(it, "t"): many}, {row(it, "t"): [2]})).values()
    assert f"{MAX_DATA_BYTES} fit" in why
    assert sent == []


def test_a_controller_owes_nothing(it: PureCluster) -> None:
    apply(it.shell.context, ControllersKnown(frozenset({3})))
    changes = debts_of(it.shell.context, {row(it, "t"): [2, 3], row(it, "u"): [3]})
    assert list(changes.wanted()) == [(2, "t")]
