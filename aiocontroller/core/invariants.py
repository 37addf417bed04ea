"""Checks what must be true of a context between two events.

For tests, the simulation and debugging: a pass over everything, too slow for every event of a large cluster.
Each finding names its subject, what was found and what was expected.  What ZooKeeper holds may break a rule from
outside (a state znode written by hand); whatever this controller decides itself may not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.ids import NO_LEADER
from aiocontroller.core.partitions import NO_ISR, PartitionTable
from aiocontroller.core.states import PartitionState, ReplicaState


def violations(context: ControllerContext) -> list[str]:
    """Every broken invariant; empty when all is well."""
    return [
        *_table(context.table),
        *_broken(context.table),
        *_brokers(context),
        *_partitions(context),
        *_replicas(context.table),
        *_in_progress(context),
        *_debts(context),
    ]


def _table(table: PartitionTable) -> Iterator[str]:
    """The table's derived values match a recount."""
    counted = [row for row in table.rows() if not table.topic(row).deleting]
    going = sum(topic.deleting for topic in table.topic_by_name.values())
    yield from _differs("number of topics being deleted", table.topics_deleting, going)
    states = Counter(table.state[row] for row in counted)
    yield from _differs("partitions by state", table.count_by_state, [states[s] for s in PartitionState])
    led = [row for row in table.rows() if table.isr_of[row] != NO_ISR]
    yield from _differs("partitions with leadership", table.leadership_count, len(led))
    imbalance = sum(_imbalanced(table, row) for row in counted)
    yield from _differs("preferred replica imbalance", table.preferred_replica_imbalance, imbalance)
    waiting = (PartitionState.NewPartition, PartitionState.OfflinePartition)
    yield from _differs(
        "partitions not online", sorted(table.not_online), [row for row in table.rows() if table.state[row] in waiting]
    )
    by_broker: dict[int, list[int]] = {}
    for row in table.rows():
        for broker in dict.fromkeys(table.replicas(row)):
            by_broker.setdefault(broker, []).append(row)
    replicas = {broker: count for broker, count in sorted(table.replicas_of.items()) if count}
    yield from _differs("replicas by broker", replicas, {b: len(rows) for b, rows in sorted(by_broker.items())})
    leaders = {broker: count for broker, count in sorted(table.leaders_of.items()) if count and broker >= 0}
    by_leader = Counter(table.leader[row] for row in led if table.leader[row] >= 0)
    yield from _differs("leaders by broker", leaders, dict(sorted(by_leader.items())))
    yield from _differs("brokers with replicas", table.brokers_with_replicas(), sorted(by_broker))
    for broker, rows in sorted(by_broker.items()):
        yield from _differs(f"partitions on broker {broker}", table.partitions_on_broker(broker), rows)


def _broken(table: PartitionTable) -> Iterator[str]:
    """The index of what is broken matches a recount."""
    broken, kept = table.broken, [row for row in table.rows() if not table.topic(row).deleting]
    waiting = (PartitionState.NewPartition, PartitionState.OfflinePartition)
    offline = [row for row in kept if table.state[row] in waiting]
    small = [
        row for row in kept if table.isr_of[row] != NO_ISR and len(table.isr(row)) < len(table.assignment(row).origin)
    ]
    below = [row for row in small if len(table.isr(row)) < (broken.needed(table, row) or 0)]
    unread = {table.topic(row).number for row in small if broken.needed(table, row) is None}
    yield from _differs("offline partitions", sorted(broken.offline), offline)
    yield from _differs("under-replicated partitions", sorted(broken.under_replicated), small)
    yield from _differs("partitions below min.insync.replicas", sorted(broken.under_min_isr), below)
    yield from _differs("topics with small ISRs to be read", sorted(unread - set(broken.unread)), [])
    by_topic = dict(sorted(Counter(table.topic_of[row] for row in offline).items()))
    yield from _differs("offline partitions by topic", dict(sorted(broken.offline_of_topic.items())), by_topic)


def _imbalanced(table: PartitionTable, row: int) -> bool:
    replicas, adding, _ = table.assignment(row)
    if table.isr_of[row] == NO_ISR or not replicas or table.leader[row] == replicas[0]:
        return False
    return replicas[0] not in adding or replicas[0] in table.isr(row)


