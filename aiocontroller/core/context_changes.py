"""Every change of the context, other than changes of partition or replica states, as a value.

Plans return these values; ``core.apply`` applies them.  The list is complete: a test checks that the controller changes
its context in no other way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from aiocontroller.core.broker_starts import BrokerStarts
from aiocontroller.core.context import ControllerContext, SickBroker
from aiocontroller.core.debts import Debt
from aiocontroller.core.ids import Broker
from aiocontroller.core.leader_preferences import NO_PREFERENCES, LeaderPreferences
from aiocontroller.core.partitions import Topic


class ContextChange(Protocol):
    """A change of the context."""

    def apply(self, context: ControllerContext) -> None:
        """Carry out the change; only ``core.apply`` calls this."""


# -- terms -------------------------------------------------------------------------------------------------------------


class TermBegun(NamedTuple):
    """A term has begun; its context may have been filled while standing by."""

    epoch: int
    epoch_zk_version: int
    leader_preferences: LeaderPreferences = NO_PREFERENCES

    def apply(self, context: ControllerContext) -> None:
        """Set the epoch of the term and of the debts, the fence (the version of ``/controller_epoch``), and the leader
        preferences."""
        context.epoch = context.debts_epoch = self.epoch
        context.epoch_zk_version = self.epoch_zk_version
        context.leader_preferences = self.leader_preferences


class TimeSet(NamedTuple):
    """The wall-clock time of what follows, in microseconds since 1970."""

    now_us: int

    def apply(self, context: ControllerContext) -> None:
        """Partitions that break from now on are recorded as broken since this time."""
        context.table.broken.now_us = self.now_us


# -- brokers -----------------------------------------------------------------------------------------------------------


class BrokersAdded(NamedTuple):
    """Brokers have registered, or have registered again with other endpoints."""

    brokers: Sequence[Broker]

    def apply(self, context: ControllerContext) -> None:
        """Add them, sorted by id; replicas that debts hold back from them are offline."""
        context.add_brokers(self.brokers)


class BrokersRemoved(NamedTuple):
    """Brokers are not registered any longer."""

    brokers: Sequence[int]
    listed: bool = False
    """Brokers and clients are still sent their addresses, until ``BrokerUnlisted``."""

    def apply(self, context: ControllerContext) -> None:
        """Forget them with their shutdowns, suspicions and failed directories; unknown ids are allowed."""
        context.remove_brokers(self.brokers, listed=self.listed)


class BrokersReturning(NamedTuple):
    """Brokers have started again, and the end of their earlier incarnations is about to be dealt with; ``BrokersAdded``
    follows."""

    brokers: Sequence[int]

    def apply(self, context: ControllerContext) -> None:
        """Replace those that were noted before: what has not registered by then is gone."""
        context.expect_back(self.brokers)


class BrokerUnlisted(NamedTuple):
    """A broker that is not registered any longer has been listed for long enough."""

    broker: int

    def apply(self, context: ControllerContext) -> None:
        """Brokers and clients are no longer sent its address."""
        context.unlist(self.broker)


class ShutdownBegun(NamedTuple):
    """A broker is in controlled shutdown."""

    broker: int

    def apply(self, context: ControllerContext) -> None:
        """From now on the broker gets no leaders."""
        context.begin_shutdown(self.broker)


class BrokersSuspected(NamedTuple):
    """Early detection suspects the brokers to be dead."""

    brokers: Sequence[int]

    def apply(self, context: ControllerContext) -> None:
        """From now on the brokers get no leaders."""
        context.suspect(self.brokers)


class BrokersTrusted(NamedTuple):
    """The brokers are no longer suspected."""

    brokers: Sequence[int]

    def apply(self, context: ControllerContext) -> None:
        """Let them lead again; brokers that were not suspected are allowed."""
        context.trust(self.brokers)


class BrokerSick(NamedTuple):
    """Which broker is sick, if any, and what was done about it."""

    sick: SickBroker | None

    def apply(self, context: ControllerContext) -> None:
        """From now on the broker leads only what no other replica can lead, and joins no ISR."""
        context.set_sick(self.sick)


class StartsRecorded(NamedTuple):
    """The record of brokers' starts has changed; None: no record is kept."""

    starts: BrokerStarts | None

    def apply(self, context: ControllerContext) -> None:
        """Replace the record."""
        context.keep_starts(self.starts)


