"""A standby's copy against a tree of znodes that changes at random while the copy is read, in any order."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import pytest

from aiocontroller.core import partition_state_machine as psm
from aiocontroller.core import replica_state_machine as rsm
from aiocontroller.core.apply import load_states
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import NO_TOPIC_ID, LeaderAndIsr, ReplicaAssignment, TopicAssignment
from aiocontroller.core.invariants import violations
from aiocontroller.core.mirror import (
    INTERNED_AT_LEAST,
    MOST_RECENT,
    MirroredCluster,
    load_again,
    start_state_machines,
)
from aiocontroller.core.reassignment import non_replicas_in_isrs
from aiocontroller.core.states import PartitionState
from tests.builders import broker, leadership, row_of

BROKERS = (1, 2, 3, 4)
NAMES = ("a", "b", "c", "d")


def is_whole(copy: MirroredCluster) -> bool:
    return copy.is_whole


class Tree:
    """Topics and states as ZooKeeper holds them; each change notifies the copy."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.topics: dict[str, TopicAssignment] = {}
        self.states: dict[tuple[str, int], LeaderAndIsr] = {}
        self.copy: MirroredCluster | None = None
        self.ids = 0

    def _replicas(self) -> ReplicaAssignment:
        replicas = tuple(self.random.sample(BROKERS, self.random.randint(1, 3)))
        adding = replicas[:1] if len(replicas) > 1 and self.random.random() < 0.2 else ()
        return ReplicaAssignment(replicas, adding)

    def _topic_changed(self, name: str, *, deleted: bool = False) -> None:
        if self.copy is not None:
            self.copy.topic_changed(name, deleted=deleted)

    def _set_state(self, name: str, number: int, state: LeaderAndIsr | None) -> None:
        if state is None:
            self.states.pop((name, number), None)
        else:
            self.states[name, number] = state
        if self.copy is not None:
            self.copy.state_changed(name, number)

    def create(self, name: str) -> None:
        self.ids += 1
        topic_id = NO_TOPIC_ID if self.random.random() < 0.2 else b"%16d" % self.ids
        numbers = range(self.random.randint(1, 4))
        self.topics[name] = TopicAssignment(name, topic_id, {n: self._replicas() for n in numbers})
        self._topic_changed(name)

    def delete(self, name: str) -> None:
        for number in self.topics[name].partitions:
            self._set_state(name, number, None)
        del self.topics[name]
        self._topic_changed(name, deleted=True)

    def change_topic(self, name: str) -> None:
        old = self.topics[name]
        partitions = dict(old.partitions)
        what = self.random.random()
        if what < 0.4:
            partitions[max(partitions) + 1] = self._replicas()
        elif what < 0.8:
            partitions[self.random.choice(list(partitions))] = self._replicas()
        elif len(partitions) > 1:  # by hand
            partitions.pop(self.random.choice(list(partitions)))
        self.topics[name] = TopicAssignment(name, old.topic_id, partitions, old.version + 1)
        self._topic_changed(name)

    def change_state(self, name: str) -> None:
        number = self.random.choice(list(self.topics[name].partitions))
        old = self.states.get((name, number))
        replicas = self.topics[name].partitions[number].replicas
        leader = self.random.choice((*replicas, -1, *BROKERS))
        changed = leadership(
            leader,
            self.random.sample(BROKERS, self.random.randint(1, 3)),
            leader_epoch=self.random.randint(0, 9),
            controller_epoch=self.random.randint(1, 9),
            partition_epoch=0 if old is None else old.partition_epoch + 1,
        )
        self._set_state(name, number, None if self.random.random() < 0.1 else changed)

    def change(self) -> None:
        name = self.random.choice(NAMES)
        if name not in self.topics:
            self.create(name)
        elif self.random.random() < 0.15:
            self.delete(name)
            if self.random.random() < 0.5:
                self.create(name)
        elif self.random.random() < 0.3:
            self.change_topic(name)
        else:
            self.change_state(name)

    # -- reading ---------------------------------------------------------------------------------------------------

    def columns(self, names: Sequence[tuple[str, int]]) -> tuple[list[LeaderAndIsr | None], list[int], list[int]]:
        values = [self.states.get(name) for name in names]
        return values, list(range(len(values))), [-1 if v is None else v.partition_epoch for v in values]

    def read_topics(self, copy: MirroredCluster, names: Sequence[str]) -> Any:
        found = [self.topics[name] for name in names if name in self.topics]
        missing = [name for name in names if name not in self.topics]
        return lambda: copy.topics_read(found, missing=missing)

    def read_rows(self, copy: MirroredCluster, rows: Sequence[int]) -> Any:
        columns = self.columns([copy.context.table.topic_partition(row) for row in rows])
        return lambda: copy.states_read(rows, *columns)

    def read(self, copy: MirroredCluster, at_most: int) -> Any:
        """Reads something that is marked; returns what takes it in, or None if there is nothing to read."""
        if copy.list_is_marked:
            names = sorted(self.topics)
            return lambda: copy.list_read(names)
        if copy.topics:
            return self.read_topics(copy, copy.take_topics(at_most))
        rows = copy.take_rows(at_most)
        return self.read_rows(copy, rows) if rows else None

    def cold(self) -> ControllerContext:
        """What a failover loads."""
        context = ControllerContext()
        rows = context.add_partitions([self.topics[name] for name in sorted(self.topics)])
        load_states(context, rows, *self.columns([context.table.topic_partition(row) for row in rows]))
        return context


