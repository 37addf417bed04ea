"""The cluster at a glance, from what the context holds: brokers, moves and deletions with their progress.  Pure.

Every list is bounded, with the number of all; nothing here looks at every partition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.partitions import Topic
from aiocontroller.core.states import ReplicaState
from aiocontroller.core.topic_deletion import is_being_reassigned

BROKERS_SHOWN = 1_000
ROWS_SHOWN = 50
OWED_NAMED = 3
BROKERS_NAMED = 5
"""Of those that a deletion waits for."""
REPLICAS_COUNTED = 2_000
"""Partitions of topics being deleted whose replicas are counted for an answer."""


class Channel(NamedTuple):
    """The state of the controller's connection to a broker."""

    queued: int
    """Requests that wait to be sent."""
    in_flight: bool
    retries: int
    answered_us: int | None
    """When the broker last answered, in microseconds since 1970; None: not in this term."""
    silent_since_us: int | None = None
    """Since when it has owed an answer, or could not be reached, if that is long; in microseconds since 1970."""


class BrokerView(msgspec.Struct, frozen=True):
    """A broker that is registered, or has replicas; ``since_us``: when it left in this term, or became silent."""

    id: int
    state: str
    """``live``, ``not answering``, ``shutting down``, ``suspected``, ``sick`` or ``gone``."""
    leaders: int
    replicas: int
    since_us: int | None = None
    address: str | None = None
    rack: str | None = None
    queued: int | None = None
    in_flight: bool = False
    retries: int = 0
    answered_us: int | None = None
    failed_replicas: int = 0
    """Replicas on failed log directories."""
    owed: int = 0
    """Replicas that it has yet to delete."""
    evidence: tuple[str, ...] = ()
    owed_topics: tuple[str, ...] = ()
    """Some of the topics whose replicas it has yet to delete."""


class Move(msgspec.Struct, frozen=True):
    """A partition that is being reassigned; it ends when every replica of ``adding`` is in sync."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    in_sync: tuple[int, ...]
    """Those of ``adding`` that have caught up."""
    cancelled: bool
    waits_for: tuple[int, ...] = ()
    """Brokers of ``adding`` that cannot catch up as they are: not live, or with a failed log directory."""


class Deletion(msgspec.Struct, frozen=True):
    """A topic that is being deleted; ``replicas_left`` is None where they are too many to count for an answer."""

    topic: str
    partitions: int
    state: str
    """``waiting``, ``deleting`` or ``halted``."""
    replicas_left: int | None
    waits_for: str = ""
    """In words: the brokers that have not deleted their replicas, those that are not live first; or what else."""


def brokers(
    context: ControllerContext, channels: Mapping[int, Channel], evidence: Mapping[int, tuple[str, ...]]
) -> list[BrokerView]:
    """Every broker, by id."""
    table = context.table
    owed: dict[int, list[str]] = {}
    for debt in context.debts:
        owed.setdefault(debt.broker, []).append(debt.topic)
    with_replicas = (broker for broker, count in table.replicas_of.items() if count)
    ids = sorted({*context.brokers, *with_replicas, *channels}.difference(context.controllers))
    return [_broker(context, broker, channels.get(broker), evidence, owed) for broker in ids[:BROKERS_SHOWN]]


def _broker(
    context: ControllerContext,
    broker: int,
    channel: Channel | None,
    evidence: Mapping[int, tuple[str, ...]],
    owed: Mapping[int, Sequence[str]],
) -> BrokerView:
    known = context.brokers.get(broker)
    state, since_us = state_of(context, broker), context.gone_since.get(broker) or None
    if state == "live" and channel is not None and channel.silent_since_us is not None:
        state, since_us = "not answering", channel.silent_since_us
    at = next(iter(known.endpoints), None) if known is not None else None
    return BrokerView(
        broker,
        state,
        context.table.leaders_of.get(broker, 0),
        context.table.replicas_of.get(broker, 0),
        since_us,
        None if at is None else f"{at.host}:{at.port}",
        None if known is None else known.rack,
        None if channel is None else channel.queued,
        channel is not None and channel.in_flight,
        0 if channel is None else channel.retries,
        None if channel is None else channel.answered_us,
        len(context.offline_dirs.get(broker, ())),
        len(owed.get(broker, ())),
        evidence.get(broker, ()),
        tuple(dict.fromkeys(owed.get(broker, ())))[:OWED_NAMED],
    )


def state_of(context: ControllerContext, broker: int) -> str:
    """The broker's state in a word or two, the worst that is known."""
    if broker not in context.brokers:
        return "gone"
    if broker in context.suspected:
        return "suspected"
    if broker in context.shutting_down:
        return "shutting down"
    return "sick" if context.sick is not None and context.sick.broker == broker else "live"


def moves(context: ControllerContext, at_most: int = ROWS_SHOWN) -> list[Move]:
    """Partitions that are being reassigned, in the order in which they began."""
    found = []
    for row in islice(context.partitions_being_reassigned, at_most):
        name, assignment, isr = (
            context.table.topic_partition(row),
            context.table.assignment(row),
            context.table.isr(row),
        )
        in_sync = tuple(broker for broker in assignment.adding if broker in isr)
        waits_for = tuple(
            broker
            for broker in assignment.adding
            if broker not in in_sync and not context.is_replica_online(row, broker)
        )
        found.append(Move(*name, *assignment, in_sync, row in context.cancelled_reassignments, waits_for))
    return found


def deletions(context: ControllerContext, at_most: int = ROWS_SHOWN) -> list[Deletion]:
    """Topics that are being deleted, in the order in which that was asked for."""
    found, budget = [], REPLICAS_COUNTED
    for name in islice(context.topics_to_be_deleted, at_most):
        topic = context.table.topic_by_name.get(name)
        if topic is None:
            continue
        budget -= len(topic.rows)
        state = "deleting" if name in context.topics_with_deletion_started else "waiting"
        if name in context.topics_ineligible_for_deletion:
            state = "halted"
        left = _replicas_left(context, topic) if budget >= 0 else None
        total = None if left is None else sum(left.values())
        found.append(Deletion(name, len(topic.rows), state, total, _waits_for(context, name, left or {})))
    return found


def _replicas_left(context: ControllerContext, topic: Topic) -> dict[int, int]:
    """Broker -> how many of the topic's replicas it has yet to delete."""
    table, found = context.table, dict[int, int]()
    gone = (ReplicaState.ReplicaDeletionSuccessful, ReplicaState.NonExistentReplica)
    for row in topic.partitions():
        states = table.replica_states.values[table.replica_states_of[row]]
        for broker, state in zip(table.replicas(row), states, strict=True):
            if state not in gone:
                found[broker] = found.get(broker, 0) + 1
    return found


def _waits_for(context: ControllerContext, name: str, left: Mapping[int, int]) -> str:
    if left and is_being_reassigned(context, name):
        return "the end of its reassignment"
    states = {broker: state_of(context, broker) for broker in left}
    order = sorted(left, key=lambda broker: (states[broker] == "live", broker))
    named = [f"broker {b}" + ("" if states[b] == "live" else f" ({states[b]})") for b in order[:BROKERS_NAMED]]
    more = len(order) - len(named)
    return ", ".join([*named, f"{more} more"] if more else named)