class LastEpochsKnown(NamedTuple):
    """Broker -> the epoch that it had when an earlier controller wrote the partition states."""

    epochs: Mapping[int, int]

    def apply(self, context: ControllerContext) -> None:
        """Add them; the epoch of a broker that is added later replaces its entry."""
        context.last_epochs.update(self.epochs)


class ControllersKnown(NamedTuple):
    """The ids of this and earlier aiocontrollers, without those that brokers have."""

    ids: frozenset[int]

    def apply(self, context: ControllerContext) -> None:
        """Replace the set; replicas on these ids have no broker."""
        context.controllers = self.ids


class LogDirs(NamedTuple):
    """The broker's replicas ``offline`` (rows) are on a failed log directory, those ``online`` no longer are."""

    broker: int
    offline: Sequence[int]
    online: Sequence[int]

    def apply(self, context: ControllerContext) -> None:
        """Replicas held back by debts stay offline, even those in ``online``."""
        context.set_offline_dir_replicas(self.broker, self.offline, self.online)


# -- topics ------------------------------------------------------------------------------------------------------------


class TopicsLoaded(NamedTuple):
    """All topics have been read."""

    def apply(self, context: ControllerContext) -> None:
        """From now on clients' requests about the cluster are answered from the context (``server.cluster_view``).

        Partitions that are broken now were broken before, at an unknown time, unless this process watched as a standby.
        """
        context.loaded = True
        broken = context.table.broken
        broken.loaded_us = broken.loaded_us or broken.now_us


class TopicsRemoved(NamedTuple):
    """The topics are gone, and their rows free."""

    topics: Sequence[Topic]

    def apply(self, context: ControllerContext) -> None:
        """Forget the topics and what is recorded under their rows; O(their partitions)."""
        for topic in self.topics:
            context.remove_topic(topic)


class TopicsGone(NamedTuple):
    """Another process has deleted the topics' znodes; brokers are yet to be notified."""

    topics: Sequence[Topic]

    def apply(self, context: ControllerContext) -> None:
        """Mark them as being deleted, without queuing them: no znode is left to delete."""
        for topic in self.topics:
            context.table.set_topic_deleting(topic, True)


class MinIsrsForgotten(NamedTuple):
    """Settings of the topics have changed."""

    names: Sequence[str]

    def apply(self, context: ControllerContext) -> None:
        """Read their ``min.insync.replicas`` again if it was known; unknown names are allowed."""
        table = context.table
        known = (table.topic_by_name.get(name) for name in self.names)
        table.broken.forget_min_isrs(topic for topic in known if topic is not None)


class MinIsrsRead(NamedTuple):
    """Topics' ``min.insync.replicas`` by name: the value, or ``broken_partitions.BY_DEFAULT``."""

    read: Mapping[str, int]
    gone: Sequence[int] = ()
    """Numbers of topics that could not be read, since they are gone."""

    def apply(self, context: ControllerContext) -> None:
        """Find their partitions that are below it; unknown names are allowed."""
        table = context.table
        table.broken.set_min_isrs(table, self.read)
        for number in self.gone:
            table.broken.unread.pop(number, None)


class DefaultMinIsr(NamedTuple):
    """The brokers' own ``min.insync.replicas``."""

    value: int

    def apply(self, context: ControllerContext) -> None:
        """Check partitions of topics without a setting of their own again; O(under-replicated partitions)."""
        context.table.broken.set_default_min_isr(context.table, self.value)


