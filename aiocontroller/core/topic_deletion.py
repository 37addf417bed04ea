"""Decides which topics can be deleted and the next step of each (Kafka's ``TopicDeletionManager``).

A topic that is *queued* (an entry in ``/admin/delete_topics``) goes through these steps; the sets are in the context:
 1. *eligible*: queued, no replica's deletion in progress, not ineligible;
 2. *started*: its partitions are NonExistentPartition, brokers forget it, replicas on live brokers are
    ReplicaDeletionStarted, those on dead ones ReplicaDeletionIneligible;
 3. answers turn replicas ReplicaDeletionSuccessful, or Ineligible if a broker failed or refused;
 4. all Successful: the topic's znodes are deleted, the entry last, so that a failover at any point begins again at 1.

*Ineligible* topics wait for a reassignment to end or, if they have no id, for a dead broker to start.  A topic with an
id does not wait for brokers that are dead, refuse or are silent.  It *leaves its replicas behind* there: they become
Successful, and debts of their brokers before the znodes are deleted (``core.debts``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Changes
from aiocontroller.core.effects import Effects
from aiocontroller.core.events import StopReplicaResponseReceived
from aiocontroller.core.ids import NO_TOPIC_ID
from aiocontroller.core.partitions import Topic
from aiocontroller.core.states import ReplicaState

Replicas = dict[int, list[int]]
"""Broker id -> rows."""
Transition = tuple[ReplicaState, Replicas]
_WAY = (ReplicaState.OfflineReplica, ReplicaState.ReplicaDeletionStarted, ReplicaState.ReplicaDeletionSuccessful)
"""The states in which a replica is deleted."""
_STAYING = (
    ReplicaState.NonExistentReplica,
    ReplicaState.ReplicaDeletionIneligible,
    ReplicaState.ReplicaDeletionSuccessful,
)
"""The states of replicas to which nothing happens when their broker fails."""


def to_be_queued(context: ControllerContext, names: Iterable[str]) -> list[str]:
    """Topics whose deletion is requested and not queued yet."""
    return [name for name in names if name in context.table.topic_by_name and name not in context.topics_to_be_deleted]


def not_started(context: ControllerContext) -> list[str]:
    """Queued topics that are still as they were."""
    known, started = context.table.topic_by_name, context.topics_with_deletion_started
    return [name for name in context.topics_to_be_deleted if name in known and name not in started]


def to_be_halted(context: ControllerContext, names: Iterable[str]) -> list[str]:
    """Topics that become ineligible for deletion now."""
    return [name for name in names if name not in context.topics_ineligible_for_deletion]


def to_be_started(context: ControllerContext, topics: Iterable[Topic]) -> list[Topic]:
    """Those whose deletion has not started yet."""
    return [topic for topic in topics if topic.name not in context.topics_with_deletion_started]


def is_being_reassigned(context: ControllerContext, name: str) -> bool:
    """Whether a partition of the topic is being moved; False for an unknown topic."""
    topic = context.table.topic_by_name.get(name)
    return topic is not None and any(row in context.partitions_being_reassigned for row in topic.partitions())


def to_be_resumed(context: ControllerContext, names: Iterable[str]) -> list[str]:
    """Queued topics, except those that a reassignment still blocks.

    Kafka ignores the reassignment when a broker starts, and then moves replicas that have been deleted already.
    """
    return [name for name in names if name in context.topics_to_be_deleted and not is_being_reassigned(context, name)]


def replicas_of(context: ControllerContext, topics: Iterable[Topic]) -> Replicas:
    """Every replica of the topics."""
    table = context.table
    found: Replicas = {}
    for topic in topics:
        for row in topic.partitions():
            for broker in table.replicas(row):
                found.setdefault(broker, []).append(row)
    return found


def replicas_in_state(context: ControllerContext, topic: Topic, state: ReplicaState) -> Replicas:
    """Broker -> the rows of the topic's replicas in this state; brokers without any are left out."""
    return {
        broker: found
        for broker, rows in replicas_of(context, (topic,)).items()
        if (found := [row for row in rows if context.table.replica_state(row, broker) is state])
    }


class DeletionProgress(NamedTuple):
    """The work that ``resume_deletions`` finds."""

    complete: list[Topic]
    """Topics whose replicas are all deleted: their znodes may be deleted."""
    retry: Replicas
    """Ineligible replicas of topics without a deletion in progress: they become Offline to be tried again."""
    start: list[Topic]


def progress(context: ControllerContext) -> DeletionProgress:
    """The next step of every queued topic, in order of queueing."""
    found = DeletionProgress([], {}, [])
    for name in context.topics_to_be_deleted:
        topic = context.table.topic_by_name.get(name)
        if topic is None:
            continue
        states = _states(context, topic)
        if states <= {ReplicaState.ReplicaDeletionSuccessful}:
            found.complete.append(topic)
            continue
        deleting = ReplicaState.ReplicaDeletionStarted in states
        if not deleting and ReplicaState.ReplicaDeletionIneligible in states:
            for broker, rows in replicas_in_state(context, topic, ReplicaState.ReplicaDeletionIneligible).items():
                found.retry.setdefault(broker, []).extend(rows)
        if not deleting and name not in context.topics_ineligible_for_deletion and not waits_for_debts(context, topic):
            found.start.append(topic)
    return found