class Shown(NamedTuple):
    topic_id: bytes
    assignment: ReplicaAssignment
    leadership: LeaderAndIsr | None
    state: int
    replica_states: tuple[int, ...]
    being_reassigned: bool


def shown(context: ControllerContext) -> dict[str, Shown]:
    table = context.table
    return {
        str(table.topic_partition(row)): Shown(
            table.topic(row).id,
            table.assignment(row),
            table.leadership(row),
            table.state[row],
            table.replica_states.values[table.replica_states_of[row]],
            row in context.partitions_being_reassigned,
        )
        for row in table.rows()
    }


def started(context: ControllerContext, live: Sequence[int], damaged: dict[int, str]) -> ControllerContext:
    context.add_brokers(broker(each) for each in live)
    for each, name in damaged.items():
        if name in shown(context):
            context.set_offline_dir_replicas(each, [row_of(context, name)], ())
    return context


def start_in_pieces(copy: ControllerContext) -> dict[int, list[int]]:
    """All replicas that are not online.  Pieces follow one another, and name each New or Offline partition once."""
    away: dict[int, list[int]] = {}
    rows: list[int] = []
    offline: list[int] = []
    for piece in start_state_machines(copy):
        assert piece.rows
        assert set(piece.rows) >= set[int]().union(*piece.replicas.values())
        rows += piece.rows
        offline += psm.partitions_to_bring_online(copy, among=piece.rows)
        for each, own in piece.replicas.items():
            away.setdefault(each, []).extend(own)
    assert rows == sorted(set(rows))
    assert offline == psm.partitions_to_bring_online(copy)
    return away


def equal_after_start(copy: ControllerContext, cold: ControllerContext, random: Random) -> None:
    live = random.sample(BROKERS, random.randint(0, 4))
    damaged = {each: f"{random.choice(NAMES)}-0" for each in live if random.random() < 0.3}
    started(copy, live, damaged)
    started(cold, live, damaged)
    away = start_in_pieces(copy)
    psm.initialize_partition_states(cold)
    rsm.initialize_replica_states(cold)
    assert shown(copy) == shown(cold)
    noted = {str(copy.table.topic_partition(row)): of for row, of in copy.read_with_non_replicas.items()}
    assert noted == {str(cold.table.topic_partition(row)): of for row, of in non_replicas_in_isrs(cold).items()}
    assert sorted(violations(copy)) == sorted(violations(cold)), "in another order of rows"
    found = {b: rsm.online_and_offline(cold, b)[1] for b in cold.table.brokers_with_replicas()}
    names = {b: sorted(str(cold.table.topic_partition(row)) for row in rows) for b, rows in found.items() if rows}
    assert {b: sorted(str(copy.table.topic_partition(row)) for row in rows) for b, rows in away.items()} == names


