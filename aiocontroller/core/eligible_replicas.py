"""Eligible leader replicas (KIP-966): replicas outside the ISR that still hold every committed record.

Theory.  While the ISR is smaller than ``min.insync.replicas``, brokers from 3.7 on commit nothing (KAFKA-15583).  So a
replica that was in the ISR when it fell below that size lacks nothing that is committed, as long as its log keeps what
it had then.  The rules:
 * A replica that leaves the ISR is eligible if the ISR is too small then; so are those that were eligible before.
 * It stops being eligible when it joins the ISR, starts uncleanly, or is no replica any longer.
 * No replica is eligible once the ISR is large enough, after an unclean election, or after a change of the topic's
   settings, since a lower ``min.insync.replicas`` lets the leader commit alone.

Partition states hold what was written when the ISR shrank, with what shows later whether it still counts: the zxid of
the topic's settings, and each replica's broker epoch.  The record of brokers' starts (``core.broker_starts``) says
since which incarnation a broker has lost nothing, so an unclean start costs one write and not one for each partition.
The record also says from which controller epoch on such a state counts: Kafka's controller drops what it does not know
when it writes a state, but leaves it in all others.

An ISR member that started uncleanly while its partition had no leader is *unproven*: its membership is older than its
log.  It leads only if no other ISR member and no eligible replica can, and it does not stay in another leader's ISR.
While a broker is unproven in one partition, it counts as unproven in every one that has no leader; once it is in none,
it has joined under a leader whatever ISR it is in, until it starts uncleanly again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.ids import NO_LEADER, Eligible, LeaderAndIsr, MinIsr
from aiocontroller.core.partitions import NO_ISR, Topic

Replicas = tuple[int, ...]
NONE_UNPROVEN: frozenset[int] = frozenset()


def are_kept(context: ControllerContext) -> bool:
    """Whether this term keeps eligible replicas."""
    return context.starts is not None and context.starts.valid_from <= context.epoch


def eligible_replicas(context: ControllerContext, row: int, min_isr: MinIsr | None) -> Replicas:
    """The partition's eligible replicas, live or not; ``min_isr`` is None for a topic whose settings were not read."""
    if row not in context.table.eligible or min_isr is None:
        return ()
    return tuple(replica for replica, _ in _still_eligible(context, row, min_isr))


def _still_eligible(context: ControllerContext, row: int, min_isr: MinIsr) -> list[tuple[int, int]]:
    table, starts = context.table, context.starts
    written = table.eligible.get(row)
    if (
        written is None
        or starts is None
        or table.controller_epoch[row] < starts.valid_from
        or written.config_zxid != min_isr.config_zxid
        or not _is_too_small(context, row, table.isr(row), min_isr)
    ):
        return []
    isr, adding = table.isr(row), table.assignment(row).adding
    return [
        (replica, epoch)
        for replica, epoch in written.replicas
        if replica in table.replicas(row)
        and replica not in adding  # a replica that was removed and comes back has a new log
        and replica not in isr
        and _has_lost_nothing_since(context, replica, epoch)
    ]


def _is_too_small(context: ControllerContext, row: int, isr: Sequence[int], min_isr: MinIsr) -> bool:
    """Whether the leader commits nothing with this ISR."""
    return len(isr) < needed_in_sync(context, row, min_isr)


def needed_in_sync(context: ControllerContext, row: int, min_isr: MinIsr) -> int:
    """The size of an ISR with which the leader commits.

    As for brokers, a partition needs no more than its replicas.  While they change, the leader may know either set.
    """
    assignment = context.table.assignment(row)
    return min(min_isr.value, len(assignment.origin), len(assignment.target))


def _has_lost_nothing_since(context: ControllerContext, broker: int, epoch: int) -> bool:
    known = None if context.starts is None else context.starts.brokers.get(broker)
    return known is not None and known.clean_from <= epoch <= known.epoch


def unproven_replicas(context: ControllerContext, row: int, unclean: frozenset[int]) -> frozenset[int]:
    """ISR members that may lack what the ISR had; ``unclean`` are the context's unproven brokers.

    A broker leaves all ISRs when it dies, unless no other member is left; then the partition has no leader.
    """
    return unclean if unclean and context.table.leader[row] == NO_LEADER else NONE_UNPROVEN


