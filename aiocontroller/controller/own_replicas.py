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

from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.steps import carry_out_steps
from aiocontroller.core.events import OwnReplicas
from aiocontroller.core.ids import TopicAssignment, distinct
from aiocontroller.core.reassignment import without_controllers
from aiocontroller.core.reassignment_phases import move_replicas_of_controllers

log = logging.getLogger(__name__)


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
    """Start reassigning partitions that name a controller as a replica."""
    await carry_out_steps(shell, move_replicas_of_controllers(shell.context))
