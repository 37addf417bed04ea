"""Compares memory with ZooKeeper, one slice at a time; pure.

A difference is a *suspicion* at first, because a change may be in progress.  If a second look finds it again, it is a
*finding*, which is recorded and repaired (``controller.audit``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.effects import Effects, Entered, LeaderAndIsrRequests
from aiocontroller.core.ids import NO_TOPIC_ID, Broker, LeaderAndIsr, TopicAssignment, of_different_topics
from aiocontroller.core.leadership_changes import Written
from aiocontroller.core.partitions import PartitionTable, Topic
from aiocontroller.core.states import PartitionState


class DifferenceKind(StrEnum):
    """The kind of difference; also the metric's tag."""

    BROKER = "broker"
    """A broker's registration differs from memory, or only one of the two has it."""
    TOPIC = "topic"
    """Only memory or only ZooKeeper has it."""
    TOPIC_ID = "topic_id"
    PARTITIONS = "partitions"
    """The topic has more partitions in ZooKeeper, or fewer."""
    ASSIGNMENT = "assignment"
    STATE = "state"
    """Leader, leader epoch, ISR, controller epoch, recovery state or version differ in ZooKeeper."""
    MISSING_STATE = "missing_state"
    DEAD_LEADER = "dead_leader"
    """Both agree on a leader that is not registered."""
    UNHEARD = "unheard"
    """A request or notification in ZooKeeper that should have been handled."""


IN_TOPIC_ZNODE = frozenset({DifferenceKind.TOPIC_ID, DifferenceKind.PARTITIONS, DifferenceKind.ASSIGNMENT})
"""What ``compare_topic`` finds, for all partitions at once."""

Key = tuple[DifferenceKind, str]


class AuditFinding(NamedTuple):
    """``subject`` is for people to read.  Without one, ``topic`` is empty and ``partition`` and ``broker`` are -1."""

    kind: DifferenceKind
    subject: str
    found: str
    expected: str
    topic: str = ""
    partition: int = -1
    broker: int = -1

    @property
    def key(self) -> Key:
        """What identifies a difference between the first and the second look."""
        return self.kind, self.subject

    def __str__(self) -> str:
        return f"{self.subject}: found {self.found}, expected {self.expected} ({self.kind})"


class Above(NamedTuple):
    """The highest epochs that brokers may know of a partition: the next ones sent must be higher."""

    leader_epoch: int
    partition_epoch: int


def shown(state: LeaderAndIsr | None) -> str:
    """A state, for people."""
    if state is None:
        return "no state"
    return (
        f"leader {state.leader}, leader epoch {state.leader_epoch}, ISR {list(state.isr)}, "
        f"controller epoch {state.controller_epoch}, version {state.partition_epoch}"
    )


# -- lists -------------------------------------------------------------------------------------------------------------


def compare_brokers(
    context: ControllerContext, found: Sequence[Broker], unreadable: Collection[int]
) -> Iterator[AuditFinding]:
    """Differences between the registrations that were found and the known brokers, by broker id."""
    registered = {broker.id: broker for broker in found}
    for broker in sorted({*registered, *context.brokers}.difference(unreadable)):
        there, known = registered.get(broker), context.brokers.get(broker)
        if there != known:
            yield AuditFinding(DifferenceKind.BROKER, f"broker {broker}", _broker(there), _broker(known), broker=broker)


def _broker(broker: Broker | None) -> str:
    if broker is None:
        return "none"
    endpoints = ", ".join(f"{e.listener}://{e.host}:{e.port}" for e in broker.endpoints)
    return f"epoch {broker.epoch} at {endpoints} rack {broker.rack}"


def compare_topics(
    context: ControllerContext, found: Iterable[str], unreadable: Collection[str] = ()
) -> Iterator[AuditFinding]:
    """``unreadable`` names the topics that memory leaves out because their znodes cannot be read."""
    present, known = set(found), context.table.topic_by_name  # membership only
    for name in sorted(present.difference(known, unreadable)):
        yield AuditFinding(DifferenceKind.TOPIC, f"topic {name}", "in ZooKeeper", "no such topic", topic=name)
    for name in [name for name in known if name not in present]:
        yield AuditFinding(DifferenceKind.TOPIC, f"topic {name}", "not in ZooKeeper", "the topic", topic=name)


