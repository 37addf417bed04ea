"""Dry runs of moving replicas: of one partition, of a whole broker, and of cancelling a reassignment.  Pure.

The controller's own checks of a reassignment decide what may move, and its own planner where a broker's replicas go.
These moves have no throttle, so only few may move at once; ``aiocontroller move`` is for the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

from aiocontroller.core import replica_plans
from aiocontroller.core.context import ControllerContext
from aiocontroller.core.dry_runs import LONGEST_NAME, DryRun, bounded
from aiocontroller.core.election import reassign_partition_leader_election
from aiocontroller.core.errors import BadInputError
from aiocontroller.core.ids import ReplicaAssignment, TopicPartition
from aiocontroller.core.reassignment import Refused, check_target, check_targets, movable
from aiocontroller.core.replica_plans import Layout
from aiocontroller.core.steps import Breathe, Steps
from aiocontroller.core.text import plural

MOST_MOVED = 1_000
"""Partitions at once."""
PARTITIONS_AT_ONCE = 25
"""Partitions planned before other tasks may run: each is compared with all brokers."""
COST = (
    "copying is not throttled, and the controller does not know how many bytes are to be copied: "
    "'aiocontroller move' throttles, shows bytes, and can be stopped"
)


def move_partition(context: ControllerContext, topic: str, partition: int, replicas: Sequence[int]) -> DryRun:
    """Move the partition to these replicas, preferred leader first; BadInputError with the controller's own refusal."""
    at, named = TopicPartition(topic, partition), f"{topic[:LONGEST_NAME]}-{partition}"
    row = movable(context, at)
    if row in context.partitions_being_reassigned:
        to = _ids(context.table.assignment(row).target)
        raise BadInputError(f"{named} is being reassigned to {to} already: wait for that to end, or cancel it")
    checked = check_target(context, row, replicas)
    if isinstance(checked, Refused):
        raise BadInputError(f"{named}: {checked.code.name}: {checked.message}")
    before = context.table.assignment(row)
    if checked == before:
        raise BadInputError(f"{named} has the replicas {_ids(before.replicas)}, in this order, already")
    target = checked.target
    lines = [f"{at}: replicas {_ids(before.replicas)} → {_ids(target)}"]
    leader, becomes = context.table.leader[row], next_leader(context, row, checked)
    if leader not in context.brokers:
        lines.append("no live broker leads it: nothing can be copied until one does")
    elif becomes == leader:
        lines.append(f"leader {leader} stays")
    else:
        lines.append(f"leader {leader} → {becomes}, once all of {_ids(target)} are in sync")
    if before.replicas[:1] != target[:1]:
        lines.append(f"preferred leader {_ids(before.replicas[:1])} → {target[0]}")
    if checked.removing:
        lines.append(f"deleted from {_ids(checked.removing)}, once all of {_ids(target)} are in sync")
    if checked.adding:
        lines += [f"copied to {_ids(checked.adding)}", COST]
    return DryRun(f"Move {at} to {_ids(target)}", tuple(lines), targets={at: target})


def drain_broker(context: ControllerContext, broker: int) -> Steps[DryRun]:
    """Move all replicas off the broker, as ``aiocontroller plan --drain`` does.

    BadInputError if it has none or too many, none of them may move, or the other brokers are too few.
    """
    table = context.table
    count = table.replicas_of.get(broker, 0)
    if not count:
        raise BadInputError(f"broker: found {broker}, which has no replicas, expected one that has some")
    if count > MOST_MOVED:
        raise BadInputError(
            f"broker: found {broker} with {count:,} replicas, expected {MOST_MOVED:,} at most, since these moves have "
            f"no throttle: use 'aiocontroller plan --drain {broker}' and 'aiocontroller move'"
        )
    replicas, left = _movable(context, table.partitions_on_broker(broker))
    if not replicas:
        raise BadInputError(f"no replica can be moved off broker {broker}: {'; '.join(left)}")
    layout = _layout(context, replicas)
    plan = yield from _drained(layout, broker)
    checked = check_targets(context, plan.items())
    for tp, refused in checked.refused.items():
        raise BadInputError(f"{tp} to {_ids(plan[tp])}: {refused.code.name}: {refused.message}")
    lines = [*_summary(context, checked.wanted), *_fewer_racks(layout, plan), *left, COST]
    return DryRun(f"Move all replicas off broker {broker}", tuple(lines), targets=plan)


