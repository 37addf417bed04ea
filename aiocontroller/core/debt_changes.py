"""Decides which debts are given up, paid, or asked for again (``core.debts`` has the rules)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.debts import Changes, Debt
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import StopReplicaResponseReceived
from aiocontroller.core.replica_state_machine import check_valid_previous_states, not_in_state
from aiocontroller.core.states import ReplicaState

FIRST_RETRY_S = 1.0
AFTER_SILENCE_S = 60.0
"""Each unanswered request delays the requests queued behind it."""
LONGEST_RETRY_S = 240.0


class GivenUp(NamedTuple):
    """Debts that a new controller does not take over."""

    changes: Changes
    overtaken: list[Debt]
    """Debts that another kind of controller has overtaken: the replicas may stay on their disks."""


def plan_giving_up(context: ControllerContext, last_epoch: int) -> GivenUp:
    """At failover: debts of replicas that are replicas again, and debts that another kind of controller has overtaken.

    Kafka's own controller ignores debts.  If one was active after ``last_epoch``, the last epoch that managed debts, it
    may have informed the broker of the replica of the present topic, so a debt for the same name is given up: the
    broker may keep too much, but never loses data.
    """
    table, unbroken = context.table, context.epoch - 1 <= last_epoch <= context.epoch
    found = GivenUp(Changes(context.debts), [])
    for debt in context.debts:
        row = table.row(debt.topic, debt.partition)
        if row < 0 or debt.broker not in table.replicas(row):
            continue
        if table.topic(row).id == debt.topic_id:
            found.changes.forget(debt)
        elif not unbroken:
            found.changes.forget(debt)
            found.overtaken.append(debt)
    return found


def rows_of_debtors(context: ControllerContext) -> list[int]:
    """The rows of topics whose names are in debts."""
    topics = map(context.table.topic_by_name.get, context.debts.topics)
    return [row for topic in topics if topic is not None for row in topic.partitions()]


class Answered(NamedTuple):
    """The debts that a broker was asked to pay, by its answer."""

    paid: list[Debt]
    refused: dict[Debt, bool]
    """Each with whether the broker knows the leader epoch of the request already."""


def read_answer(context: ControllerContext, event: StopReplicaResponseReceived) -> Answered:
    """Sort the debts by the broker's answer; an answer of another incarnation of the broker says nothing."""
    broker, found = context.brokers.get(event.broker), Answered([], {})
    if broker is None or broker.epoch != event.broker_epoch:
        return found
    code_of = event.codes()
    for debt in filter(context.debts.holds, event.asked.debts):
        code = code_of(debt.topic, debt.partition)
        if code:
            found.refused[debt] = code == KafkaErrorCode.FENCED_LEADER_EPOCH
        else:
            found.paid.append(debt)
    return found


def retry_delay_s(attempts: int, *, silent: bool) -> float:
    """The pause before the broker is asked again, after so many attempts in a row; longer where it does not answer."""
    return float(min(LONGEST_RETRY_S, (AFTER_SILENCE_S if silent else FIRST_RETRY_S) * 2 ** min(attempts, 20)))


def rows_by_broker(context: ControllerContext, gone: Iterable[Debt]) -> dict[int, list[int]]:
    """Broker -> rows of the present topics that these former debts held back, brokers ascending."""
    found: dict[int, list[int]] = {}
    for debt in gone:
        row = context.table.row(debt.topic, debt.partition)
        if row >= 0:
            found.setdefault(debt.broker, []).append(row)
    return dict(sorted(found.items()))


def held_back(context: ControllerContext, broker: int, rows: Iterable[int]) -> list[int]:
    """Those of the rows that are held back from the broker, ascending."""
    return sorted(context.held_back.get(broker, set()).intersection(rows))


class Freed(NamedTuple):
    """Rows that a broker may be sent now."""

    new: list[int]
    """NewReplica: the broker may create them."""
    staying: dict[int, list[int]]
    """Those that become OnlineReplica, broker -> rows."""


def plan_freed(context: ControllerContext, broker: int, rows: list[int]) -> Freed:
    """``rows``: those of the present topic that the broker has a replica of, and has not received yet."""
    table = context.table
    known = not_in_state(table, broker, rows, ReplicaState.NewReplica)
    return Freed(
        [row for row in rows if row not in known],
        check_valid_previous_states(table, {broker: known}, ReplicaState.OnlineReplica).valid,
    )
