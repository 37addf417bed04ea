"""Decides whether an ISR change may be written: the checks of Kafka's ``AlterPartitionReceived``, in its order.

Departures from Kafka: the sender must lead the partition, and an ISR must contain the leader, only replicas, and each
broker once; a sick broker may not join it.  Version 0 may add a broker that is not live, or sick: brokers up to 3.0
treat a refusal as final until the next leader epoch, and their own controllers did not refuse.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from aiocontroller.core.context import ControllerContext
from aiocontroller.core.decisions import Decisions
from aiocontroller.core.effects import Effects
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import AlterPartitionReceived
from aiocontroller.core.ids import NO_TOPIC_ID, RECOVERED, RECOVERING, LeaderAndIsr
from aiocontroller.core.leadership_changes import LeadershipChange, LeadershipFacts, Written
from aiocontroller.core.request_content import AlterPartition


class AlterPartitionResult(msgspec.Struct, frozen=True, gc=False):
    """One partition's answer: an error, or the leadership that now holds."""

    topic: str | bytes
    """As the request named it: a name or an id."""
    partition: int
    error_code: int
    leadership: LeaderAndIsr | None = None


class IsrVerdict(NamedTuple):
    """``write`` is the leadership to write; if it is None, ``error_code`` is the answer (NONE: nothing changes)."""

    row: int
    error_code: KafkaErrorCode
    write: LeaderAndIsr | None = None


Resolved = tuple[AlterPartitionReceived, list[int]]
"""A request, and the rows of those of its partitions that exist."""


class Taken(NamedTuple):
    """Requests that are handled together, and those that are refused as a whole."""

    requests: list[Resolved]
    """No two of them name the same partition."""
    refused: list[tuple[AlterPartitionReceived, KafkaErrorCode]]


def take_disjoint(context: ControllerContext, waiting: deque[AlterPartitionReceived]) -> Taken:
    """Take requests from the left; a second one about a partition waits, to be judged by the result of the first."""
    taken = Taken([], [])
    seen: set[int] = set()
    while waiting:
        event = waiting[0]
        error = check_request(context, event)
        if error:
            taken.refused.append((waiting.popleft(), error))
            continue
        rows = [row for c in event.partitions if (row := resolve(context, c.topic, c.partition)[0]) >= 0]
        if not seen.isdisjoint(rows):
            break
        seen.update(rows)
        taken.requests.append((waiting.popleft(), rows))
    return taken


UNKNOWN = (KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION, KafkaErrorCode.UNKNOWN_TOPIC_ID)
"""Errors after which a broker does not retry.  A controller that was deposed before the topic was created must not send
them, as Kafka's may."""


class Judged(NamedTuple):
    """The verdicts on several requests: a plan."""

    requests: Sequence[Resolved]
    verdicts: list[list[IsrVerdict]]
    """For each request."""
    decisions: Decisions
    """The valid changes, each partition once."""

    def any_unknown(self) -> bool:
        """Whether a verdict is an error that must not be sent before the term is confirmed (``UNKNOWN``)."""
        return any(verdict.error_code in UNKNOWN for each in self.verdicts for verdict in each)

    def effects(self, context: ControllerContext, written: Written) -> Effects:
        """Each partition is answered separately."""
        outcome = dict.fromkeys(self.decisions.rows, KafkaErrorCode.UNKNOWN_SERVER_ERROR)
        outcome |= dict.fromkeys(written.conflicts, KafkaErrorCode.INVALID_UPDATE_VERSION)
        outcome |= dict.fromkeys(written.done.rows, KafkaErrorCode.NONE)
        answers = results(context, self, outcome)
        events = [event for event, _ in self.requests]
        return Effects(isrs=written.done.rows, answers=list(zip(events, answers, strict=True)))


class IsrChange(LeadershipChange[Judged]):
    """Changes of ISRs that leaders have requested: one piece, with all partitions of the requests."""

    recorded = False

    def __init__(self, requests: Sequence[Resolved]) -> None:
        super().__init__([row for _, rows in requests for row in rows])
        self.judged = Judged(requests, [], Decisions.none())
        self._requests = requests

    def plan(self, context: ControllerContext, rows: Sequence[int], facts: LeadershipFacts) -> Judged:
        """Judge all requests; ``rows`` are always all of theirs, since this is one piece."""
        return judge(context, self._requests)

    def needs_confirmation(self, plan: Judged) -> bool:
        """Whether to check the fence although nothing is written: a topic unknown here may be newer than this term."""
        return plan.any_unknown()

    def carried_out(self, plan: Judged, effects: Effects) -> None:
        """Keep the verdicts; partitions refused by ZooKeeper are answered by ``Judged.effects``."""
        self.judged = plan


def judge(context: ControllerContext, requests: Sequence[Resolved]) -> Judged:
    """The verdict on each partition of each request, and the states to write for those that are valid."""
    verdicts = [
        [check_partition(context, change, event.broker, event.version) for change in event.partitions]
        for event, _ in requests
    ]
    accepted = {v.row: v.write for each in verdicts for v in each if v.write is not None}
    return Judged(requests, verdicts, Decisions(list(accepted), list(accepted.values()), [()] * len(accepted)))


