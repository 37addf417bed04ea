"""The partition table against a dumb one: dicts of dicts, and every number counted again after every step."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicPartition
from aiocontroller.core.partitions import Interner, PartitionTable
from aiocontroller.core.replica_state_machine import set_replica_states
from aiocontroller.core.states import PartitionState, ReplicaState
from tests.builders import leadership, table, topic_id

BROKERS = range(1, 7)


@dataclass
class DumbPartition:
    assignment: ReplicaAssignment
    state: PartitionState = PartitionState.NonExistentPartition
    replica_states: dict[int, ReplicaState] = field(default_factory=dict)
    leadership: LeaderAndIsr | None = None

    def imbalanced(self) -> bool:
        if self.leadership is None:
            return False
        head = self.assignment.replicas[0]
        if head in self.assignment.adding and head not in self.leadership.isr:
            return False
        return self.leadership.leader != head


@dataclass
class DumbTopic:
    id: bytes
    deleting: bool = False
    partitions: dict[int, DumbPartition] = field(default_factory=dict)


COMMON = (ReplicaAssignment((1, 2, 3)), ReplicaAssignment((2, 3)))
"""Many partitions share an assignment, as in a real cluster."""


@st.composite
def assignments(draw: st.DrawFn) -> ReplicaAssignment:
    if draw(st.integers(0, 2)):
        return draw(st.sampled_from(COMMON))
    replicas = tuple(draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True)))
    plain = ReplicaAssignment(replicas)
    if draw(st.booleans()):
        return plain
    return plain.reassign_to(draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True)))


leaderships = st.builds(
    LeaderAndIsr,
    leader=st.sampled_from((-1, *BROKERS)),
    leader_epoch=st.integers(0, 2**31 - 1),
    isr=st.lists(st.sampled_from(BROKERS), min_size=1, max_size=3, unique=True).map(tuple),
    controller_epoch=st.integers(0, 2**31 - 1),
    partition_epoch=st.integers(0, 2**31 - 1),
    recovery_state=st.sampled_from((0, 1)),
)

Key = tuple[str, int]
picks = st.integers(0, 999)
"""Which one of those that there are now; nothing happens when there are none."""
several_picks = st.lists(picks, min_size=1, max_size=3)


class TableAgreesWithTheDumbOne(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.table = PartitionTable()
        self.dumb: dict[str, DumbTopic] = {}
        self.made = 0

    def topic_names(self, pick: int) -> list[str]:
        names = list(self.dumb)
        return [names[pick % len(names)]] if names else []

    def keys(self, picked: Iterable[int]) -> list[Key]:
        known = [(name, number) for name, topic in self.dumb.items() for number in topic.partitions]
        return list(dict.fromkeys(known[pick % len(known)] for pick in picked)) if known else []

    # -- steps -----------------------------------------------------------------------------------------------------

    @rule(with_id=st.booleans(), partitions=st.dictionaries(st.integers(0, 6), assignments(), max_size=4))
    def add_topic(self, with_id: bool, partitions: dict[int, ReplicaAssignment]) -> None:
        name = f"t{self.made}"
        self.made += 1
        self.dumb[name] = DumbTopic(topic_id(name) if with_id else NO_TOPIC_ID)
        self.table.add_topic(name, self.dumb[name].id)
        self.add(name, partitions)

    def add(self, topic: str, partitions: dict[int, ReplicaAssignment]) -> None:
        known = self.dumb[topic].partitions
        for number, assignment in partitions.items():
            if number not in known:
                known[number] = DumbPartition(assignment)
                self.table.add_partition(self.table.topic_by_name[topic], number, assignment)

    @rule(pick=picks, partitions=st.dictionaries(st.integers(0, 6), assignments(), max_size=4))
    def add_partitions(self, pick: int, partitions: dict[int, ReplicaAssignment]) -> None:
        for topic in self.topic_names(pick):
            self.add(topic, partitions)

    @rule(pick=picks, fresh=st.booleans())
    def set_topic_id(self, pick: int, fresh: bool) -> None:
        for topic in self.topic_names(pick):
            self.dumb[topic].id = topic_id(f"{topic}+") if fresh else NO_TOPIC_ID
            self.table.set_topic_id(self.table.topic_by_name[topic], self.dumb[topic].id)

    @rule(pick=picks)
    def remove_topic(self, pick: int) -> None:
        for topic in self.topic_names(pick):
            del self.dumb[topic]
            self.table.remove_topic(self.table.topic_by_name[topic])

    @rule(pick=picks, deleting=st.booleans())
    def set_topic_deleting(self, pick: int, deleting: bool) -> None:
        for topic in self.topic_names(pick):
            self.dumb[topic].deleting = deleting
            self.table.set_topic_deleting(self.table.topic_by_name[topic], deleting)

    @rule(pick=picks, assignment=assignments())
    def set_assignment(self, pick: int, assignment: ReplicaAssignment) -> None:
        for key in self.keys([pick]):
            partition = self.dumb[key[0]].partitions[key[1]]
            partition.assignment = assignment
            partition.replica_states = {r: s for r, s in partition.replica_states.items() if r in assignment.replicas}
            self.table.set_assignment(self.table.row(*key), assignment)

    @rule(pick=picks, leadership=leaderships)
    def set_leadership(self, pick: int, leadership: LeaderAndIsr) -> None:
        for key in self.keys([pick]):
            self.dumb[key[0]].partitions[key[1]].leadership = leadership
            self.table.set_leadership(self.table.row(*key), leadership)

    @rule(several=several_picks, state=st.sampled_from(PartitionState))
    def set_state(self, several: list[int], state: PartitionState) -> None:
        keys = self.keys(several)
        for topic, number in keys:
            self.dumb[topic].partitions[number].state = state
        self.table.set_state([self.table.row(*key) for key in keys], state)

    @rule(several=several_picks, broker=st.sampled_from(BROKERS), state=st.sampled_from(ReplicaState))
    def set_replica_states(self, several: list[int], broker: int, state: ReplicaState) -> None:
        keys = self.keys(several)
        for topic, number in keys:
            partition = self.dumb[topic].partitions[number]
            if broker in partition.assignment.replicas:
                partition.replica_states[broker] = state
        set_replica_states(self.table, {broker: [self.table.row(*key) for key in keys]}, state)

    # -- what must hold --------------------------------------------------------------------------------------------

    @invariant()
    def topics_are_found(self) -> None:
        assert list(self.table.topic_by_name) == list(self.dumb)
        assert {t.id: t.name for t in self.table.topic_by_id.values()} == {
            t.id: name for name, t in self.dumb.items() if t.id != NO_TOPIC_ID
        }
        for name, dumb in self.dumb.items():
            topic = self.table.topic_by_name[name]
            assert (topic.name, topic.id, topic.deleting) == (name, dumb.id, dumb.deleting)
            assert self.table.topics[topic.number] is topic
            assert [self.table.topic_partition(row) for row in topic.partitions()] == [
                TopicPartition(name, number) for number in sorted(dumb.partitions)
            ]

    @invariant()
    def rows_say_what_was_set(self) -> None:
        table = self.table
        every = [(name, number, p) for name, t in self.dumb.items() for number, p in t.partitions.items()]
        assert len(table) == len(every)
        assert sorted(table.rows()) == sorted(table.row(name, number) for name, number, _ in every)
        for name, number, dumb in every:
            row = table.row(name, number)
            assert table.topic(row).name == name
            assert table.assignment(row) == dumb.assignment
            assert table.replicas(row) == dumb.assignment.replicas
            assert table.state[row] == dumb.state
            assert table.leadership(row) == dumb.leadership
            assert table.isr(row) == (dumb.leadership.isr if dumb.leadership else ())
            for broker in BROKERS:
                expected = dumb.replica_states.get(broker, ReplicaState.NonExistentReplica)
                assert table.replica_state(row, broker) == expected

    @invariant()
    def index_is_what_a_scan_finds(self) -> None:
        def scan(brokers: set[int]) -> list[int]:
            return sorted(
                self.table.row(name, number)
                for name, t in self.dumb.items()
                for number, p in t.partitions.items()
                if brokers & set(p.assignment.replicas)
            )

        for broker in BROKERS:
            assert self.table.partitions_on_broker(broker) == scan({broker})
        assert self.table.partitions_on_brokers(BROKERS) == scan(set(BROKERS))
        assert self.table.partitions_on_brokers((2, 3)) == scan({2, 3})
        assert self.table.brokers_with_replicas() == [b for b in BROKERS if scan({b})]

    @invariant()
    def counters_are_what_a_recount_finds(self) -> None:
        counted = [p for t in self.dumb.values() if not t.deleting for p in t.partitions.values()]
        assert self.table.count_by_state == [sum(p.state == s for p in counted) for s in PartitionState]
        assert self.table.preferred_replica_imbalance == sum(p.imbalanced() for p in counted)
        every = [p for t in self.dumb.values() for p in t.partitions.values()]
        assert self.table.leadership_count == sum(p.leadership is not None for p in every)
        for broker in BROKERS:
            led = sum(p.leadership is not None and p.leadership.leader == broker for p in every)
            assert self.table.leaders_of.get(broker, 0) == led
            assert self.table.replicas_of.get(broker, 0) == sum(broker in p.assignment.replicas for p in every)

    @invariant()
    def waiting_partitions_are_known(self) -> None:
        waiting = (PartitionState.NewPartition, PartitionState.OfflinePartition)
        assert sorted(self.table.not_online) == sorted(
            self.table.row(name, number)
            for name, t in self.dumb.items()
            for number, p in t.partitions.items()
            if p.state in waiting
        )


TableAgreesWithTheDumbOne.TestCase.settings = settings(max_examples=80, stateful_step_count=50)
TestTableAgreesWithTheDumbOne = TableAgreesWithTheDumbOne.TestCase


# -- single facts ------------------------------------------------------------------------------------------------------


def test_absent_partitions() -> None:
    made = table({"t": [[1, 2]]})
    assert [made.row("t", 1), made.row("t", -1), made.row("u", 0)] == [-1, -1, -1]


def test_rows_of_a_removed_topic_are_used_again_and_start_afresh() -> None:
    made = table({"a": [[1, 2], [2, 3]], "b": [[3, 1]]}, online=True)
    made.remove_topic(made.topic_by_name["a"])
    topic = made.add_topic("c")
    assert [made.add_partition(topic, n, ReplicaAssignment((4,))) for n in range(3)] == [0, 1, 3]
    assert topic.number == 0
    assert [made.leadership(row) for row in topic.partitions()] == [None] * 3
    assert [made.replica_state(row, 4) for row in topic.partitions()] == [ReplicaState.NonExistentReplica] * 3
    assert made.partitions_on_broker(2) == []


def test_a_removed_topic_waits_for_no_election() -> None:
    made = table({"a": [[1], [1]], "b": [[1]]})
    made.set_state((0, 1, 2), PartitionState.NewPartition)
    made.remove_topic(made.topic_by_name["a"])
    assert list(made.not_online) == [2]


def test_an_id_that_topics_share_means_none_of_them_until_one_has_it_alone() -> None:
    """Two topics with one id are damage in ZooKeeper: who asks by the id may mean either."""
    made = PartitionTable()
    first, second = made.add_topic("a", topic_id("x")), made.add_topic("b", topic_id("x"))
    third = made.add_topic("c", topic_id("y"))
    assert made.topic_by_id == {topic_id("y"): third}
    made.set_topic_id(third, topic_id("x"))
    made.remove_topic(first)
    assert made.topic_by_id == {}
    made.set_topic_id(third, NO_TOPIC_ID)
    assert made.topic_by_id == {topic_id("x"): second}
    made.remove_topic(second)
    assert made.topic_by_id == {}


def test_an_assignment_may_be_interned_before_a_partition_has_it() -> None:
    made = PartitionTable()
    for replicas in ((1, 2), (2, 3)):
        made.assignments.id(ReplicaAssignment(replicas))
    row = made.add_partition(made.add_topic("t"), 0, ReplicaAssignment((2, 3)))
    assert made.partitions_on_broker(3) == [row]
    assert made.brokers_with_replicas() == [2, 3]


def test_a_partition_is_added_once() -> None:
    made = table({"t": [[1, 2]]})
    with pytest.raises(AssertionError):
        made.add_partition(made.topic_by_name["t"], 0, ReplicaAssignment((1, 2)))


def test_an_interner_counts_distinct_values() -> None:
    interner: Interner[str] = Interner()
    assert [interner.id(v) for v in "abca"] == [0, 1, 2, 0]
    assert (len(interner), interner.values) == (3, ["a", "b", "c"])


# -- Kafka's ControllerContextTest -------------------------------------------------------------------------------------


def three_partitions(*replicas: int) -> tuple[PartitionTable, list[int]]:
    made = table({"A": [replicas, replicas], "B": [replicas]})
    return made, [made.row("A", 0), made.row("A", 1), made.row("B", 0)]


def test_preferred_replica_imbalance_metric() -> None:
    made, (tp1, tp2, tp3) = three_partitions(1, 2, 3)
    found = [made.preferred_replica_imbalance]
    for row, leader in ((tp1, 1), (tp2, 2), (tp3, 3)):
        made.set_leadership(row, leadership(leader, (1, 2, 3)))
        found.append(made.preferred_replica_imbalance)
    assert found == [0, 0, 1, 2]
    made.set_assignment(tp1, ReplicaAssignment((2, 3, 1)))
    made.set_assignment(tp2, ReplicaAssignment((2, 3, 1)))
    assert made.preferred_replica_imbalance == 2
    made.set_topic_deleting(made.topic_by_name["B"], True)
    assert made.preferred_replica_imbalance == 1
    made.set_leadership(tp3, leadership(1, (3, 1, 2)))
    assert made.preferred_replica_imbalance == 1
    made.remove_topic(made.topic_by_name["A"])
    made.remove_topic(made.topic_by_name["B"])
    assert made.preferred_replica_imbalance == 0


def test_preferred_replica_imbalance_metric_on_concurrent_topic_deletion() -> None:
    made = table({"A": [[1, 2, 3]], "B": [[1, 2, 3]]})
    made.set_topic_deleting(made.topic_by_name["A"], True)
    made.set_leadership(made.row("A", 0), leadership(-1, (1, 2, 3)))
    assert made.preferred_replica_imbalance == 0
    for name in ("A", "B"):
        made.set_topic_deleting(made.topic_by_name[name], True)
    assert made.preferred_replica_imbalance == 0


def test_a_first_replica_that_is_being_added_counts_once_it_is_in_sync() -> None:
    made = table({"t": [ReplicaAssignment((1, 2)).reassign_to((3, 2))]})
    made.set_leadership(0, leadership(1, (1, 2)))
    assert made.preferred_replica_imbalance == 0
    made.set_leadership(0, leadership(1, (1, 2, 3)))
    assert made.preferred_replica_imbalance == 1
    made.set_leadership(0, leadership(3, (1, 2, 3)))
    assert made.preferred_replica_imbalance == 0


def test_partitions_named_in_any_order_get_their_own_replicas() -> None:
    """A topic's znode may name them in any order."""
    made = PartitionTable()
    topic = made.add_topic("t", b"1" * 16)
    given = {2: ReplicaAssignment((3,)), 0: ReplicaAssignment((1,)), 1: ReplicaAssignment((2,))}
    rows = made.add_partitions_of([(topic, given)])
    assert [made.replicas(row) for row in rows] == [(1,), (2,), (3,)]
    assert [made.replicas(made.row("t", number)) for number in given] == [(3,), (1,), (2,)]
