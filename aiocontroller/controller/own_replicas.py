"""Replicas that nobody can hold: assignments that name this controller.

Brokers that create topics by themselves choose among the live brokers they know, and this controller stands among them.

 * Before the first election nobody looks at the assignment: another broker is written in its place.
 * A topic that was created between this controller's death and its successor's first UpdateMetadata has a leader
   already, by a broker's controller: a reassignment puts another broker in the place, as an operator would.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from aiocontroller.controller.reassignment import trigger_partition_reassignment
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import OwnReplicas
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment, distinct
from aiocontroller.core.reassignment import Refused, check_target, without_broker

log = logging.getLogger(__name__)


async def without_leader(shell: ControllerShell, found: Sequence[TopicAssignment]) -> dict[str, list[int]]:
    """Topic -> the partitions that name this controller and have no leader yet; the others are to be reassigned."""
    named = [
        (a.topic, n)
        for a in found
        if any(shell.id in r.replicas for r in distinct(a.partitions.values()))
        for n, r in sorted(a.partitions.items())
        if shell.id in r.replicas
    ]
    if not named:
        return {}
    states = await shell.zk.get_topic_partition_states([t for t, _ in named], [n for _, n in named])
    ours: dict[str, list[int]] = {}
    for (topic, number), state in zip(named, states, strict=True):
        if state is None:
            ours.setdefault(topic, []).append(number)
        else:
            shell.queue.append(OwnReplicas())
    return ours


def replaced(shell: ControllerShell, assignment: TopicAssignment, numbers: Sequence[int]) -> TopicAssignment:
    """The topic with live brokers in this controller's places in the partitions ``numbers``."""
    if not numbers:
        return assignment
    live = sorted(shell.context.live)
    if not live:
        return assignment  # the first broker that starts is put in its place
    others = {n: without_broker(assignment.partitions[n], shell.id, live, spread=n) for n in numbers}
    log.info("Topic %s named this controller as a replica of %d partitions: replaced", assignment.topic, len(others))
    return msgspec.structs.replace(assignment, partitions=assignment.partitions | others)


async def move_own_replicas(shell: ControllerShell, event: OwnReplicas) -> None:
    """Begin to reassign what names this controller and does not move away from it already."""
    context, table = shell.context, shell.context.table
    live = sorted(context.live)
    wanted: dict[int, ReplicaAssignment] = {}
    for pid in naming_us(shell):
        target = table.assignment(pid).target
        if shell.id not in target or table.topic(pid).deleting:
            continue
        other = without_broker(ReplicaAssignment(target), shell.id, live, spread=table.index_of[pid]).replicas
        assignment = check_target(context, pid, other)
        if isinstance(assignment, Refused):
            log.warning(
                "%s names this controller as a replica and cannot be moved now: %s",
                shell.topic_partition(pid),
                assignment.message,
            )
        else:
            wanted[pid] = assignment
    if wanted:
        log.info("Reassigned, since they name this controller as a replica: %s", shell.sample(list(wanted)))
        await trigger_partition_reassignment(shell, wanted)


def naming_us(shell: ControllerShell) -> list[int]:
    return sorted(shell.context.table.partitions_on_broker(shell.id))
