"""What the audit looks at next, when, and what it takes for found."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.config import Config
from aiocontroller.controller import auditor as module
from aiocontroller.controller.auditor import CONFIRM_S, MOST_REPAIRS, SLICE, Auditor, Piece
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.obeyed_settings import ReportedSettings
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.audit import Above, AuditFinding, DifferenceKind
from aiocontroller.core.events import Audit, BrokerChange
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.partitions import PartitionTable
from aiocontroller.journal.journal import MemoryJournal, NullJournal
from aiocontroller.lab.simulated_net import SimulatedClock, SimulatedNetwork, simulated_world
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.metrics import Metrics
from tests.builders import leadership
from tests.unit.controller.pure_cluster import cluster

T0 = TopicPartition("t", 0)


class Stage:
    def __init__(self, *topics: tuple[str, int], interval_s: float = 100.0, rate: int = 1000) -> None:
        self.clock = SimulatedClock()
        self.queue = EventQueue(self.clock)
        self.auditor = Auditor(self.clock, self.queue, Metrics(), interval_s, rate, brokers_write=lambda: False)
        self.table = PartitionTable()
        for name, count in topics:
            topic = self.table.add_topic(name)
            self.table.add_partitions(topic, dict.fromkeys(range(count), ReplicaAssignment((1,))))

    def take(self) -> list[Piece]:
        return self.auditor.take(self.table)

    async def next_s(self) -> float:
        """When the next slice comes."""
        assert isinstance((await self.queue.get()).event, Audit)
        return self.clock.monotonic()


def about(topic: str, partition: int = -1) -> AuditFinding:
    return AuditFinding(DifferenceKind.STATE, f"{topic}-{partition}", "this", "that", topic, partition)


@virtual_time
async def test_pass_looks_at_everything_in_pieces() -> None:
    stage = Stage(("a", 1), ("large", 2 * SLICE), ("empty", 0), ("z", 3))
    stage.auditor.begin_pass(list(stage.table.topic_by_name), len(stage.table))
    taken = []
    while not stage.auditor.is_through:
        taken.append(stage.take())
    assert taken == [
        [Piece("a", 0, 1), Piece("large", 0, SLICE - 1)],
        [Piece("large", SLICE - 1, 2 * SLICE - 1)],
        [Piece("large", 2 * SLICE - 1, 2 * SLICE), Piece("empty", 0, 0), Piece("z", 0, 3)],
    ]
    assert stage.auditor.coverage == 1.0
    stage.auditor.end_pass(NullJournal(), 0)
    assert not stage.auditor.running


@virtual_time
async def test_a_pass_counts_for_itself_and_suspects_no_peer_at_first() -> None:
    """What was suspected in the last pass and is seen once in this one has not been seen twice in a row."""
    stage = Stage(("a", 1))
    stage.auditor.begin_pass(["a"], 1)
    look = stage.take()
    assert stage.auditor.judge(look, [about("a", 0)]) == []
    stage.auditor.end_pass(NullJournal(), 0)
    stage.auditor.begin_pass(["a"], 1)
    assert not stage.auditor.is_suspected(["a"])
    assert stage.auditor.judge(look, [about("a", 0)]) == []


@virtual_time
async def test_topics_that_are_gone_or_going_are_left_out() -> None:
    stage = Stage(("a", 1), ("b", SLICE + 1), ("c", 1))
    stage.auditor.begin_pass(["a", "b", "gone", "c"], len(stage.table))
    stage.table.set_topic_deleting(stage.table.topic_by_name["a"], True)
    assert stage.take() == [Piece("b", 0, SLICE)]
    stage.table.remove_topic(stage.table.topic_by_name["b"])
    assert stage.take() == [Piece("c", 0, 1)]


@virtual_time
async def test_pass_begins_in_due_time_and_goes_on_at_its_rate() -> None:
    stage = Stage(("a", SLICE * 3))
    stage.auditor.begin_waiting()
    assert await stage.next_s() == 100.0
    assert stage.auditor.pass_is_due
    assert not stage.auditor.postpone_if_busy()
    stage.auditor.begin_pass(["a"], len(stage.table))
    stage.auditor.schedule()
    assert await stage.next_s() == 100.0 + SLICE / 1000


@virtual_time
async def test_without_an_interval_only_what_is_urgent_is_looked_at() -> None:
    stage = Stage(("a", 1), interval_s=0)
    stage.auditor.begin_waiting()
    assert stage.queue.statistics().deferred == 0
    stage.auditor.check_soon(["a"])
    assert await stage.next_s() == CONFIRM_S
    assert stage.take() == [Piece("a", 0, 1)]


@virtual_time
async def test_lists_alone_are_looked_at_soon_too() -> None:
    stage = Stage(("a", 1), interval_s=0.0)
    stage.auditor.check_soon([], lists=True)
    assert await stage.next_s() == CONFIRM_S


@virtual_time
async def test_slice_makes_way_for_others_but_not_for_ever() -> None:
    stage = Stage(("a", 1))
    stage.queue.append(BrokerChange())
    waits = [stage.auditor.postpone_if_busy() for _ in range(module.MOST_WAITS + 1)]
    assert waits == [True] * module.MOST_WAITS + [False]


@virtual_time
async def test_difference_is_found_when_it_is_seen_twice() -> None:
    stage = Stage(("a", 3))
    look = [Piece("a", 0, 3)]
    assert stage.auditor.judge(look, [about("a", 0), about("a", 1)]) == []
    assert stage.auditor.judge(look, [about("a", 1)]) == [about("a", 1)]
    assert stage.auditor.judge(look, [about("a", 0)]) == []  # it was well in between
    assert stage.auditor.judge(look, [about("a", 0)]) == [about("a", 0)]


@virtual_time
async def test_suspicion_outlives_a_look_at_other_partitions() -> None:
    stage = Stage(("a", 6))
    assert stage.auditor.judge([Piece("a", 3, 6)], [about("a", 4)]) == []
    assert stage.auditor.judge([Piece("a", 0, 3)], []) == []
    assert stage.auditor.judge([Piece("a", 3, 6)], [about("a", 4)]) == [about("a", 4)]


@pytest.mark.parametrize("kind", [DifferenceKind.PARTITIONS, DifferenceKind.ASSIGNMENT])
@virtual_time
async def test_suspicion_about_a_topics_znode_outlives_a_look_at_the_partitions_states(kind: DifferenceKind) -> None:
    """Only the topic's first piece compares its znode, whatever the partitions that differ there."""
    stage = Stage(("a", 6))
    suspicion = about("a", 4)._replace(kind=kind)
    assert stage.auditor.judge([Piece("a", 0, 3)], [suspicion]) == []
    assert stage.auditor.judge([Piece("a", 3, 6)], []) == []
    assert stage.auditor.judge([Piece("a", 0, 3)], [suspicion]) == [suspicion]
    assert stage.auditor.judge([Piece("a", 0, 3)], [suspicion]) == []
    assert stage.auditor.judge([Piece("a", 0, 3)], []) == []  # it is well
    assert stage.auditor.judge([Piece("a", 0, 3)], [suspicion]) == []


