"""The self-audit compares memory with ZooKeeper, slice by slice: when the queue is quiet, and after a foreign write.

 1. A slice reads the znodes of some topics and compares them with memory (``core.audit``).  Only the consumer changes
    the context, so memory does not change meanwhile.  A difference is a suspicion, unless the event that reports it
    waits in the queue: a slice may wait for ZooKeeper while brokers come and go.
 2. A second later, after the waiting events have been handled, the same topics are read and watched again.  A
    difference that remains is a finding: it is recorded and repaired at once (``repairs``).
 3. When a handler meets a foreign write (a version conflict, a topic's znode that changed without new partitions or
    was deleted), the topic is audited a second later, whether or not a pass is running.

Topic configs are not compared: they are read whenever a decision needs them, and never kept.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from operator import attrgetter

from aiocontroller.controller import debts, repairs
from aiocontroller.controller.auditor import Piece
from aiocontroller.controller.leadership_writes import is_of_a_later_controller, names_and_numbers
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.topic_deletion import are_undecided
from aiocontroller.core.audit import (
    AuditFinding,
    DifferenceKind,
    compare_brokers,
    compare_states,
    compare_topic,
    compare_topics,
    shown,
)
from aiocontroller.core.errors import ControllerMovedError
from aiocontroller.core.events import Audit, BrokerChange, BrokerModifications, TopicChange
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znodes import BadZNode, unreadable_brokers

log = logging.getLogger(__name__)


def schedule_audit(shell: ControllerShell) -> None:
    """At failover: the first slice comes after the usual interval."""
    shell.auditor.begin_waiting()


async def audit(shell: ControllerShell, event: Audit) -> None:
    """Audit one slice (the lists, or some topics), then schedule the next one."""
    auditor = shell.auditor
    if auditor.postpone_if_busy():
        return
    started_s = shell.world.clock.monotonic()
    if auditor.lists_due and auditor.is_urgent:
        auditor.lists_due = False
        await _act(shell, (), await _look_at_lists(shell))
    elif auditor.pass_is_due and not auditor.is_urgent:
        topics = list(shell.context.table.topic_by_name)
        auditor.begin_pass(topics, len(shell.context.table))
        await _act(shell, (), await _look_at_lists(shell))
    else:
        pieces = auditor.take(shell.context.table, shell.context.is_held_back)
        await _act(shell, pieces, await _look_at_topics(shell, pieces))
    clock = shell.world.clock
    auditor.slices.observe(clock.monotonic() - started_s)
    if auditor.is_through:
        auditor.end_pass(shell.journal, clock.wall_time_us())
    auditor.schedule()


async def _act(shell: ControllerShell, pieces: Sequence[Piece], found: Sequence[AuditFinding]) -> None:
    confirmed = shell.auditor.judge(pieces, found)
    for finding in confirmed:
        shell.auditor.record(finding, shell.journal, shell.world.clock.wall_time_us())
        log.warning("Audit: %s", finding)
    if confirmed:
        await repairs.repair(shell, confirmed)


# -- lists -------------------------------------------------------------------------------------------------------------


async def _look_at_lists(shell: ControllerShell) -> list[AuditFinding]:
    """Compare the lists of brokers and topics, and find leftover znodes."""
    context, zk, queue = shell.context, shell.zk, shell.queue
    brokers, bad = await zk.get_all_brokers_in_cluster(watch=True)
    shell.report_bad_znodes(bad)
    _are_well(shell, (paths.broker_id(broker.id) for broker in brokers))
    found: list[AuditFinding] = []
    # ZooKeeper notifies a watcher of a change before that watcher can read it.
    if BrokerChange() not in queue:
        different = compare_brokers(context, brokers, unreadable_brokers(bad))
        found += [finding for finding in different if BrokerModifications(finding.broker) not in queue]
    topics = await zk.get_all_topics_in_cluster(watch=True)
    unreadable = {topic for path in shell.bad_paths() if (topic := paths.topic_of(path)) is not None}
    if TopicChange() not in queue:
        found += compare_topics(context, topics, unreadable)
    deletions = await zk.get_topic_deletions(watch=True)
    for path, children in (
        (paths.ISR_CHANGE_NOTIFICATION, await zk.get_all_isr_change_notifications(watch=True)),
        (paths.LOG_DIR_EVENT_NOTIFICATION, await zk.get_all_log_dir_event_notifications(watch=True)),
        (paths.DELETE_TOPICS, deletions),
        (paths.CONFIG_CHANGES, await zk.get_all_config_changes(watch=True)),
    ):
        known = {
            paths.DELETE_TOPICS: deletions if are_undecided(shell) else unreadable.union(context.topics_to_be_deleted),
            paths.CONFIG_CHANGES: shell.config_changes_seen,
        }.get(path, ())
        found += [
            AuditFinding(DifferenceKind.UNHEARD, f"{path}/{child}", "still there", "handled")
            for child in children
            if child not in known
        ]
    await debts.notice_given_up(shell)
    return found


# -- topics ------------------------------------------------------------------------------------------------------------


async def _look_at_topics(shell: ControllerShell, pieces: Sequence[Piece]) -> list[AuditFinding]:
    if not pieces:
        return []
    context, table = shell.context, shell.context.table
    whole = [piece.topic for piece in pieces if piece.start == 0]
    found: list[AuditFinding] = []
    renamed: set[str] = set()  # membership only
    if whole:
        read = await shell.zk.get_topic_assignments(whole, watch=shell.auditor.is_suspected(whole))
        shell.report_bad_znodes(read.bad)
        _are_well(shell, (paths.topic(assignment.topic) for assignment in read.found))
        if read.missing:
            shell.auditor.check_soon((), lists=True)
        for assignment in read.found:
            found += compare_topic(context, table.topic_by_name[assignment.topic], assignment)
        renamed = {f.topic for f in found if f.kind is DifferenceKind.TOPIC_ID}.union(read.missing)
    rows = [
        row
        for topic, start, end in pieces
        if topic not in renamed
        for row in table.topic_by_name[topic].rows[start:end]
        if row >= 0
    ]
    found += await _look_at_states(shell, rows)
    return sorted(found, key=attrgetter("topic", "partition"))


async def _look_at_states(shell: ControllerShell, rows: Sequence[int]) -> list[AuditFinding]:
    context, table, auditor = shell.context, shell.context.table, shell.auditor
    readable: list[int] = []
    states: list[LeaderAndIsr | None] = []
    for row, state in zip(
        rows, await shell.zk.get_topic_partition_states(*names_and_numbers(shell, rows)), strict=True
    ):
        if isinstance(state, BadZNode):
            shell.report_bad_znodes([state])
            continue
        if state is not None and is_of_a_later_controller(shell, state):
            raise ControllerMovedError(
                f"the state of {shell.topic_partition(row)} was written in controller epoch {state.controller_epoch}, "
                f"later than ours, {context.epoch}"
            )
        readable.append(row)
        states.append(state)
    _are_well(shell, (paths.topic_partition_state(*table.topic_partition(row)) for row in readable))
    found = list(compare_states(context, readable, states, brokers_write=auditor.brokers_write()))
    known = {(finding.topic, finding.partition) for finding in found}
    for row, state in zip(readable, states, strict=True) if auditor.noted else ():
        partition = table.topic_partition(row)
        if partition in auditor.noted and partition not in known:
            expected = "no state but the controller's"
            found.append(AuditFinding(DifferenceKind.STATE, str(partition), shown(state), expected, *partition))
    return found


def _are_well(shell: ControllerShell, read: Iterable[str]) -> None:
    """Forget that these paths were unreadable: they could be read."""
    if shell.bad_paths():
        shell.forget_bad_znodes(set(read).__contains__)