# -- topics ------------------------------------------------------------------------------------------------------------


def compare_topic(context: ControllerContext, topic: Topic, found: TopicAssignment) -> Iterator[AuditFinding]:
    """Compares id, partitions and assignments; skips partitions being reassigned, which are written step by step."""
    name, table = topic.name, context.table
    if found.topic_id != topic.id != NO_TOPIC_ID:
        yield AuditFinding(DifferenceKind.TOPIC_ID, f"topic {name}", found.topic_id.hex(), topic.id.hex(), topic=name)
        return
    known = {number: row for number, row in enumerate(topic.rows) if row >= 0}
    for number in sorted(known.keys() ^ found.partitions.keys()):
        there, here = ("no partition", "one") if number in known else ("a partition", "none")
        yield AuditFinding(DifferenceKind.PARTITIONS, f"{name}-{number}", there, here, name, number)
    for number, row in known.items():
        there_ = found.partitions.get(number)
        if there_ is None or row in context.partitions_being_reassigned:
            continue
        assignment = table.assignment(row)
        if there_ is not assignment and there_ != assignment:
            yield AuditFinding(
                DifferenceKind.ASSIGNMENT, f"{name}-{number}", str(there_), str(assignment), name, number
            )


def replaced_topics(before: PartitionTable, table: PartitionTable) -> list[Topic]:
    """The topics of ``before`` that another process has deleted and created again under their names.

    Left out are topics whose znode has another id but one of their states is as it was (as in ``is_still_there``), and
    those whose deletion was requested: brokers are deleting their replicas.
    """
    found = []
    for name, topic in before.topic_by_name.items():
        present = table.topic_by_name.get(name)
        if present is None or topic.deleting or not of_different_topics(topic.id, present.id):
            continue
        if not _shares_a_state(before, topic, table, present):
            found.append(topic)
    return found


def rewritten_topics(before: PartitionTable, table: PartitionTable) -> list[TopicAssignment]:
    """Topics of ``before`` whose znodes another process has rewritten without our id, or without some partitions.

    Each with our id and the partitions that are missing, perhaps none.  Left out are topics whose deletion was
    requested, and those that another topic of the same name has replaced: without a common id, a topic is the same if
    one of its states is as it was.
    """
    found = []
    for name, topic in before.topic_by_name.items():
        present = table.topic_by_name.get(name)
        if present is None or topic.deleting:
            continue
        topic_id = present.id if topic.id == NO_TOPIC_ID else topic.id
        numbers = [n for n, row in enumerate(topic.rows) if row >= 0 > table.row(name, n)]
        if not numbers and topic_id == present.id:
            continue
        if NO_TOPIC_ID != topic.id == present.id or _shares_a_state(before, topic, table, present):
            found.append(TopicAssignment(name, topic_id, {n: before.assignment(topic.rows[n]) for n in numbers}))
    return found


def _shares_a_state(before: PartitionTable, topic: Topic, table: PartitionTable, present: Topic) -> bool:
    """Whether a partition's state is the same in both, or differs only in an ISR that its leader has written.

    Leaders write ISRs themselves up to inter.broker.protocol.version 2.6, and notify the controller later.
    """
    pairs = zip(topic.rows, present.rows, strict=False)
    states = ((before.leadership(row), table.leadership(now)) for row, now in pairs if row >= 0 <= now)
    return any(
        known is not None and found is not None and (found == known or is_isr_written_by_its_leader(known, found))
        for known, found in states
    )


def compare_states(
    context: ControllerContext,
    rows: Sequence[int],
    states: Sequence[LeaderAndIsr | None],
    *,
    brokers_write: bool,
) -> Iterator[AuditFinding]:
    """``brokers_write``: leaders write ISRs themselves and notify the controller later."""
    table = context.table
    for row, found in zip(rows, states, strict=True):
        known = table.leadership(row)
        if found == known:
            if (
                known is not None
                and table.state[row] == PartitionState.OnlinePartition
                and known.leader not in context.brokers
                and not context.needs_no_leader(row)
            ):
                yield _of_state(context, DifferenceKind.DEAD_LEADER, row, shown(found), "a leader that is registered")
        elif found is None:
            yield _of_state(context, DifferenceKind.MISSING_STATE, row, shown(found), shown(known))
        elif not (brokers_write and known is not None and is_isr_written_by_its_leader(known, found)):
            yield _of_state(context, DifferenceKind.STATE, row, shown(found), shown(known))


