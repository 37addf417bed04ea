"""Brings effects into the context: the step between a write and what is sent about it."""

from __future__ import annotations

from aiocontroller.core.alter_partition import strangers
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.effects import Effects
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.replica_state_machine import drop_replicas, set_replica_states
from aiocontroller.core.states import ReplicaState


def apply(context: ControllerContext, effects: Effects) -> None:
    """Enter the states and assignments; leadership is in the table already (``core.decisions.commit``)."""
    table = context.table
    for row, assignment in effects.assigned.items():
        table.set_assignment(row, assignment)
    for entered in effects.entered:
        if entered.state is not None:
            table.set_state(entered.rows, entered.state)
    for replicas, state in effects.replicas:
        set_replica_states(table, replicas, state)
        if state is ReplicaState.NonExistentReplica:
            drop_replicas(table, replicas)


def adopt(context: ControllerContext, row: int, state: LeaderAndIsr) -> None:
    """Take a state over that was read again from ZooKeeper; brokers in its ISR that are not replicas are noted."""
    context.table.set_leadership(row, state)
    if strangers(context, row, state.isr):
        context.read_with_strangers[row] = None
