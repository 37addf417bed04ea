"""Where the two may differ.  Each allowance is a rule with a name, and a row of docs/departures.md.

A rule turns what one broker was told of one partition in one step (a ``Cell``) into what is left of it when the
departure does not count.  It is applied to both sides alike, and only where they differ.  Nothing else is forgiven.

Replicas that go at once need more: Kafka's epochs are ahead from then on, so ``AtOnce`` follows each partition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from aiocontroller.zookeeper import paths
from tests.differential.told import Told

Sequel = tuple[Told, ...]


class Allowance(NamedTuple):
    name: str
    departure: str
    """The first cell of its row in docs/departures.md."""
    apply: Callable[[Sequel], Sequel]


def _without(told: Sequel, superseded: Callable[[Told, Told], bool]) -> Sequel:
    """Leave out what a later one of the same kind of request supersedes."""
    return tuple(
        one
        for i, one in enumerate(told)
        if not any(later.request == one.request and superseded(one, later) for later in told[i + 1 :])
    )


def _said_once(told: Sequel) -> Sequel:
    """Of the same thing said several times in a row (by one kind of request) the last remains."""
    following: dict[str, Told] = {}
    kept = []
    for one in reversed(told):
        if following.get(one.request) != one:
            kept.append(one)
        following[one.request] = one
    return tuple(reversed(kept))


def _elected_at_once(told: Sequel) -> Sequel:
    return _without(told, lambda one, later: one.leader == -1 and _newer(one, later) and later.leader != -1)


def _shrunk_at_once(told: Sequel) -> Sequel:
    return _without(told, lambda one, later: _newer(one, later) and set(later.isr) < set(one.isr))


def _newer(one: Told, later: Told) -> bool:
    """A later state, and nothing that only the earlier one has said."""
    return one.leader is not None and later.leader_epoch > one.leader_epoch and one.is_new <= later.is_new


def _stopped_and_deleted(told: Sequel) -> Sequel:
    return _without(told, lambda one, later: later.delete and not one.delete and later.leader_epoch >= one.leader_epoch)


def _stopped_at_this_epoch(told: Sequel) -> Sequel:
    """A StopReplica bears the epoch before the ISR shrank, or after; twice if need be, and then the last counts."""
    last = max((one.leader_epoch for one in told if one.request == "UpdateMetadata"), default=None)
    if last is None:
        return told

    def stops(one: Told) -> bool:
        return one.request == "StopReplica" and not one.delete and one.leader_epoch in (last - 1, last)

    same = tuple(msgspec.structs.replace(one, leader_epoch=last) if stops(one) else one for one in told)
    return _without(same, lambda one, later: stops(one) and one == later)


def _whoever_decided(told: Sequel) -> Sequel:
    """Without the term in which the state was decided; znodes are compared with it."""
    return tuple(msgspec.structs.replace(one, controller_epoch=None) for one in told)


ALLOWANCES: tuple[Allowance, ...] = (
    Allowance("said once", "one event says the same of a partition several times", _said_once),
    Allowance("elected at once", "brokers start, and a partition gets a leader", _elected_at_once),
    Allowance("shrunk at once", "one event changes a partition twice", _shrunk_at_once),
    Allowance("stopped and deleted", "topic deletion: StopReplica", _stopped_and_deleted),
    Allowance("term of the write", "a replica that goes and was not in the ISR", _whoever_decided),
    Allowance("stopped at this epoch", "a replica that is stopped and leaves the ISR", _stopped_at_this_epoch),
)


# -- replicas that go at once ------------------------------------------------------------------------------------------


class Ahead(msgspec.Struct, frozen=True):
    """How far Kafka's epochs are ahead of ours, and the ISR that we keep where Kafka's has one member."""

    leader_epoch: int = 0
    partition_epoch: int = 0
    isr: tuple[int, ...] | None = None


class AtOnce:
    """Several replicas that go at once cost Kafka a change each, and us one; epochs differ by the difference since."""

    NAME = "gone at once"
    DEPARTURE = "several replicas go at once"
    WHOLE_ISR = "whole ISR gone at once"
    WHOLE_ISR_DEPARTURE = "all members of an ISR die at once"

    def __init__(self) -> None:
        self._ahead: dict[str, Ahead] = {}
        self._before: dict[str, tuple[Ahead, int]] = {}
        """For partitions that the last step has changed so: how it was, and Kafka's last epoch at which it was so."""
        self._gone: set[int] = set()
        self._replicas: dict[str, set[int]] = {}

    def see(self, gone: Sequence[int], vacant: bool, kafka: dict[str, Any], ours: dict[str, Any]) -> list[str]:
        """After a step, by the znodes; the names of the rules that have begun to count for some partition.

        ``gone`` are the brokers that the step took away; while nobody is in office they add up.  The replicas that a
        reassignment takes away leave a partition as those of dead brokers do.
        """
        self._gone |= set(gone)
        self._before = {}
        if vacant:
            return []
        begun = []
        replicas = {path: set(values["replicas"]) for path, values in kafka.items() if path.endswith(" replicas")}
        for path, now in replicas.items():
            before = self._replicas.get(path, set())
            leaving = (before & self._gone) | (before - now)
            partition = path.removesuffix(" replicas")
            theirs, own = kafka[f"{partition} state"], ours.get(f"{partition} state")
            if len(leaving) > 1 and theirs and own:
                begun += self._compare(partition, leaving, theirs, own)
        self._gone, self._replicas = set(), replicas
        return begun

    def _compare(self, partition: str, leaving: set[int], kafka: dict[str, Any], ours: dict[str, Any]) -> list[str]:
        more = kafka["leader_epoch"] - ours["leader_epoch"]
        before = self._ahead.get(partition, Ahead())
        if not 0 < more - before.leader_epoch < len(leaving):
            return []
        begun = [self.NAME]
        isr = None
        if kafka["leader"] == -1 and set(kafka["isr"]) < set(ours["isr"]) <= leaving:
            isr = ours["isr"]
            begun.append(self.WHOLE_ISR)
        since = kafka["leader_epoch"] - (more - before.leader_epoch) - 1
        self._before[partition] = before, since
        self._ahead[partition] = Ahead(more, kafka["partition_epoch"] - ours["partition_epoch"], isr)
        return begun

    def told(self, partition: str, told: Sequel) -> Sequel:
        """What Kafka told, in our epochs."""
        ahead = self._ahead.get(partition)
        if ahead is None:
            return told
        before, since = self._before.get(partition, (ahead, -1))
        return tuple(self._one(before if 0 <= one.leader_epoch <= since else ahead, one) for one in told)

    def _one(self, ahead: Ahead, one: Told) -> Told:
        changes: dict[str, Any] = {}
        if one.leader_epoch >= 0 and one.leader != -2:
            changes["leader_epoch"] = one.leader_epoch - ahead.leader_epoch
            if one.partition_epoch is not None:
                changes["partition_epoch"] = one.partition_epoch - ahead.partition_epoch
        if ahead.isr is not None and one.leader == -1:
            changes["isr"] = ahead.isr
        return msgspec.structs.replace(one, **changes)

    def values(self, partition: str, values: Any) -> Any:
        """The same for a state znode or an answer to AlterPartition."""
        ahead = self._ahead.get(partition)
        if ahead is None or not isinstance(values, dict) or "leader_epoch" not in values:
            return values
        changed = {key: values[key] - getattr(ahead, key) for key in ("leader_epoch", "partition_epoch")}
        if ahead.isr is not None and values["leader"] == -1:
            changed["isr"] = ahead.isr
        return values | changed