def _of_state(context: ControllerContext, kind: DifferenceKind, row: int, found: str, expected: str) -> AuditFinding:
    partition = context.table.topic_partition(row)
    return AuditFinding(kind, str(partition), found, expected, *partition)


def is_isr_written_by_its_leader(known: LeaderAndIsr, found: LeaderAndIsr) -> bool:
    """Whether leader and epochs are unchanged: leaders write ISRs up to inter.broker.protocol.version 2.6."""
    return (
        (found.leader, found.leader_epoch) == (known.leader, known.leader_epoch)
        and found.partition_epoch > known.partition_epoch
        and found.leader in found.isr
    )


# -- repair ------------------------------------------------------------------------------------------------------------


class FoundState(NamedTuple):
    """A partition's state znode, None if it is gone, and the epochs that brokers may know besides memory's."""

    row: int
    found: LeaderAndIsr | None
    above: Above


class RepairPlan(NamedTuple):
    """The states that repair partitions."""

    decisions: Decisions
    above: list[int]
    """For each decision, the partition epoch that the znode's version must exceed."""
    hopeless: list[int]
    """Rows that stay as they are, since no replica of them is known to be in sync."""

    def effects(self, context: ControllerContext, written: Written) -> Effects:
        """Brokers get the partitions that ZooKeeper accepted; the others' differences are found again."""
        done = written.done
        return Effects((Entered(done.rows, None, "audit"),), (LeaderAndIsrRequests(done.rows, done.recipients),))


def plan_repairs(context: ControllerContext, states: Iterable[FoundState]) -> RepairPlan:
    """What to write so that ZooKeeper, memory and brokers agree on a leadership that is newer than any they held.

    Left out: New partitions, since the election of their first leader adopts the existing state, and states that were
    written and sent since they were found.
    """
    table, plan = context.table, RepairPlan(Decisions.none(), [], [])
    for row, found, above in states:
        known = table.leadership(row)
        if known is None:
            continue
        if known == found and found.leader_epoch > above.leader_epoch and found.partition_epoch > above.partition_epoch:
            continue
        settled = reconciled(context, row, found, above)
        if settled is None:
            plan.hopeless.append(row)
            continue
        plan.decisions.rows.append(row)
        plan.decisions.leaderships.append(settled)
        plan.decisions.recipients.append(table.replicas(row))
        plan.above.append(max(above.partition_epoch, known.partition_epoch))
    return plan


def reconciled(context: ControllerContext, row: int, found: LeaderAndIsr | None, above: Above) -> LeaderAndIsr | None:
    """The leadership that ZooKeeper and brokers should agree on; None if it cannot be determined.

    ZooKeeper's state wins, as it would with the next controller; if the znode is gone, memory's does, which ZooKeeper
    once confirmed.  Brokers that are not replicas are removed as leader and from the ISR; a leader that is not alive
    stops leading.  ``leader_epoch`` is above any that brokers may know.  ``partition_epoch`` is the version of the
    znode, or -1 if there is none.
    """
    table = context.table
    known, replicas = table.leadership(row), table.replicas(row)
    base = found or known
    if base is None:
        return None
    isr = tuple(r for r in dict.fromkeys(base.isr) if r in replicas)
    if not isr and known is not None:
        isr = tuple(r for r in known.isr if r in replicas)
    if not isr:
        return None
    epochs = [above.leader_epoch, base.leader_epoch] + ([] if known is None else [known.leader_epoch])
    leads = base.leader in isr and context.is_replica_online(row, base.leader, include_shutting_down=True)
    return LeaderAndIsr(
        base.leader if leads else -1,
        max(epochs) + 1,
        isr,
        context.epoch,
        -1 if found is None else found.partition_epoch,
        base.recovery_state,
    )
