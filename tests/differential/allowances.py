"""Where the two may differ.  Each allowance is a rule with a name, and a row of docs/departures.md.

What one broker was sent of one partition in one step is compared in ``sequels``.  Replicas that go at once need more:
Kafka's epochs are ahead from then on, so ``AtOnce`` follows each partition.  Nothing else is forgiven.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

import msgspec

from aiocontroller.zookeeper import paths
from tests.differential.sent import Sent
from tests.differential.sequels import (
    DELETION_SENT_FIRST,
    DROPPED_AFTER_THE_RAISE,
    ELECTED_AT_ONCE,
    ENDS_ALIKE,
    FELL_BEHIND,
    METADATA_AT_ONCE,
    SAID_ONCE,
    SHRUNK_AT_ONCE,
    STOPPED_AND_DELETED,
    STOPPED_AT_THIS_EPOCH,
    TERM_OF_THE_WRITE,
    Sequel,
)

# -- replicas that go at once ------------------------------------------------------------------------------------------


class Ahead(msgspec.Struct, frozen=True):
    """How far Kafka's epochs are ahead of ours, and the ISR that we keep where Kafka's has one member."""

    leader_epoch: int = 0
    partition_epoch: int = 0
    isr: tuple[int, ...] | None = None


WARM_DEPARTURE = "a failover of a warm standby (`aiocontroller.standby=warm`, the default)"


class AtOnce:
    """Several replicas that go at once cost Kafka a change each, and us one; epochs differ by the difference since."""

    NAME = "gone at once"
    DEPARTURE = "several replicas leave at once (brokers die, or a reassignment removes replicas)"
    ONE_WRITE = "elected and shrunk in one write by a warm failover"
    WHOLE_ISR = "whole ISR gone at once"
    WHOLE_ISR_DEPARTURE = "all members of an ISR die at once"

    def __init__(self) -> None:
        self._ahead: dict[str, Ahead] = {}
        self._before: dict[str, tuple[Ahead, int]] = {}
        """For partitions that the last step has changed so: how it was, and Kafka's last epoch at which it was so."""
        self._gone: set[int] = set()
        self._replicas: dict[str, set[int]] = {}

    def see(
        self, gone: Sequence[int], vacant: bool, kafka: dict[str, Any], ours: dict[str, Any], *, warm: bool = False
    ) -> list[str]:
        """After a step, by the znodes; the names of the rules that have begun to count for some partition.

        In a ``warm`` failover a leader that died is replaced, and leaves the ISR, by one write, too; Kafka needs two.

        ``gone`` are the brokers that the step took away; while there is no controller they add up.  The replicas that a
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
            if len(leaving) > (not warm) and theirs and own:
                begun += self._compare(partition, leaving, theirs, own, warm)
        self._gone, self._replicas = set(), replicas
        return begun

    def _compare(
        self, partition: str, leaving: set[int], kafka: dict[str, Any], ours: dict[str, Any], warm: bool
    ) -> list[str]:
        more = kafka["leader_epoch"] - ours["leader_epoch"]
        before = self._ahead.get(partition, Ahead())
        now = more - before.leader_epoch
        one_write = warm and now == len(leaving) and ours["leader"] != -1
        if not (0 < now < len(leaving) or one_write):
            return []
        begun = [self.ONE_WRITE if one_write else self.NAME]
        isr = None
        if kafka["leader"] == -1 and set(kafka["isr"]) < set(ours["isr"]) <= leaving:
            isr = ours["isr"]
            begun.append(self.WHOLE_ISR)
        since = kafka["leader_epoch"] - (more - before.leader_epoch) - 1
        self._before[partition] = before, since
        self._ahead[partition] = Ahead(more, kafka["partition_epoch"] - ours["partition_epoch"], isr)
        return begun

    def sent(self, partition: str, sent: Sequel) -> Sequel:
        """What Kafka sent, in our epochs."""
        ahead = self._ahead.get(partition)
        if ahead is None:
            return sent
        before, since = self._before.get(partition, (ahead, -1))
        return tuple(self._one(before if 0 <= one.leader_epoch <= since else ahead, one) for one in sent)

    def _one(self, ahead: Ahead, one: Sent) -> Sent:
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


# -- topics that are going ---------------------------------------------------------------------------------------------

DELETED_STATES = "states of deleted topics"
DELETED_STATES_DEPARTURE = "topic deletion: the ISR"


def without_leadership(sent: Sequel) -> Sequel:
    """What brokers are sent of a topic that is being deleted, whichever leader it names."""
    return tuple(
        one
        if one.request == "StopReplica"
        else msgspec.structs.replace(
            one,
            leader=-2 if one.leader == -2 else 0,
            leads_at="",
            leader_epoch=0,
            partition_epoch=0,
            controller_epoch=0,
            isr=(),
        )
        for one in sent
    )


def as_written(sent: Sequel, state: dict[str, Any] | None) -> bool:
    """Whether what we sent of a topic that is being deleted is the state that it had in ZooKeeper before."""
    return all(
        state is not None
        and one.isr == tuple(state["isr"])
        and (
            one.leader == -2
            or (one.leader, one.leader_epoch, one.partition_epoch, one.controller_epoch)
            == tuple(state[key] for key in ("leader", "leader_epoch", "partition_epoch", "controller_epoch"))
        )
        for one in sent
        if one.request != "StopReplica"
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


GONE = "gone although a broker is away"
GONE_DEPARTURE = "topic deletion: a broker is dead, refuses, or is silent for ten seconds; a log directory has failed"


def gone_already(kafka: dict[str, Any], ours: dict[str, Any], alive: Collection[int]) -> set[str]:
    """Topics that are gone in our znodes, and wait in Kafka's for brokers that are not there."""
    waiting = set(kafka[paths.DELETE_TOPICS]) - set(ours[paths.DELETE_TOPICS])
    return {
        topic
        for topic in waiting
        if not any(path.startswith(f"{topic}-") and path.endswith(" replicas") for path in ours)
        and any(
            not set(values["replicas"]) <= set(alive)
            for path, values in kafka.items()
            if path.startswith(f"{topic}-") and path.endswith(" replicas")
        )
    }