def newly_proven(context: ControllerContext) -> list[int]:
    """The unproven brokers whose start has been handled and that are in no ISR without a leader, ascending."""
    table, starts = context.table, context.starts
    unproven = context.unproven_brokers()
    if not unproven or starts is None:
        return []
    isrs = {isr for isr, leader in zip(table.isr_of, table.leader, strict=True) if leader == NO_LEADER}
    waiting = {broker for isr in isrs if isr != NO_ISR for broker in table.isrs.values[isr]}  # membership only
    handled = (b for b in unproven if starts.brokers[b].epoch == context.brokers[b].epoch)
    return sorted(broker for broker in handled if broker not in waiting)


def may_lead(isr: Replicas, online: Collection[int], eligible: Replicas, unproven: Collection[int]) -> Replicas:
    """The replicas that may lead without an unclean election; all of them are equally good."""
    return (
        tuple(r for r in isr if r in online and r not in unproven)
        or tuple(r for r in eligible if r in online)
        or tuple(r for r in isr if r in online)
    )


# -- writing -----------------------------------------------------------------------------------------------------------


def concerned(context: ControllerContext, decisions: Decisions) -> list[int]:
    """The positions of the states that may have eligible replicas: the ISR shrinks, or there were some before."""
    table = context.table
    isr_of, isrs = table.isr_of, table.isrs.values
    assignment_of, assignments = table.assignment_of, table.assignments.values
    found = []
    for at, (row, after) in enumerate(zip(decisions.rows, decisions.leaderships, strict=True)):
        if isr_of[row] == NO_ISR or len(after.isr) >= len(assignments[assignment_of[row]].replicas):
            continue
        isr = isrs[isr_of[row]]
        if row in table.eligible or (after.isr != isr and not set(isr).issubset(after.isr)):
            found.append(at)
    return found


def topics_of(context: ControllerContext, decisions: Decisions, positions: Sequence[int]) -> list[Topic]:
    """The topics of these states, whose ``min.insync.replicas`` decides."""
    table = context.table
    numbers = dict.fromkeys(table.topic_of[decisions.rows[at]] for at in positions)
    return [topic for number in numbers if (topic := table.topics[number]) is not None]


def enter(
    context: ControllerContext, decisions: Decisions, positions: Sequence[int], min_isrs: Mapping[bytes, MinIsr]
) -> None:
    """Complete the states to be written with the eligible replicas that they leave.

    ``min_isrs``: by topic id; without that of a topic, no replica of it is eligible.
    """
    topic_of, topics = context.table.topic_of, context.table.topics
    unclean = context.unproven_brokers()
    for at in positions:
        row, after = decisions.rows[at], decisions.leaderships[at]
        topic = topics[topic_of[row]]
        min_isr = None if topic is None else min_isrs.get(topic.id)
        if min_isr is None or len(after.isr) >= min_isr.value:
            continue
        found = eligible_after(context, row, after, min_isr, unclean)
        if found is not None:
            decisions.leaderships[at] = msgspec.structs.replace(after, eligible=found)


def eligible_after(
    context: ControllerContext, row: int, after: LeaderAndIsr, min_isr: MinIsr, unclean: frozenset[int]
) -> Eligible | None:
    """The eligible replicas once the partition has this state; None for none."""
    table = context.table
    if not _is_too_small(context, row, after.isr, min_isr):
        return None
    isr, before = table.isr(row), _still_eligible(context, row, min_isr)
    if after.leader != NO_LEADER and after.leader not in isr and all(after.leader != r for r, _ in before):
        return None  # an unclean election: from now on the new leader's log counts
    unproven = unproven_replicas(context, row, unclean)
    left = [
        (replica, context.last_epochs[replica])
        for replica in isr
        if replica in table.replicas(row)
        and replica not in unproven
        and replica in context.last_epochs
        and row not in context.offline_dirs.get(replica, ())
        and _has_lost_nothing_since(context, replica, context.last_epochs[replica])
    ]
    pairs = {pair[0]: pair for pair in (*before, *left) if pair[0] not in after.isr}
    return Eligible(min_isr.config_zxid, tuple(pairs[replica] for replica in sorted(pairs))) if pairs else None
