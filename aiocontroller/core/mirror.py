"""A standby's copy of the topics and partition states: what of it is out of date, and how it takes in what was read.

The copy is a context that a failover can go on with.  Notifications only mark topics and rows; the marked ones are read
again together.  Rules.
 * Whatever is marked or being read may differ from ZooKeeper; everything else is as it was at the last notification.
   So a successor reads the *leftovers* again, and nothing else.
 * A lost connection may have cost notifications: everything is marked then (``mark_all``).  The first load is the same
   with an empty table.
 * Brokers are not copied: reading them takes as long at any number of partitions.  The states of partitions and
   replicas are kept as if every broker were online (``start_state_machines`` says what a failover changes about that).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, compress, islice
from typing import NamedTuple

from aiocontroller.core.apply import load_states
from aiocontroller.core.columns import take
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import RECOVERED, LeaderAndIsr, TopicAssignment
from aiocontroller.core.partitions import NO_ISR, PartitionTable, Topic
from aiocontroller.core.replica_state_machine import set_replica_states
from aiocontroller.core.states import PartitionState, ReplicaState

MOST_RECENT = 2_000
"""Rows that are remembered as changed last."""
AWAY_FIRST, AWAY_GROWTH, AWAY_AT_ONCE = 100, 5, 10_000
"""Sizes of the pieces that a failover repairs, in partitions: the first has at least so many, each later one so many
times more, up to the last number.  ZooKeeper takes 20 to 70 ms for 2,000 writes, which the first decision must not wait
for."""
ROWS_FIRST, ROWS_AT_ONCE = 500, 5_000
"""Rows that are searched at a time for those partitions: at first, and at most."""
INTERNED_PER_ROW, INTERNED_AT_LEAST = 6, 10_000
"""Interned values are never forgotten; beyond so many, a copy that starts afresh is smaller."""


class MirroredCluster:
    """The copy in ``context``, which must be empty at first, and its marks."""

    def __init__(self, context: ControllerContext) -> None:
        self.context = context
        self.list_is_marked = True
        """The list of topics has to be read."""
        self.topics: dict[str, bool] = {}
        """Marked topic -> whether it was deleted since it was read, so that its present states are another topic's."""
        self.unreadable_topics: dict[str, None] = {}
        self.unreadable: dict[int, None] = {}
        """Rows whose states cannot be read."""
        self.recent: dict[int, None] = {}
        """The rows whose states changed last, the latest at the end."""
        self.highest_epoch = 0
        """No state's controller epoch is or was higher."""
        self._marked = bytearray()
        """By row, 1 or 0, so that a pass over two million rows takes less than a millisecond."""
        self._marks = 0
        """How many of them are 1; rows that are not in use may be."""
        self._next_row = 0
        """Where the search for marked rows goes on; it wraps around, so that no row waits for ever."""
        self._topics_being_read: dict[str, bool] = {}
        self._rows_being_read: Sequence[int] = ()

    # -- notifications ---------------------------------------------------------------------------------------------

    def topic_changed(self, name: str, *, deleted: bool = False) -> None:
        """The topic's znode was created, changed or deleted."""
        self.topics[name] = self.topics.get(name, False) or deleted

    def state_changed(self, topic: str, partition: int) -> None:
        """The state znode was created, changed or deleted.  That of an unknown topic is read with the topic."""
        row = self.context.table.row(topic, partition)
        if row >= 0:
            self._mark((row,))
            self.recent.pop(row, None)
            self.recent[row] = None
            if len(self.recent) > MOST_RECENT:
                del self.recent[next(iter(self.recent))]
        elif topic in self.context.table.topic_by_name:
            self.topics.setdefault(topic, False)

    def time_is(self, now_us: int) -> None:
        """What is found broken from now on counts as broken since then, in microseconds since 1970."""
        self.context.table.broken.now_us = now_us

    def became_complete(self) -> None:
        """What was found broken until now counts as broken before."""
        broken = self.context.table.broken
        broken.loaded_us = broken.loaded_us or broken.now_us

    def mark_all(self) -> None:
        """Everything is read again: changes may have gone unreported."""
        self.list_is_marked = True
        self._marks = len(self.context.table.topic_of)
        self._marked = bytearray(b"\1" * self._marks)

    def _mark(self, rows: Iterable[int]) -> None:
        marked = self._marked
        marked.extend(bytes(len(self.context.table.topic_of) - len(marked)))
        for row in rows:
            if not marked[row]:
                marked[row] = 1
                self._marks += 1

    def _unmark(self, row: int) -> None:
        if self._marked[row]:
            self._marked[row] = 0
            self._marks -= 1

    def _marked_rows(self, start: int = 0) -> Iterator[int]:
        """The marked rows from ``start`` on, ascending; those that are unmarked meanwhile are left out."""
        row = self._marked.find(1, start)
        while row >= 0:
            yield row
            row = self._marked.find(1, row + 1)

    # -- what there is to read -------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """The number of topics and rows that are marked; the list of topics counts as one."""
        return self.list_is_marked + len(self.topics) + self._marks

    @property
    def behind(self) -> int:
        """The number of topics and rows that are marked or being read; a marked list counts as one."""
        return self.waiting + len(self._topics_being_read) + len(self._rows_being_read)

    @property
    def is_whole(self) -> bool:
        """Whether nothing but what is marked or being read can differ from ZooKeeper.

        Topics that were created or deleted while notifications may have been lost are known only once the list has been
        read again.
        """
        return not self.list_is_marked

    @property
    def is_crowded(self) -> bool:
        """Whether so many values of earlier states are interned that the copy should be rebuilt."""
        table = self.context.table
        interned = len(table.assignments) + len(table.isrs) + len(table.replica_states)
        return interned > INTERNED_AT_LEAST + INTERNED_PER_ROW * len(table)

    def list_read(self, names: Sequence[str]) -> None:
        """The list of topics was read: names that are not in it are gone, and all others have to be read."""
        self.list_is_marked = False
        present = set(names)
        for name in [name for name in self.context.table.topic_by_name if name not in present]:
            self._remove(name)
        for name in [name for name in self.unreadable_topics if name not in present]:
            del self.unreadable_topics[name]
        for name in names:
            self.topics.setdefault(name, False)

    def take_topics(self, at_most: int) -> list[str]:
        """Marked topics to be read now; they count as read once ``topics_read`` has had each of them."""
        names = list(islice(self.topics, at_most))
        self._topics_being_read = {name: self.topics.pop(name) for name in names}
        return names

    def topics_read(
        self, found: Sequence[TopicAssignment], unreadable: Sequence[str] = (), missing: Sequence[str] = ()
    ) -> None:
        """Take in what some of the topics to be read contain."""
        new = []
        for assignment in found:
            name = assignment.topic
            self.unreadable_topics.pop(name, None)
            topic = self.context.table.topic_by_name.get(name)
            if self._topics_being_read.pop(name) or topic is None or not _grew_out_of(self.context, topic, assignment):
                self._remove(name)
                new.append(assignment)
            else:
                self._moved(topic, assignment)
        for name in (*unreadable, *missing):
            self._topics_being_read.pop(name)
            self._remove(name)
            self.unreadable_topics.pop(name, None)
        self.unreadable_topics.update(dict.fromkeys(unreadable))
        self._add(new)

    def take_rows(self, at_most: int) -> Sequence[int]:
        """Marked rows to be read now, ascending; they count as read after ``states_read``."""
        topic_of = self.context.table.topic_of
        taken: list[int] = []
        for row in chain(self._marked_rows(self._next_row), self._marked_rows()):
            if len(taken) == at_most:
                break
            self._unmark(row)
            self._next_row = row + 1
            if topic_of[row] >= 0:
                taken.append(row)
        taken.sort()
        self._rows_being_read = taken
        return taken

    def states_read(
        self,
        rows: Sequence[int],
        values: Sequence[LeaderAndIsr | None],
        numbers: Sequence[int],
        versions: Sequence[int],
        unreadable: Iterable[int] = (),
    ) -> None:
        """Take in the states of the rows to be read, in columns as for ``core.apply.load_states``."""
        for row in rows:
            self.unreadable.pop(row, None)
        self.unreadable.update(dict.fromkeys(unreadable))
        self.highest_epoch = max(self.highest_epoch, *(v.controller_epoch for v in values if v is not None), 0)
        load_again(self.context, rows, values, numbers, versions)
        self._rows_being_read = ()

    # -- handing over ----------------------------------------------------------------------------------------------

    def leftovers(self) -> tuple[list[str], list[int]]:
        """What a successor has to read: topics, sorted, and rows of other topics, ascending."""
        names = {**self.topics, **self._topics_being_read, **self.unreadable_topics}
        table = self.context.table
        own = {topic.number for name in names if (topic := table.topic_by_name.get(name)) is not None}
        rows = sorted({*self._marked_rows(), *self._rows_being_read, *self.unreadable})
        return sorted(names), [row for row in rows if table.topic_of[row] not in own and table.topic_of[row] >= 0]

    def memory_bytes(self) -> int:
        """About how much memory the copy takes."""
        table = self.context.table
        columns = sum(len(each) * each.itemsize for each in vars(table).values() if isinstance(each, array))
        interned = len(table.assignments) + len(table.isrs) + len(table.replica_states)
        return columns + 4 * len(table) + 250 * interned + 350 * len(table.topic_by_name) + len(self._marked)

    # -- the table -------------------------------------------------------------------------------------------------

    def _add(self, found: Sequence[TopicAssignment]) -> None:
        rows = self.context.add_partitions(found)
        _settle_states(self.context, rows)
        self._mark(rows)

    def _moved(self, topic: Topic, found: TopicAssignment) -> None:
        """Partitions were added, or have other replicas."""
        context, table = self.context, self.context.table
        moved = [row for row in topic.partitions() if table.assignment(row) != found.partitions[table.index_of[row]]]
        for row in moved:
            table.set_assignment(row, found.partitions[table.index_of[row]])
        context.end_reassignments(moved)
        context.begin_reassignments(row for row in moved if table.assignment(row).being_reassigned)
        _settle_states(context, moved)
        if len(found.partitions) > len(topic.partitions()):
            self._add([found])

    def _remove(self, name: str) -> None:
        topic = self.context.table.topic_by_name.get(name)
        if topic is None:
            return
        for row in topic.partitions():
            self._unmark(row)
            self.unreadable.pop(row, None)
            self.recent.pop(row, None)
        self.context.remove_topic(topic)


