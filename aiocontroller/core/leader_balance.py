"""Which partitions should go back to their preferred leader (Kafka's ``checkAndTriggerAutoLeaderRebalance``).

Partitions are grouped by their preferred replica: the head of the assignment, or of what ``leader_preferences`` makes
of it.  If other brokers lead more than the allowed share of a broker's group, the partitions that the broker can lead
are moved back.  Departure from Kafka: one batch covers all brokers, while Kafka writes and sends for each separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import compress
from operator import ne
from typing import NamedTuple

from aiocontroller.core.columns import take
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Strategy, elect
from aiocontroller.core.partitions import NO_ISR


class Imbalance(NamedTuple):
    """How many partitions a broker should lead and does not."""

    broker: int
    preferred: int
    """Number of partitions that have the broker as head of their assignment."""
    not_led: Sequence[int]
    """The rows among them that another broker leads, ascending."""

    @property
    def ratio(self) -> float:
        """Share of the preferred partitions, 0 to 1, that others lead; 0 without any."""
        return len(self.not_led) / self.preferred if self.preferred else 0.0


def leader_imbalance(context: ControllerContext) -> list[Imbalance]:
    """Every preferred broker's imbalance, by broker id; topics being deleted do not count."""
    table = context.table
    order = context.leader_order()
    heads = [order(a.replicas)[0] if a.replicas else -1 for a in table.assignments.values]
    rows = table.rows()
    going = {topic.number for topic in table.topics if topic is not None and topic.deleting}
    if going:
        rows = [row for row, topic in zip(rows, take(rows, table.topic_of)[0], strict=True) if topic not in going]
    assignments, leaders = take(rows, table.assignment_of, table.leader)
    preferred: dict[int, int] = {}
    for assignment, count in Counter(assignments).items():
        preferred[heads[assignment]] = preferred.get(heads[assignment], 0) + count
    not_led: dict[int, list[int]] = {}
    for row in compress(rows, map(ne, map(heads.__getitem__, assignments), leaders)):
        if table.isr_of[row] != NO_ISR:
            not_led.setdefault(heads[table.assignment_of[row]], []).append(row)
    return [Imbalance(b, preferred[b], not_led.get(b, [])) for b in sorted(preferred) if b >= 0]


def partitions_to_rebalance(context: ControllerContext, leader_imbalance_per_broker_percentage: int) -> list[int]:
    """The rows whose preferred leader should and can lead again, ascending."""
    if not context.table.preferred_replica_imbalance and not context.leader_preferences.any:
        return []
    candidates = [
        row
        for imbalance in leader_imbalance(context)
        if imbalance.ratio > leader_imbalance_per_broker_percentage / 100
        for row in imbalance.not_led
    ]
    return sorted(elect(context, candidates, Strategy.PREFERRED).rows)


def hosted_by_avoided(context: ControllerContext) -> list[int]:
    """The rows with a replica on a broker to avoid, ascending."""
    return context.table.partitions_on_brokers(sorted(context.leader_preferences.avoided))


def leaders_to_move(context: ControllerContext, hosted: Sequence[int]) -> list[int]:
    """Of these rows, those that a broker to avoid leads although another replica could; none of a topic being
    deleted."""
    avoided = context.leader_preferences.avoided
    table, memo = context.table, dict[tuple[int, int], bool]()
    found = []
    for row, leader in zip(hosted, take(hosted, table.leader)[0], strict=True):
        if leader not in avoided:
            continue
        key = (table.assignment_of[row], table.isr_of[row])
        movable = memo.get(key)
        if movable is None or context.offline_dirs:
            movable = memo[key] = _another_can_lead(context, row, avoided)
        if movable and not table.topic(row).deleting:
            found.append(row)
    return found


def _another_can_lead(context: ControllerContext, row: int, avoided: Iterable[int]) -> bool:
    table = context.table
    others = set(table.assignment(row).target).intersection(table.isr(row)).difference(avoided)
    return any(context.is_replica_online(row, other) for other in others)
