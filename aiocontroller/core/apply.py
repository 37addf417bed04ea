"""Brings effects into the context: the step between a write and what is sent about it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

from aiocontroller.core.alter_partition import non_replicas
from aiocontroller.core.columns import take
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.context_changes import ContextChange
from aiocontroller.core.effects import Effects
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.replica_state_machine import drop_replicas, set_replica_states
from aiocontroller.core.states import ReplicaState


def apply(context: ControllerContext, *changes: Effects | ContextChange) -> None:
    """Carry out the changes in order."""
    for change in changes:
        if isinstance(change, Effects):
            _enter(context, change)
        else:
            change.apply(context)


def _enter(context: ControllerContext, effects: Effects) -> None:
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
    if state != context.table.leadership(row):  # most are as they were
        context.table.set_leadership(row, state)
    if outside := non_replicas(context, row, state.isr):
        context.read_with_non_replicas[row] = tuple(outside)


def load_states(
    context: ControllerContext,
    rows: Sequence[int],
    values: Sequence[LeaderAndIsr | None],
    numbers: Sequence[int],
    versions: Sequence[int],
) -> None:
    """Take in states as a failover reads them: parallel to ``rows``, the place of each state in ``values``, and its
    version.  A place with None has no readable state.

    Each distinct value is looked at once, so each partition costs only look-ups.
    """
    table = context.table
    led = {number: value for number, value in enumerate(values) if value is not None}
    if len(led) < len(values):
        found = [number in led for number in numbers]
        rows, numbers, versions = (list(compress(column, found)) for column in (rows, numbers, versions))
    with_eligible = {number: value.eligible for number, value in led.items() if value.eligible is not None}
    eligible = (
        {row: with_eligible[n] for row, n in zip(rows, numbers, strict=True) if n in with_eligible}
        if with_eligible
        else {}
    )
    of_value = [
        (v.leader, v.leader_epoch, table.isrs.id(v.isr), v.recovery_state, v.controller_epoch) for v in led.values()
    ]
    if len(of_value) < len(values):
        place = {number: at for at, number in enumerate(led)}
        numbers = list(map(place.__getitem__, numbers))
    if numbers:
        leaders, leader_epochs, isrs, recovery_states, epochs = take(numbers, *zip(*of_value, strict=True))
        table.set_leaderships(rows, leaders, leader_epochs, isrs, recovery_states, epochs, versions, eligible)
