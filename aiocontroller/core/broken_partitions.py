"""What is broken, and since when: partitions without a leader, and those with too few in-sync replicas.

Theory.  An operator may ask for names at any moment, and a cluster may have two million partitions, too many to search.
So the table reports each change to this index, which costs O(changed), and the cost of an answer grows with its length
only.  When all is well, the index is empty.

Three kinds, of partitions whose topic is not being deleted; a partition may be of several.
 * ``offline``: without a leader, including New partitions, which never had one.
 * ``under_replicated``: the ISR is smaller than the assignment was before a reassignment added replicas (as in Kafka's
   ``Partition.isUnderReplicated``).
 * ``under_min_isr``: of these, those whose ISR is smaller than ``min.insync.replicas``, so that producers with acks=all
   are refused.  As for brokers, no partition needs more in-sync replicas than it has replicas.  A topic's settings are
   not kept in memory: ``unread`` names topics that must be read before these counts are complete.

This module has no clock: ``now_us`` is the time of the event that is being handled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import compress
from operator import lt
from typing import TYPE_CHECKING

from aiocontroller.core.columns import take

if TYPE_CHECKING:
    from aiocontroller.core.partitions import PartitionTable, Topic

UNREAD = 0
"""``Topic.min_isr`` of a topic whose settings have not been read."""
BY_DEFAULT = -1
"""``Topic.min_isr`` of a topic without a setting of its own."""
_NO_ISR = -1
_NEVER_SMALL = 1 << 31
"""For a partition that has had no leader."""


class BrokenKind(StrEnum):
    """What is broken; the names are those of requests and options."""

    OFFLINE = "offline"
    UNDER_REPLICATED = "under-replicated"
    UNDER_MIN_ISR = "under-min-isr"


class BrokenPartitions:
    """See the module's docstring.  Each kind is a mapping from row to the time since when, in microseconds since 1970,
    in the order in which the partitions broke."""

    def __init__(self) -> None:
        self.now_us = 0
        """The time of the event that is being handled; 0: unknown."""
        self.loaded_us = 0
        """What broke then or earlier was found broken when the cluster was read; 0: it has not been read."""
        self.offline: dict[int, int] = {}
        self.under_replicated: dict[int, int] = {}
        self.under_min_isr: dict[int, int] = {}
        self.offline_of_topic: dict[int, int] = {}
        """Number of a topic -> how many of its partitions are offline; only topics that have some."""
        self.min_isr = 1
        """``min.insync.replicas`` of topics without a setting of their own."""
        self.unread: dict[int, None] = {}
        """Numbers of the topics whose settings have to be read."""
        self._isr_sizes = {_NO_ISR: _NEVER_SMALL}
        """The number of members of each interned ISR."""

    def __len__(self) -> int:
        return len(self.offline) + len(self.under_replicated)

    def of_kind(self, kind: BrokenKind) -> Mapping[int, int]:
        """The rows of a kind, each with the time since when."""
        match kind:
            case BrokenKind.OFFLINE:
                return self.offline
            case BrokenKind.UNDER_REPLICATED:
                return self.under_replicated
            case BrokenKind.UNDER_MIN_ISR:
                return self.under_min_isr

    def found_so(self, since_us: int) -> bool:
        """Whether the partition was broken already when the cluster was read, so that the time is an upper bound."""
        return since_us <= self.loaded_us

    # -- from the table --------------------------------------------------------------------------------------------

    def lost_leaders(self, table: PartitionTable, rows: Sequence[int]) -> None:
        """Note that these rows have no leader."""
        for row in table.not_deleting(rows):
            if row not in self.offline:
                self.offline[row] = self.now_us
                number = table.topic_of[row]
                self.offline_of_topic[number] = self.offline_of_topic.get(number, 0) + 1

    def no_longer_leaderless(self, table: PartitionTable, rows: Iterable[int]) -> None:
        """Note that these rows have leaders, or are gone."""
        if not self.offline:
            return
        for row in rows:
            if self.offline.pop(row, None) is not None:
                number = table.topic_of[row]
                left = self.offline_of_topic.pop(number) - 1
                if left:
                    self.offline_of_topic[number] = left

    def isrs_changed(self, table: PartitionTable, rows: Sequence[int]) -> None:
        """Note that the ISRs or assignments of these rows have changed."""
        assignments, isrs = take(rows, table.assignment_of, table.isr_of)
        for number in range(len(self._isr_sizes) - 1, len(table.isrs)):
            self._isr_sizes[number] = len(table.isrs.values[number])
        sizes = map(self._isr_sizes.__getitem__, isrs)
        small = list(compress(rows, map(lt, sizes, map(table.sizes_before_adding.__getitem__, assignments))))
        if not small:
            self._are_complete(rows)
            return
        small = list(table.not_deleting(small))
        if self.under_replicated:
            self._are_complete(set(rows).difference(small))
        for row in small:
            self.under_replicated.setdefault(row, self.now_us)
            self._compare_with_min_isr(table, row, self.now_us)

    def topic_deleting(self, table: PartitionTable, topic: Topic) -> None:
        """Note that the topic is being deleted, or is gone: its partitions no longer count as broken."""
        rows = topic.partitions()
        self.no_longer_leaderless(table, rows)
        self._are_complete(rows)
        self.unread.pop(topic.number, None)

    # -- min.insync.replicas ---------------------------------------------------------------------------------------

    def forget_min_isrs(self, topics: Iterable[Topic]) -> None:
        """The settings of these topics have changed; what was known counts until they have been read."""
        for topic in topics:
            if topic.min_isr != UNREAD:
                self.unread[topic.number] = None

    def set_min_isrs(self, table: PartitionTable, read: Mapping[str, int]) -> None:
        """Topics' settings were read: name -> value, or ``BY_DEFAULT``; names that are not in the table are allowed."""
        for name, value in read.items():
            topic = table.topic_by_name.get(name)
            if topic is not None:
                first, topic.min_isr = topic.min_isr == UNREAD, value
                self.unread.pop(topic.number, None)
                for row in topic.rows:
                    if row in self.under_replicated:
                        # Only the setting was unknown until now: the ISR has been below it since it became small.
                        self._compare_with_min_isr(table, row, self.under_replicated[row] if first else self.now_us)

    def set_default_min_isr(self, table: PartitionTable, value: int) -> None:
        """The brokers' own setting; O(under-replicated partitions)."""
        self.min_isr = value
        for row in self.under_replicated:
            self._compare_with_min_isr(table, row, self.now_us)

    def needed(self, table: PartitionTable, row: int) -> int | None:
        """The smallest ISR with which the leader accepts records with acks=all; None: the setting has not been read."""
        own = table.topic(row).min_isr
        if own == UNREAD:
            return None
        assignment = table.assignment(row)
        return min(self.min_isr if own == BY_DEFAULT else own, len(assignment.origin), len(assignment.target))

    def _compare_with_min_isr(self, table: PartitionTable, row: int, since_us: int) -> None:
        needed = self.needed(table, row)
        if needed is None:
            self.unread[table.topic_of[row]] = None
        elif len(table.isr(row)) < needed:
            self.under_min_isr.setdefault(row, since_us)
        else:
            self.under_min_isr.pop(row, None)

    def _are_complete(self, rows: Iterable[int]) -> None:
        if self.under_replicated:
            for row in rows:
                if self.under_replicated.pop(row, None) is not None:
                    self.under_min_isr.pop(row, None)
