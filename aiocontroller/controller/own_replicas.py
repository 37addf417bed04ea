"""Fixes assignments that name an aiocontroller as a replica.

Brokers that create topics by themselves choose among the live brokers they know, which include the controller: this
one, or an earlier one with another id.  So the ids are kept in ZooKeeper: each controller adds its own at failover,
before any broker learns of it.  An id is removed again when a broker registers with it.

 * Before the first election the assignment is not in use, so another broker is written in the controller's place.
 * A topic created between this controller's death and its successor's first UpdateMetadata already has a leader, from
   a broker's controller: a reassignment moves the replica to another broker, as an operator would.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from aiocontroller.controller.reassignment import (
    log_refused,
    too_large_for_their_znodes,
    trigger_partition_reassignment,
)
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.apply import apply
from aiocontroller.core.context_changes import ControllersKnown
from aiocontroller.core.events import OwnReplicas
from aiocontroller.core.ids import ReplicaAssignment, TopicAssignment, distinct
from aiocontroller.core.reassignment import Refused, check_target, without_controllers
from aiocontroller.zookeeper.znodes import BadZNode

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 16


async def load_known_controllers(shell: ControllerShell) -> None:
    context = shell.context
    for _attempt in range(MAX_ATTEMPTS):
        found, version = await shell.zk.get_known_controllers()
        if isinstance(found, BadZNode):
            shell.report_bad_znodes([found])  # our own id is known anyway
            return
        apply(context, ControllersKnown(found.difference(context.brokers) | {shell.id}))
        if context.controllers == found or await shell.zk.set_known_controllers(
            context.controllers, version, fence=context.epoch_zk_version
        ):
            return
    log.warning("The ids of earlier controllers changed %d times meanwhile and are left as they are", MAX_ATTEMPTS)


async def without_leader(shell: ControllerShell, found: Sequence[TopicAssignment]) -> dict[str, list[int]]:
    """Topic -> the partitions that name a controller, have no leader yet, and are new to us.

    Other partitions have to be reassigned, including those added unchanged because their znode had just changed.
    """
    controllers = shell.context.controllers
    named = [
        (a.topic, n)
        for a in found
        if not all(controllers.isdisjoint(r.replicas) for r in distinct(a.partitions.values()))
        for n, r in sorted(a.partitions.items())
        if not controllers.isdisjoint(r.replicas)
    ]
    if not named:
        return {}
    states = await shell.zk.get_topic_partition_states([t for t, _ in named], [n for _, n in named])
    ours: dict[str, list[int]] = {}
    for (topic, number), state in zip(named, states, strict=True):
        if state is None and shell.context.table.row(topic, number) < 0:
            ours.setdefault(topic, []).append(number)
        else:
            shell.queue.append(OwnReplicas())
    return ours


def replaced(shell: ControllerShell, assignment: TopicAssignment, numbers: Sequence[int]) -> TopicAssignment:
    """The assignment with controllers replaced by live brokers in the partitions ``numbers``."""
    if not numbers:
        return assignment
    live = sorted(shell.context.live)
    if not live:
        return assignment  # replaced when the first broker starts
    controllers = shell.context.controllers
    others = {n: without_controllers(assignment.partitions[n], controllers, live, spread=n) for n in numbers}
    log.info("Topic %s named a controller as a replica of %d partitions: replaced", assignment.topic, len(others))
    return msgspec.structs.replace(assignment, partitions=assignment.partitions | others)


async def move_own_replicas(shell: ControllerShell, event: OwnReplicas) -> None:
    """Start reassigning partitions that name a controller and are not moving away from it already."""
    context, table = shell.context, shell.context.table
    live = sorted(context.live)
    wanted: dict[int, ReplicaAssignment] = {}
    for row in naming_controllers(shell):
        target = table.assignment(row).target
        if context.controllers.isdisjoint(target) or table.topic(row).deleting:
            continue
        spread = table.index_of[row]
        other = without_controllers(ReplicaAssignment(target), context.controllers, live, spread).replicas
        assignment = check_target(context, row, other)
        if isinstance(assignment, Refused):
            log.warning(
                "%s names a controller as a replica and cannot be moved now: %s",
                shell.topic_partition(row),
                assignment.message,
            )
        else:
            wanted[row] = assignment
    if wanted:
        refused = await too_large_for_their_znodes(shell, wanted)
        wanted = {row: assignment for row, assignment in wanted.items() if row not in refused}
        log_refused(shell, refused)
        log.info("Reassigning partitions that name a controller as a replica: %s", shell.sample(list(wanted)))
        await trigger_partition_reassignment(shell, wanted)


def naming_controllers(shell: ControllerShell) -> list[int]:
    table = shell.context.table
    return sorted({row for controller in shell.context.controllers for row in table.partitions_on_broker(controller)})