# -- answers --


UNKNOWN_FIRST = "unknown first"
UNKNOWN_FIRST_DEPARTURE = "reassignment by request of a partition that is none"
_UNKNOWN = "UNKNOWN_TOPIC_OR_PARTITION"


def unknown_first(kafka: Any, ours: Any) -> bool:
    """Whether two answers to one reassignment differ only in why partitions that nobody knows cannot be moved."""
    if not (isinstance(kafka, dict) and isinstance(ours, dict) and kafka.keys() == ours.keys()):
        return False
    reasons = {(kafka[key], ours[key]) for key in kafka if kafka[key] != ours[key]}
    return reasons <= {("INVALID_REPLICA_ASSIGNMENT", _UNKNOWN), ("NO_REASSIGNMENT_IN_PROGRESS", _UNKNOWN)}


CREATED_WITHOUT_LEADER = "created without a leader"
CREATED_WITHOUT_LEADER_DEPARTURE = "CreateTopics and CreatePartitions, where a partition gets no leader"
CREATED_WITHOUT_LEADER_ANSWERS = ["REQUEST_TIMED_OUT"], ["NONE"]
"""Kafka's and ours; in the znodes and to the brokers both have created it, or that is a disagreement."""

# -- topics that are going ---------------------------------------------------------------------------------------------

DELETED_STATES = "states of deleted topics"
DELETED_STATES_DEPARTURE = "topic deletion: the ISR"


def without_leadership(told: Sequel) -> Sequel:
    """What brokers are told of a topic that is being deleted, whoever is said to lead it."""
    return tuple(
        one
        if one.request == "StopReplica"
        else msgspec.structs.replace(
            one, leader=-2 if one.leader == -2 else 0, leader_epoch=0, partition_epoch=0, controller_epoch=0, isr=()
        )
        for one in told
    )


MOVING = "deleted while being reassigned"
MOVING_DEPARTURE = "deletion of a topic that is being reassigned"


def moving_and_deleted(ours: dict[str, Any]) -> set[str]:
    """Topics whose deletion waits in our znodes for the end of a reassignment; Kafka's does not."""
    going = ours[paths.DELETE_TOPICS]
    return {
        topic
        for topic in going
        for path, values in ours.items()
        if path.startswith(f"{topic}-") and path.endswith(" replicas") and (values["adding"] or values["removing"])
    }


def without_topics(values: Any, topics: set[str]) -> Any:
    """Answers, and lists and tables of znodes, without what concerns these topics."""

    def about(key: Any) -> bool:
        """``a``, ``a-0``, ``a-0 state``, ``a: has an id``, (a, 0, …): all are of topic a."""
        name = str(key[0] if isinstance(key, tuple) else key)
        return re.split(r"-\d|:", name)[0] in topics

    if not topics:
        return values
    if isinstance(values, dict):
        if about(values.get("partition", "")):
            return None
        return {key: without_topics(value, topics) for key, value in values.items() if not about(key)}
    if isinstance(values, list):
        return [value for value in values if not about(value)]
    return values


DEPARTURES = {
    **{a.name: a.departure for a in ALLOWANCES},
    AtOnce.NAME: AtOnce.DEPARTURE,
    AtOnce.WHOLE_ISR: AtOnce.WHOLE_ISR_DEPARTURE,
    UNKNOWN_FIRST: UNKNOWN_FIRST_DEPARTURE,
    CREATED_WITHOUT_LEADER: CREATED_WITHOUT_LEADER_DEPARTURE,
    DELETED_STATES: DELETED_STATES_DEPARTURE,
    MOVING: MOVING_DEPARTURE,
}
"""Every rule there is, and its row."""
