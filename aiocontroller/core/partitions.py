"""The partition table: every partition of the cluster, in columns.

Theory.  Two million partitions take too much memory as Python objects, and decisions repeat: there are few distinct
replica lists and few distinct ISRs.  So a partition is a *row*, a dense int: its numbers live in ``array`` columns, and
its tuples are interned, one id per distinct value.  A decision that depends only on interned values is made once per
combination and batch, not once per partition.

Rules.
 * A row is valid until its topic is removed; rows are then reused.
 * Only the setters here write a column, since they maintain what is derived: the index from broker to partitions,
   the number of partitions in each state, the preferred-replica imbalance, and which partitions are broken.
 * Results come in ascending row order, so nothing depends on hashing.  A topic's rows are usually contiguous, but code
   that groups by topic must not rely on it, because rows are reused.

The index maps broker -> assignment ids -> rows in order: moving a partition costs two binary searches, and finding a
broker's partitions does not touch other brokers' rows.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress, repeat
from operator import ge, ne
from typing import Generic, TypeVar

from aiocontroller.core.broken_partitions import UNREAD, BrokenPartitions
from aiocontroller.core.columns import ascending, put, take
from aiocontroller.core.ids import (
    NO_TOPIC_ID,
    RECOVERED,
    Eligible,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from aiocontroller.core.states import PartitionState, ReplicaState

T = TypeVar("T")

NO_ISR = -1
"""Value of ``isr_of`` for a partition without leadership."""

NONE_ELIGIBLE: Mapping[int, Eligible] = {}

_NON_EXISTENT = int(PartitionState.NonExistentPartition)


class Interner(Generic[T]):
    """One small int for each distinct value, in order of first appearance; values are never forgotten."""

    __slots__ = ("_ids", "values")

    def __init__(self) -> None:
        self.values: list[T] = []
        self._ids: dict[T, int] = {}

    def id(self, value: T) -> int:
        """The value's id, counted from 0; the first call with a value stores it for good."""
        known = self._ids.get(value)
        if known is None:
            known = self._ids[value] = len(self.values)
            self.values.append(value)
        return known

    def __len__(self) -> int:
        return len(self.values)


class Topic:
    """A topic of the table: name, id (16 bytes) and its rows by partition number (-1 if there is none)."""

    __slots__ = ("deleting", "id", "min_isr", "name", "number", "rows")

    def __init__(self, number: int, name: str, topic_id: bytes) -> None:
        self.number = number
        self.name = name
        self.id = topic_id
        self.rows: array[int] = array("i")
        self.deleting = False
        """Queued for deletion: the gauges leave it out, and brokers are made to forget it."""
        self.min_isr = UNREAD
        """``min.insync.replicas``, as last read; see ``core.broken_partitions``."""

    def partitions(self) -> list[int]:
        """The rows of all partitions that exist, in order of partition number."""
        return [row for row in self.rows if row >= 0]