GRANTED = "granted to an old leader"
GRANTED_DEPARTURE = "AlterPartition version 0 (brokers of 2.7 to 3.1) that adds a broker that is shutting down or dead"


def granted_to_an_old_leader(kafka: Any, ours: Any, sent: dict[tuple[int, str], Sequel]) -> set[str]:
    """The topic of which a leader got an ISR, by an answer in version 0, with a replica that is known to be offline."""
    if not (isinstance(kafka, dict) and isinstance(ours, dict) and "isr" in ours):
        return set()
    partition, refused = kafka.get("partition", ""), kafka.get("error") == "OPERATION_NOT_ATTEMPTED"
    offline = {n for (_, name), sequel in sent.items() if name == partition for one in sequel for n in one.offline}
    if refused and kafka["version"] == ours["version"] == 0 and offline & set(ours["isr"]):
        return {partition.rsplit("-", 1)[0]}
    return set()


def deletes(sent: Sequel) -> bool:
    return any(one.request == "StopReplica" and one.delete for one in sent)


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
    SAID_ONCE: "one event sends the same state of a partition several times",
    ELECTED_AT_ONCE: "brokers start, and a partition gets a leader",
    SHRUNK_AT_ONCE: "one event changes a partition twice",
    STOPPED_AND_DELETED: "topic deletion: StopReplica",
    TERM_OF_THE_WRITE: "a replica that goes offline and was not in the ISR",
    STOPPED_AT_THIS_EPOCH: "a replica that is stopped and leaves the ISR",
    DROPPED_AFTER_THE_RAISE: "a reassignment is cancelled or overridden: StopReplica to the replicas that it added",
    FELL_BEHIND: "a broker falls behind",
    METADATA_AT_ONCE: "the order in which brokers hear of a new leader",
    ENDS_ALIKE: WARM_DEPARTURE,
    AtOnce.ONE_WRITE: WARM_DEPARTURE,
    DELETION_SENT_FIRST: "a broker starts while a topic is being deleted",
    AtOnce.NAME: AtOnce.DEPARTURE,
    AtOnce.WHOLE_ISR: AtOnce.WHOLE_ISR_DEPARTURE,
    DELETED_STATES: DELETED_STATES_DEPARTURE,
    MOVING: MOVING_DEPARTURE,
    GONE: GONE_DEPARTURE,
    GRANTED: GRANTED_DEPARTURE,
}
"""Every rule there is, and its row."""