class DeletionsQueued(NamedTuple):
    """The topics are to be deleted."""

    names: Sequence[str]

    def apply(self, context: ControllerContext) -> None:
        """Queue them and mark them as being deleted; KeyError for a topic that is not in the table."""
        context.queue_topic_deletion(self.names)


class DeletionsWithdrawn(NamedTuple):
    """The topics are not to be deleted after all; their deletion has not started."""

    names: Sequence[str]

    def apply(self, context: ControllerContext) -> None:
        """Remove them from the queue, and unmark them; KeyError for a topic that is not in the table."""
        context.withdraw_topic_deletion(self.names)


class DeletionsStarted(NamedTuple):
    """Requests to delete the topics are about to be sent."""

    names: Sequence[str]

    def apply(self, context: ControllerContext) -> None:
        """Enter them in ``topics_with_deletion_started``; they stay queued."""
        context.begin_topic_deletion(self.names)


class DeletionsHalted(NamedTuple):
    """The topics are ineligible for deletion until it is resumed."""

    names: Sequence[str]

    def apply(self, context: ControllerContext) -> None:
        """Enter them in ``topics_ineligible_for_deletion``; they stay queued."""
        context.mark_topics_ineligible_for_deletion(self.names)


class DeletionsResumed(NamedTuple):
    """The topics are eligible for deletion again."""

    names: Sequence[str]

    def apply(self, context: ControllerContext) -> None:
        """The reverse of ``DeletionsHalted``; topics that were eligible are allowed."""
        context.resume_topic_deletion(self.names)


class DeletionsUndecided(NamedTuple):
    """Requests to delete topics wait for a broker's settings."""

    names: Sequence[str]

    def apply(self, context: ControllerContext) -> None:
        """Replace the list; it is empty when no request waits."""
        context.deletions_undecided = list(self.names)


class DeletionsWatched(NamedTuple):
    """Topics whose deletion stops waiting for brokers' answers when a timer ends; without topics, no timer runs."""

    topics: tuple[Topic, ...] = ()

    def apply(self, context: ControllerContext) -> None:
        """Replace the watched topics."""
        context.deletions_watched = self.topics


class LeftBehind(NamedTuple):
    """Replicas, broker -> rows, that the deletion of their topics does not wait for."""

    replicas: Mapping[int, Iterable[int]]

    def apply(self, context: ControllerContext) -> None:
        """Add them to the replicas that are left behind."""
        context.leave_behind(self.replicas)


# -- reassignments -----------------------------------------------------------------------------------------------------


class ReassignmentsBegun(NamedTuple):
    """The partitions are being moved."""

    rows: Sequence[int]
    cancelled: Sequence[int] = ()
    """Those of the rows whose reassignment in progress is cancelled."""

    def apply(self, context: ControllerContext) -> None:
        """Track the rows; one that is already being moved gets a new target."""
        context.begin_reassignments(self.rows, self.cancelled)


class ReassignmentsTold(NamedTuple):
    """Which replicas of partitions being moved are told of the move now."""

    rows: Sequence[int]
    untold: Sequence[int] = ()
    """Those of the rows whose leader epoch could not be raised, so that brokers would not heed what they are sent."""

    def apply(self, context: ControllerContext) -> None:
        """Note the untold rows, and forget that the others were."""
        context.tell_of_reassignments(self.rows, self.untold)


class ReassignmentsEnded(NamedTuple):
    """The partitions are not being moved any longer."""

    rows: Sequence[int]

    def apply(self, context: ControllerContext) -> None:
        """Forget the rows, cancelled or not; rows that were not moving are allowed."""
        context.end_reassignments(self.rows)


class NonReplicasNoted(NamedTuple):
    """Rows with brokers that are not replicas, and were in the ISR when it was read."""

    found: Mapping[int, tuple[int, ...]]

    def apply(self, context: ControllerContext) -> None:
        """Add them to ``read_with_non_replicas``."""
        context.read_with_non_replicas.update(self.found)


