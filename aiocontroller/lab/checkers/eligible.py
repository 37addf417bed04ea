"""Which replicas hold everything committed, by KIP-966's rules and by what really happened to the brokers' logs.

A twin of ``core.eligible_replicas`` and ``core.broker_starts`` that also knows which logs have lost records.  Where
these were lost with the power, a controller can know it once the broker has registered again.  The twin relies on the
states in ZooKeeper alone.  Of the record of brokers' starts it knows which terms have written it, but not its
content: a controller that does not write it, such as Kafka's own, guarantees nothing, and its successor starts again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from aiocontroller.core.ids import NO_LEADER, LeaderAndIsr

Partition = tuple[str, int]


class EligibleTwin:
    def __init__(self) -> None:
        self.min_isr: Callable[[str], int] = lambda topic: 1
        """A topic's ``min.insync.replicas``; 1 where brokers commit below it (before 3.7)."""
        self._complete: dict[Partition, set[int]] = {}
        """Replicas outside the ISR that hold everything committed, as far as can be known; membership only."""
        self._steady: dict[Partition, set[int]] = {}
        """Those of them that have been registered without interruption since they left the ISR."""
        self._in_sync: dict[Partition, set[int]] = {}
        """ISR members that have been registered without interruption since they joined, and have lost nothing."""
        self._incomplete: dict[Partition, set[int]] = {}
        """Replicas that have lost records since they joined the ISR, and have neither led nor fetched them since."""
        self._leaderless: dict[Partition, tuple[int, ...]] = {}
        """The ISRs of partitions without a leader."""
        self._unnoticed: dict[int, set[Partition]] = {}
        """Broker -> where its logs have lost records since it registered; membership only."""
        self._watched: set[int] = set()
        """Brokers that have started since the record began; every controller must know of these starts."""
        self._epoch = 0
        self._recorded = 0
        """The last controller epoch in which the record was written."""

    # -- what happens ----------------------------------------------------------------------------------------------

    def written(
        self, partition: Partition, before: LeaderAndIsr | None, after: LeaderAndIsr, replicas: Collection[int]
    ) -> None:
        """A state was written that replaces another."""
        isr_before = () if before is None else before.isr
        in_sync = self._in_sync.get(partition, set())
        stayed = in_sync.difference(set(isr_before).difference(after.isr))
        joined = set(after.isr).difference(isr_before)
        self._in_sync[partition] = stayed.union(joined)
        self._leaderless.pop(partition, None)
        if after.leader == NO_LEADER:
            self._leaderless[partition] = after.isr
        incomplete = self._incomplete.get(partition, set()).difference(joined, [after.leader])
        self._incomplete[partition] = incomplete
        if before is None:
            return
        led_from_outside = after.leader >= 0 and after.leader not in (*before.isr, *self.complete(partition))
        if len(after.isr) >= min(self.min_isr(partition[0]), len(replicas)) or led_from_outside:
            self._forget(partition)
            return
        known = {broker for broker in incomplete if partition not in self._unnoticed.get(broker, ())}
        left = set(before.isr).intersection(replicas).difference(known)
        # As far as a controller knows, a member that has restarted may have lost records.
        for of, joining in ((self._complete, left), (self._steady, left.intersection(in_sync))):
            of[partition] = of.get(partition, set()).union(joining).intersection(replicas).difference(after.isr)

    def configured(self, topic: str, states: Iterable[tuple[Partition, LeaderAndIsr]]) -> None:
        """The topic's settings have changed; from now on its leaders may commit alone."""
        for partition, state in states:
            if partition[0] == topic:
                self._steady.pop(partition, None)
                if state.leader != NO_LEADER:
                    self._complete.pop(partition, None)

    def lost(self, broker: int, partition: Partition, *, noticed: bool = True) -> None:
        """The broker's log has lost records, or is deleted; if not ``noticed``, no controller can know it yet."""
        for known in (self._steady, self._in_sync):
            known.get(partition, set()).discard(broker)
        self._incomplete.setdefault(partition, set()).add(broker)
        if noticed:
            self._complete.get(partition, set()).discard(broker)
        else:
            self._unnoticed.setdefault(broker, set()).add(partition)

    def regained(self, broker: int, partition: Partition) -> None:
        """The broker's log again holds what it had lost, or as much of that as its leader has."""
        self._incomplete.get(partition, set()).discard(broker)

    def registered(self, broker: int) -> None:
        """The broker has registered, so for a time it was not registered."""
        self._watched.add(broker)
        for known in (self._steady, self._in_sync):
            for brokers in known.values():
                brokers.discard(broker)
        for partition in self._unnoticed.pop(broker, ()):
            self._complete.get(partition, set()).discard(broker)

    def term(self, epoch: int) -> None:
        """A controller has won this epoch."""
        self._epoch = epoch
        if self._recorded < epoch - 1:
            self._steady.clear()
            self._watched.clear()

    def recorded(self) -> None:
        """The controller has written the record of brokers' starts."""
        self._recorded = self._epoch

    def topic_gone(self, topic: str) -> None:
        """The topic is deleted."""
        for known in (self._complete, self._steady, self._in_sync, self._incomplete, self._leaderless):
            for partition in [partition for partition in known if partition[0] == topic]:
                del known[partition]
        for partitions in self._unnoticed.values():
            partitions.difference_update([partition for partition in partitions if partition[0] == topic])

    def _forget(self, partition: Partition) -> None:
        self._complete.pop(partition, None)
        self._steady.pop(partition, None)

    # -- what follows ----------------------------------------------------------------------------------------------

    def complete(self, partition: Partition) -> Collection[int]:
        """Return the replicas that may lead although they are not in sync."""
        return self._complete.get(partition, ())

    def steady(self, partition: Partition) -> set[int]:
        """Return the replicas, in the ISR or eligible, that the present controller must know to hold everything."""
        if self._recorded != self._epoch:
            return set()
        in_sync = self._in_sync.get(partition, set()).difference(self._waiting())
        return in_sync.union(self._steady.get(partition, ()))

    def _waiting(self) -> set[int]:
        """Brokers that have restarted in the ISR of a partition that has no leader yet: a controller that is elected
        cannot tell which ISRs they have joined since."""
        return {
            broker
            for partition, isr in self._leaderless.items()
            for broker in isr
            if broker not in self._in_sync.get(partition, ())
        }

    def must_notice(self, broker: int) -> bool:
        """Whether the present controller must know that the broker has started."""
        return self._recorded == self._epoch and broker in self._watched
