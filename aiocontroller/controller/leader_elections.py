"""Leaders go back to where they are preferred: the automatic rebalance (``AutoPreferredReplicaLeaderElection``)."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.state_changes import ElectionResult, handle_partition_state_changes
from aiocontroller.core.election import Strategy
from aiocontroller.core.events import AutoPreferredReplicaLeaderElection
from aiocontroller.core.leader_balance import partitions_to_rebalance
from aiocontroller.core.states import PartitionState

log = logging.getLogger(__name__)

AUTO_REBALANCE = "auto-leader-rebalance-task"
FIRST_RUN_S = 5.0


def schedule_auto_leader_rebalance(shell: ControllerShell, delay_s: float | None = None) -> None:
    if shell.config.auto_leader_rebalance_enable:
        interval_s = shell.config.leader_imbalance_check_interval_seconds if delay_s is None else delay_s
        shell.queue.schedule(AUTO_REBALANCE, interval_s, AutoPreferredReplicaLeaderElection())


async def auto_preferred_replica_leader_election(
    shell: ControllerShell, event: AutoPreferredReplicaLeaderElection
) -> None:
    try:
        pids = partitions_to_rebalance(shell.context, shell.config.leader_imbalance_per_broker_percentage)
        if pids:
            log.info("Moving %s to their preferred leaders", shell.sample(pids))
            await on_replica_election(shell, pids, Strategy.PREFERRED)
    finally:
        schedule_auto_leader_rebalance(shell)


async def on_replica_election(shell: ControllerShell, pids: Sequence[int], strategy: Strategy) -> ElectionResult:
    return await handle_partition_state_changes(shell, pids, PartitionState.OnlinePartition, strategy)