class NonReplicasDropped(NamedTuple):
    """The non-replicas of these rows are about to be dropped, or there are none."""

    rows: Sequence[int]

    def apply(self, context: ControllerContext) -> None:
        """Take them from ``read_with_non_replicas``; others are allowed."""
        for row in self.rows:
            context.read_with_non_replicas.pop(row, None)


# -- debts -------------------------------------------------------------------------------------------------------------


class HeldBack(NamedTuple):
    """New rows; they are held back from brokers that owe the same partition of an earlier topic."""

    rows: Sequence[int]

    def apply(self, context: ControllerContext) -> None:
        """The replicas count as offline on those brokers; O(1) without debts."""
        context.hold_back(self.rows)


class HoldReleased(NamedTuple):
    """Rows that are no longer held back from the broker."""

    broker: int
    rows: Sequence[int]

    def apply(self, context: ControllerContext) -> None:
        """Make the replicas online again; rows that were not held back are allowed."""
        context.release_hold(self.broker, self.rows)


class DebtsStored(NamedTuple):
    """The contents of a znode of debts, partition -> topic id; version -1: there is no znode."""

    broker: int
    topic: str
    partitions: Mapping[int, bytes]
    version: int

    def apply(self, context: ControllerContext) -> None:
        """Replace what the broker owes of the topic; debts that stay keep their objects and their state."""
        context.debts.set(self.broker, self.topic, self.partitions, self.version)


class DebtsGivenUp(NamedTuple):
    """Debts that are no longer owed, even if znodes hold them; ``epoch``: of the last controller that kept debts."""

    debts: Sequence[Debt]
    epoch: int

    def apply(self, context: ControllerContext) -> None:
        """Forget the debts, and note the epoch."""
        context.debts_epoch = self.epoch
        context.debts.give_up(self.debts)


class DebtParents(NamedTuple):
    """Broker -> 0 if the parent znode of its debts exists, else the code with which ZooKeeper refused to create it."""

    codes: Mapping[int, int]

    def apply(self, context: ControllerContext) -> None:
        """Add to the known codes, or replace them."""
        context.debt_parents = {**context.debt_parents, **self.codes}


class DebtParentsForgotten(NamedTuple):
    """The parents of debts may have been deleted."""

    def apply(self, context: ControllerContext) -> None:
        """Forget all codes, so that the next debt creates its parent."""
        context.debt_parents = {}


class DebtsRefused(NamedTuple):
    """Brokers have refused to delete these replicas, and are to be asked again."""

    fenced: Mapping[Debt, bool]
    """Debt -> whether the broker already knows the leader epoch of the request."""

    def apply(self, context: ControllerContext) -> None:
        """Mark them as not asked for, each with its ``fenced``."""
        for debt, fenced in self.fenced.items():
            debt.asked, debt.fenced = False, fenced


class DebtsUnpaid(NamedTuple):
    """Debts that are paid, but still in ZooKeeper because their removal failed; brokers are to be asked again."""

    debts: Sequence[Debt]

    def apply(self, context: ControllerContext) -> None:
        """Mark them as not asked for."""
        for debt in self.debts:
            debt.asked = False


class DebtsNotAsked(NamedTuple):
    """The broker has lost its requests, and is to be asked again."""

    broker: int

    def apply(self, context: ControllerContext) -> None:
        """Mark all debts of the broker as not asked for, and count its attempts from 0 again."""
        context.debt_attempts.pop(self.broker, None)
        for debt in context.debts.of_broker(self.broker):
            debt.asked = False


class DebtAttempts(NamedTuple):
    """The number of consecutive deletions that the broker did not carry out."""

    broker: int
    attempts: int

    def apply(self, context: ControllerContext) -> None:
        """Replace the broker's number; 0 removes it."""
        if self.attempts:
            context.debt_attempts[self.broker] = self.attempts
        else:
            context.debt_attempts.pop(self.broker, None)
