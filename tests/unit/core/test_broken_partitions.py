"""The index of what is broken against a recount, and against times that are noted one step after the other."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import invariant, rule

from aiocontroller.core.broken_partitions import BY_DEFAULT, UNREAD, BrokenKind
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.invariants import _broken
from aiocontroller.core.states import PartitionState
from tests.builders import ctx, lead, leadership, table, topic_id
from tests.unit.core.test_partitions import DumbPartition, Key, TableAgreesWithTheDumbOne, picks

WAITING = (PartitionState.NewPartition, PartitionState.OfflinePartition)


class BrokenPartitionsAgreeWithARecount(TableAgreesWithTheDumbOne):
    """The steps of the table's own test, and settings that are read and forgotten in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.now_us = self.table.broken.now_us = 1
        self.min_isrs: dict[str, int] = {}
        self.first_read: set[str] = set()
        self.default = 1
        self.since: dict[BrokenKind, dict[Key, int]] = {kind: {} for kind in BrokenKind}

    @rule(pick=picks, value=st.sampled_from((BY_DEFAULT, 1, 2, 3, 9)))
    def read_settings(self, pick: int, value: int) -> None:
        names = [*self.topic_names(pick), "never heard of"]
        self.first_read.update(name for name in names if name not in self.min_isrs)
        self.table.broken.set_min_isrs(self.table, dict.fromkeys(names, value))
        self.min_isrs |= dict.fromkeys(names, value)

    @rule(pick=picks)
    def forget_settings(self, pick: int) -> None:
        for name in self.topic_names(pick):
            self.table.broken.forget_min_isrs([self.table.topic_by_name[name]])

    @rule(value=st.integers(1, 3))
    def set_default(self, value: int) -> None:
        self.default = value
        self.table.broken.set_default_min_isr(self.table, value)

    def kinds(self, topic: str, dumb: DumbPartition) -> list[BrokenKind]:
        assignment, led = dumb.assignment, dumb.leadership
        found = [BrokenKind.OFFLINE] if dumb.state in WAITING else []
        if led is None or len(led.isr) >= len([r for r in assignment.replicas if r not in assignment.adding]):
            return found
        needed = self.min_isrs.get(topic, UNREAD)
        needed = min(self.default if needed == BY_DEFAULT else needed, len(assignment.origin), len(assignment.target))
        return [*found, BrokenKind.UNDER_REPLICATED, *([BrokenKind.UNDER_MIN_ISR] if len(led.isr) < needed else [])]

    @invariant()
    def what_is_broken_is_what_a_recount_finds(self) -> None:
        assert list(_broken(self.table)) == []
        now: dict[BrokenKind, dict[Key, int]] = {kind: {} for kind in BrokenKind}
        for name, topic in self.dumb.items():
            for number, dumb in topic.partitions.items():
                for kind in [] if topic.deleting else self.kinds(name, dumb):
                    since = self.since[kind].get((name, number), self.now_us)
                    if kind is BrokenKind.UNDER_MIN_ISR and name in self.first_read:
                        since = now[BrokenKind.UNDER_REPLICATED][name, number]
                    now[kind][name, number] = since
        self.first_read.clear()
        self.since = now
        for kind in BrokenKind:
            found = {self.table.topic_partition(row): at for row, at in self.table.broken.of_kind(kind).items()}
            assert found == now[kind], kind
            if kind is not BrokenKind.UNDER_MIN_ISR:
                assert list(found.values()) == sorted(found.values()), "in the order in which they broke"
        self.now_us += 1
        self.table.broken.now_us = self.now_us


BrokenPartitionsAgreeWithARecount.TestCase.settings = settings(max_examples=80, stateful_step_count=50)
TestBrokenPartitionsAgreeWithARecount = BrokenPartitionsAgreeWithARecount.TestCase
del TableAgreesWithTheDumbOne


def test_nothing_is_kept_of_a_cluster_that_is_well() -> None:
    made = table({"t": [[1, 2], [2, 1]]}, online=True)
    broken = made.broken
    assert (len(broken), broken.unread, broken.offline_of_topic) == (0, {}, {})


def test_the_time_is_that_of_the_event_in_which_a_partition_broke() -> None:
    context = ctx(2, {"t": [[1, 2]]})
    context.table.broken.now_us = 5
    row = lead(context, "t-0", 1, (1,))
    context.table.broken.now_us = 8
    lead(context, "t-0", 1, (1,), leader_epoch=2)
    assert context.table.broken.under_replicated == {row: 5}
    lead(context, "t-0", 1, (1, 2))
    lead(context, "t-0", 1, (1,))
    assert context.table.broken.under_replicated == {row: 8}


def test_what_a_reassignment_adds_does_not_count() -> None:
    context = ctx(4, {"t": [ReplicaAssignment((1, 2, 3, 4), adding=(3, 4), removing=(1,))]})
    row = lead(context, "t-0", 1, (1, 2))
    assert not context.table.broken.under_replicated
    context.table.set_assignment(row, ReplicaAssignment((1, 2, 3)))
    assert list(context.table.broken.under_replicated) == [row]


def test_many_rows_at_once_with_and_without_leadership() -> None:
    made = table({"t": [[1, 2]] * 4})
    isr, both = made.isrs.id((1,)), made.isrs.id((1, 2))
    made.set_leaderships((1, 2, 3), (1, 1, 1), (0, 0, 0), (isr, both, isr), (0, 0, 0), (1, 1, 1), (0, 0, 0))
    assert list(made.broken.under_replicated) == [1, 3]
    made.set_leaderships((0, 1, 2, 3), [-1] * 4, [0] * 4, [-1, -1, -1, isr], [0] * 4, [0] * 4, [-1] * 4)
    assert list(made.broken.under_replicated) == [3]


def test_a_topic_below_its_min_isr_is_known_once_its_settings_are_read() -> None:
    made = table({"t": [[1, 2, 3]], "u": [[1, 2, 3]]}, online=True)
    for row in (0, 1):
        made.set_leadership(row, leadership(1, (1,)))
    assert list(made.broken.unread) == [0, 1]
    made.broken.set_min_isrs(made, {"t": 2, "u": BY_DEFAULT})
    assert (list(made.broken.under_min_isr), made.broken.unread) == ([0], {})
    made.broken.set_default_min_isr(made, 3)
    assert list(made.broken.under_min_isr) == [0, 1]
    made.broken.forget_min_isrs(made.topic_by_name.values())
    assert (list(made.broken.under_min_isr), list(made.broken.unread)) == ([0, 1], [0, 1])


def test_a_topic_that_takes_the_number_of_another_has_no_settings_of_it() -> None:
    made = table({"t": [[1, 2]]}, online=True)
    made.broken.set_min_isrs(made, {"t": 2})
    made.remove_topic(made.topic_by_name["t"])
    topic = made.add_topic("u", topic_id("u"))
    assert (topic.number, topic.min_isr) == (0, UNREAD)