def _brokers(context: ControllerContext) -> Iterator[str]:
    yield from _differs(
        "live brokers",
        sorted(context.live),
        [b for b in context.brokers if b not in context.shutting_down and b not in context.suspected],
    )
    yield from _differs("suspects that are not registered", sorted(set(context.suspected) - set(context.brokers)), [])
    yield from _differs(
        "departed brokers that are registered", sorted(set(context.departed) & set(context.brokers)), []
    )
    yield from _differs("returning brokers that are registered", sorted(context.returning & set(context.brokers)), [])
    yield from _differs("order of brokers", list(context.brokers), sorted(context.brokers))
    unregistered = sorted(set(context.offline_dirs) - set(context.brokers))
    yield from _differs("failed directories of brokers that are not registered", unregistered, [])
    for broker, held in sorted(context.held_back.items()):
        if broker in context.brokers:
            online = sorted(held - context.offline_dirs.get(broker, set()))
            yield from _differs(f"partitions held back from broker {broker} and online there", online, [])


def _partitions(context: ControllerContext) -> Iterator[str]:
    """Leadership is consistent in itself and with the partition's state."""
    table = context.table
    for row in table.rows():
        name, state, known = str(table.topic_partition(row)), PartitionState(table.state[row]), table.leadership(row)
        if known is None:
            if state is PartitionState.OnlinePartition:
                yield f"{name}: found no leadership, expected one in {state.name}"
            continue
        if state is PartitionState.NewPartition:
            yield f"{name}: found leader {known.leader}, expected none in {state.name}"
        if not known.isr or len(set(known.isr)) != len(known.isr):
            yield f"{name}: found ISR {known.isr}, expected brokers, each once"
        if known.leader != NO_LEADER and known.leader not in known.isr:
            yield f"{name}: found leader {known.leader} outside the ISR {known.isr}"
        if not set(known.isr) <= set(table.replicas(row)):
            yield f"{name}: found ISR {known.isr}, expected it among the replicas {table.replicas(row)}"
        if known.controller_epoch > context.epoch:
            yield f"{name}: found controller epoch {known.controller_epoch}, expected at most ours, {context.epoch}"
        led = known.leader in context.brokers or table.topic(row).deleting  # deleted topics get no elections
        if state is PartitionState.OnlinePartition and not led:
            yield f"{name}: found leader {known.leader}, expected a registered broker in {state.name}"


def _replicas(table: PartitionTable) -> Iterator[str]:
    """Every replica is known as such: its broker is told of the partition when it starts."""
    for row in table.rows():
        if table.isr_of[row] == NO_ISR or table.topic(row).deleting:
            continue
        replicas = table.replicas(row)
        absent = [broker for broker in replicas if table.replica_state(row, broker) is ReplicaState.NonExistentReplica]
        if absent:
            yield f"{table.topic_partition(row)}: found replicas {absent} in NonExistentReplica, expected a known state"


def _in_progress(context: ControllerContext) -> Iterator[str]:
    """Reassignments and deletions refer to existing partitions, and all of them are tracked."""
    table = context.table
    existing = set(table.rows())
    for what, rows in (
        ("partitions being reassigned", context.partitions_being_reassigned),
        ("partitions left behind", context.left_behind),
        ("partitions held back", set().union(*context.held_back.values())),
        # A replica that was moved away may still be listed here, until the broker's next answer about it.
        ("partitions on failed directories", set().union(*context.offline_dirs.values())),
    ):
        yield from _differs(f"{what}: rows that do not exist", sorted(set(rows) - existing), [])
    untold = sorted(set(context.untold_reassignments) - set(context.partitions_being_reassigned))
    yield from _differs("reassignments to be told of that have ended", untold, [])
    forgotten = [
        str(table.topic_partition(row))
        for row in table.rows()
        if table.assignment(row).being_reassigned and row not in context.partitions_being_reassigned
    ]
    yield from _differs("reassignments that the context does not track", forgotten, [])
    deleting = sorted(name for name, topic in table.topic_by_name.items() if topic.deleting)
    queued = sorted(name for name in context.topics_to_be_deleted if name in table.topic_by_name)
    yield from _differs("topics being deleted", deleting, queued)


def _debts(context: ControllerContext) -> Iterator[str]:
    """No debt is for a replica of the present assignment."""
    table = context.table
    for debt in context.debts:
        row = table.row(debt.topic, debt.partition)
        if row < 0 or debt.broker not in table.replicas(row):
            continue
        if table.topic(row).id == debt.topic_id:
            yield f"{debt!r}: found a debt, expected none for a replica"
        elif row not in context.held_back.get(debt.broker, ()):
            yield f"{debt!r}: found that its broker may hear of the present topic, expected that it pays first"


def _differs(subject: str, found: object, expected: object) -> Iterator[str]:
    if found != expected:
        yield f"{subject}: found {found}, expected {expected}"