def _grew_out_of(context: ControllerContext, topic: Topic, found: TopicAssignment) -> bool:
    """Whether it is the same topic with all its partitions, perhaps moved, and perhaps more."""
    known = (context.table.index_of[row] for row in topic.partitions())
    return topic.id == found.topic_id and all(number in found.partitions for number in known)


# -- states ------------------------------------------------------------------------------------------------------------


def load_again(
    context: ControllerContext,
    rows: Sequence[int],
    values: Sequence[LeaderAndIsr | None],
    numbers: Sequence[int],
    versions: Sequence[int],
) -> None:
    """As ``core.apply.load_states``, for rows that may have had states, and with the states of their partitions."""
    load_states(context, rows, values, numbers, versions)
    if None in values:
        none = {number for number, value in enumerate(values) if value is None}
        without = [row for row, number in zip(rows, numbers, strict=True) if number in none]
        n = len(without)
        blank = ([-1] * n, [0] * n, [NO_ISR] * n, [RECOVERED] * n, [0] * n, [-1] * n)
        context.table.set_leaderships(without, *blank)
    _settle_states(context, rows)


def _settle_states(context: ControllerContext, rows: Sequence[int]) -> None:
    """Set the states as if every broker were online: New without leadership; Offline if no replica leads.

    ISRs with brokers that are not replicas are noted in ``read_with_non_replicas``.
    """
    if not rows:
        return
    table = context.table
    assignments, isrs, leaders = take(rows, table.assignment_of, table.isr_of, table.leader)
    distinct = sorted(set(assignments))
    replicas = {a: frozenset(table.assignments.values[a].replicas) for a in distinct}
    known = list(map(frozenset.__contains__, map(replicas.__getitem__, assignments), leaders))
    table.set_state(rows, PartitionState.OnlinePartition)
    if not all(known):
        strange = [row for row, of_replica in zip(rows, known, strict=True) if not of_replica]
        table.set_state(strange, PartitionState.OfflinePartition)
    if NO_ISR in isrs:
        new = [row for row, isr in zip(rows, isrs, strict=True) if isr == NO_ISR]
        table.set_state(new, PartitionState.NewPartition)
    online = {
        a: table.replica_states.id((ReplicaState.OnlineReplica,) * len(table.assignments.values[a].replicas))
        for a in distinct
    }
    table.set_replica_states(rows, list(map(online.__getitem__, assignments)))
    pairs = list(zip(assignments, isrs, strict=True))
    odd = {(a, isr) for a, isr in set(pairs) if isr != NO_ISR and not replicas[a].issuperset(table.isrs.values[isr])}
    noted = context.read_with_non_replicas
    if noted or odd:
        for row, pair in zip(rows, pairs, strict=True):
            if pair in odd:
                noted[row] = tuple(r for r in table.isr(row) if r not in replicas[pair[0]])
            else:
                noted.pop(row, None)


