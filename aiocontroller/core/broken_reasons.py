"""Why a partition is broken: what each replica lacks, from what the context holds.  Pure, computed on request.

A reason is a list of clauses, each with the time since when it has been true, where that is known.  Times are not part
of the text, so that they can be shown in the reader's own format.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aiocontroller.core.broken_partitions import BrokenKind
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import LEADER_DURING_DELETE, NO_LEADER
from aiocontroller.core.partitions import NO_ISR


class Clause(msgspec.Struct, frozen=True, gc=False):
    """A part of a reason."""

    text: str
    since_us: int | None = None
    """Microseconds since 1970; None: not known, or given elsewhere."""


Reason = Sequence[Clause]


def reason(context: ControllerContext, kind: BrokenKind, row: int) -> Reason:
    """Why the partition of this row is of this kind; O(its replicas)."""
    if kind is BrokenKind.OFFLINE:
        return _no_leader(context, row)
    missing = _outside(context, row)
    if kind is BrokenKind.UNDER_MIN_ISR:
        needed = context.table.broken.needed(context.table, row)
        return [Clause(f"{len(context.table.isr(row))} in sync, min.insync.replicas needs {needed}"), *missing]
    return missing


def _no_leader(context: ControllerContext, row: int) -> list[Clause]:
    table = context.table
    if table.isr_of[row] == NO_ISR:
        clauses = [_clause(context, row, broker) for broker in table.replicas(row)]
        lives = any(context.is_replica_online(row, broker) for broker in table.replicas(row))
        return [Clause("it has never had a leader" + (": an election is due" if lives else "")), *clauses]
    isr = table.isr(row)
    if any(context.is_replica_online(row, broker) for broker in isr):
        first = "an in-sync replica is alive: an election is due"
    else:
        last = table.leader[row]
        first = "no in-sync replica is alive" if last in (NO_LEADER, LEADER_DURING_DELETE) else f"leader {last} died"
        first += "" if first.startswith("no") else ", no other in-sync replica is alive"
    return [Clause(first), *(_clause(context, row, broker) for broker in isr), *_outside(context, row)]


def _outside(context: ControllerContext, row: int) -> list[Clause]:
    """What keeps each replica out of the ISR."""
    assignment, isr = context.table.assignment(row), context.table.isr(row)
    away = [broker for broker in assignment.replicas if broker not in isr and broker not in assignment.adding]
    return [_clause(context, row, broker) for broker in _dead_first(context, away)]


def _dead_first(context: ControllerContext, brokers: Iterable[int]) -> list[int]:
    return sorted(brokers, key=context.brokers.__contains__)


def _clause(context: ControllerContext, row: int, broker: int) -> Clause:
    """What is wrong with a replica, the worst that is known."""
    if broker not in context.brokers:
        since_us = context.gone_since.get(broker) or None
        return Clause(f"broker {broker} dead" if since_us else f"broker {broker} not registered", since_us)
    if row in context.held_back.get(broker, ()):
        return Clause(
            f"being recreated: broker {broker} has yet to delete its replica of an earlier topic of this name"
        )
    if row in context.offline_dirs.get(broker, ()):
        return Clause(f"log directory of {broker} failed")
    if broker in context.suspected:
        return Clause(f"broker {broker} is suspected to be dead")
    if broker in context.shutting_down:
        return Clause(f"broker {broker} is shutting down")
    if context.sick is not None and context.sick.broker == broker:
        return Clause(f"broker {broker} is judged sick")
    if broker in context.table.isr(row):
        return Clause(f"broker {broker} alive, in sync")
    return Clause(f"broker {broker} alive, not caught up")
