"""Decides what early detection moves away from a broker that seems to be dead (``controller/suspicions.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from typing import NamedTuple

from aiocontroller.core.columns import take
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.failure_detector import Suspicion
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.steps import Breathe, Steps

PARTITIONS_AT_ONCE = 5_000


class SuspectChanges(NamedTuple):
    """How the present suspects differ from those that the context knows."""

    trusted: list[int]
    """Brokers that answer again."""
    alarming: list[Suspicion]


def compare_suspects(context: ControllerContext, suspects: Mapping[int, Suspicion]) -> SuspectChanges:
    """Compare the failure detector's present suspects with the context's.

    A broker in controlled shutdown also closes its listener, once nothing is left to move: it is not a suspect.
    """
    return SuspectChanges(
        [broker for broker in context.suspected if broker not in suspects],
        [s for b, s in suspects.items() if b not in context.suspected and b not in context.shutting_down],
    )


def led_by(context: ControllerContext, broker: int) -> list[int]:
    """Partitions that another replica is to lead."""
    table = context.table
    return [row for row in _hosted(context, broker) if table.leader[row] == broker]


def followed_by(context: ControllerContext, broker: int) -> list[int]:
    """Partitions whose ISR the broker leaves: it is in sync, and the leader stays."""
    table, live = context.table, context.live
    return [row for row in _hosted(context, broker) if table.leader[row] in live and broker in table.isr(row)]


def has_moved_off(context: ControllerContext, broker: int) -> Steps[bool]:
    """Whether the broker leads nothing and is in no ISR; topics that are being deleted do not count."""
    table = context.table
    for rows in table.slices_on_broker(broker, PARTITIONS_AT_ONCE):
        leaders, isrs = take(rows, table.leader, table.isr_of)
        holding = {isr for isr in set(isrs) if isr != NO_ISR and broker in table.isrs.values[isr]}
        pairs = zip(leaders, isrs, strict=True)
        held = (isr in holding or (leader == broker and isr != NO_ISR) for leader, isr in pairs)
        if not all(table.topic(row).deleting for row in compress(rows, held)):
            return False
        yield Breathe()
    return True


def _hosted(context: ControllerContext, broker: int) -> list[int]:
    table = context.table
    rows = table.partitions_on_broker(broker)
    return [row for row in rows if table.isr_of[row] != NO_ISR and not table.topic(row).deleting]


def is_stale_registration(context: ControllerContext, broker: int, broker_epoch: int) -> bool:
    """Whether this incarnation is still registered and suspected; otherwise its death has been noticed, or it answers
    again."""
    known = context.brokers.get(broker)
    return known is not None and known.epoch == broker_epoch and broker in context.suspected
