"""What a sick broker loses while it is sick: leaders, and its place in ISRs that can do without it.

``SickReplicas`` decides each partition by itself, and again after a foreign write.  The broker's replica stays as it is
 * where the rest of the ISR that is online is smaller than ``min.insync.replicas``, or empty;
 * where it leads, and every replica that could succeed it ranks lower in the operator's preferences (a pin);
 * where its leader is not online: that is decided elsewhere.
Otherwise it leaves the ISR, and if it led, the first of the rest leads, which has everything that was acknowledged.
Each partition is relieved once for each sickness: a leader of an old release may add the replica again, and removing it
each time would gain nothing.

A sick broker is the last choice of every election, and may not join an ISR (``alter_partition``).  Once it leads
nothing, it is left out of the live brokers of UpdateMetadata (*unlisted*), because a leader's high watermark waits for
each replica that has caught up and is alive in its metadata, whether in the ISR or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.effects import Effects, Entered, LeaderAndIsrRequests
from aiocontroller.core.ids import LeaderAndIsr
from aiocontroller.core.leadership_changes import LeadershipChange, LeadershipFacts, Written
from aiocontroller.core.partitions import NO_ISR

REASON = "SickBroker"
"""The journal's reason for these changes."""


class MinIsrs(NamedTuple):
    """``min.insync.replicas``, of topics with a setting of their own and of all others."""

    default: int
    topics: Mapping[str, int]

    def of(self, topic: str) -> int:
        """At least 1."""
        return max(1, self.topics.get(topic, self.default))


def held_by(context: ControllerContext, broker: int) -> list[int]:
    """The partitions that the broker leads, or has in their ISR, and that were not relieved of it yet, ascending."""
    table, sick = context.table, context.sick
    relieved = frozenset[int]() if sick is None else sick.relieved
    return [
        row
        for row in table.partitions_on_broker(broker)
        if row not in relieved
        and table.isr_of[row] != NO_ISR
        and broker in table.isr(row)
        and not table.topic(row).deleting
    ]


class ReliefPlan(NamedTuple):
    """Leaders and ISRs without the sick broker."""

    decisions: Decisions
    moved: frozenset[int]
    """The rows with a new leader."""

    def effects(self, context: ControllerContext, written: Written) -> Effects:
        """All replicas are sent the change, including the sick broker's, which must go on following."""
        return Effects(
            (Entered(written.done.rows, None, REASON),),
            (LeaderAndIsrRequests(written.done.rows, written.done.recipients),),
        )


class SickReplicas(LeadershipChange[ReliefPlan]):
    """Takes the sick broker's replicas out of the way."""

    def __init__(self, broker: int, rows: Sequence[int], min_isr: MinIsrs) -> None:
        super().__init__(rows)
        self.moved = 0
        """Partitions with a new leader."""
        self._broker = broker
        self._min_isr = min_isr

    def plan(self, context: ControllerContext, rows: Sequence[int], facts: LeadershipFacts) -> ReliefPlan:
        """Decide each row; those that stay as they are are left out."""
        decisions, moved = Decisions.none(), list[int]()
        for row in rows:
            leadership = self._relieved(context, row)
            if leadership is not None:
                decisions.rows.append(row)
                decisions.leaderships.append(leadership)
                decisions.recipients.append(context.table.replicas(row))
                if leadership.leader != context.table.leader[row]:
                    moved.append(row)
        return ReliefPlan(decisions, frozenset(moved))

    def carried_out(self, plan: ReliefPlan, effects: Effects) -> None:
        """Count the partitions with a new leader."""
        self.moved += len(plan.moved.intersection(*(entered.rows for entered in effects.entered)))

    def _relieved(self, context: ControllerContext, row: int) -> LeaderAndIsr | None:
        table, broker = context.table, self._broker
        isr, leader = table.isr(row), table.leader[row]
        if broker not in isr or table.isr_of[row] == NO_ISR:
            return None
        rest = tuple(replica for replica in isr if replica != broker)
        online = [replica for replica in rest if context.is_replica_online(row, replica)]
        if len(online) < self._min_isr.of(table.topic(row).name):
            return None
        if leader != broker and leader not in online:
            return None
        if leader == broker:
            target = context.leader_order()(table.assignment(row).target)
            able = [replica for replica in target if replica in online]
            if not able or context.leader_preferences.is_lower(able[0], broker, context.brokers):
                return None
            leader = able[0]
        return LeaderAndIsr(
            leader,
            table.leader_epoch[row] + 1,
            rest,
            context.epoch,
            table.partition_epoch[row],
            table.recovery_state[row],
        )