class Away(NamedTuple):
    """A piece of what a failover repairs when brokers have died."""

    replicas: dict[int, list[int]]
    """The replicas that are not online, broker -> rows, ascending."""
    rows: list[int]
    """Their partitions, and others without a leader, ascending."""


def start_state_machines(context: ControllerContext) -> Iterator[Away]:
    """Make the states of a copy those that a failover initializes, now that brokers and log directories are known.

    A dead broker may have had hundreds of thousands of replicas, so this goes piece by piece, in the order of rows.
    The caller may elect leaders in between.
    """
    table, end = context.table, len(context.table.topic_of)
    damaged = {broker: rows for broker, rows in context.offline_dirs.items() if broker in context.live}
    gone = table.assignments_with(b for b in table.brokers_with_replicas() if b not in context.live)
    others = sorted({*table.not_online, *chain.from_iterable(damaged.values())})
    low, wanted, span = 0, AWAY_FIRST, ROWS_FIRST
    while low < end and (gone or others):
        hit: list[int] = []
        while low < end and len(hit) < wanted:
            high, span = min(low + span, end), min(2 * span, ROWS_AT_ONCE)
            hit += compress(range(low, high), map(gone.__contains__, table.assignment_of[low:high]))
            hit += others[bisect_left(others, low) : bisect_left(others, high)]
            low = high
        rows = [row for row in sorted(set(hit)) if table.topic_of[row] >= 0]
        if rows:
            piece = Away(_replicas_away(table, gone, damaged, rows), rows)
            _start(context, piece)
            yield piece
        wanted = min(AWAY_GROWTH * wanted, AWAY_AT_ONCE)


def _replicas_away(
    table: PartitionTable, gone: Mapping[int, Sequence[int]], damaged: Mapping[int, Set[int]], rows: Sequence[int]
) -> dict[int, list[int]]:
    away: dict[int, list[int]] = {}
    for row in rows:
        for broker in gone.get(table.assignment_of[row], ()):
            away.setdefault(broker, []).append(row)
    for broker, lost in damaged.items():
        if own := [row for row in rows if row in lost and broker in table.replicas(row)]:
            away[broker] = own
    return dict(sorted(away.items()))


def _start(context: ControllerContext, piece: Away) -> None:
    table = context.table
    set_replica_states(table, piece.replicas, ReplicaState.ReplicaDeletionIneligible)
    led = [row for row in piece.rows if table.isr_of[row] != NO_ISR]
    online = [context.is_replica_online(row, table.leader[row]) for row in led]
    table.set_state(list(compress(led, online)), PartitionState.OnlinePartition)
    offline = [row for row, lives in zip(led, online, strict=True) if not lives]
    table.set_state(offline, PartitionState.OfflinePartition)