def results(
    context: ControllerContext, judged: Judged, written: Mapping[int, KafkaErrorCode]
) -> list[list[AlterPartitionResult]]:
    """The answers, for each request; ``written``: row -> what came of the write."""
    leadership = context.table.leadership

    def result(change: AlterPartition, verdict: IsrVerdict) -> AlterPartitionResult:
        error = written.get(verdict.row, verdict.error_code)
        holds = leadership(verdict.row) if error == KafkaErrorCode.NONE else None
        return AlterPartitionResult(change.topic, change.partition, error, holds)

    return [
        [result(change, verdict) for change, verdict in zip(event.partitions, each, strict=True)]
        for (event, _), each in zip(judged.requests, judged.verdicts, strict=True)
    ]


def notable_requests(
    judged: Judged, before: Mapping[int, Sequence[int]]
) -> list[tuple[AlterPartitionReceived, AlterPartition, IsrVerdict]]:
    """Those that remove a replica from an ISR, and those that are refused; ``before``: row -> its ISR before."""
    return [
        (event, asked, verdict)
        for (event, _), each in zip(judged.requests, judged.verdicts, strict=True)
        for asked, verdict in zip(event.partitions, each, strict=True)
        if verdict.row in before and (verdict.error_code or not set(before[verdict.row]).issubset(asked.isr))
    ]


def refused_non_replicas(context: ControllerContext, judged: Judged) -> dict[int, list[int]]:
    """row -> brokers that its leader wrongly takes for replicas, and would propose again; Kafka accepts them."""
    return {
        verdict.row: non_replicas(context, verdict.row, change.isr)
        for (event, _), each in zip(judged.requests, judged.verdicts, strict=True)
        for change, verdict in zip(event.partitions, each, strict=True)
        if verdict.error_code == KafkaErrorCode.INVALID_REQUEST and event.broker == context.table.leader[verdict.row]
    }


def resolve(context: ControllerContext, topic: str | bytes, partition: int) -> tuple[int, KafkaErrorCode]:
    """The row of a partition named by topic name or id, or -1 and the error code for an unknown name or id."""
    table = context.table
    if isinstance(topic, bytes):
        known = table.topic_by_id.get(topic) if topic != NO_TOPIC_ID else None
        if known is None:
            return -1, KafkaErrorCode.UNKNOWN_TOPIC_ID
        topic = known.name
    row = table.row(topic, partition)
    return row, KafkaErrorCode.NONE if row >= 0 else KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def check_request(context: ControllerContext, request: AlterPartitionReceived) -> KafkaErrorCode:
    """The error that applies to the whole request, or NONE."""
    broker = context.brokers.get(request.broker)
    if broker is None or broker.epoch != request.broker_epoch:
        return KafkaErrorCode.STALE_BROKER_EPOCH
    return KafkaErrorCode.NONE


def check_partition(context: ControllerContext, change: AlterPartition, broker: int, version: int) -> IsrVerdict:
    """The verdict on one partition of a request by ``broker``; ``version`` decides the code for ineligible replicas."""
    row, error = resolve(context, change.topic, change.partition)
    current = context.table.leadership(row) if row >= 0 else None
    if current is None:
        return IsrVerdict(row, error or KafkaErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if change.partition_epoch > current.partition_epoch or change.leader_epoch > current.leader_epoch:
        return IsrVerdict(row, KafkaErrorCode.NOT_CONTROLLER)  # the broker has a newer epoch: we are stale
    if change.leader_epoch < current.leader_epoch:
        return IsrVerdict(row, KafkaErrorCode.FENCED_LEADER_EPOCH)
    by_leader = broker == current.leader
    if by_leader and change.isr == current.isr and change.recovery_state == current.recovery_state:
        return IsrVerdict(row, KafkaErrorCode.NONE)  # a repeated request whose answer was lost
    if change.partition_epoch < current.partition_epoch:
        return IsrVerdict(row, KafkaErrorCode.INVALID_UPDATE_VERSION)
    if not _recovery_is_consistent(change, current):
        return IsrVerdict(row, KafkaErrorCode.INVALID_REQUEST)
    if not by_leader or not change.isr or len(set(change.isr)) != len(change.isr) or current.leader not in change.isr:
        return IsrVerdict(row, KafkaErrorCode.INVALID_REQUEST)  # never written: an ISR holds its leader
    outside = non_replicas(context, row, change.isr)
    if not all(_is_eligible(context, replica, current) for replica in change.isr) and (version > 0 or outside):
        ineligible = KafkaErrorCode.INELIGIBLE_REPLICA if version >= 2 else KafkaErrorCode.OPERATION_NOT_ATTEMPTED
        return IsrVerdict(row, ineligible)
    if outside:
        return IsrVerdict(row, KafkaErrorCode.INVALID_REQUEST)  # a leader must be a replica
    return IsrVerdict(
        row,
        KafkaErrorCode.NONE,
        LeaderAndIsr(
            current.leader,
            current.leader_epoch,
            change.isr,
            context.epoch,
            current.partition_epoch,
            change.recovery_state,
        ),
    )


def _is_eligible(context: ControllerContext, replica: int, current: LeaderAndIsr) -> bool:
    """Whether the replica is live; a sick one may stay where it is, but not join."""
    joins_sick = context.sick is not None and replica == context.sick.broker and replica not in current.isr
    return replica in context.live and not joins_sick


def non_replicas(context: ControllerContext, row: int, isr: Sequence[int]) -> list[int]:
    """Brokers in the ISR that are not replicas."""
    replicas = context.table.replicas(row)
    return [broker for broker in isr if broker not in replicas]


def _recovery_is_consistent(change: AlterPartition, current: LeaderAndIsr) -> bool:
    if change.recovery_state == RECOVERING:
        return len(change.isr) == 1 and current.recovery_state == RECOVERING
    return change.recovery_state == RECOVERED
