"""The controller's state: brokers, partitions, and work in progress (Kafka's ``ControllerContext``).

One coroutine owns it.  Each term starts with a new one, so nothing leaks from one term into the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.broker_starts import BrokerStarts
from aiocontroller.core.columns import take
from aiocontroller.core.debts import Debt, Ledger
from aiocontroller.core.ids import NO_TOPIC_ID, Broker, TopicAssignment
from aiocontroller.core.leader_preferences import NO_PREFERENCES, Replicas
from aiocontroller.core.partitions import NO_ISR, PartitionTable, Topic


class SickBroker(NamedTuple):
    """A broker that was judged to be sick, and is treated as such."""

    broker: int
    epoch: int
    relieved: frozenset[int] = frozenset()
    """Rows whose ISR it was removed from."""
    unlisted: bool = False
    """It is left out of the live brokers of UpdateMetadata while it leads nothing."""


class ControllerContext:
    """What the active controller knows of the cluster (Kafka's class of this name)."""

    def __init__(self, epoch: int = 0, epoch_zk_version: int = 0) -> None:
        self.epoch = epoch
        """This term's controller epoch; 0 when not the active controller."""
        self.epoch_zk_version = epoch_zk_version
        """Version of ``/controller_epoch`` from our election; it fences every write."""
        self.topic_ids_supported = True
        """Brokers compare topic ids, and so refuse the log of an earlier topic of the same name (Kafka 2.8)."""
        self.leader_preferences = NO_PREFERENCES
        self.loaded = False
        """All topics have been read: a topic that is not in the table does not exist."""
        self.table = PartitionTable()
        self.brokers: dict[int, Broker] = {}
        """Every registered broker by id, including those shutting down."""
        self.departed: dict[int, Broker] = {}
        """Brokers that are no longer registered, whose addresses brokers and clients are still sent for a while."""
        self.gone_since: dict[int, int] = {}
        """Broker that was registered in this term and is gone -> when it left, in microseconds since 1970."""
        self.returning: frozenset[int] = frozenset()
        """Registered brokers that have started again: they count as gone while the end of their earlier incarnations is
        dealt with, and then as started.  No replica leads meanwhile because they are away."""
        self.shutting_down: dict[int, None] = {}
        """Brokers in controlled shutdown, in order of their requests."""
        self.suspected: dict[int, None] = {}
        """Registered brokers that early detection suspects to be dead, in the order of suspicion."""
        self.sick: SickBroker | None = None
        """The broker whose replicas are taken out of the way.  It is live, but the last choice of every election."""
        self.leaving: frozenset[int] = frozenset()
        """Ids of registered brokers that shut down or are suspected: they must not lead or join an ISR."""
        self.live: frozenset[int] = frozenset()
        """Ids of the brokers that may lead: registered and not leaving."""
        self.controllers: frozenset[int] = frozenset()
        """Ids used by this and earlier aiocontrollers; no broker has such an id, so no replica is there."""
        self.offline_dirs: dict[int, set[int]] = {}
        """Broker -> rows whose replica there is on a failed log directory."""
        self.partitions_being_reassigned: dict[int, None] = {}
        self.cancelled_reassignments: dict[int, None] = {}
        """Rows of these that go back to the replicas that they had before."""
        self.untold_reassignments: dict[int, None] = {}
        """Rows of these whose replicas could not be told of the reassignment: the leader epoch was not raised."""
        self.read_with_non_replicas: dict[int, tuple[int, ...]] = {}
        """Row -> brokers that are not replicas, and were in the ISR when it was read: dropped once a replica leads."""
        self.debts = Ledger()
        """Removed replicas that their brokers have yet to delete."""
        self.debts_epoch = epoch
        """Controller epoch that ZooKeeper records, before debts change, as the last to have managed them."""
        self.debt_parents: dict[int, int] = {}
        """Broker -> 0 if ZooKeeper has a parent znode for its debts, else the code with which it refused one."""
        self.debt_attempts: dict[int, int] = {}
        """Broker -> number of consecutive deletions that it did not carry out."""
        self.held_back: dict[int, set[int]] = {}
        """Broker -> rows held back from it until it has deleted the same partition of an earlier topic of that name.
        Those of registered brokers are in ``offline_dirs`` too, because they are not online."""
        self.left_behind: dict[int, dict[int, None]] = {}
        """row of a topic being deleted -> brokers that the deletion does not wait for; they will owe it."""
        self.deletions_watched: tuple[Topic, ...] = ()
        """Topics whose deletion waits for brokers' answers only until a timer ends."""
        self.deletions_undecided: list[str] = []
        """Requests to delete topics that wait until a broker reports whether it forbids them."""
        self.starts: BrokerStarts | None = None
        """The record of brokers' starts as ZooKeeper has it; None: none is kept, and no replica is eligible."""
        self.last_epochs: dict[int, int] = {}
        """Broker -> epoch of the incarnation whose replicas the partition states refer to."""
        self.topics_to_be_deleted: dict[str, None] = {}
        self.topics_with_deletion_started: dict[str, None] = {}
        self.topics_ineligible_for_deletion: dict[str, None] = {}

    # -- brokers ---------------------------------------------------------------------------------------------------

    def add_brokers(self, brokers: Iterable[Broker]) -> None:
        """Brokers are registered, or registered with other endpoints."""
        for broker in brokers:
            self.brokers[broker.id] = broker
            self.departed.pop(broker.id, None)
            self.gone_since.pop(broker.id, None)
            self.returning = self.returning.difference((broker.id,))
            self.last_epochs[broker.id] = broker.epoch
            if broker.id in self.held_back:
                self.set_offline_dir_replicas(broker.id, self.held_back[broker.id], ())
        self._brokers_changed()

    def remove_brokers(self, ids: Iterable[int], *, listed: bool = False) -> None:
        """Forget brokers that are not registered, and what was known of them; ``listed`` ones stay in ``listed()``."""
        for broker in ids:
            gone = self.brokers.pop(broker, None)
            if gone is not None:
                self.gone_since[broker] = self.table.broken.now_us
                if listed:
                    self.departed[broker] = gone
            self.shutting_down.pop(broker, None)
            self.suspected.pop(broker, None)
            self.offline_dirs.pop(broker, None)
            if self.sick is not None and self.sick.broker == broker:
                self.set_sick(None)
        self._brokers_changed()

    def listed(self) -> list[Broker]:
        """The brokers whose addresses brokers and clients are sent, without a sick one that is to be left out."""
        sick = self.sick
        hidden = None if sick is None or not sick.unlisted or self.leads_any(sick.broker) else sick.broker
        return [broker for broker in (*self.brokers.values(), *self.departed.values()) if broker.id != hidden]

    def leads_any(self, broker: int) -> bool:
        """Whether the broker leads a partition."""
        table = self.table
        leaders, isrs = take(table.partitions_on_broker(broker), table.leader, table.isr_of)
        return any(leader == broker and isr != NO_ISR for leader, isr in zip(leaders, isrs, strict=True))

    def expect_back(self, brokers: Iterable[int]) -> None:
        """These brokers, and no others, count as gone for a moment only."""
        self.returning = frozenset(brokers)

    def unlist(self, broker: int) -> None:
        """Stop sending brokers and clients the address of a departed broker."""
        self.departed.pop(broker, None)

    def leader_order(self) -> Callable[[Replicas], Replicas]:
        """A function that puts a partition's replicas in the order in which they should lead, as of now."""
        return self.leader_preferences.order(self.brokers)

    def begin_shutdown(self, broker: int) -> None:
        """The broker is in controlled shutdown, so it gets no leaders."""
        self.shutting_down[broker] = None
        self._brokers_changed()

    def suspect(self, brokers: Iterable[int]) -> None:
        """Early detection holds the brokers to be dead."""
        self.suspected.update(dict.fromkeys(brokers))
        self._brokers_changed()

    def trust(self, brokers: Iterable[int]) -> None:
        """The brokers are not suspected any longer."""
        for broker in brokers:
            self.suspected.pop(broker, None)
        self._brokers_changed()

    def set_sick(self, sick: SickBroker | None) -> None:
        """Replace what is known of the sick broker; None: there is none."""
        self.sick = sick
        self.leader_preferences = self.leader_preferences._replace(sick=None if sick is None else sick.broker)

    def keep_starts(self, starts: BrokerStarts | None) -> None:
        """Replace the record of brokers' starts."""
        self.starts = starts

    def started_uncleanly(self) -> frozenset[int]:
        """The registered brokers whose present incarnation started uncleanly."""
        if self.starts is None:
            return frozenset()
        known = self.starts.brokers
        return frozenset(b.id for b in self.brokers.values() if b.id in known and known[b.id].clean_from >= b.epoch)

    def unproven_brokers(self) -> frozenset[int]:
        """Those that may still be in the ISR of a leaderless partition since before that start."""
        found = self.started_uncleanly()
        if not found or self.starts is None:
            return found
        known, epochs = self.starts.brokers, self.brokers
        # While the context has an earlier incarnation, its death has not been handled.
        return frozenset(b for b in found if not known[b].proven or known[b].epoch != epochs[b].epoch)

    def _brokers_changed(self) -> None:
        self.brokers = dict(sorted(self.brokers.items()))
        self.leaving = frozenset((*self.shutting_down, *self.suspected))
        self.live = frozenset(self.brokers).difference(self.leaving)

    # -- topics ----------------------------------------------------------------------------------------------------

    def add_partitions(self, found: Sequence[TopicAssignment]) -> Sequence[int]:
        """Add new topics, and new partitions of known ones; returns the new rows."""
        table = self.table
        new = []
        for assignment in found:
            topic = table.topic_by_name.get(assignment.topic)
            if topic is None:
                topic = table.add_topic(assignment.topic, assignment.topic_id)
            elif topic.id == NO_TOPIC_ID != assignment.topic_id:
                table.set_topic_id(topic, assignment.topic_id)
            elif topic.id != assignment.topic_id != NO_TOPIC_ID:
                continue  # perhaps another topic: left to the audit
            partitions = assignment.partitions
            if topic.rows:
                partitions = {n: replicas for n, replicas in partitions.items() if table.row(topic.name, n) < 0}
            new.append((topic, partitions))
        created = table.add_partitions_of(new)
        self.hold_back(created)
        [assigned] = take(created, table.assignment_of)
        moving = {a for a in set(assigned) if table.assignments.values[a].being_reassigned}
        if moving:
            self.begin_reassignments(row for row, a in zip(created, assigned, strict=True) if a in moving)
        return created

    def queue_topic_deletion(self, names: Iterable[str]) -> None:
        """The topics are to be deleted."""
        for name in names:
            self.topics_to_be_deleted[name] = None
            self.table.set_topic_deleting(self.table.topic_by_name[name], True)

    def withdraw_topic_deletion(self, names: Iterable[str]) -> None:
        """The reverse, before the deletion has started."""
        for name in names:
            self.topics_to_be_deleted.pop(name, None)
            self.topics_ineligible_for_deletion.pop(name, None)
            self.table.set_topic_deleting(self.table.topic_by_name[name], False)

    def begin_topic_deletion(self, names: Iterable[str]) -> None:
        """Requests to delete the topics are about to be sent."""
        self.topics_with_deletion_started.update(dict.fromkeys(names))

    def is_held_back(self, topic: str) -> bool:
        """Whether something, such as a reassignment, must end before the deletion of the topic may begin."""
        return topic in self.topics_ineligible_for_deletion and topic not in self.topics_with_deletion_started

    def needs_no_leader(self, row: int) -> bool:
        """Whether the partition's topic is to be deleted.

        While the deletion waits for the partition's reassignment, it does need one: without a leader no replica can
        join the ISR, and the two would wait for each other for ever (as they do in Kafka).
        """
        return self.table.topic(row).deleting and row not in self.partitions_being_reassigned

    def staying(self, rows: Sequence[int]) -> list[int]:
        """Return the partitions without those that need no leader."""
        if len(self.table.not_deleting(rows)) == len(rows):
            return list(rows)
        return [row for row in rows if not self.needs_no_leader(row)]

    def mark_topics_ineligible_for_deletion(self, names: Iterable[str]) -> list[str]:
        """Make topics ineligible for deletion; returns those that were eligible."""
        halted = [name for name in names if name not in self.topics_ineligible_for_deletion]
        self.topics_ineligible_for_deletion.update(dict.fromkeys(halted))
        return halted

    def resume_topic_deletion(self, names: Iterable[str]) -> None:
        """Nothing keeps the topics from being deleted."""
        for name in names:
            self.topics_ineligible_for_deletion.pop(name, None)

    def watch_deletions(self, topics: tuple[Topic, ...]) -> bool:
        """Watch these topics until a timer ends; False if there are none, or others are watched already."""
        if self.deletions_watched or not topics:
            return False
        self.deletions_watched = topics
        return True

    def stop_watching_deletions(self) -> tuple[Topic, ...]:
        """The topics whose deletion was watched."""
        watched, self.deletions_watched = self.deletions_watched, ()
        return watched

    def leave_behind(self, replicas: Mapping[int, Iterable[int]]) -> None:
        """No longer wait for these replicas (broker -> rows) of topics being deleted."""
        for broker, rows in replicas.items():
            for row in rows:
                self.left_behind.setdefault(row, {})[broker] = None

    def remove_topic(self, topic: Topic) -> None:
        """Forget the topic and everything recorded under its rows, since their rows are used again."""
        gone = topic.partitions()
        for row in gone:
            self.partitions_being_reassigned.pop(row, None)
            self.cancelled_reassignments.pop(row, None)
            self.untold_reassignments.pop(row, None)
            self.left_behind.pop(row, None)
            self.read_with_non_replicas.pop(row, None)
        if self.sick is not None:
            self.sick = self.sick._replace(relieved=self.sick.relieved.difference(gone))
        for broker in list(self.held_back):
            self._let_go(broker, gone)
        for broker in list(self.offline_dirs):
            self.set_offline_dir_replicas(broker, (), gone)
        for names in (
            self.topics_to_be_deleted,
            self.topics_with_deletion_started,
            self.topics_ineligible_for_deletion,
        ):
            names.pop(topic.name, None)
        self.table.remove_topic(topic)

    # -- reassignments ---------------------------------------------------------------------------------------------

    def begin_reassignments(self, rows: Iterable[int], cancelled: Iterable[int] = ()) -> None:
        """``cancelled`` are those of the rows whose target is what they had before another reassignment."""
        begun = dict.fromkeys(rows)
        self.partitions_being_reassigned.update(begun)
        for row in begun:
            self.cancelled_reassignments.pop(row, None)
        self.cancelled_reassignments.update(dict.fromkeys(cancelled))

    def tell_of_reassignments(self, rows: Iterable[int], untold: Iterable[int]) -> None:
        """The replicas of these rows are about to be told, except those of the rows ``untold``."""
        for row in rows:
            self.untold_reassignments.pop(row, None)
        self.untold_reassignments.update(dict.fromkeys(untold))

    def end_reassignments(self, rows: Iterable[int]) -> None:
        """The partitions are not being moved any longer."""
        for row in rows:
            self.partitions_being_reassigned.pop(row, None)
            self.cancelled_reassignments.pop(row, None)
            self.untold_reassignments.pop(row, None)

    # -- replicas --------------------------------------------------------------------------------------------------

    def is_replica_online(self, row: int, broker: int, *, include_shutting_down: bool = False) -> bool:
        """Whether the broker is live and its log directory for the partition works."""
        alive = self.brokers if include_shutting_down else self.live
        return broker in alive and row not in self.offline_dirs.get(broker, ())

    def offline_dir_replicas(self, row: int) -> tuple[int, ...]:
        """The partition's replicas that are on failed log directories."""
        if not self.offline_dirs:
            return ()
        return tuple(r for r in self.table.replicas(row) if row in self.offline_dirs.get(r, ()))

    def set_offline_dir_replicas(self, broker: int, offline: Iterable[int], online: Iterable[int]) -> list[int]:
        """Record which of a broker's replicas are on failed directories; returns the newly failed rows, ascending."""
        before = self.offline_dirs.get(broker, set())
        offline = set(offline)
        after = (before - set(online)) | offline | self.held_back.get(broker, set())
        if after:
            self.offline_dirs[broker] = after
        else:
            self.offline_dirs.pop(broker, None)
        return sorted(offline - before)

    # -- debts -----------------------------------------------------------------------------------------------------

    def may_be_deleted(self, debt: Debt) -> bool:
        """Whether the broker may be asked to delete it now: the replica there is not one of the present topic.

        This is checked again for each StopReplica.  A broker is never sent a held-back replica of the present topic, so
        its replica of that name belongs to an earlier topic.
        """
        row = self.table.row(debt.topic, debt.partition)
        return (
            row < 0
            or debt.broker not in self.table.replicas(row)
            or row in self.held_back.get(debt.broker, ())  # membership only
        )

    def hold_back(self, rows: Iterable[int]) -> None:
        """Hold back new partitions and replicas whose brokers owe the same partition of an earlier topic."""
        if not self.debts.topics:
            return
        table = self.table
        for row in rows:
            topic = table.topic(row)
            for broker in self.debts.topics.get(topic.name, ()):
                debt = self.debts.get(broker, topic.name, table.index_of[row])
                if debt is not None and debt.topic_id != topic.id and broker in table.replicas(row):
                    self.held_back.setdefault(broker, set()).add(row)
                    if broker in self.brokers:
                        self.set_offline_dir_replicas(broker, (row,), ())

    def release_hold(self, broker: int, rows: Iterable[int]) -> list[int]:
        """Stop holding these rows back from the broker; returns those that were held back, ascending."""
        held = sorted(self.held_back.get(broker, set()).intersection(rows))
        self._let_go(broker, held)
        self.set_offline_dir_replicas(broker, (), held)
        return held

    def _let_go(self, broker: int, rows: Iterable[int]) -> None:
        left = self.held_back.get(broker, set()).difference(rows)
        if left:
            self.held_back[broker] = left
        else:
            self.held_back.pop(broker, None)
