"""ISRs change: by a leader's ``AlterPartition`` request, or by notification znodes of older inter-broker protocols."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from aiocontroller.controller.brokers import on_replicas_become_offline
from aiocontroller.controller.leadership_writes import read_states_again
from aiocontroller.controller.reassignment import drop_strangers, maybe_complete_reassignment
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.alter_partition import (
    AlterPartitionResult,
    Verdict,
    check_partition,
    check_request,
    resolve,
    strangers,
)
from aiocontroller.core.decisions import Decisions, commit
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    AlterPartitionReceived,
    IsrChangeNotification,
    LeaderAndIsrResponseReceived,
    UpdateMetadataResponseReceived,
)
from aiocontroller.zookeeper.errors import Code

log = logging.getLogger(__name__)


Checked = tuple[AlterPartitionReceived, list[Verdict]]


async def alter_partition(shell: ControllerShell, events: Sequence[AlterPartitionReceived]) -> None:
    """Requests of several brokers as one batch, as long as no two of them are about the same partition."""
    waiting = deque(events)
    while waiting:
        await _alter_together(shell, _take_disjoint(shell, waiting))


def _take_disjoint(shell: ControllerShell, waiting: deque[AlterPartitionReceived]) -> list[Checked]:
    """From the left; a second request about a partition is judged by what the first has made of it."""
    taken: list[Checked] = []
    seen: set[int] = set()
    while waiting:
        event = waiting[0]
        error = check_request(shell.context, event)
        if error:
            event.reply.answer(error)
            waiting.popleft()
            continue
        verdicts = [check_partition(shell.context, change, event.broker, event.version) for change in event.partitions]
        pids = {verdict.pid for verdict in verdicts if verdict.pid >= 0}
        if not seen.isdisjoint(pids):
            break
        seen |= pids
        taken.append((event, verdicts))
        waiting.popleft()
    return taken


async def _alter_together(shell: ControllerShell, checked: list[Checked]) -> None:
    """Write the changes that hold good, answer each partition by itself, tell all metadata caches.

    The leader waits with what it acknowledges; the caches are in no hurry (Kafka tells them first).
    """
    outcome = await _write(shell, [verdict for _, verdicts in checked for verdict in verdicts])
    for event, verdicts in checked:
        event.reply.answer(
            [
                _result(shell, change.topic, change.partition, verdict, outcome.get(verdict.pid))
                for change, verdict in zip(event.partitions, verdicts, strict=True)
            ]
        )
    known = [verdict.pid for _, verdicts in checked for verdict in verdicts if verdict.pid >= 0]
    if known:
        await shell.send_update_metadata(shell.context.brokers, known)
    await maybe_complete_reassignment(shell, known)
    await drop_strangers(shell, _refused_strangers(shell, checked))


def _refused_strangers(shell: ControllerShell, checked: list[Checked]) -> dict[int, list[int]]:
    """pid -> whom its leader takes for a replica, and so would again: Kafka lets them in."""
    return {
        verdict.pid: strangers(shell.context, verdict.pid, change.isr)
        for event, verdicts in checked
        for change, verdict in zip(event.partitions, verdicts, strict=True)
        if verdict.error_code == KafkaErrorCode.INVALID_REQUEST
        and event.broker == shell.context.table.leader[verdict.pid]
    }


async def _write(shell: ControllerShell, verdicts: list[Verdict]) -> dict[int, KafkaErrorCode]:
    """Write what may be written, each partition once; returns pid -> how that went."""
    accepted = {v.pid: v.write for v in verdicts if v.write is not None}
    if not accepted:
        return {}
    context, table = shell.context, shell.context.table
    decisions = Decisions(list(accepted), list(accepted.values()), [()] * len(accepted))
    names = [table.topic_partition(pid) for pid in decisions.pids]
    writes = await shell.zk.set_topic_partition_states(
        [n.topic for n in names],
        [n.partition for n in names],
        decisions.leaderships,
        fence=context.epoch_zk_version,
    )
    ok = [i for i, code in enumerate(writes.code) if code == Code.OK]
    commit(table, decisions.select(ok), [writes.version[i] for i in ok])
    for i in ok:
        pid = decisions.pids[i]
        shell.journal.append(
            "isr",
            topic=names[i].topic,
            partition=names[i].partition,
            leader=table.leader[pid],
            leader_epoch=table.leader_epoch[pid],
            isr=table.isr(pid),
            replicas=table.replicas(pid),
            controller_epoch=context.epoch,
            partition_epoch=table.partition_epoch[pid],
        )
    await read_states_again(
        shell, [pid for pid, code in zip(decisions.pids, writes.code, strict=True) if code != Code.OK]
    )
    return {
        pid: KafkaErrorCode.NONE
        if code == Code.OK
        else KafkaErrorCode.INVALID_UPDATE_VERSION
        if code == Code.BAD_VERSION
        else KafkaErrorCode.UNKNOWN_SERVER_ERROR
        for pid, code in zip(decisions.pids, writes.code, strict=True)
    }


def _result(
    shell: ControllerShell, topic: str | bytes, partition: int, verdict: Verdict, written: KafkaErrorCode | None
) -> AlterPartitionResult:
    error = verdict.error_code if written is None else written
    leadership = shell.context.table.leadership(verdict.pid) if error == KafkaErrorCode.NONE else None
    return AlterPartitionResult(topic, partition, error, leadership)


async def isr_change_notification(shell: ControllerShell, event: IsrChangeNotification) -> None:
    """Leaders of inter.broker.protocol.version < 2.7 write their ISRs themselves and say here for which partitions."""
    names = await shell.zk.get_all_isr_change_notifications(watch=True)
    if not names:
        return
    partitions, bad = await shell.zk.get_partitions_from_isr_change_notifications(names)
    shell.report_bad_znodes(bad)
    table = shell.context.table
    pids = sorted({pid for tp in partitions if (pid := table.pid(tp.topic, tp.partition)) >= 0})
    unread = await read_states_again(shell, pids)
    found = [pid for pid in pids if pid not in unread]
    if found:
        await shell.send_update_metadata(shell.context.brokers, found)
        await maybe_complete_reassignment(shell, found)
        await drop_strangers(shell, {pid: strangers(shell.context, pid, table.isr(pid)) for pid in found})
    await shell.zk.delete_isr_change_notifications(names, fence=shell.context.epoch_zk_version)


async def leader_and_isr_response_received(shell: ControllerShell, event: LeaderAndIsrResponseReceived) -> None:
    """A replica whose log directory has failed goes offline; every other error is normal or the broker's to repair.

    After a failover brokers answer STALE_CONTROLLER_EPOCH for each partition whose leader epoch they know already.
    """
    context = shell.context
    broker = context.brokers.get(event.broker)
    if broker is None or broker.epoch != event.broker_epoch:
        return
    if event.error_code:
        _log_refusal(event.broker, "LeaderAndIsr", event.error_code)
        return
    offline: list[int] = []
    refused: set[int] = set()
    for topic, partition, code in event.errors:
        pid, _ = resolve(context, topic, partition)
        if pid >= 0 and code == KafkaErrorCode.KAFKA_STORAGE_ERROR:
            offline.append(pid)
        elif pid >= 0:
            refused.add(pid)
    before = context.offline_dirs.get(event.broker, ())
    online = [pid for pid in event.pids if pid in before and pid not in refused] if before else []
    newly = context.set_offline_dir_replicas(event.broker, offline, online)
    if newly:
        log.error("Log directory failures on broker %d: %s", event.broker, shell.sample(newly))
        await on_replicas_become_offline(shell, {event.broker: newly})


async def update_metadata_response_received(shell: ControllerShell, event: UpdateMetadataResponseReceived) -> None:
    if event.error_code:
        _log_refusal(event.broker, "UpdateMetadata", event.error_code)


def _log_refusal(broker: int, request: str, code: int) -> None:
    """A stale broker epoch is a bounce that we are about to hear of; everything else is worth somebody's attention."""
    level = logging.INFO if code == KafkaErrorCode.STALE_BROKER_EPOCH else logging.ERROR
    log.log(level, "Broker %d refused %s with %s", broker, request, _named(code))


def _named(code: int) -> str:
    try:
        return KafkaErrorCode(code).name
    except ValueError:
        return f"error {code}"
