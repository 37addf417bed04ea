"""Whether we tell a broker of a partition what Kafka does, and by which departures where we tell it less.

A *sequel* is what one broker was sent of one partition in one step.  Kafka's is taken first as it would be without the
departures that reach over steps (``Terms``, and ``AtOnce`` in ``allowances``).  Then ours must be Kafka's, in its
order, from which some are missing; and for each that is missing a rule must give the reason.  No rule adds anything to
what we tell: what we say more often than Kafka, later, or otherwise, is a disagreement.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import msgspec

from aiocontroller.zookeeper import paths
from tests.differential.sent import NO_EPOCH, Sent

Sequel = tuple[Sent, ...]

SAID_ONCE = "said once"
ELECTED_AT_ONCE = "elected at once"
SHRUNK_AT_ONCE = "shrunk at once"
STOPPED_AND_DELETED = "stopped and deleted"
STOPPED_AT_THIS_EPOCH = "stopped at this epoch"
DROPPED_AFTER_THE_RAISE = "dropped after the raise"
DELETION_SENT_FIRST = "deletion sent first"
FELL_BEHIND = "fell behind"
TERM_OF_THE_WRITE = "term of the write"
METADATA_AT_ONCE = "metadata at once"
ENDS_ALIKE = "ends alike after a warm failover"


def explained(broker: int, kafka: Sequel, ours: Sequel) -> list[str] | None:
    """The rules, each once, by which what we sent this broker follows from what Kafka sent it; None if it does not."""
    found = _from(broker, kafka, ours, 0, 0)
    for moved in _dropped_later(broker, kafka) if found is None else ():
        found = _from(broker, moved, ours, 0, 0)
        if found is not None:
            return sorted({DROPPED_AFTER_THE_RAISE, *found})
    if found is None and _sent_first(ours):
        found = _from(broker, kafka, ours[1:], 0, 0)
        found = None if found is None else [DELETION_SENT_FIRST, *found]
    return None if found is None else sorted(set(found))


def _from(broker: int, kafka: Sequel, ours: Sequel, i: int, j: int) -> list[str] | None:
    """From Kafka's i-th and our j-th on."""
    if i == len(kafka):
        return [] if j == len(ours) else None
    if j < len(ours):
        for form, by in _forms(broker, kafka, i):
            if form == ours[j]:
                rest = _from(broker, kafka, ours, i + 1, j + 1)
                if rest is not None:
                    return [*by, *rest]
    reason = _left_out(kafka, i)
    if reason is not None:
        rest = _from(broker, kafka, ours, i + 1, j)
        if rest is not None:
            return [reason, *rest]
    return None


def _forms(broker: int, kafka: Sequel, i: int) -> Iterator[tuple[Sent, list[str]]]:
    """As Kafka sent it; and a StopReplica with the epoch after the shrink, where that took the receiver out."""
    one = kafka[i]
    yield one, []
    if one.request == "StopReplica" and not one.delete:
        for other in kafka:
            after = other.request == "UpdateMetadata" and other.leader_epoch == one.leader_epoch + 1
            if after and (broker in other.offline or broker not in other.isr):
                yield msgspec.structs.replace(one, leader_epoch=other.leader_epoch), [STOPPED_AT_THIS_EPOCH]
                return


def _left_out(kafka: Sequel, i: int) -> str | None:
    """Why we need not tell Kafka's i-th: the next of the same kind of request says it, or says what came of it."""
    one = kafka[i]
    following = next((other for other in kafka[i + 1 :] if other.request == one.request), None)
    if following is None:
        return None
    if following == one:
        return SAID_ONCE
    if one.request == "StopReplica":
        deletes = following.delete and not one.delete and following.leader_epoch >= one.leader_epoch
        return STOPPED_AND_DELETED if deletes else None
    if following.leader_epoch != one.leader_epoch + 1 or one.is_new > following.is_new:
        return None
    if one.leader == -1:
        return ELECTED_AT_ONCE if following.leader != -1 and following.isr == one.isr else None
    return SHRUNK_AT_ONCE if _shrunk(one, following, kafka) else None


def _shrunk(one: Sent, following: Sent, kafka: Sequel) -> bool:
    """Nothing came to the partition, something went; and what left the ISR is no replica any more, or offline."""
    offline = {n for t in kafka if t.leader_epoch == following.leader_epoch for n in t.offline}
    before, after = (set(one.isr), set(one.replicas)), (set(following.isr), set(following.replicas))
    smaller = before != after and before[0] >= after[0] and before[1] >= after[1]
    return smaller and all(n in offline or n not in after[1] for n in before[0] - after[0])


