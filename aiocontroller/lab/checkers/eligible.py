"""Which replicas outside the ISR may lead, by KIP-966's rules and by what really became of the brokers' logs.

A twin of ``core.eligible_replicas`` that knows more: which logs have lost records.  It goes by the states in ZooKeeper
alone, and reads none of what the controller keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from aiocontroller.core.ids import LeaderAndIsr

Partition = tuple[str, int]


class EligibleTwin:
    def __init__(self) -> None:
        self.min_isr: Callable[[], int] = lambda: 1
        """The brokers' ``min.insync.replicas``; 1 where they commit below it (before 3.7)."""
        self._complete: dict[Partition, set[int]] = {}
        """Replicas outside the ISR that hold everything committed; membership only."""
        self._steady: dict[Partition, set[int]] = {}
        """Those of them that have been registered all the time since they left the ISR."""

    def written(
        self, partition: Partition, before: LeaderAndIsr, after: LeaderAndIsr, replicas: Collection[int]
    ) -> None:
        """A state was written that replaces another."""
        led_from_outside = after.leader >= 0 and after.leader not in (*before.isr, *self.complete(partition))
        if len(after.isr) >= min(self.min_isr(), len(replicas)) or led_from_outside:
            self._complete.pop(partition, None)
            self._steady.pop(partition, None)
            return
        left = set(before.isr).intersection(replicas)
        for known in (self._complete, self._steady):
            known[partition] = known.get(partition, set()).union(left).intersection(replicas).difference(after.isr)

    def complete(self, partition: Partition) -> Collection[int]:
        """The replicas that may lead although they are not in sync."""
        return self._complete.get(partition, ())

    def steady(self, partition: Partition) -> Collection[int]:
        """Those that any controller must know to be eligible."""
        return self._steady.get(partition, ())

    def lost(self, broker: int, partition: Partition) -> None:
        """The broker's log has lost records, or is deleted."""
        for known in (self._complete, self._steady):
            known.get(partition, set()).discard(broker)

    def registered(self, broker: int) -> None:
        """The broker has registered; so it had not been for a time."""
        for brokers in self._steady.values():
            brokers.discard(broker)

    def topic_gone(self, topic: str) -> None:
        """The topic is deleted."""
        for known in (self._complete, self._steady):
            for partition in [partition for partition in known if partition[0] == topic]:
                del known[partition]