def waits_for_debts(context: ControllerContext, topic: Topic) -> bool:
    """Whether replicas of an earlier topic of this name must be deleted first."""
    return topic.name in context.debts.topics and waits_for_all(context, topic)


def _states(context: ControllerContext, topic: Topic) -> set[ReplicaState]:
    table = context.table
    return {
        ReplicaState(state)
        for interned in {table.replica_states_of[row] for row in topic.partitions()}
        for state in table.replica_states.values[interned]
    }


def never_created(context: ControllerContext, topics: Iterable[Topic]) -> Effects:
    """Replicas that no broker was asked for become Offline, from where they can be deleted.

    Such a replica was assigned, but then its partition's leader epoch could not be raised: the state was unreadable.
    No transition fits: it may be the leader of a state that was read later, and a leader never becomes NewReplica.
    """
    found: Replicas = {}
    for topic in topics:
        for broker, rows in replicas_in_state(context, topic, ReplicaState.NonExistentReplica).items():
            found.setdefault(broker, []).extend(rows)
    return Effects(replicas=[(found, ReplicaState.OfflineReplica)])


class Deletion(NamedTuple):
    """The replicas of topics whose deletion starts, by what happens to them."""

    delete: Replicas
    """Replicas on live brokers that are not deleted yet."""
    left: Replicas
    """Replicas on dead brokers or failed directories, to be left behind."""
    ineligible: Replicas
    """Such replicas of topics without ids that are not marked Ineligible yet."""
    blocked: list[str]
    """Topics with replicas of the latter kind, marked or not."""
    nowhere: Replicas
    """Replicas on no broker, since their assignments name a controller: no broker is asked, and nothing is deleted."""

    def transitions(self) -> list[Transition]:
        """The replicas' transitions in their order; ``left`` is not among them."""
        return [
            (ReplicaState.OfflineReplica, self.delete),
            (ReplicaState.ReplicaDeletionStarted, self.delete),
            (ReplicaState.ReplicaDeletionIneligible, self.ineligible),
            *((state, self.nowhere) for state in _WAY if self.nowhere),
        ]


def plan_deletion(context: ControllerContext, topics: Iterable[Topic]) -> Deletion:
    """What becomes of each replica that has not been deleted yet."""
    table = context.table
    plan = Deletion({}, {}, {}, [], {})
    for topic in topics:
        blocked = False
        for broker, rows in replicas_of(context, (topic,)).items():
            for row in rows:
                state = table.replica_state(row, broker)
                if state is ReplicaState.ReplicaDeletionSuccessful:
                    continue  # already deleted from its disk
                if broker in context.controllers:
                    plan.nowhere.setdefault(broker, []).append(row)
                    continue
                if context.is_replica_online(row, broker):
                    plan.delete.setdefault(broker, []).append(row)
                    continue
                if not waits_for_all(context, topic):
                    plan.left.setdefault(broker, []).append(row)
                    continue
                blocked = True
                if state is not ReplicaState.ReplicaDeletionIneligible:
                    plan.ineligible.setdefault(broker, []).append(row)
        if blocked:
            plan.blocked.append(topic.name)
    return plan


class Failure(NamedTuple):
    """Replicas of queued topics that could not be deleted, by what happens to them."""

    left: Replicas
    """Replicas that a started deletion does not wait for, to be left behind."""
    early: Replicas
    """Such replicas before the deletion starts, which will leave them behind."""
    standing: Replicas
    """Replicas that are waited for and must become OfflineReplica before they can become Ineligible."""
    ineligible: Replicas
    """All replicas that are waited for and become Ineligible."""
    halted: dict[str, None]
    """Their topics."""
    queued: dict[str, None]
    """All queued topics with one of the replicas."""

    def transitions(self) -> list[Transition]:
        """The replicas' transitions in their order; empty mappings are allowed."""
        ineligible = [
            (ReplicaState.OfflineReplica, self.standing),
            (ReplicaState.ReplicaDeletionIneligible, self.ineligible),
        ]
        return [(ReplicaState.OfflineReplica, self.early), *(ineligible if self.ineligible else ())]


def plan_failure(context: ControllerContext, replicas: Replicas) -> Failure:
    """Replicas that are deleted, or known to have failed, stay as they are."""
    table, plan = context.table, Failure({}, {}, {}, {}, {}, {})
    for broker, rows in replicas.items():
        for row in rows:
            topic, state = table.topic(row), table.replica_state(row, broker)
            if topic.name not in context.topics_to_be_deleted:
                continue
            plan.queued[topic.name] = None
            waited_for = waits_for_all(context, topic)
            fitting: list[Replicas] = []
            if not waited_for and topic.name in context.topics_with_deletion_started:
                fitting = [plan.left]
            elif state not in _STAYING:
                if state not in (ReplicaState.OfflineReplica, ReplicaState.ReplicaDeletionStarted):
                    fitting.append(plan.standing if waited_for else plan.early)
                if waited_for:
                    fitting.append(plan.ineligible)
                    plan.halted[topic.name] = None
            for found in fitting:
                found.setdefault(broker, []).append(row)
    return plan


