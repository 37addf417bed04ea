"""Which partitions should go back to their preferred leader (Kafka's ``checkAndTriggerAutoLeaderRebalance``).

Partitions are grouped by their preferred replica: the head of the assignment, or of what ``leader_preferences`` makes
of it.  If other brokers lead more than the allowed share of a broker's group, the partitions that the broker can lead
are moved back.  Departure from Kafka: one batch covers all brokers, while Kafka writes and sends for each separately.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import merge
from itertools import compress, islice
from operator import ne
from typing import NamedTuple

from aiocontroller.core.columns import take
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.election import Strategy, elect
from aiocontroller.core.partitions import NO_ISR
from aiocontroller.core.steps import Breathe, Steps

PARTITIONS_AT_ONCE = 5_000


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


class Imbalances:
    """Counts partitions slice by slice: how many each broker should lead, and which of these others lead."""

    def __init__(self, context: ControllerContext) -> None:
        self._table = context.table
        self._order = context.leader_order()
        self._heads: dict[int, int] = {}
        """Assignment -> the broker that should lead."""
        self._preferred: Counter[int] = Counter()
        self._not_led: dict[int, list[int]] = {}

    def add(self, rows: Sequence[int]) -> list[int]:
        """Count the rows, and return those that others lead; partitions of topics being deleted do not count."""
        table, heads = self._table, self._heads
        if table.topics_deleting:
            rows = [row for row in rows if not table.topic(row).deleting]
        assignments, leaders = take(rows, table.assignment_of, table.leader)
        for assignment in sorted(set(assignments) - heads.keys()):
            replicas = table.assignments.values[assignment].replicas
            heads[assignment] = self._order(replicas)[0] if replicas else -1
        preferred = list(map(heads.__getitem__, assignments))
        self._preferred.update(preferred)
        not_led = [row for row in compress(rows, map(ne, preferred, leaders)) if table.isr_of[row] != NO_ISR]
        for row in not_led:
            self._not_led.setdefault(heads[table.assignment_of[row]], []).append(row)
        return not_led

    def found(self) -> list[Imbalance]:
        """Every preferred broker's imbalance, by broker id."""
        return [Imbalance(b, n, self._not_led.get(b, [])) for b, n in sorted(self._preferred.items()) if b >= 0]


def leader_imbalance(context: ControllerContext) -> Steps[list[Imbalance]]:
    """Every preferred broker's imbalance, by broker id; topics being deleted do not count."""
    count = Imbalances(context)
    for rows in context.table.slices(PARTITIONS_AT_ONCE):
        count.add(rows)
        yield Breathe()
    return count.found()


def partitions_to_rebalance(
    context: ControllerContext, leader_imbalance_per_broker_percentage: int
) -> Steps[list[int]]:
    """The rows whose preferred leader should and can lead again, ascending."""
    if not context.table.preferred_replica_imbalance and not context.leader_preferences.any:
        return []
    not_led = [
        imbalance.not_led
        for imbalance in (yield from leader_imbalance(context))
        if imbalance.ratio > leader_imbalance_per_broker_percentage / 100
    ]
    candidates, found = merge(*not_led), list[int]()
    while some := list(islice(candidates, PARTITIONS_AT_ONCE)):
        found += elect(context, some, Strategy.PREFERRED).rows
        yield Breathe()
    return found


def hosted_by_avoided(context: ControllerContext) -> list[int]:
    """The rows with a replica on a broker to avoid, ascending."""
    return context.table.partitions_on_brokers(sorted(context.leader_preferences.avoided))


def leaders_to_move(context: ControllerContext, hosted: Sequence[int]) -> list[int]:
    """Of these rows, those that a broker to avoid leads although another replica could; none of a topic being deleted.

    A sick broker is no such replica: an election would leave the leader where it is, with a higher epoch.
    """
    preferences = context.leader_preferences
    avoided = preferences.avoided
    worse = avoided if preferences.sick is None else avoided | {preferences.sick}
    table, memo = context.table, dict[tuple[int, int], bool]()
    found = []
    for row, leader in zip(hosted, take(hosted, table.leader)[0], strict=True):
        if leader not in avoided:
            continue
        key = (table.assignment_of[row], table.isr_of[row])
        movable = memo.get(key)
        if movable is None or context.offline_dirs:
            movable = memo[key] = _another_can_lead(context, row, worse)
        if movable and not table.topic(row).deleting:
            found.append(row)
    return found


def _another_can_lead(context: ControllerContext, row: int, worse: Iterable[int]) -> bool:
    table = context.table
    others = set(table.assignment(row).target).intersection(table.isr(row)).difference(worse)
    return any(context.is_replica_online(row, other) for other in others)