@virtual_time
async def test_suspected_topic_is_looked_at_again_before_the_pass_goes_on() -> None:
    stage = Stage(("a", SLICE), ("b", SLICE))
    stage.auditor.begin_pass(["a", "b"], len(stage.table))
    stage.auditor.judge(stage.take(), [about("a", 0)])
    stage.auditor.schedule()
    await stage.next_s()
    assert stage.take() == [Piece("b", 0, SLICE)]  # it is too early
    await asyncio.sleep(CONFIRM_S)
    assert stage.take() == [Piece("a", 0, SLICE)]


@virtual_time
async def test_what_no_repair_mends_waits_for_the_next_pass() -> None:
    stage = Stage(("a", 1))
    look = [Piece("a", 0, 1)]
    found = 0
    for _ in range(10):
        for finding in stage.auditor.judge(look, [about("a", 0)]):
            stage.auditor.record(finding, NullJournal(), 0)
            found += 1
    assert found == MOST_REPAIRS
    stage.auditor.begin_pass(["a"], 1)
    stage.auditor.judge(look, [about("a", 0)])
    assert stage.auditor.judge(look, [about("a", 0)]) == [about("a", 0)]


@virtual_time
async def test_a_finding_is_recorded_with_what_it_is_about() -> None:
    stage = Stage()
    journal = MemoryJournal(1, stage.clock)
    of_broker = AuditFinding(DifferenceKind.BROKER, "broker 0", "none", "epoch 1", broker=0)
    for finding in (about("a", 0), of_broker, about("")):
        stage.auditor.record(finding, journal, 0)
    records = journal.of_kind("finding")
    assert [(r.topic, r.partition, r.broker) for r in records] == [("a", 0, None), (None, None, 0), (None, None, None)]


