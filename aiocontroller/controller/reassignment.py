"""The handlers of partition reassignment.  What they do is decided in ``core/reassignment_phases.py``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.steps import carry_out_steps
from aiocontroller.core import reassignment_phases as phases
from aiocontroller.core.events import (
    ApiPartitionReassignment,
    ListPartitionReassignments,
    UncommittedReassignments,
    ZkPartitionReassignment,
)
from aiocontroller.core.ids import ReplicaAssignment
from aiocontroller.core.reassignment import Refused


async def api_partition_reassignment(shell: ControllerShell, event: ApiPartitionReassignment) -> None:
    """AlterPartitionReassignments: start, override and cancel reassignments."""
    await carry_out_steps(shell, phases.api_partition_reassignment(shell.context, event))


async def zk_partition_reassignment(shell: ControllerShell, event: ZkPartitionReassignment) -> None:
    """Follow a change of ``/admin/reassign_partitions``."""
    await carry_out_steps(shell, phases.zk_partition_reassignment(shell.context))


async def list_partition_reassignments(shell: ControllerShell, event: ListPartitionReassignments) -> None:
    """ListPartitionReassignments."""
    await carry_out_steps(shell, phases.list_partition_reassignments(shell.context, event))


async def uncommitted_reassignments(shell: ControllerShell, event: UncommittedReassignments) -> None:
    """Go on with reassignments that no other event resumes: ZooKeeper refused a step, or an election completed them."""
    await carry_out_steps(shell, phases.uncommitted_reassignments(shell.context))


async def initialize_partition_reassignments(shell: ControllerShell) -> None:
    """At failover: go on where the previous controller ended."""
    await carry_out_steps(shell, phases.initialize_partition_reassignments(shell.context))


async def trigger_partition_reassignment(
    shell: ControllerShell, wanted: Mapping[int, ReplicaAssignment]
) -> dict[int, Refused]:
    """Start reassignments (row -> their first assignment); returns row -> why it could not start."""
    return await carry_out_steps(shell, phases.trigger_partition_reassignment(shell.context, wanted))


async def maybe_complete_reassignment(shell: ControllerShell, rows: Iterable[int]) -> None:
    """Go on with the reassignments of these rows, whose ISRs have changed."""
    await carry_out_steps(shell, phases.maybe_complete_reassignment(shell.context, rows))


async def drop_non_replicas(shell: ControllerShell, found: Mapping[int, Sequence[int]]) -> None:
    """Drop non-replicas; ``found``: row -> brokers that are not replicas."""
    await carry_out_steps(shell, phases.drop_non_replicas(shell.context, found))


async def drop_non_replicas_read_again(shell: ControllerShell) -> None:
    """After each event: drop non-replicas that states named when they were read again."""
    await carry_out_steps(shell, phases.drop_non_replicas_read_again(shell.context))
