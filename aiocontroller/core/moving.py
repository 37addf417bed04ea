"""What to do next while replicas move: which partitions to begin, which to take back, how fast, and when to stop.

Everything follows from the plan and the present cluster, so the process that carries out a plan may be killed at any
time and begin again.  Rules.
 * At most ``MoveBounds.at_once`` partitions move at the same time; those that begin are spread over the receiving
   brokers.
 * While a bound is exceeded, nothing begins, and the rate is the lowest.  After ``hold_s`` of this the move stops
   itself.
 * A move to a broker that has been absent for ``patience_s`` is taken back, and begins again when the broker has
   returned: if it waited, it would keep its place among the moves at once.
 * A partition that another client moves after this plan has placed it is left to that client; otherwise two conflicting
   plans would never end.
 * Live followers that leave an ISR halve the rate; some time of calm raises it by half.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from aiocontroller.core.ids import NO_LEADER, ReplicaAssignment, TopicPartition
from aiocontroller.core.throttles import Entity

MovePlan = Mapping[TopicPartition, tuple[int, ...]]
CALM_LOOKS = 5
"""After so many looks in a row without a reason to slow down, the rate rises."""


class Now(NamedTuple):
    """One partition."""

    assignment: ReplicaAssignment
    leader: int
    """-1 if no live broker leads."""
    isr: tuple[int, ...]


class MoveView(NamedTuple):
    """The cluster at one moment."""

    partitions: Mapping[TopicPartition, Now]
    """All partitions of the cluster, whether the plan names them or not."""
    live: frozenset[int]
    answer_ms: float = 0.0
    """The time that the slowest live broker took to answer."""
    throttles: Mapping[Entity, Mapping[str, str]] = {}
    """The throttling settings of topics and brokers, where they are set."""


class MoveBounds(NamedTuple):
    """What a move may cost; rates in bytes a second for each broker."""

    at_once: int
    rate: int
    least_rate: int
    absent: int
    """Brokers that have replicas and are not registered."""
    under_replicated: int
    """Partitions with a replica that is neither in sync nor moving."""
    answer_ms: float
    patience_s: float
    hold_s: float


class MovePhase(Enum):
    """Where a partition of the plan stands."""

    DONE = "done"
    MOVING = "moving"
    WAITING = "waiting"
    AWAY = "new broker away"
    BUSY = "being moved by another client"
    OPPOSITE = "moving the other way"
    LEADERLESS = "no live leader"
    REFUSED = "refused by the controller"
    GONE = "deleted"
    TAKEN = "moved away by another client"


def phase(
    target: tuple[int, ...], opposite: tuple[int, ...] | None, now: Now | None, live: Collection[int]
) -> MovePhase:
    """``opposite`` is where the same plan would move it in the other direction, if it has one."""
    if now is None:
        return MovePhase.GONE
    assignment = now.assignment
    if assignment.being_reassigned:
        if assignment.target == target:
            return MovePhase.MOVING
        return MovePhase.OPPOSITE if assignment.target == opposite else MovePhase.BUSY
    if assignment.replicas == target:
        return MovePhase.DONE
    if now.leader == NO_LEADER:
        return MovePhase.LEADERLESS
    return MovePhase.WAITING if all(b in live or b in assignment.replicas for b in target) else MovePhase.AWAY


IN_PLACE = (MovePhase.DONE, MovePhase.GONE)
"""Phases in which nothing is left to do."""


class Health(NamedTuple):
    """What is compared with the bounds."""

    absent: tuple[int, ...]
    under_replicated: int
    shrunk: int
    """Partitions whose ISR has lost a live replica since the previous look."""
    answer_ms: float


def health(view: MoveView, before: MoveView | None) -> Health:
    """The health at this look; ``before`` is the previous one."""
    named = Counter[int]()
    under, shrunk = 0, 0
    for tp, now in view.partitions.items():
        assignment, in_sync = now.assignment, now.isr
        named.update(assignment.replicas)
        leaving = (*assignment.adding, *assignment.removing)
        under += any(broker not in in_sync and broker not in leaving for broker in assignment.replicas)
        was = None if before is None else before.partitions.get(tp)
        if was is not None and was.isr != in_sync:
            shrunk += any(
                b not in in_sync and b in view.live and b in assignment.replicas and b not in assignment.removing
                for b in was.isr
            )
    return Health(tuple(sorted(broker for broker in named if broker not in view.live)), under, shrunk, view.answer_ms)


def exceeded(found: Health, bounds: MoveBounds) -> tuple[str, ...]:
    """Why nothing may begin now, in words; empty if it may."""
    reasons = []
    if len(found.absent) > bounds.absent:
        away = ", ".join(map(str, found.absent))
        reasons.append(f"brokers away: {away} (at most {bounds.absent})")
    if found.under_replicated > bounds.under_replicated:
        reasons.append(f"under-replicated: {found.under_replicated} partitions (at most {bounds.under_replicated})")
    if found.answer_ms > bounds.answer_ms:
        reasons.append(f"a broker answers in {found.answer_ms:.0f} ms (at most {bounds.answer_ms:.0f})")
    return tuple(reasons)


class MovePace(NamedTuple):
    """How the move goes; times are seconds of one monotonic clock."""

    rate: int
    calm: int = 0
    held_since_s: float | None = None
    away_since_s: tuple[tuple[int, float], ...] = ()
    """(broker, since when) of absent brokers, ascending."""


def first_pace(bounds: MoveBounds) -> MovePace:
    """A quarter of the highest rate: calm raises it within half a minute."""
    return MovePace(max(bounds.least_rate, bounds.rate // 4))


def adapted(pace: MovePace, found: Health, bounds: MoveBounds, *, held: bool, at_s: float) -> MovePace:
    """The pace after a look; ``held``: nothing could begin or go on."""
    rate, calm = pace.rate, pace.calm + 1
    if exceeded(found, bounds):
        rate, calm = bounds.least_rate, 0
    elif found.shrunk:
        rate, calm = max(bounds.least_rate, rate // 2), 0
    elif calm >= CALM_LOOKS:
        rate, calm = min(bounds.rate, rate + rate // 2), 0
    since = dict(pace.away_since_s)
    away = tuple((broker, since.get(broker, at_s)) for broker in found.absent)
    held_since = (at_s if pace.held_since_s is None else pace.held_since_s) if held else None
    return MovePace(rate, calm, held_since, away)


class MoveStep(NamedTuple):
    """What to do now."""

    begin: dict[TopicPartition, tuple[int, ...]]
    take_back: list[TopicPartition]
    elect: list[TopicPartition]
    """Moved partitions that their preferred replica could lead, but does not."""
    held: tuple[str, ...]
    """Why nothing begins or goes on."""
    phases: Mapping[TopicPartition, MovePhase]

    @property
    def over(self) -> bool:
        """Whether nothing is left to do: every partition has moved, is gone, or is left to another client."""
        return all(each in IN_PLACE or each is MovePhase.TAKEN for each in self.phases.values())


def phases(plan: MovePlan, opposite: MovePlan, view: MoveView) -> dict[TopicPartition, MovePhase]:
    """The phase of every partition of the plan."""
    return {tp: phase(target, opposite.get(tp), view.partitions.get(tp), view.live) for tp, target in plan.items()}


def next_step(
    plan: MovePlan,
    opposite: MovePlan,
    view: MoveView,
    bounds: MoveBounds,
    pace: MovePace,
    found: Health,
    at_s: float,
    refused: Mapping[TopicPartition, str] | None = None,
    arrived: Collection[TopicPartition] = (),
) -> MoveStep:
    """The next step by the module's rules; ``pace`` is that before this look.

    ``refused`` may not begin again yet, for the reason given, and ``arrived`` were in place at an earlier look.
    """
    refused = refused or {}
    phases_now = phases(plan, opposite, view)
    phases_now |= {tp: MovePhase.TAKEN for tp, each in phases_now.items() if tp in arrived and each not in IN_PLACE}
    phases_now |= {tp: MovePhase.REFUSED for tp in plan if tp in refused and phases_now[tp] is MovePhase.WAITING}
    lost = {broker for broker, since in pace.away_since_s if at_s - since >= bounds.patience_s}
    take_back = [
        tp
        for tp, each in phases_now.items()
        if each is MovePhase.OPPOSITE
        or (each is MovePhase.MOVING and lost.intersection(view.partitions[tp].assignment.adding).difference(view.live))
    ]
    held = exceeded(found, bounds)
    begin = {} if held else _begin(plan, phases_now, view, bounds.at_once)
    elect = [
        tp
        for tp, each in phases_now.items()
        if each is MovePhase.DONE and view.partitions[tp].leader not in (NO_LEADER, plan[tp][0])
        if plan[tp][0] in view.partitions[tp].isr and plan[tp][0] in view.live
    ]
    if not held and not begin and not take_back and MovePhase.MOVING not in phases_now.values():
        rest = Counter[MovePhase](each for each in phases_now.values() if each not in (*IN_PLACE, MovePhase.TAKEN))
        why = next(iter(refused.values()), "")
        held = tuple(
            f"{each.value}: {rest[each]} partitions{f' ({why})' if each is MovePhase.REFUSED and why else ''}"
            for each in MovePhase
            if rest[each]
        )
    return MoveStep(begin, take_back, elect, held, phases_now)


def _begin(
    plan: MovePlan, phases: Mapping[TopicPartition, MovePhase], view: MoveView, at_once: int
) -> dict[TopicPartition, tuple[int, ...]]:
    """Fill the free places with the partitions whose new brokers receive least now; equal ones in the plan's order.

    Partitions with the same new brokers share a queue, and each queue has one entry in the heap.  What brokers receive
    only grows here, so an entry is at its place or belongs further down.
    """
    receiving: Counter[int] = Counter()
    moving = [tp for tp, each in phases.items() if each is MovePhase.MOVING]
    for tp in moving:
        receiving.update(view.partitions[tp].assignment.adding)
    queues: dict[tuple[int, ...], deque[tuple[int, TopicPartition]]] = {}
    for at, (tp, each) in enumerate(phases.items()):
        if each is MovePhase.WAITING:
            new = tuple(broker for broker in plan[tp] if broker not in view.partitions[tp].assignment.replicas)
            queues.setdefault(new, deque()).append((at, tp))
    heap = [(0, queue[0][0], new) for new, queue in queues.items()]
    heapq.heapify(heap)
    chosen: dict[TopicPartition, tuple[int, ...]] = {}
    while heap and len(moving) + len(chosen) < at_once:
        busy, at, new = heap[0]
        now = max((receiving[broker] for broker in new), default=0)
        if now > busy:
            heapq.heapreplace(heap, (now, at, new))
            continue
        queue = queues[new]
        tp = queue.popleft()[1]
        receiving.update(new)
        chosen[tp] = plan[tp]
        if queue:
            heapq.heapreplace(heap, (now, queue[0][0], new))
        else:
            heapq.heappop(heap)
    return chosen


def to_stop(plan: MovePlan, opposite: MovePlan, view: MoveView) -> list[TopicPartition]:
    """The partitions to take back so that nothing of the plan is moving, in either direction."""
    under_way = (MovePhase.MOVING, MovePhase.OPPOSITE)
    return [tp for tp, each in phases(plan, opposite, view).items() if each in under_way]


def misordered(opposite: MovePlan, view: MoveView) -> dict[TopicPartition, tuple[int, ...]]:
    """The former replicas of partitions that are back on their former brokers, but in another order.

    Kafka's cancellation leaves the target's order: of (1, 2) that moved to (3, 2) it makes (2, 1).
    """
    found = {}
    for tp, replicas in opposite.items():
        now = view.partitions.get(tp)
        if now is None or now.assignment.being_reassigned:
            continue
        if now.assignment.replicas != replicas and sorted(now.assignment.replicas) == sorted(replicas):
            found[tp] = replicas
    return found