class Answered(NamedTuple):
    """The replicas whose deletion a broker was asked for, by its answer."""

    deleted: list[int]
    failed: list[int]


def answered(context: ControllerContext, event: StopReplicaResponseReceived) -> Answered:
    """Replicas that a reassignment removed are left out: ``controller.debts`` handles them."""
    table, found = context.table, Answered([], [])
    broker = context.brokers.get(event.broker)
    if broker is None or broker.epoch != event.broker_epoch:
        return found
    code_of, started = event.codes(), ReplicaState.ReplicaDeletionStarted
    for row, topic in zip(event.asked.rows, event.asked.topics, strict=True):
        known = table.topic_of[row] >= 0 and table.topic(row) is topic
        if known and table.replica_state(row, event.broker) is started:
            (found.failed if code_of(topic.name, table.index_of[row]) else found.deleted).append(row)
    return found


def unanswered(context: ControllerContext, topics: Iterable[Topic]) -> list[Replicas]:
    """For each topic that still exists, the replicas that their brokers are deleting."""
    started = ReplicaState.ReplicaDeletionStarted
    return [replicas_in_state(context, topic, started) for topic in topics if _exists(context, topic)]


def to_be_watched(context: ControllerContext, topics: Iterable[Topic]) -> tuple[Topic, ...]:
    """Topics whose deletion does not wait for all replicas."""
    return tuple(topic for topic in topics if _exists(context, topic) and not waits_for_all(context, topic))


def being_deleted(context: ControllerContext) -> list[Topic]:
    """Topics with replicas that their brokers are deleting."""
    known, started = context.table.topic_by_name, ReplicaState.ReplicaDeletionStarted
    topics = [known[name] for name in context.topics_with_deletion_started if name in known]
    return [topic for topic in topics if started in _states(context, topic)]


def _exists(context: ControllerContext, topic: Topic) -> bool:
    return context.table.topic_by_name.get(topic.name) is topic


def way_to_successful(context: ControllerContext, replicas: Replicas) -> list[Transition]:
    """The valid transitions of replicas that are left behind, from any state; deleted ones need none."""
    state = context.table.replica_state
    return [
        (step, {b: [row for row in rows if state(row, b) not in _WAY[at:]] for b, rows in replicas.items()})
        for at, step in enumerate(_WAY)
    ]


def waits_for_all(context: ControllerContext, topic: Topic) -> bool:
    """Whether the deletion waits for all replicas: without topic ids, leftovers could pass for a new topic's."""
    return topic.id == NO_TOPIC_ID or not context.topic_ids_supported


def left_behind(context: ControllerContext, topics: Iterable[Topic]) -> Changes:
    """The debts that deleting these topics makes."""
    changes = Changes(context.debts)
    for topic in topics:
        for row in topic.partitions():
            for broker in context.left_behind.get(row, ()):
                changes.owe(broker, topic.name, topic.id, context.table.index_of[row])
    return changes


def blocked_at_failover(context: ControllerContext, names: Iterable[str]) -> list[str]:
    """Queued topics that cannot be deleted now: a partition is being reassigned, or a replica of one without an id
    is not online."""
    table = context.table
    blocked = []
    for name in names:
        topic = table.topic_by_name.get(name)
        if topic is None:
            continue
        rows = topic.partitions()
        if any(row in context.partitions_being_reassigned for row in rows) or any(
            waits_for_all(context, topic)
            and not context.is_replica_online(row, broker)
            and broker not in context.controllers
            for row in rows
            for broker in table.replicas(row)
        ):
            blocked.append(name)
    return blocked


def replicas_to_delete(context: ControllerContext) -> int:
    """Replicas of queued topics that are not deleted yet."""
    return sum(
        state is not ReplicaState.ReplicaDeletionSuccessful
        for topic in _queued(context)
        for state in _state_of_each(context, topic)
    )


def replicas_ineligible_to_delete(context: ControllerContext) -> int:
    """Replicas of queued topics that cannot be deleted now."""
    return sum(
        state is ReplicaState.ReplicaDeletionIneligible
        for topic in _queued(context)
        for state in _state_of_each(context, topic)
    )


def _queued(context: ControllerContext) -> list[Topic]:
    known = context.table.topic_by_name
    return [known[name] for name in context.topics_to_be_deleted if name in known]


def _state_of_each(context: ControllerContext, topic: Topic) -> list[ReplicaState]:
    table = context.table
    return [
        ReplicaState(state)
        for row in topic.partitions()
        for state in table.replica_states.values[table.replica_states_of[row]]
    ]