def cancel_reassignment(context: ControllerContext, topic: str, partition: int) -> DryRun:
    """Take the reassignment back; BadInputError if there is none, or going back would lose data."""
    at = TopicPartition(topic, partition)
    row = context.table.row(topic, partition)
    back = check_target(context, row, None)
    if isinstance(back, Refused):
        raise BadInputError(f"{topic[:LONGEST_NAME]}-{partition}: {back.message}")
    now = context.table.assignment(row)
    lines = [f"{at}: goes back to replicas {_ids(now.origin)}"]
    if now.adding:
        lines.append(f"what has been copied to {_ids(now.adding)} is deleted")
    return DryRun(f"Cancel the reassignment of {at}", tuple(lines), targets={at: None})


def next_leader(context: ControllerContext, row: int, assignment: ReplicaAssignment) -> int:
    """The leader once all of the target is in sync; -1 if none of it is live."""
    leader, target = context.table.leader[row], assignment.target
    if leader in target and context.is_replica_online(row, leader):
        return leader
    found = reassign_partition_leader_election(context.leader_order()(target), target, context.live)
    return -1 if found is None else found.leader


def _movable(
    context: ControllerContext, rows: Iterable[int]
) -> tuple[dict[TopicPartition, tuple[int, ...]], list[str]]:
    """The replicas of the partitions that may move, and in words how many may not and why."""
    table, may_move, others = context.table, dict[TopicPartition, tuple[int, ...]](), Counter[str]()
    for row in rows:
        tp = table.topic_partition(row)
        if table.topic(row).deleting:
            others["of topics being deleted"] += 1
        elif row in context.partitions_being_reassigned:
            others["being reassigned"] += 1
        elif table.leader[row] not in context.brokers:
            others["without a live leader"] += 1
        else:
            may_move[tp] = table.replicas(row)
    return may_move, [f"left out, {why}: {plural(n, 'partition')}" for why, n in sorted(others.items())]


def _drained(layout: Layout, broker: int) -> Steps[replica_plans.Assignment]:
    """The plan that ``drain`` would make of all partitions at once: it considers each once, in this order."""
    now, plan = dict(layout.replicas), replica_plans.Assignment()
    names = iter(sorted(now))
    while some := list(islice(names, PARTITIONS_AT_ONCE)):
        part = {tp: now.pop(tp) for tp in some}
        changed = replica_plans.drain(layout._replace(replicas=part, fixed=now), (broker,))
        now |= part | changed
        plan |= changed
        yield Breathe()
    return plan


def _layout(context: ControllerContext, replicas: Mapping[TopicPartition, tuple[int, ...]]) -> Layout:
    """The planner's input; of the other partitions, perhaps a million, it has only a count for each broker."""
    other_replicas = Counter(context.table.replicas_of)
    other_replicas.subtract(broker for own in replicas.values() for broker in own)
    racks = {broker: context.brokers[broker].rack for broker in sorted(context.live)}
    return Layout(replicas, racks, other_replicas=other_replicas)


def _summary(context: ControllerContext, wanted: Mapping[int, ReplicaAssignment]) -> tuple[str, ...]:
    """What becomes of many partitions: where replicas go, which leaders change, and some by name."""
    table = context.table
    to: Counter[int] = Counter(broker for assignment in wanted.values() for broker in assignment.adding)
    leaders = {row: (table.leader[row], next_leader(context, row, to)) for row, to in wanted.items()}
    changes = Counter(pair for pair in leaders.values() if pair[0] != pair[1])
    copied = ", ".join(f"{n:,} to {broker}" for broker, n in sorted(to.items()))
    lines = [f"{plural(sum(to.values()), 'replica')} copied: {copied}"]
    lines += [
        f"leader {was} → {becomes}: {plural(n, 'partition')}, once its new replica is in sync"
        for (was, becomes), n in sorted(changes.items())
    ]
    one_by_one = []
    for row, assignment in wanted.items():
        was, becomes = leaders[row]
        led = f"; leader {was} → {becomes}" if was != becomes else ""
        replicas = f"{_ids(table.replicas(row))} → {_ids(assignment.target)}"
        one_by_one.append(f"{table.topic_partition(row)}: replicas {replicas}{led}")
    return (*bounded(lines), *bounded(one_by_one))


def _fewer_racks(layout: Layout, plan: replica_plans.Assignment) -> list[str]:
    narrower = replica_plans.cost(layout, plan).narrower
    return [f"in fewer racks than before: {plural(narrower, 'partition')}"] if narrower else []


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers)) or "none"