@virtual_time
async def test_many_urgent_topics_are_a_pass() -> None:
    stage = Stage()
    stage.auditor.begin_waiting()
    assert not stage.auditor.pass_is_due
    stage.auditor.check_soon(f"t{n}" for n in range(module.MOST_URGENT + 1))
    assert stage.auditor.pass_is_due


@virtual_time
async def test_foreign_states_are_compared_soon_unless_a_leader_may_have_written_them() -> None:
    stage, partition = Stage(("t", 1), interval_s=0.0), TopicPartition("t", 0)
    auditor = stage.auditor
    known = leadership(1, (1, 2), leader_epoch=4, partition_epoch=9)
    by_leader = leadership(1, (1,), leader_epoch=4, partition_epoch=10)
    by_another = leadership(2, (2,), leader_epoch=5, partition_epoch=10)
    auditor.note_foreign_write(partition, None, by_another)
    auditor.note_foreign_write(partition, known, known)
    auditor.brokers_write = lambda: True
    auditor.note_foreign_write(partition, known, by_leader)
    assert auditor.noted == {}
    auditor.note_foreign_write(partition, known, by_another)
    assert await stage.next_s() == module.CONFIRM_S
    assert auditor.noted.pop(partition) == Above(4, 9)
    auditor.brokers_write = lambda: False
    auditor.note_foreign_write(partition, known, by_leader)
    assert auditor.noted == {partition: Above(4, 9)}
    auditor.note_foreign_write(partition, leadership(1, (1,), leader_epoch=7, partition_epoch=3), by_another)
    assert auditor.noted == {partition: Above(7, 9)}, "the highest of each that brokers may have"


@pytest.mark.parametrize(
    "reported, may_write", [({}, True), ({1: "2.4", 2: "3.9"}, True), ({1: "3.9", 2: "3.9"}, False)]
)
def test_leaders_may_write_until_brokers_have_answered_their_protocol(
    reported: dict[int, str], *, may_write: bool
) -> None:
    """Found by a simulated cluster of protocol 2.4: its new controller took the ISRs of leaders for foreign writes."""
    nothing: Any = None
    config, world = Config(), simulated_world(SimulatedNetwork())
    shell = ControllerShell(config, world, nothing, nothing, Metrics(), nothing, nothing, list)
    heard = {
        number: ReportedSettings({"inter.broker.protocol.version": protocol}) for number, protocol in reported.items()
    }
    shell.settings.heard(heard, no_brokers=not reported)
    assert shell.auditor.brokers_write() is may_write


def test_what_the_audit_has_noted_ends_with_the_term() -> None:
    it = cluster(1, t=[[1]])
    auditor = it.shell.auditor
    auditor.noted[T0] = Above(7, 7)
    auditor.check_soon(["t"], lists=True)
    it.failover()
    assert auditor.noted == {}
    assert not auditor.lists_due
