"""Repairs the audit's findings, by the same steps as ordinary handlers, under the fence.

ZooKeeper wins over memory, as it would with the next controller.  Only where a state znode is gone is memory used,
which holds its last content.

Brokers accept only newer state than they know.  So each repaired partition gets a leader epoch, and a znode version,
above all that brokers may have received, even where the znode has been rewritten or created again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

import msgspec

from aiocontroller.controller import debts
from aiocontroller.controller.leadership_writes import (
    carry_out_effects,
    find_replaced_topics,
    is_of_a_later_controller,
    is_still_there,
    names_and_numbers,
)
from aiocontroller.controller.reassignment import maybe_complete_reassignment, trigger_partition_reassignment
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import (
    handle_partition_state_changes,
    trigger_online_partition_state_change,
)
from aiocontroller.controller.steps import carry_out_steps
from aiocontroller.core.apply import apply
from aiocontroller.core.audit import Above, AuditFinding, DifferenceKind, FoundState, RepairPlan, plan_repairs
from aiocontroller.core.context_changes import TopicsGone, TopicsRemoved
from aiocontroller.core.debts import Changes
from aiocontroller.core.decisions import commit
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.event_kinds import Event
from aiocontroller.core.events import (
    BrokerChange,
    BrokerModifications,
    ConfigChange,
    IsrChangeNotification,
    LogDirEventNotification,
    PartitionModifications,
    TopicChange,
    TopicDeletion,
    ZkPartitionReassignment,
)
from aiocontroller.core.ids import NO_TOPIC_ID, ReplicaAssignment, TopicAssignment, of_different_topics
from aiocontroller.core.leadership_changes import Written
from aiocontroller.core.partitions import NO_ISR, Topic
from aiocontroller.core.reassignment import Refused, check_target
from aiocontroller.core.reassignment_phases import report_refused
from aiocontroller.core.states import PartitionState
from aiocontroller.core.topic_deletion import replicas_of
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.overlap import in_window
from aiocontroller.zookeeper.state_settling import settle_partition_state
from aiocontroller.zookeeper.znodes import BadZNode

log = logging.getLogger(__name__)

WRITTEN_TOGETHER = 8

_OF_LISTS: dict[str, Event] = {
    paths.ISR_CHANGE_NOTIFICATION: IsrChangeNotification(),
    paths.LOG_DIR_EVENT_NOTIFICATION: LogDirEventNotification(),
    paths.DELETE_TOPICS: TopicDeletion(),
    paths.CONFIG_CHANGES: ConfigChange(),
}


async def repair(shell: ControllerShell, findings: Sequence[AuditFinding]) -> None:
    """Repair the findings, kind by kind.  Raises ControllerMovedError."""
    by_kind: dict[DifferenceKind, list[AuditFinding]] = {}
    for finding in findings:
        by_kind.setdefault(finding.kind, []).append(finding)
    for kind, those in by_kind.items():
        await _REPAIRS[kind](shell, those)


# -- repaired by ordinary events ---------------------------------------------------------------------------------------


async def _brokers(shell: ControllerShell, findings: Sequence[AuditFinding]) -> None:
    shell.queue.append(BrokerChange())
    for finding in findings:
        shell.queue.append(BrokerModifications(finding.broker))


async def _topics(shell: ControllerShell, findings: Sequence[AuditFinding]) -> None:
    shell.queue.append(TopicChange())


async def _unheard(shell: ControllerShell, findings: Sequence[AuditFinding]) -> None:
    for path in dict.fromkeys(finding.subject.rpartition("/")[0] for finding in findings):
        shell.queue.append(_OF_LISTS[path])


async def _dead_leaders(shell: ControllerShell, findings: Sequence[AuditFinding]) -> None:
    await _elect(shell, _rows(shell, findings))


# -- topics ------------------------------------------------------------------------------------------------------------


async def _topic_ids(shell: ControllerShell, findings: Sequence[AuditFinding]) -> None:
    """Topic ids differ: another topic of the same name, or ours whose znode was rewritten with another id.

    A wrong id is restored together with the assignments: states written between the two would be of replicas that the
    znode does not name.
    """
    gone: list[Topic] = []
    topics = _known_topics(shell, findings)
    ids = await shell.zk.get_topic_ids([topic.name for topic in topics])
    for topic in topics:
        if await is_still_there(shell, topic):
            log.warning("Restoring the id of topic %s: it is the same topic", topic.name)
            seen = ids.get(topic.name, NO_TOPIC_ID)
            wrong = of_different_topics(seen, topic.id)
            numbers = [number for number, row in enumerate(topic.rows) if row >= 0] if wrong else []
            await _write_topic(shell, topic, numbers, seen=seen)
        else:
            gone.append(topic)
    if gone:
        await forget_deleted_topics(shell, gone)


async def forget_deleted_topics(shell: ControllerShell, topics: Sequence[Topic]) -> None:
    """Forget topics that a foreign write has deleted: record debts for their replicas (``debts``), and inform brokers
    of the deletion before they learn of topics that replace them."""
    context = shell.context
    log.warning("Topics deleted by a foreign write: %s", [topic.name for topic in topics])
    rows = [row for topic in topics for row in topic.partitions()]
    apply(context, TopicsGone(topics))
    if any(row in context.partitions_being_reassigned for row in rows):
        shell.queue.append(ZkPartitionReassignment())  # takes the topic's entries out of the request
    await handle_partition_state_changes(shell, rows, PartitionState.OfflinePartition)
    await handle_partition_state_changes(shell, rows, PartitionState.NonExistentPartition)
    await end_topics(shell, topics)
    await ask_for_deletion(shell, {topic.name for topic in topics})
    shell.queue.append(TopicChange())


async def ask_for_deletion(shell: ControllerShell, names: Collection[str]) -> None:
    """Ask brokers to delete what they owe of these topics, before they learn of others of the same names."""
    await debts.pay(shell, [debt for debt in shell.context.debts if debt.topic in names])


async def end_topics(shell: ControllerShell, topics: Sequence[Topic]) -> None:
    """Inform brokers of the end of topics marked as gone, record debts for replicas, and forget the topics."""
    context, table = shell.context, shell.context.table
    await shell.send_update_metadata(context.brokers, [row for topic in topics for row in topic.partitions()])
    owed = Changes(context.debts)
    for broker, held in replicas_of(context, topics).items():
        for row in held if broker not in context.controllers else ():
            topic = table.topic(row)
            owed.owe(broker, topic.name, topic.id, table.index_of[row])
    await debts.write(shell, owed, "deleted by a foreign write")
    apply(context, TopicsRemoved(topics))


async def _partitions(shell: ControllerShell, findings: Sequence[AuditFinding]) -> None:
    """Create new partitions as usual; write partitions missing from the znode into it again: brokers have them."""
    for topic in _known_topics(shell, findings):
        numbers = [f.partition for f in findings if f.topic == topic.name]
        lost = [number for number in numbers if shell.context.table.row(topic.name, number) >= 0]
        if lost:
            log.warning("Restoring partitions %s of topic %s in its znode", lost, topic.name)
            await _write_topic(shell, topic, lost)
        if len(lost) < len(numbers):
            shell.queue.append(PartitionModifications(topic.name))


async def _assignments(shell: ControllerShell, findings: Sequence[AuditFinding]) -> None:
    """The znode has other replicas after a foreign write: move them by a reassignment, or restore the assignment."""
    context, table = shell.context, shell.context.table
    wanted: dict[int, ReplicaAssignment] = {}
    refused: dict[int, Refused] = {}
    topics = _known_topics(shell, findings)
    read = await shell.zk.get_topic_assignments([topic.name for topic in topics], watch=False)
    ids = {topic.name: topic.id for topic in topics}
    found = {a.topic: a.partitions for a in read.found if not of_different_topics(a.topic_id, ids[a.topic])}
    for row in _rows(shell, findings):
        there = found.get(table.topic(row).name, {}).get(table.index_of[row])
        if there is None or row in context.partitions_being_reassigned:
            continue
        assignment = check_target(context, row, there.target)
        if isinstance(assignment, Refused):
            refused[row] = assignment
        else:
            wanted[row] = assignment
    refused |= await trigger_partition_reassignment(shell, wanted)
    await carry_out_steps(shell, report_refused(context, refused))
    by_topic: dict[str, list[int]] = {}
    for row in refused:
        by_topic.setdefault(table.topic(row).name, []).append(table.index_of[row])
    for name, numbers in by_topic.items():
        log.warning("Restoring the replicas of partitions %s of topic %s", numbers, name)
        await _write_topic(shell, table.topic_by_name[name], numbers)


async def _write_topic(
    shell: ControllerShell, topic: Topic, numbers: Sequence[int], *, seen: bytes = NO_TOPIC_ID
) -> None:
    """Merge our id and these partitions' assignments into the topic's znode; ``seen`` as in ``restore_partitions``."""
    table = shell.context.table
    ours = {number: table.assignment(table.row(topic.name, number)) for number in numbers}
    await restore_partitions(shell, TopicAssignment(topic.name, topic.id, ours), seen)


async def restore_partitions(shell: ControllerShell, ours: TopicAssignment, seen: bytes) -> None:
    """Merge our id and some partitions' assignments into the topic's znode.

    ``seen`` is the id (16 bytes) that the znode had when its topic was found to be ours.  With any other id it is
    another topic's by now, and is left as it is.  If the znode changes meanwhile, or is gone, the next slice finds it.
    """
    read = await shell.zk.get_topic_assignments([ours.topic], watch=True)
    changed = [
        msgspec.structs.replace(
            found, topic_id=ours.topic_id, partitions=dict(sorted((found.partitions | ours.partitions).items()))
        )
        for found in read.found
        if found.topic_id in (ours.topic_id, seen)
    ]
    if not changed:
        shell.auditor.check_soon((ours.topic,))
    await shell.zk.set_topic_assignments(changed, fence=shell.context.epoch_zk_version)


# -- partition states --------------------------------------------------------------------------------------------------


async def _states(shell: ControllerShell, findings: Sequence[AuditFinding]) -> None:
    """Make ZooKeeper, memory and brokers agree on a leadership that is newer than any they held."""
    rows = _rows(shell, findings)
    others = await find_replaced_topics(shell, rows)
    rows = [row for row in rows if shell.context.table.topic(row).name not in others]
    states: list[FoundState] = []
    read = await shell.zk.get_topic_partition_states(*names_and_numbers(shell, rows))
    for row, found in zip(rows, read, strict=True):
        above = shell.auditor.noted.pop(shell.topic_partition(row), Above(-1, -1))
        if isinstance(found, BadZNode):
            shell.report_bad_znodes([found])
            continue
        if found is not None and is_of_a_later_controller(shell, found):
            raise ControllerMovedError(f"another controller wrote the state of {shell.topic_partition(row)}")
        states.append(FoundState(row, found, above))
    plan = plan_repairs(shell.context, states)
    for row in plan.hopeless:
        log.error("%s stays without a leader: no replica of it is known to be in sync", shell.topic_partition(row))
    written = await _settle(shell, plan)
    batch = shell.new_batch()
    carry_out_effects(shell, plan.effects(shell.context, written), batch)
    await shell.send(batch)
    await _elect(shell, rows)
    await maybe_complete_reassignment(shell, rows)


async def _settle(shell: ControllerShell, plan: RepairPlan) -> Written:
    """Write the states, each above the versions that brokers may know; the next slice finds those that conflicted."""
    context, decisions = shell.context, plan.decisions
    waiting = list(reversed(range(len(decisions.rows))))
    versions: dict[int, int] = {}

    async def work() -> None:
        while waiting:
            at = waiting.pop()
            partition = shell.topic_partition(decisions.rows[at])
            version = await settle_partition_state(
                shell.zk.client, partition, decisions.leaderships[at], plan.above[at], fence=context.epoch_zk_version
            )
            if version >= 0:
                versions[at] = version
            else:
                shell.auditor.check_soon((partition.topic,))

    await in_window(WRITTEN_TOGETHER if len(decisions.rows) > 1 else 1, work)
    done = decisions.select(sorted(versions))
    commit(context.table, done, [versions[at] for at in sorted(versions)])
    return Written(done)


async def _elect(shell: ControllerShell, rows: Sequence[int]) -> None:
    """Elect where the leader is not alive; also handles offline partitions that have a leader now."""
    context, table = shell.context, shell.context.table
    leaderless = [
        row
        for row in table.not_deleting(rows)
        if table.isr_of[row] != NO_ISR
        and not context.is_replica_online(row, table.leader[row], include_shutting_down=True)
    ]
    await handle_partition_state_changes(shell, leaderless, PartitionState.OfflinePartition)
    if not shell.context.table.not_online.keys().isdisjoint(rows):
        await trigger_online_partition_state_change(shell)


def _rows(shell: ControllerShell, findings: Sequence[AuditFinding]) -> list[int]:
    found = (shell.context.table.row(f.topic, f.partition) for f in findings)
    return sorted({row for row in found if row >= 0})


def _known_topics(shell: ControllerShell, findings: Sequence[AuditFinding]) -> list[Topic]:
    by_name = shell.context.table.topic_by_name
    return [by_name[name] for name in dict.fromkeys(f.topic for f in findings) if name in by_name]


_REPAIRS: dict[DifferenceKind, Callable[[ControllerShell, Sequence[AuditFinding]], Awaitable[None]]] = {
    DifferenceKind.BROKER: _brokers,
    DifferenceKind.TOPIC: _topics,
    DifferenceKind.TOPIC_ID: _topic_ids,
    DifferenceKind.PARTITIONS: _partitions,
    DifferenceKind.ASSIGNMENT: _assignments,
    DifferenceKind.STATE: _states,
    DifferenceKind.MISSING_STATE: _states,
    DifferenceKind.DEAD_LEADER: _dead_leaders,
    DifferenceKind.UNHEARD: _unheard,
}