def take_over(tree: Tree, copy: MirroredCluster) -> ControllerContext:
    """As a failover does: read the leftovers, and nothing else."""
    names, rows = copy.leftovers()
    context = copy.context
    for name in names:
        if name in context.table.topic_by_name:
            context.remove_topic(context.table.topic_by_name[name])
    added = context.add_partitions([tree.topics[name] for name in names if name in tree.topics])
    rows = [*rows, *added]
    load_again(context, rows, *tree.columns([context.table.topic_partition(row) for row in rows]))
    return context


@pytest.fixture(autouse=True)
def _few_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("ROWS_FIRST", 1), ("ROWS_AT_ONCE", 2), ("AWAY_FIRST", 1), ("AWAY_AT_ONCE", 3)):
        monkeypatch.setattr(f"aiocontroller.core.mirror.{name}", value)


@pytest.mark.parametrize("seed", range(120))
def test_copy_with_its_leftovers_read_equals_a_cold_load(seed: int) -> None:
    random = Random(seed)
    tree = Tree(random)
    for _ in range(random.randint(0, 12)):
        tree.change()
    copy = tree.copy = MirroredCluster(ControllerContext())
    pending: Any = None
    for _ in range(random.randint(0, 60)):
        what = random.random()
        if what < 0.45:
            tree.change()
        elif what < 0.5:
            tree.copy = None  # a lost connection
            tree.change()
            tree.copy = copy
            copy.mark_all()
        elif pending is not None:
            pending()
            pending = None
        else:
            pending = tree.read(copy, random.randint(1, 3))
    if pending is not None and random.random() < 0.5:
        pending()
        pending = None
    if is_whole(copy):
        context = take_over(tree, copy)
        equal_after_start(context, tree.cold(), random)
    elif pending is None:
        while (take_in := tree.read(copy, 3)) is not None:
            take_in()
        assert is_whole(copy)
        assert copy.behind == 0
        assert copy.leftovers() == ([], [])
        assert copy.highest_epoch >= max(copy.context.table.controller_epoch, default=0)
        equal_after_start(copy.context, tree.cold(), random)


def whole(tree: Tree) -> MirroredCluster:
    copy = tree.copy = MirroredCluster(ControllerContext())
    while (take_in := tree.read(copy, 100)) is not None:
        take_in()
    assert is_whole(copy)
    return copy


def some_tree() -> Tree:
    tree = Tree(Random(1))
    for name in NAMES:
        tree.topics[name] = TopicAssignment(name, name.encode() * 16, {n: ReplicaAssignment((1, 2)) for n in range(3)})
        for number in range(3):
            tree.states[name, number] = leadership(1, (1, 2))
    return tree


def test_copy_of_an_empty_cluster_is_whole_once_the_list_was_read() -> None:
    copy = MirroredCluster(ControllerContext())
    assert not is_whole(copy)
    assert copy.behind == 1
    copy.list_read([])
    copy.topics_read([])
    assert is_whole(copy)
    assert copy.behind == 0


def test_topics_deleted_while_the_connection_was_lost_are_gone() -> None:
    """No notification tells of them: only the list does."""
    tree = some_tree()
    copy = whole(tree)
    copy.topic_changed("b")
    copy.take_topics(1)
    copy.topics_read([], unreadable=["b"])
    tree.copy = None
    for name in ("a", "b"):
        tree.delete(name)
    tree.copy = copy
    copy.mark_all()
    copy.list_read(sorted(tree.topics))
    assert list(copy.context.table.topic_by_name) == ["c", "d"]
    while (take_in := tree.read(copy, 100)) is not None:
        take_in()
    assert copy.leftovers() == ([], [])
    assert shown(copy.context).keys() == {f"{name}-{number}" for name in "cd" for number in range(3)}


def test_copy_is_not_whole_before_the_list_was_read_again() -> None:
    copy = MirroredCluster(ControllerContext())
    copy.list_read([])
    assert is_whole(copy)
    copy.topic_changed("a")
    copy.take_topics(1)
    copy.mark_all()  # the connection was lost while the topic was read
    copy.topics_read([], missing=["a"])
    assert not is_whole(copy)
    copy.list_read([])
    assert is_whole(copy)


