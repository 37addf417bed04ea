"""Leader elections on request, and periodic elections of preferred leaders and for offline partitions."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from aiocontroller.controller.log_questions import WaitingRequest
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import (
    handle_partition_state_changes,
    trigger_online_partition_state_change,
)
from aiocontroller.controller.steps import carry_out_steps
from aiocontroller.controller.unclean_recovery import note_leaderless, wait_for_logs
from aiocontroller.core import election_requests as plan
from aiocontroller.core.election import Strategy
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    AutoPreferredReplicaLeaderElection,
    AvoidedLeaders,
    OfflinePartitionsSweep,
    ReplicaLeaderElection,
    ZkPreferredReplicaElection,
)
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.leader_balance import hosted_by_avoided, leaders_to_move, partitions_to_rebalance
from aiocontroller.core.request_content import ElectionType
from aiocontroller.core.states import PartitionState
from aiocontroller.zookeeper.znodes import BadZNode

log = logging.getLogger(__name__)

AUTO_REBALANCE = "auto-leader-rebalance-task"
FIRST_RUN_S = 5.0
AVOIDED = "avoided-leaders-task"
AVOIDED_EVERY_S = 5.0

PARTITIONS_AT_ONCE = 5_000
"""Partitions checked before other tasks may run."""

# -- by request --------------------------------------------------------------------------------------------------------


async def replica_leader_election(shell: ControllerShell, event: ReplicaLeaderElection) -> None:
    """Answers for the named partitions; if none were named, for those that needed an election."""
    named = event.partitions is not None
    asked = event.partitions if event.partitions is not None else plan.every_partition(shell.context)
    answers, waiting = await on_replica_election(shell, asked, event.election_type)

    def present(decided: plan.Answers) -> plan.Answers:
        return plan.presented(answers | decided, named=named, release=shell.settings.release)

    async def present_decided(request: WaitingRequest) -> plan.Answers:
        return present(request.answers)

    if waiting:
        wait_for_logs(shell, WaitingRequest(event.reply, waiting, present_decided))
    else:
        event.reply.answer(present({}))


async def zk_preferred_replica_election(shell: ControllerShell, event: ZkPreferredReplicaElection) -> None:
    """Elect the requested leaders; the znode is deleted whatever the outcome, and watched again."""
    requested = await shell.zk.get_preferred_replica_election(watch=True)
    if requested is None:
        return
    if isinstance(requested, BadZNode):
        shell.report_bad_znodes([requested])
    else:
        answers, _ = await on_replica_election(shell, requested, ElectionType.PREFERRED)
        for tp, (code, message) in answers.items():
            if code not in (KafkaErrorCode.NONE, KafkaErrorCode.ELECTION_NOT_NEEDED):
                log.warning("Preferred leader of %s was not elected: %s %s", tp, code.name, message)
    await shell.zk.delete_preferred_replica_election(fence=shell.context.epoch_zk_version)
    shell.queue.append(ZkPreferredReplicaElection())


async def on_replica_election(
    shell: ControllerShell, partitions: Iterable[TopicPartition], election_type: ElectionType
) -> tuple[plan.Answers, list[TopicPartition]]:
    """Elect leaders for the partitions that need it; every partition gets an answer.

    Also returns those of an unclean election whose answers are preliminary: their replicas are being asked first.
    """
    context = shell.context
    answers: plan.Answers = {}
    electable: list[int] = []
    for number, tp in enumerate(dict.fromkeys(partitions)):
        if number % PARTITIONS_AT_ONCE == 0:
            await shell.breathe()
        row = context.table.row(*tp)
        refusal = plan.refusal(context, row, election_type)
        answers[tp] = refusal or plan.DONE
        if refusal is None:
            electable.append(row)
    result = await handle_partition_state_changes(
        shell,
        electable,
        PartitionState.OnlinePartition,
        plan.strategy_of(election_type),
        force_unclean=election_type is ElectionType.UNCLEAN,
    )
    failed = plan.answers_for_failed(context, electable, set(result.elected), result.failed, election_type)
    return answers | failed, [context.table.topic_partition(row) for row in result.unasked]


# -- by the clock ------------------------------------------------------------------------------------------------------


def schedule_auto_leader_rebalance(shell: ControllerShell, delay_s: float | None = None) -> None:
    """Look for imbalance after ``delay_s``, or after the brokers' interval; never where they forbid it."""
    if shell.policy.auto_leader_rebalance_enable:
        interval_s = shell.policy.leader_imbalance_check_interval_seconds if delay_s is None else delay_s
        shell.queue.schedule(AUTO_REBALANCE, interval_s, AutoPreferredReplicaLeaderElection())


async def auto_preferred_replica_leader_election(
    shell: ControllerShell, event: AutoPreferredReplicaLeaderElection
) -> None:
    """Elect preferred leaders on brokers with too much imbalance, and look again later."""
    if not shell.policy.auto_leader_rebalance_enable:
        return  # the brokers' setting has been switched off
    try:
        percentage = shell.policy.leader_imbalance_per_broker_percentage
        rows = await carry_out_steps(shell, partitions_to_rebalance(shell.context, percentage))
        if rows:
            log.info("Moving %s to their preferred leaders", shell.sample(rows))
            await handle_partition_state_changes(shell, rows, PartitionState.OnlinePartition, Strategy.PREFERRED)
    finally:
        schedule_auto_leader_rebalance(shell)


def schedule_avoided_leaders(shell: ControllerShell, delay_s: float = AVOIDED_EVERY_S) -> None:
    """Look for leaders to avoid after ``delay_s``, if there are brokers to avoid."""
    if shell.context.leader_preferences.avoided:
        shell.queue.schedule(AVOIDED, delay_s, AvoidedLeaders())


async def move_avoided_leaders(shell: ControllerShell, event: AvoidedLeaders) -> None:
    """Elect other leaders where brokers to avoid lead, whether or not the brokers' settings allow balancing; look again
    later, since a replica that can lead may join the ISR."""
    try:
        rows: list[int] = []
        hosted = hosted_by_avoided(shell.context)
        for start in range(0, len(hosted), PARTITIONS_AT_ONCE):
            rows += leaders_to_move(shell.context, hosted[start : start + PARTITIONS_AT_ONCE])
            await shell.breathe()
        if rows:
            log.info("Moving %s from brokers that should not lead", shell.sample(rows))
            await handle_partition_state_changes(shell, rows, PartitionState.OnlinePartition, Strategy.REASSIGN)
    finally:
        schedule_avoided_leaders(shell)


async def offline_partitions_sweep(shell: ControllerShell, event: OfflinePartitionsSweep) -> None:
    """Elect leaders where ZooKeeper shows a live replica in the ISR; partitions that stay offline are retried later."""
    note_leaderless(shell)
    await trigger_online_partition_state_change(shell)
