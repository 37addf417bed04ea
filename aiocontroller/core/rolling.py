"""When a broker may be restarted, and in which order: the gates of a rolling restart.

Rules.
 * A broker is restarted only while every broker with replicas is live, every partition has a leader, and every replica
   is in sync.
 * It is restarted only if, without it, no partition loses its leader or falls below ``min.insync.replicas``.
 * It is back when it has registered again and all of its replicas are in sync again.
 * Brokers are restarted in the order of their ids, the active controller last, so that the role moves once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.ids import NO_LEADER, TopicPartition
from aiocontroller.core.moving import MoveView


class RestartGate(NamedTuple):
    """Why a broker may not be restarted now; the gate is open if every list is empty."""

    absent: tuple[int, ...]
    offline: tuple[TopicPartition, ...]
    not_in_sync: tuple[TopicPartition, ...]
    would_be_offline: tuple[TopicPartition, ...] = ()
    would_be_under_min_isr: tuple[TopicPartition, ...] = ()

    @property
    def open(self) -> bool:
        """Whether the broker may be restarted."""
        return not any(self)

    def reasons(self) -> tuple[str, ...]:
        """The reasons in words; none if the gate is open."""
        words = []
        if self.absent:
            words.append(f"brokers away: {', '.join(map(str, self.absent))}")
        for found, what in (
            (self.offline, "without a leader"),
            (self.not_in_sync, "with replicas that are not in sync"),
            (self.would_be_offline, "that would have no leader"),
            (self.would_be_under_min_isr, "that would be below min.insync.replicas"),
        ):
            if found:
                words.append(f"{len(found)} partitions {what} ({found[0]}{', …' if len(found) > 1 else ''})")
        return tuple(words)


def gate(view: MoveView, known: Iterable[int]) -> RestartGate:
    """The gate for the present cluster; ``known`` are the brokers that existed when the restarts began."""
    named = set(known)
    offline, behind = [], []
    for tp, now in view.partitions.items():
        named.update(now.assignment.replicas)
        if now.leader == NO_LEADER:
            offline.append(tp)
        elif not set(now.assignment.replicas).issubset(now.isr):
            behind.append(tp)
    return RestartGate(tuple(sorted(named - view.live)), tuple(offline), tuple(behind))


def order(brokers: Iterable[int], controller: int | None) -> list[int]:
    """The order in which the brokers are restarted."""
    return sorted(brokers, key=lambda broker: (broker == controller, broker))


def returned(view: MoveView, broker: int, epoch: int | None, before: int | None) -> bool:
    """Whether the broker has registered again, and is in the ISR of each of its partitions.

    ``epoch`` is that of its present registration, ``before`` that before its restart; None without one.
    """
    if epoch is None or epoch == before:
        return False
    return all(broker in now.isr for now in view.partitions.values() if broker in now.assignment.replicas)


class Restarted(NamedTuple):
    """What the audit file records of a roll that has not ended."""

    done: tuple[int, ...]
    under_way: int | None
    """The broker whose command may have run."""
    epoch: int | None
    """The epoch of its registration before the restart."""


def resumed(records: Sequence[Mapping[str, object]]) -> Restarted | None:
    """The roll that is to be continued; None if there is none.  KeyError or TypeError for damaged records."""
    found: Restarted | None = None
    for record in records:
        what = record["what"]
        if what == "roll":
            found = found or Restarted((), None, None)
        elif what == "end":
            found = None if record["result"] == "rolled" else found
        elif found is not None and what == "restart":
            broker, epoch = record["broker"], record["epoch"]
            assert isinstance(broker, int)
            found = found._replace(under_way=broker, epoch=epoch if isinstance(epoch, int) else None)
        elif found is not None and what == "restarted":
            broker = record["broker"]
            assert isinstance(broker, int)
            found = Restarted((*found.done, broker), None, None)
    return found