def test_change_while_a_state_is_read_leaves_the_row_marked() -> None:
    tree = some_tree()
    copy = whole(tree)
    tree._set_state("b", 1, leadership(2, (2,)))
    rows = copy.take_rows(10)
    take_in = tree.read_rows(copy, rows)
    tree._set_state("b", 1, leadership(1, (1,)))
    assert copy.leftovers() == ([], [row_of(copy.context, "b-1")])
    take_in()
    assert copy.leftovers() == ([], [row_of(copy.context, "b-1")])
    assert is_whole(copy), "the mark says that it differs"


def test_states_of_a_topic_that_was_made_again_are_read_with_it() -> None:
    tree = some_tree()
    copy = whole(tree)
    tree._set_state("b", 1, None)
    tree.delete("a")
    tree.create("a")
    assert copy.leftovers() == (["a"], [row_of(copy.context, "b-1")])
    assert copy.take_rows(10) == [row_of(copy.context, name) for name in ("a-0", "a-1", "a-2", "b-1")]
    assert copy.take_topics(10) == ["a"]
    assert copy.leftovers() == (["a"], [row_of(copy.context, "b-1")]), "what is being read may change meanwhile"
    tree.read_topics(copy, ["a"])()
    names = [*(f"a-{number}" for number in tree.topics["a"].partitions), "b-1"]
    assert copy.leftovers()[1] == sorted(row_of(copy.context, name) for name in names), "states of the earlier topic"


def test_partitions_that_a_successor_has_removed_are_no_leftovers() -> None:
    """It asks once more after it has read what was left."""
    tree = some_tree()
    copy = whole(tree)
    for name in ("a", "b"):
        copy.state_changed(name, 0)
    copy.take_rows(10)
    left = row_of(copy.context, "b-0")
    copy.context.remove_topic(copy.context.table.topic_by_name["a"])
    assert copy.leftovers() == ([], [left])


def test_unreadable_topics_and_states_are_left_to_the_successor() -> None:
    tree = some_tree()
    copy = whole(tree)
    copy.topic_changed("a")
    copy.take_topics(1)
    copy.topics_read([], unreadable=["a"])
    copy.state_changed("b", 0)
    rows = copy.take_rows(10)
    copy.states_read(rows, [None], [0], [-1], unreadable=rows)
    assert copy.leftovers() == (["a"], rows)
    assert copy.context.table.state[rows[0]] == PartitionState.NewPartition
    copy.topic_changed("a")
    tree.read_topics(copy, copy.take_topics(1))()
    copy.state_changed("b", 0)
    tree.read_rows(copy, copy.take_rows(10))()
    assert copy.leftovers() == ([], [])


def test_latest_changes_are_remembered_in_their_order() -> None:
    tree = some_tree()
    copy = whole(tree)
    for name in ("a-0", "b-0", "a-0"):
        copy.state_changed(name[0], 0)
    assert list(copy.recent) == [row_of(copy.context, "b-0"), row_of(copy.context, "a-0")]
    tree.topics["big"] = TopicAssignment("big", b"big" * 5 + b"!", dict.fromkeys(range(3000), ReplicaAssignment((1,))))
    tree._topic_changed("big")
    tree.read_topics(copy, copy.take_topics(1))()
    for number in range(3000):
        copy.state_changed("big", number)
    assert len(copy.recent) == MOST_RECENT
    tree.delete("big")
    tree.read_topics(copy, copy.take_topics(1))()
    assert not copy.recent, "rows of a topic that is gone may be used again"


def test_values_that_nothing_refers_to_crowd_the_copy() -> None:
    tree = some_tree()
    copy = whole(tree)
    before_crowd = copy.is_crowded
    assert not before_crowd
    before = copy.memory_bytes()
    for number in range(INTERNED_AT_LEAST + 100):
        copy.context.table.isrs.id((number,))
    assert copy.is_crowded
    assert copy.memory_bytes() > before


def test_deletion_and_creation_of_a_topic_without_an_id_are_noticed() -> None:
    """Its znode reads as before, while its states are gone."""
    tree = some_tree()
    tree.topics["a"] = TopicAssignment("a", NO_TOPIC_ID, {0: ReplicaAssignment((1, 2))})
    copy = whole(tree)
    again = tree.topics["a"]
    tree.delete("a")
    tree.topics["a"] = again
    tree._topic_changed("a")
    tree.read_topics(copy, copy.take_topics(1))()
    assert copy.context.table.leadership(row_of(copy.context, "a-0")) is None
