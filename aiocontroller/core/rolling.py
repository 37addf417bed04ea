"""When a broker may be restarted, and in which order: the gates of a rolling restart.

Rules.
 * A broker goes only while every broker that has replicas is there, every partition is led, and every replica in sync.
 * It goes only if no partition is without a leader, or below ``min.insync.replicas``, while it is gone.
 * It is back when it has registered anew and all of its replicas are in sync again.
 * Brokers go by id, and the one that is the controller last: the role moves once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.core.ids import NO_LEADER, TopicPartition
from aiocontroller.core.moving import View


class Gate(NamedTuple):
    """Why a broker may not go now, in words; empty lists open it."""

    absent: tuple[int, ...]
    offline: tuple[TopicPartition, ...]
    not_in_sync: tuple[TopicPartition, ...]
    would_be_offline: tuple[TopicPartition, ...] = ()
    would_be_under_min_isr: tuple[TopicPartition, ...] = ()

    @property
    def open(self) -> bool:
        """Whether nothing speaks against it."""
        return not any(self)

    def reasons(self) -> tuple[str, ...]:
        """In words."""
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


def gate(view: View, known: Iterable[int]) -> Gate:
    """As the cluster is now; ``known`` are the brokers that there were when the restarts began."""
    named = set(known)
    offline, behind = [], []
    for tp, now in view.partitions.items():
        named.update(now.assignment.replicas)
        if now.leader == NO_LEADER:
            offline.append(tp)
        elif not set(now.assignment.replicas).issubset(now.isr):
            behind.append(tp)
    return Gate(tuple(sorted(named - view.live)), tuple(offline), tuple(behind))


def order(brokers: Iterable[int], controller: int | None) -> list[int]:
    """In which they are restarted."""
    return sorted(brokers, key=lambda broker: (broker == controller, broker))


def returned(view: View, broker: int, epoch: int | None, before: int | None) -> bool:
    """Whether it has registered anew, and is in every ISR.

    ``epoch`` is that of its registration now, ``before`` that before its restart; None without one.
    """
    if epoch is None or epoch == before:
        return False
    return all(broker in now.isr for now in view.partitions.values() if broker in now.assignment.replicas)


class Restarted(NamedTuple):
    """What the audit file tells of a roll that has not ended."""

    done: tuple[int, ...]
    under_way: int | None
    """The broker whose command may have run."""
    epoch: int | None
    """Of its registration before."""


def resumed(records: Sequence[Mapping[str, object]]) -> Restarted | None:
    """None if no roll is to be continued.  KeyError or TypeError for damaged records."""
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
