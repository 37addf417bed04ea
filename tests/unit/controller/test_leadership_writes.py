"""Changes go in one stream of steps; what was refused is decided anew, so often and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from aiocontroller.controller import leadership_writes
from aiocontroller.controller.auditor import Auditor
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.leadership_writes import MAX_ATTEMPTS, TOPIC_REPLACED, carry_out, journal_partitions
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import bump_leader_epochs
from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core.audit import Above
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.effects import Effects
from aiocontroller.core.events import BrokerChange
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment, TopicPartition
from aiocontroller.core.leadership_changes import LeadershipChange, LeadershipFacts, Written
from aiocontroller.journal.journal import MemoryJournal, NullJournal
from aiocontroller.lab.simulated_net import SimulatedClock
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metrics import Metrics
from aiocontroller.zookeeper.errors import Code
from aiocontroller.zookeeper.writes import Writes
from tests.builders import ctx, leadership
from tests.unit.controller.pure_cluster import cluster, run


class Stage:
    """A shell whose ZooKeeper takes a second for each write, and refuses ``moved`` partitions so many times.

    It always refuses those of ``refused``.
    """

    def __init__(self, partitions: int) -> None:
        self.log: list[str] = []
        self.moved: dict[int, int] = {}
        self.refused: dict[int, Code] = {}
        self.auditor = Auditor(
            SimulatedClock(), EventQueue(SimulatedClock()), Metrics(), 0, 1, brokers_write=lambda: False
        )
        self.context: ControllerContext = ctx(2, {"t": [[1, 2]] * partitions})
        self.shell = cast(
            ControllerShell,
            SimpleNamespace(
                context=self.context,
                zk=self,
                journal=NullJournal(),
                auditor=self.auditor,
                topic_partition=self.context.table.topic_partition,
                min_isrs={},
                settings=SimpleNamespace(lowest_min_isr=None),
                policy=SimpleNamespace(leader_recovery_supported=True),
                world=SimpleNamespace(clock=SimpleNamespace(monotonic=lambda: 0.0)),
            ),
        )

    async def set_topic_partition_states(
        self, topics: Sequence[str], numbers: Sequence[int], states: Sequence[LeaderAndIsr], *, fence: int
    ) -> Writes:
        self.log.append(f"write {list(numbers)}")
        await asyncio.sleep(1)
        writes = Writes(len(numbers))
        for at, (number, state) in enumerate(zip(numbers, states, strict=True)):
            refused = self.moved.get(number, 0)
            self.moved[number] = refused - 1
            writes.code[at] = self.refused.get(number, Code.BAD_VERSION if refused > 0 else Code.OK)
            writes.version[at] = state.partition_epoch + 1
        return writes

    async def get_topic_partition_states(self, topics: Sequence[str], numbers: Sequence[int]) -> list[Any]:
        self.log.append(f"read {list(numbers)}")
        return [leadership(1, (1,), leader_epoch=7, partition_epoch=9) for _ in numbers]

    async def get_topic_ids(self, topics: Sequence[str]) -> dict[str, bytes]:
        return {topic: self.context.table.topic_by_name[topic].id for topic in topics}


class Recorded(NamedTuple):
    """A plan that says when its effects follow."""

    rise: psm.EpochPlan
    name: str
    log: list[str]

    @property
    def decisions(self) -> Decisions:
        return self.rise.decisions

    def effects(self, context: ControllerContext, written: Written) -> Effects:
        self.log.append(f"{self.name} tells {written.done.rows}")
        return Effects()


class Rise(LeadershipChange[Recorded]):
    def __init__(self, name: str, stage: Stage, rows: Sequence[int]) -> None:
        super().__init__(rows)
        self.name = name
        self.stage = stage

    def plan(self, context: ControllerContext, rows: Sequence[int], facts: LeadershipFacts) -> Recorded:
        return Recorded(psm.EpochPlan(psm.plan_leader_epochs(context, rows)), self.name, self.stage.log)


@pytest.fixture(autouse=True)
def _small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leadership_writes, "WRITTEN_AT_ONCE", 2)
    monkeypatch.setattr(leadership_writes, "WRITTEN_FIRST", 1)


@virtual_time
async def test_the_second_change_is_being_written_while_the_first_one_ends() -> None:
    stage = Stage(6)
    first, second = Rise("first", stage, [0, 1, 2]), Rise("second", stage, [3, 4, 5])
    await carry_out(stage.shell, first, second)
    assert stage.log == [
        "write [0]",
        "write [1, 2]",
        "first tells [0]",
        "write [3, 4]",
        "first tells [1, 2]",
        "write [5]",
        "second tells [3, 4]",
        "second tells [5]",
    ]
    assert (first.done, second.done) == ([0, 1, 2], [3, 4, 5])
    assert list(stage.context.table.leader_epoch) == [1] * 6


@virtual_time
async def test_a_foreign_write_is_read_and_decided_anew() -> None:
    stage = Stage(3)
    stage.moved = {1: 1}
    first, second = Rise("first", stage, [0, 1]), Rise("second", stage, [2])
    await carry_out(stage.shell, first, second)
    assert stage.log[-3:] == ["second tells [2]", "write [1]", "first tells [1]"]
    assert "read [1]" in stage.log
    assert first.done == [0, 1]
    assert list(stage.context.table.leader_epoch) == [1, 8, 1]
    assert stage.auditor.noted == {TopicPartition("t", 1): Above(0, 0)}


@virtual_time
async def test_a_state_that_never_stands_still_fails_alone() -> None:
    stage = Stage(2)
    stage.moved = {0: 100}
    rise = Rise("it", stage, [0, 1])
    await carry_out(stage.shell, rise)
    assert rise.done == [1]
    assert rise.failed == {0: f"its state znode changed {MAX_ATTEMPTS} times meanwhile"}
    assert stage.log.count("write [0]") == MAX_ATTEMPTS - 1


@pytest.mark.parametrize("code, topics", [(Code.NO_NODE, ["t"]), (Code.NO_AUTH, [])])
@virtual_time
async def test_the_audit_looks_soon_at_a_topic_whose_state_is_gone(
    monkeypatch: pytest.MonkeyPatch, code: Code, topics: list[str]
) -> None:
    """Its deletion may have gone unnoticed."""
    stage = Stage(2)
    looked_at: list[str] = []
    monkeypatch.setattr(stage.auditor, "check_soon", looked_at.extend)
    stage.refused = {1: code}
    rise = Rise("it", stage, [0, 1])
    await carry_out(stage.shell, rise)
    assert (rise.done, list(rise.failed)) == ([0], [1])
    assert looked_at == topics


@virtual_time
async def test_nothing_to_decide_writes_nothing() -> None:
    stage = Stage(1)
    await carry_out(stage.shell, Rise("it", stage, []))
    assert stage.log == []


def test_partitions_are_recorded_with_the_leadership_that_they_have() -> None:
    it = cluster(1, t=[[1], [9]])
    assert TopicPartition("t", 1) not in it.znodes.states, "it never had a leader"
    journal = MemoryJournal(1, it.shell.world.clock)
    it.shell.journal = journal
    journal_partitions(it.shell, [0, 1])
    records = journal.of_kind("partition")
    assert [(r.partition, r.leader, r.leader_epoch, r.isr, r.replicas) for r in records] == [
        (0, 1, 0, (1,), (1,)),
        (1, None, None, None, (9,)),
    ]
    assert cast(int, records[0].partition_epoch) >= 0


OTHERS = b"another topic's."


@pytest.mark.parametrize("topic_id, created", [(OTHERS, False), (NO_TOPIC_ID, True)])
def test_no_state_is_created_in_a_topic_that_was_made_anew(topic_id: bytes, created: bool) -> None:
    """The partition never had a leader, and a broker comes that could lead it (seeds 1795864319314, 1795864320019)."""
    it = cluster(1, t=[[1], [2]])
    assert TopicPartition("t", 1) not in it.znodes.states
    it.znodes.topics["t"] = msgspec.structs.replace(it.znodes.topics["t"], topic_id=topic_id)
    it.register(2)
    it.queue.append(BrokerChange())
    it.step()
    assert (TopicPartition("t", 1) in it.znodes.states) is created
    assert it.shell.auditor._is_urgent == (set() if created else {"t"})


@pytest.mark.parametrize("made_anew", [True, False])
def test_a_state_of_a_topic_that_was_made_anew_is_not_taken_for_ours(made_anew: bool) -> None:
    """A version conflict is read and decided on again, but not in another topic."""
    it = cluster(1, 2, t=[[1, 2]])
    table, partition = it.shell.context.table, TopicPartition("t", 0)
    before = table.leadership(0)
    if made_anew:
        it.znodes.topics["t"] = TopicAssignment("t", OTHERS, {0: ReplicaAssignment((2, 1))})
    there = it.znodes.states[partition] = LeaderAndIsr(2, 0, (2, 1), 1, 5)
    rise = run(bump_leader_epochs(it.shell, [0]))
    if made_anew:
        assert rise.failed == {0: TOPIC_REPLACED}
        assert (table.leadership(0), it.znodes.states[partition]) == (before, there)
    else:
        assert rise.done == [0]
        assert it.znodes.states[partition].leader_epoch == 1
    assert it.shell.auditor._is_urgent == {"t"}