def _dropped_later(broker: int, kafka: Sequel) -> Iterator[Sequel]:
    """As if Kafka had raised the leader epoch before it stopped a replica that a cancel or an override drops."""
    for i, one in enumerate(kafka):
        if one.request == "StopReplica" and one.delete:
            named = one.leader_epoch != NO_EPOCH
            present = one.leader_epoch if named else max((t.leader_epoch for t in kafka[:i]), default=NO_EPOCH)
            for j, raised in enumerate(kafka[i + 1 :], i + 1):
                higher = raised.request == "UpdateMetadata" and raised.leader_epoch > present
                if higher and broker not in raised.replicas:
                    sent = msgspec.structs.replace(one, leader_epoch=raised.leader_epoch if named else NO_EPOCH)
                    yield (*kafka[:i], *kafka[i + 1 : j + 1], sent, *kafka[j + 1 :])


def leadership_before_metadata(broker: int, ours: Sequel) -> Sequel:
    """Ours in Kafka's order, where a follower's UpdateMetadata came before the LeaderAndIsr of the same state."""
    found = list(ours)
    for i, (one, other) in enumerate(pairwise(ours)):
        metadata_first = (one.request, other.request) == ("UpdateMetadata", "LeaderAndIsr")
        if metadata_first and other.leader != broker and _state(one) == _state(other):
            found[i], found[i + 1] = other, one
    return tuple(found)


def _sent_first(ours: Sequel) -> bool:
    """We begin with the word that the topic is being deleted, and say so again."""
    first = ours[0] if ours else None
    return first is not None and first.request == "UpdateMetadata" and first.leader == -2 and first in ours[1:]


def ends_alike(kafka: Sequel, ours: Sequel) -> bool:
    """Whether both end with the same request of each kind, and what we sent before is Kafka's, in the order of epochs.

    Whatever Kafka tells before that may be missing, as states from before the election are; and what we tell may come
    twice.  A topic that is going needs no LeaderAndIsr.
    """
    plain = [msgspec.structs.replace(one, is_new=False) for one in kafka]
    own = [msgspec.structs.replace(one, is_new=False) for one in ours]
    going = any(one.leader == -2 for one in own)
    if not going and any(one.is_new for one in kafka) != any(one.is_new for one in ours):
        return False
    for kind in ("LeaderAndIsr", "UpdateMetadata", "StopReplica"):
        theirs, those = ([one for one in each if one.request == kind] for each in (plain, own))
        if any(one not in theirs for one in those):
            return False
        if kind != "StopReplica" and [one.leader_epoch for one in those] != sorted(one.leader_epoch for one in those):
            return False
        if those[-1:] != theirs[-1:] and not (going and kind == "LeaderAndIsr" and not those):
            return False
    return True


def last_states(kafka: Sequel, ours: Sequel) -> bool:
    """Whether ours are what a broker that has fallen behind is sent at last: the last metadata, and that leadership."""
    sent = [one for one in kafka if one.request == "UpdateMetadata"][-1:]
    if [one for one in ours if one.request == "UpdateMetadata"][-1:] != sent:
        return False
    return all(one in kafka or [_state(one)] == [_state(last) for last in sent] for one in ours)


def _state(one: Sent) -> tuple[Any, ...]:
    return one.leader, one.leader_epoch, one.isr, one.partition_epoch, one.controller_epoch, one.replicas, one.wrong


class Terms:
    """In which term each state was written, by Kafka's own znodes: it tells some states in the present term.

    Where a replica goes that was not in the ISR, Kafka writes nothing and tells the state as one of the present term.
    We tell it as ZooKeeper has it.  So a state of Kafka's is taken in the term that ZooKeeper has for it; in any other
    term than that, or the present one, it stays as it was sent.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[str, int], int] = {}
        """(partition, version of its state) -> term."""
        self._present = (0, 0)
        """The term when the last step was over, and when this one was."""

    def see(self, kafka: dict[str, Any]) -> None:
        """Kafka's znodes after a step."""
        self._present = self._present[1], kafka.get(paths.CONTROLLER_EPOCH, 0)
        states = {path.removesuffix(" state"): v for path, v in kafka.items() if path.endswith(" state")}
        self._written = {key: term for key, term in self._written.items() if states.get(key[0])}
        for partition, state in states.items():
            if state:
                self._written[partition, state["partition_epoch"]] = state["controller_epoch"]

    @property
    def failed_over(self) -> bool:
        """Whether a term began in the last step."""
        return self._present[0] != self._present[1]

    def sent(self, partition: str, kafka: Sequel) -> Sequel:
        return tuple(self._one(partition, one) for one in kafka)

    def _one(self, partition: str, one: Sent) -> Sent:
        written = self._written.get((partition, -1 if one.partition_epoch is None else one.partition_epoch))
        if written is None or one.leader == -2 or one.controller_epoch is None:
            return one
        first, last = self._present
        if not first <= one.controller_epoch <= last:
            return one
        return msgspec.structs.replace(one, controller_epoch=written)
