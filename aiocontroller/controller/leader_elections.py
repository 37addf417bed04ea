"""Leader elections on request, and periodic elections of preferred leaders and for offline partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import (
    handle_partition_state_changes,
    trigger_online_partition_state_change,
)
from aiocontroller.core.election import Strategy
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    AutoPreferredReplicaLeaderElection,
    ElectionType,
    OfflinePartitionsSweep,
    ReplicaLeaderElection,
    ZkPreferredReplicaElection,
)
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.leader_balance import partitions_to_rebalance
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.states import PartitionState
from aiocontroller.zookeeper.znodes import BadZNode

log = logging.getLogger(__name__)

AUTO_REBALANCE = "auto-leader-rebalance-task"
FIRST_RUN_S = 5.0

PARTITIONS_AT_ONCE = 5_000
"""Partitions checked before other tasks may run."""

Answers = dict[TopicPartition, tuple[KafkaErrorCode, str]]


# -- by request --------------------------------------------------------------------------------------------------------

FIRST_WITH_NOT_NEEDED = (2, 4)
"""Tools of older releases do not know ELECTION_NOT_NEEDED and report it as a failure."""
DONE = (KafkaErrorCode.NONE, "")


async def replica_leader_election(shell: ControllerShell, event: ReplicaLeaderElection) -> None:
    """Answers for the named partitions; if none were named, for those that needed an election."""
    table = shell.context.table
    asked = event.partitions
    if asked is None:
        # the partitions that brokers know of: Kafka takes all partitions from its metadata cache
        led = (row for row in table.rows() if table.isr_of[row] != NO_ISR and not table.topic(row).deleting)
        asked = tuple(table.topic_partition(row) for row in led)
    answers = await on_replica_election(shell, asked, event.election_type)
    if event.partitions is None:
        answers = {tp: a for tp, a in answers.items() if a[0] != KafkaErrorCode.ELECTION_NOT_NEEDED}
    elif shell.settings.release < FIRST_WITH_NOT_NEEDED:
        answers = {tp: DONE if a[0] == KafkaErrorCode.ELECTION_NOT_NEEDED else a for tp, a in answers.items()}
    event.reply.answer(answers)


async def zk_preferred_replica_election(shell: ControllerShell, event: ZkPreferredReplicaElection) -> None:
    """Elect the requested leaders; the znode is deleted whatever the outcome, and watched again."""
    requested = await shell.zk.get_preferred_replica_election(watch=True)
    if requested is None:
        return
    if isinstance(requested, BadZNode):
        shell.report_bad_znodes([requested])
    else:
        answers = await on_replica_election(shell, requested, ElectionType.PREFERRED)
        for tp, (code, message) in answers.items():
            if code not in (KafkaErrorCode.NONE, KafkaErrorCode.ELECTION_NOT_NEEDED):
                log.warning("Preferred leader of %s was not elected: %s %s", tp, code.name, message)
    await shell.zk.delete_preferred_replica_election(fence=shell.context.epoch_zk_version)
    shell.queue.append(ZkPreferredReplicaElection())


async def on_replica_election(
    shell: ControllerShell, partitions: Iterable[TopicPartition], election_type: ElectionType
) -> Answers:
    """Elect leaders for the partitions that need it; every partition gets an answer."""
    table = shell.context.table
    answers: Answers = {}
    electable: list[int] = []
    for number, tp in enumerate(dict.fromkeys(partitions)):
        if number % PARTITIONS_AT_ONCE == 0:
            await shell.breathe()
        row = table.row(*tp)
        refusal = _refusal(shell, row, election_type)
        answers[tp] = refusal or DONE
        if refusal is None:
            electable.append(row)
    preferred = election_type is ElectionType.PREFERRED
    result = await handle_partition_state_changes(
        shell,
        electable,
        PartitionState.OnlinePartition,
        Strategy.PREFERRED if preferred else Strategy.OFFLINE,
        force_unclean=not preferred,
    )
    code = KafkaErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    elected = set(result.elected)
    for row in electable:
        if row not in elected:
            answers[table.topic_partition(row)] = (code, result.failed.get(row, "no leader was elected"))
    return answers


def _refusal(shell: ControllerShell, row: int, election_type: ElectionType) -> tuple[KafkaErrorCode, str] | None:
    table = shell.context.table
    if row < 0:
        return KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
    if table.topic(row).deleting:
        return KafkaErrorCode.INVALID_TOPIC_EXCEPTION, "The topic is being deleted"
    if table.isr_of[row] == NO_ISR:
        return KafkaErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "The partition has never had a leader"
    leader, replicas = table.leader[row], table.replicas(row)
    if election_type is ElectionType.PREFERRED:
        needed = not replicas or leader != replicas[0]
    else:
        needed = leader not in shell.context.live
    return None if needed else (KafkaErrorCode.ELECTION_NOT_NEEDED, "The leader is the right one already")


# -- by the clock ------------------------------------------------------------------------------------------------------


def schedule_auto_leader_rebalance(shell: ControllerShell, delay_s: float | None = None) -> None:
    if shell.policy.auto_leader_rebalance_enable:
        interval_s = shell.policy.leader_imbalance_check_interval_seconds if delay_s is None else delay_s
        shell.queue.schedule(AUTO_REBALANCE, interval_s, AutoPreferredReplicaLeaderElection())


async def auto_preferred_replica_leader_election(
    shell: ControllerShell, event: AutoPreferredReplicaLeaderElection
) -> None:
    if not shell.policy.auto_leader_rebalance_enable:
        return  # the brokers' setting has been switched off
    try:
        rows = partitions_to_rebalance(shell.context, shell.policy.leader_imbalance_per_broker_percentage)
        if rows:
            log.info("Moving %s to their preferred leaders", shell.sample(rows))
            await handle_partition_state_changes(shell, rows, PartitionState.OnlinePartition, Strategy.PREFERRED)
    finally:
        schedule_auto_leader_rebalance(shell)


async def offline_partitions_sweep(shell: ControllerShell, event: OfflinePartitionsSweep) -> None:
    """Elect where ZooKeeper shows a live replica in the ISR; partitions that stay offline are retried later."""
    await trigger_online_partition_state_change(shell)
