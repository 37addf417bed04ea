"""Which partitions should go back to their preferred leader (Kafka's ``checkAndTriggerAutoLeaderRebalance``).

Partitions are grouped by their preferred replica, the head of the assignment.  Where more than the allowed share of a
broker's group is led by somebody else, those of them that can be led by it are moved back.  Departure from Kafka:
one batch for all brokers, where Kafka writes and sends for each broker by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Strategy, elect
from aiocontroller.core.partitions import NO_ISR


class Imbalance(NamedTuple):
    broker: int
    preferred: int
    """Partitions that have the broker as head of their assignment."""
    not_led: Sequence[int]
    """The pids among them that somebody else leads, ascending."""

    @property
    def ratio(self) -> float:
        return len(self.not_led) / self.preferred if self.preferred else 0.0


def leader_imbalance(context: ControllerContext) -> list[Imbalance]:
    """Every preferred broker's imbalance, by broker id; topics being deleted do not count."""
    table = context.table
    preferred: dict[int, int] = {}
    not_led: dict[int, list[int]] = {}
    heads: dict[int, int] = {}
    for topic in table.topics:
        if topic is None or topic.deleting:
            continue
        for pid in topic.pids:
            if pid < 0:
                continue
            assignment = table.assignment_of[pid]
            head = heads.get(assignment)
            if head is None:
                replicas = table.assignments.values[assignment].replicas
                head = heads[assignment] = replicas[0] if replicas else -1
            preferred[head] = preferred.get(head, 0) + 1
            if table.leader[pid] != head and table.isr_of[pid] != NO_ISR:
                not_led.setdefault(head, []).append(pid)
    return [Imbalance(b, preferred[b], sorted(not_led.get(b, ()))) for b in sorted(preferred) if b >= 0]


def partitions_to_rebalance(context: ControllerContext, leader_imbalance_per_broker_percentage: int) -> list[int]:
    """The pids whose preferred leader should and can lead again, ascending."""
    candidates = [
        pid
        for imbalance in leader_imbalance(context)
        if imbalance.ratio > leader_imbalance_per_broker_percentage / 100
        for pid in imbalance.not_led
    ]
    return sorted(elect(context, candidates, Strategy.PREFERRED).pids)