class PartitionTable:
    """See the module's docstring.  The columns are public for reading: hot loops index them directly."""

    def __init__(self) -> None:
        self.topics: list[Topic | None] = []
        self.topic_by_name: dict[str, Topic] = {}
        self.topic_by_id: dict[bytes, Topic] = {}
        """Without ids that several topics share (damage in ZooKeeper): such an id is ambiguous."""
        self._topics_sharing: dict[bytes, list[Topic]] = {}
        """Each ambiguous id -> the topics that have it."""
        self.assignments: Interner[ReplicaAssignment] = Interner()
        self.isrs: Interner[tuple[int, ...]] = Interner()
        self.replica_states: Interner[tuple[int, ...]] = Interner()

        self.topic_of: array[int] = array("i")
        self.index_of: array[int] = array("i")
        self.assignment_of: array[int] = array("i")
        self.isr_of: array[int] = array("i")
        self.leader: array[int] = array("i")
        self.leader_epoch: array[int] = array("i")
        self.controller_epoch: array[int] = array("i")
        self.partition_epoch: array[int] = array("i")
        self.recovery_state: array[int] = array("b")
        self.state: array[int] = array("b")
        self.replica_states_of: array[int] = array("i")
        """Interned tuple of ``ReplicaState``, parallel to the assignment's replicas."""
        self.eligible: dict[int, Eligible] = {}
        """Eligible leader replicas of the rows that have any: few, so they have no column."""

        self.count_by_state = [0, 0, 0, 0]
        """Number of partitions in each ``PartitionState``, without topics being deleted."""
        self.leadership_count = 0
        """Number of partitions with leadership (Kafka's ``GlobalPartitionCount``)."""
        self.preferred_replica_imbalance = 0
        """Number of partitions not led by their first replica, without topics being deleted."""
        self.topics_deleting = 0
        """Number of topics that are being deleted, or that another process has deleted."""
        self.changes = 0
        """Increases whenever a row's replicas change or are removed."""
        self.not_online: dict[int, None] = {}
        """The rows in NewPartition or OfflinePartition, in order of arrival; an election may bring these online."""
        self.broken = BrokenPartitions()
        self.sizes_before_adding: list[int] = []
        """Number of replicas of each interned assignment, without those that a reassignment adds."""

        self.leaders_of: dict[int, int] = {}
        """Broker -> how many partitions it leads; under -1, how many have no leader."""
        self.replicas_of: dict[int, int] = {}
        """Broker -> how many replicas it has; 0 for some brokers that had replicas before."""

        self._rows_of_assignment: list[array[int]] = []
        """The rows of each interned assignment, ascending."""
        self._first_replicas: list[int] = []
        """First replica of each interned assignment."""
        self._assignments_of_broker: dict[int, list[int]] = {}
        self._free_rows: list[int] = []
        self._free_topics: list[int] = []

    # -- looking up ------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.topic_of) - len(self._free_rows)

    def row(self, topic: str, partition: int) -> int:
        """The partition's row, or -1."""
        known = self.topic_by_name.get(topic)
        if known is None or not 0 <= partition < len(known.rows):
            return -1
        return known.rows[partition]

    def topic(self, row: int) -> Topic:
        """The topic of a row that is in use."""
        topic = self.topics[self.topic_of[row]]
        assert topic is not None, row
        return topic

    def topic_partition(self, row: int) -> TopicPartition:
        """The name of a row that is in use."""
        return TopicPartition(self.topic(row).name, self.index_of[row])

    def sample(self, rows: Sequence[int], most: int = 5) -> str:
        """Name the first ``most`` partitions, and say how many there are if there are more; for a log line."""
        names = ", ".join(str(self.topic_partition(row)) for row in rows[:most])
        return f"{names}, … ({len(rows)} in all)" if len(rows) > most else names

    def assignment(self, row: int) -> ReplicaAssignment:
        """The row's replicas, with those that a reassignment adds and removes."""
        return self.assignments.values[self.assignment_of[row]]

    def replicas(self, row: int) -> tuple[int, ...]:
        """The row's replicas, the preferred leader first."""
        return self.assignments.values[self.assignment_of[row]].replicas

    def isr(self, row: int) -> tuple[int, ...]:
        """The in-sync replicas; empty without leadership."""
        isr = self.isr_of[row]
        return () if isr == NO_ISR else self.isrs.values[isr]

    def leadership(self, row: int) -> LeaderAndIsr | None:
        """The state as its znode holds it; None for a partition that never had a leader."""
        isr = self.isr_of[row]
        if isr == NO_ISR:
            return None
        return LeaderAndIsr(
            self.leader[row],
            self.leader_epoch[row],
            self.isrs.values[isr],
            self.controller_epoch[row],
            self.partition_epoch[row],
            self.recovery_state[row],
            self.eligible.get(row),
        )

    def rows(self) -> Sequence[int]:
        """Every partition, in row order."""
        return self._used_rows(range(len(self.topic_of)))

    def slices(self, at_once: int) -> Iterator[Sequence[int]]:
        """Every partition, in row order, in slices of at most ``at_once``; the table must not change meanwhile."""
        for start in range(0, len(self.topic_of), at_once):
            yield self._used_rows(range(start, min(start + at_once, len(self.topic_of))))

    def _used_rows(self, rows: range) -> Sequence[int]:
        """``rows`` without those that are free."""
        if not self._free_rows:
            return rows
        return list(compress(rows, map(ge, self.topic_of[rows.start : rows.stop], repeat(0))))

    def with_leadership(self, rows: Sequence[int]) -> Sequence[int]:
        """The rows that have leadership; the same object if every partition of the cluster has it."""
        if self.leadership_count == len(self):
            return rows
        return list(compress(rows, map(ne, take(rows, self.isr_of)[0], repeat(NO_ISR))))

    def for_update_metadata(self, rows: Sequence[int]) -> Sequence[int]:
        """The rows with leadership, and those of topics being deleted, which brokers must forget."""
        led = self.with_leadership(rows)
        if len(led) == len(rows):
            return rows
        topic_of, topics, isr_of = self.topic_of, self.topics, self.isr_of
        leaderless = {topic_of[row] for row in rows if isr_of[row] == NO_ISR}
        if not any((topic := topics[number]) is not None and topic.deleting for number in leaderless):
            return led
        return [
            row
            for row in rows
            if isr_of[row] != NO_ISR or ((topic := topics[topic_of[row]]) is not None and topic.deleting)
        ]

    def partitions_on_broker(self, broker: int) -> list[int]:
        """The rows with a replica on the broker, ascending."""
        return self.partitions_on_brokers((broker,))

    def slices_on_broker(self, broker: int, at_once: int) -> Iterator[Sequence[int]]:
        """The rows with a replica on the broker, each once, in any order, in slices of at most ``at_once``.

        The table must not change meanwhile.
        """
        found: list[int] = []
        for assignment in self._assignments_of_broker.get(broker, ()):
            found.extend(self._rows_of_assignment[assignment])
            if len(found) >= at_once:
                yield from (found[start : start + at_once] for start in range(0, len(found), at_once))
                found = []
        if found:
            yield found

    def partitions_on_brokers(self, brokers: Iterable[int]) -> list[int]:
        """The rows with a replica on any of the brokers, ascending, each once."""
        wanted = dict.fromkeys(a for broker in brokers for a in self._assignments_of_broker.get(broker, ()))
        found: list[int] = []
        for assignment in wanted:
            found.extend(self._rows_of_assignment[assignment])
        found.sort()
        return found

    def assignments_with(self, brokers: Iterable[int]) -> dict[int, list[int]]:
        """Interned assignment -> which of these brokers it names; without assignments that name none."""
        found: dict[int, list[int]] = {}
        for broker in brokers:
            for assignment in self._assignments_of_broker.get(broker, ()):
                found.setdefault(assignment, []).append(broker)
        return found

    def brokers_with_replicas(self) -> list[int]:
        """The ids of the brokers named in any partition's assignment, ascending."""
        return sorted(
            b for b, used in self._assignments_of_broker.items() if any(self._rows_of_assignment[a] for a in used)
        )

    # -- topics ----------------------------------------------------------------------------------------------------

    def add_topic(self, name: str, topic_id: bytes = NO_TOPIC_ID) -> Topic:
        """Add a topic without partitions; its name must be new."""
        assert name not in self.topic_by_name, name
        number = self._free_topics.pop() if self._free_topics else len(self.topics)
        topic = self._new_topic(number, name, topic_id)
        if number == len(self.topics):
            self.topics.append(topic)
        else:
            self.topics[number] = topic
        self.topic_by_name[name] = topic
        self._enter_topic_id(topic)
        return topic

    def _new_topic(self, number: int, name: str, topic_id: bytes) -> Topic:
        return Topic(number, name, topic_id)

    def set_topic_id(self, topic: Topic, topic_id: bytes) -> None:
        """Set a topic's id, 16 bytes; NO_TOPIC_ID removes it."""
        self._forget_topic_id(topic)
        topic.id = topic_id
        self._enter_topic_id(topic)

    def remove_topic(self, topic: Topic) -> None:
        """Remove the topic and its partitions; their rows become free."""
        self.changes += 1
        self.set_topic_deleting(topic, True)
        self.topics_deleting -= 1
        for row in topic.partitions():
            self._unlink(row)
            if self.isr_of[row] != NO_ISR:
                self.leadership_count -= 1
                self.leaders_of[self.leader[row]] -= 1
            self.not_online.pop(row, None)
            self.eligible.pop(row, None)
            for column, blank in self._blanks():
                column[row] = blank
            self._free_rows.append(row)
        self._free_rows.sort(reverse=True)
        self.topics[topic.number] = None
        self._free_topics.append(topic.number)
        del self.topic_by_name[topic.name]
        self._forget_topic_id(topic)

    def _enter_topic_id(self, topic: Topic) -> None:
        if topic.id in self._topics_sharing:
            self._topics_sharing[topic.id].append(topic)
        elif topic.id in self.topic_by_id:
            self._topics_sharing[topic.id] = [self.topic_by_id.pop(topic.id), topic]
        elif topic.id != NO_TOPIC_ID:
            self.topic_by_id[topic.id] = topic

    def _forget_topic_id(self, topic: Topic) -> None:
        """Remove the topic's id; if exactly one other topic has it, it is no longer ambiguous."""
        sharing = self._topics_sharing.get(topic.id)
        if sharing is None:
            self.topic_by_id.pop(topic.id, None)
            return
        sharing.remove(topic)
        if len(sharing) == 1:
            [self.topic_by_id[topic.id]] = self._topics_sharing.pop(topic.id)

    def set_topic_deleting(self, topic: Topic, deleting: bool) -> None:
        """Take the topic's partitions out of the gauges, or back in."""
        if topic.deleting == deleting:
            return
        sign = -1 if deleting else 1
        for row in topic.partitions():
            self.count_by_state[self.state[row]] += sign
            self.preferred_replica_imbalance += sign * self._imbalanced(row)
        topic.deleting = deleting
        self.topics_deleting -= sign
        if deleting:
            self.broken.topic_deleting(self, topic)
        elif rows := topic.partitions():
            self.broken.lost_leaders(self, [row for row in rows if row in self.not_online])
            self.broken.isrs_changed(self, rows)

    # -- partitions ------------------------------------------------------------------------------------------------

    def add_partition(self, topic: Topic, partition: int, assignment: ReplicaAssignment) -> int:
        """Add a row: NonExistentPartition, all replicas NonExistentReplica, no leadership; returns the row."""
        return self.add_partitions(topic, {partition: assignment})[0]

    def add_partitions(self, topic: Topic, partitions: Mapping[int, ReplicaAssignment]) -> Sequence[int]:
        """Add many partitions of a topic; returns their rows by ascending partition number."""
        return self.add_partitions_of([(topic, partitions)])

    def add_partitions_of(self, topics: Iterable[tuple[Topic, Mapping[int, ReplicaAssignment]]]) -> Sequence[int]:
        """Add partitions of many topics, each topic given once; returns the rows in the order of the topics."""
        numbers: list[int] = []
        values: list[ReplicaAssignment] = []
        owners: list[int] = []
        added: list[tuple[Topic, Sequence[int]]] = []
        for topic, partitions in topics:
            if partitions:
                own = ascending(partitions)
                added.append((topic, own))
                numbers += own
                values += partitions.values() if list(partitions) == list(own) else map(partitions.__getitem__, own)
                owners += [topic.number] * len(own)
        rows = self._new_rows(len(numbers))
        objects = list(map(id, values))
        interned = {key: self._intern(value) for key, value in dict(zip(objects, values, strict=True)).items()}
        assigned = list(map(interned.__getitem__, objects))
        initial_states = {a: self._in_one_state(a, ReplicaState.NonExistentReplica) for a in dict.fromkeys(assigned)}
        if rows:
            put(self.topic_of, rows, owners)
            put(self.index_of, rows, numbers)
            put(self.assignment_of, rows, assigned)
            put(self.replica_states_of, rows, map(initial_states.__getitem__, assigned))
        at = 0
        for topic, own in added:
            topic.rows.extend([-1] * (own[-1] + 1 - len(topic.rows)))
            taken = [number for number in own if topic.rows[number] != -1]
            assert not taken, (topic.name, taken)
            put(topic.rows, own, rows[at : at + len(own)])
            at += len(own)
            if not topic.deleting:
                self.count_by_state[_NON_EXISTENT] += len(own)
        by_assignment: dict[int, list[int]] = {a: [] for a in initial_states}
        for row, assignment in zip(rows, assigned, strict=True):
            by_assignment[assignment].append(row)
        for assignment, own_rows in by_assignment.items():
            self._index(assignment, own_rows)
        return rows

    def _new_rows(self, count: int) -> Sequence[int]:
        """Allocate blank rows; free rows are reused first."""
        reused = [self._free_rows.pop() for _ in range(min(len(self._free_rows), count))]
        first, more = len(self.topic_of), count - len(reused)
        for column, blank in self._blanks():
            column.extend(array(column.typecode, (blank,)) * more)
        fresh = range(first, first + more)
        return [*reused, *fresh] if reused else fresh

    def _blanks(self) -> tuple[tuple[array[int], int], ...]:
        """Every column with its value for an unused row."""
        return (
            (self.topic_of, -1),
            (self.index_of, 0),
            (self.assignment_of, 0),
            (self.isr_of, NO_ISR),
            (self.leader, -1),
            (self.leader_epoch, 0),
            (self.controller_epoch, 0),
            (self.partition_epoch, -1),
            (self.recovery_state, RECOVERED),
            (self.state, _NON_EXISTENT),
            (self.replica_states_of, -1),
        )

    def _in_one_state(self, assignment: int, state: ReplicaState) -> int:
        """The interned replica states of an interned assignment whose replicas are all in ``state``."""
        return self.replica_states.id((state,) * len(self.assignments.values[assignment].replicas))

    def set_assignment(self, row: int, assignment: ReplicaAssignment) -> None:
        """Replace a row's replicas; those that stay keep their state, new ones are NonExistentReplica."""
        old = self.replicas(row)
        if old != assignment.replicas:
            self.changes += 1
            states = dict(zip(old, self.replica_states.values[self.replica_states_of[row]], strict=True))
            self.replica_states_of[row] = self.replica_states.id(
                tuple(states.get(r, ReplicaState.NonExistentReplica) for r in assignment.replicas)
            )
        counted = not self.topic(row).deleting
        self.preferred_replica_imbalance -= counted and self._imbalanced(row)
        self._unlink(row)
        self._link(row, assignment)
        self.preferred_replica_imbalance += counted and self._imbalanced(row)
        self.broken.isrs_changed(self, (row,))

    def set_leadership(self, row: int, leadership: LeaderAndIsr) -> None:
        """Set the state of one partition; ``set_leaderships`` sets many."""
        self.set_leaderships(
            (row,),
            (leadership.leader,),
            (leadership.leader_epoch,),
            (self.isrs.id(leadership.isr),),
            (leadership.recovery_state,),
            (leadership.controller_epoch,),
            (leadership.partition_epoch,),
            {} if leadership.eligible is None else {row: leadership.eligible},
        )

    def set_leaderships(
        self,
        rows: Sequence[int],
        leaders: Iterable[int],
        leader_epochs: Iterable[int],
        isr_ids: Iterable[int],
        recovery_states: Iterable[int],
        controller_epochs: Iterable[int],
        partition_epochs: Iterable[int],
        eligible: Mapping[int, Eligible] = NONE_ELIGIBLE,
    ) -> None:
        """Set many leaderships from columns parallel to ``rows``; ``eligible`` has an entry for each row with any."""
        self._count_leaderships(rows, -1)
        put(self.leader, rows, leaders)
        put(self.leader_epoch, rows, leader_epochs)
        put(self.isr_of, rows, isr_ids)
        put(self.recovery_state, rows, recovery_states)
        put(self.controller_epoch, rows, controller_epochs)
        put(self.partition_epoch, rows, partition_epochs)
        self._forget_eligible(rows)
        self.eligible.update(eligible)
        self._count_leaderships(rows, +1)
        self.broken.isrs_changed(self, rows)

    def _forget_eligible(self, rows: Iterable[int]) -> None:
        if self.eligible:
            for row in rows:
                self.eligible.pop(row, None)

    def _count_leaderships(self, rows: Sequence[int], sign: int) -> None:
        """Add these rows to the gauges (sign 1) or subtract them (sign -1)."""
        [isrs] = take(rows, self.isr_of)
        led = len(rows) - isrs.count(NO_ISR)
        self.leadership_count += sign * led
        if not led:
            return
        assignments, leaders = take(rows, self.assignment_of, self.leader)
        for broker, count in Counter(leaders).items():
            self.leaders_of[broker] = self.leaders_of.get(broker, 0) + sign * count
        not_led_by_first = map(ne, map(self._first_replicas.__getitem__, assignments), leaders)
        for row in compress(rows, not_led_by_first):
            if self._imbalanced(row) and not self.topic(row).deleting:
                self.preferred_replica_imbalance += sign

    def set_state(self, rows: Sequence[int], state: PartitionState) -> None:
        """Set states unchecked; ``partition_state_machine`` checks transitions."""
        if not rows:
            return
        [before] = take(self.not_deleting(rows), self.state)
        for old in dict.fromkeys(before):
            self.count_by_state[old] -= before.count(old)
        self.count_by_state[state] += len(before)
        put(self.state, rows, [state] * len(rows))
        if state in (PartitionState.NewPartition, PartitionState.OfflinePartition):
            self.not_online.update(dict.fromkeys(rows))
            self.broken.lost_leaders(self, rows)
        elif self.not_online:
            for row in rows:
                self.not_online.pop(row, None)
            self.broken.no_longer_leaderless(self, rows)

    def not_deleting(self, rows: Sequence[int]) -> Sequence[int]:
        """The rows whose topics are not being deleted; the same object if none is."""
        [topics] = take(rows, self.topic_of)
        deleting = {n for n in dict.fromkeys(topics) if (topic := self.topics[n]) is None or topic.deleting}
        return [row for row, n in zip(rows, topics, strict=True) if n not in deleting] if deleting else rows

    # -- replicas --------------------------------------------------------------------------------------------------

    def set_replica_states(self, rows: Sequence[int], states: Iterable[int]) -> None:
        """Set each partition's interned replica states, parallel to the rows.  Unchecked, like ``set_state``."""
        put(self.replica_states_of, rows, states)

    def replica_state(self, row: int, broker: int) -> ReplicaState:
        """The replica's state; NonExistentReplica if the broker is not a replica."""
        replicas = self.replicas(row)
        if broker not in replicas:
            return ReplicaState.NonExistentReplica
        return ReplicaState(self.replica_states.values[self.replica_states_of[row]][replicas.index(broker)])

    # -- derived values --------------------------------------------------------------------------------------------

    def _imbalanced(self, row: int) -> int:
        """1 if the first replica does not lead; a replica being added counts only once it is in the ISR.

        Departure from Kafka, which counts an added replica until the reassignment ends, even if it leads.
        """
        isr = self.isr_of[row]
        if isr == NO_ISR:
            return 0
        assignment = self.assignments.values[self.assignment_of[row]]
        if not assignment.replicas or self.leader[row] == assignment.replicas[0]:
            return 0
        first = assignment.replicas[0]
        return int(first not in assignment.adding or first in self.isrs.values[isr])

    def _link(self, row: int, assignment: ReplicaAssignment) -> None:
        number = self._intern(assignment)
        self.assignment_of[row] = number
        self._index(number, (row,))

    def _index(self, assignment: int, rows: Sequence[int]) -> None:
        """Index ascending rows under their new interned assignment."""
        for broker in dict.fromkeys(self.assignments.values[assignment].replicas):
            self.replicas_of[broker] = self.replicas_of.get(broker, 0) + len(rows)
        indexed = self._rows_of_assignment[assignment]
        if not indexed or rows[0] > indexed[-1]:
            indexed.extend(rows)
        else:
            for row in rows:
                insort(indexed, row)

    def _intern(self, assignment: ReplicaAssignment) -> int:
        """Intern the assignment and prepare the index for it; returns its id."""
        number = self.assignments.id(assignment)
        while number >= len(self._rows_of_assignment):  # assignments may be interned before any partition has them
            unindexed = len(self._rows_of_assignment)
            replicas = self.assignments.values[unindexed].replicas
            self._rows_of_assignment.append(array("i"))
            self._first_replicas.append(replicas[0] if replicas else -1)
            self.sizes_before_adding.append(len(self.assignments.values[unindexed].origin))
            for broker in dict.fromkeys(replicas):
                self._assignments_of_broker.setdefault(broker, []).append(unindexed)
        return number

    def _unlink(self, row: int) -> None:
        for broker in dict.fromkeys(self.assignments.values[self.assignment_of[row]].replicas):
            self.replicas_of[broker] -= 1
        indexed = self._rows_of_assignment[self.assignment_of[row]]
        del indexed[bisect_left(indexed, row)]
