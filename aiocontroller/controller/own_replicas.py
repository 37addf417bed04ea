"""Replicas that nobody can hold: assignments that name a controller of our kind.

Brokers that create topics by themselves choose among the live brokers they know, and the controller stands among them:
this one, or an earlier one under another id.  So the ids are remembered in ZooKeeper: each controller adds its own when
it comes into office, before any broker hears of it.  An id that a broker has registered under is taken out again.

 * Before the first election nobody looks at the assignment: another broker is written in its place.
 * A topic that was created between this controller's death and its successor's first UpdateMetadata has a leader
   already, by a broker's controller: a reassignment puts another broker in the place, as an operator would.
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
            shell.report_bad_znodes([found])  # ours is known all the same
            return
        context.controllers = found.difference(context.brokers) | {shell.id}
        if context.controllers == found or await shell.zk.set_known_controllers(
            context.controllers, version, fence=context.epoch_zk_version
        ):
            return
    log.warning("The ids of earlier controllers changed %d times meanwhile and are left as they are", MAX_ATTEMPTS)


async def without_leader(shell: ControllerShell, found: Sequence[TopicAssignment]) -> dict[str, list[int]]:
    """Topic -> the partitions that name a controller, have no leader yet, and are new to us.

    The others are to be reassigned: also those that were taken in as they were, since their znode changed just then.
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
        if state is None and shell.context.table.pid(topic, number) < 0:
            ours.setdefault(topic, []).append(number)
        else:
            shell.queue.append(OwnReplicas())
    return ours


def replaced(shell: ControllerShell, assignment: TopicAssignment, numbers: Sequence[int]) -> TopicAssignment:
    """The topic with live brokers in controllers' places in the partitions ``numbers``."""
    if not numbers:
        return assignment
    live = sorted(shell.context.live)
    if not live:
        return assignment  # the first broker that starts is put in its place
    controllers = shell.context.controllers
    others = {n: without_controllers(assignment.partitions[n], controllers, live, spread=n) for n in numbers}
    log.info("Topic %s named a controller as a replica of %d partitions: replaced", assignment.topic, len(others))
    return msgspec.structs.replace(assignment, partitions=assignment.partitions | others)


async def move_own_replicas(shell: ControllerShell, event: OwnReplicas) -> None:
    """Begin to reassign what names a controller and does not move away from it already."""
    context, table = shell.context, shell.context.table
    live = sorted(context.live)
    wanted: dict[int, ReplicaAssignment] = {}
    for pid in naming_controllers(shell):
        target = table.assignment(pid).target
        if context.controllers.isdisjoint(target) or table.topic(pid).deleting:
            continue
        spread = table.index_of[pid]
        other = without_controllers(ReplicaAssignment(target), context.controllers, live, spread).replicas
        assignment = check_target(context, pid, other)
        if isinstance(assignment, Refused):
            log.warning(
                "%s names a controller as a replica and cannot be moved now: %s",
                shell.topic_partition(pid),
                assignment.message,
            )
        else:
            wanted[pid] = assignment
    if wanted:
        refused = await too_large_for_their_znodes(shell, wanted)
        wanted = {pid: assignment for pid, assignment in wanted.items() if pid not in refused}
        log_refused(shell, refused)
        log.info("Reassigned, since they name a controller as a replica: %s", shell.sample(list(wanted)))
        await trigger_partition_reassignment(shell, wanted)


def naming_controllers(shell: ControllerShell) -> list[int]:
    table = shell.context.table
    return sorted({pid for controller in shell.context.controllers for pid in table.partitions_on_broker(controller)})
