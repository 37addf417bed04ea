"""Checks that an election by evidence chooses the best of the logs that were reported to the controller (I15).

The journal records which replicas have reported the ends of their logs, and for which leader epoch.  None of these
replicas that the controller could have elected instead may have reported a log with a later last epoch, or with the
same last epoch and more records, unless it ends before another one begins, since only what is committed is ever
deleted from the beginning of a log.  What a log has gained since does not count: a broker whose session has expired
appends records until it learns of another leader.

Brokers before 2.7 tell no epochs.  If one of them has reported, lengths decide; but a longer log may be another one, so
a complete replica that has records comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.lab.cluster.logs import Run, end_of, first_offset, shown, spans

Partition = tuple[str, int]


class Reported(NamedTuple):
    """What a controller knew when it decided."""

    leader_epoch: int
    brokers: Collection[int]
    electable: Callable[[int], bool]
    """Whether the controller considers a broker's replica online."""


class ReportedLog(NamedTuple):
    """A log when its broker reported where it ends."""

    runs: Sequence[Run]
    with_epochs: bool
    """The broker tells where epochs end (2.7 and later)."""


class BestLogs:
    """``logs`` gives a partition's logs as the brokers have last reported them.

    ``by_rule``: where lengths decide, any complete replica may lead, since the strategy is ``None``.
    """

    def __init__(
        self,
        complain: Callable[[str, Partition, str], None],
        probe: Callable[[str], None],
        logs: Callable[[Partition], Mapping[int, ReportedLog]],
        *,
        by_rule: bool = False,
    ) -> None:
        self._complain = complain
        self._probe = probe
        self._logs = logs
        self._by_rule = by_rule
        self._reported: dict[Partition, Reported] = {}

    def reported(self, partition: Partition, reported: Reported) -> None:
        """A controller has recorded which brokers have reported their logs of this partition."""
        self._reported[partition] = reported

    def asked(self, partition: Partition, leader_epoch: int) -> set[int] | None:
        """Return the brokers that have reported their logs' ends before the election of this epoch and can be elected;
        None if no controller has asked for them."""
        reported = self._reported.get(partition)
        if reported is None or leader_epoch != reported.leader_epoch + 1:
            return None
        return {broker for broker in reported.brokers if reported.electable(broker)}

    def chosen(
        self, partition: Partition, leader: int, leader_epoch: int, complete: Collection[int], by_order: bool
    ) -> None:
        """A leader is being written.

        ``complete``: the replicas in the ISR, and those that hold everything committed; ``by_order``: an operator
        ordered the leader, whatever its log holds.
        """
        reported = self._reported.pop(partition, None)
        if by_order:
            self._probe("an operator's leader")
            return
        if reported is None or leader_epoch != reported.leader_epoch + 1:
            return
        logs = self._logs(partition)
        known = {
            broker: logs[broker].runs for broker in reported.brokers if broker in logs and reported.electable(broker)
        }
        if leader not in known:
            if leader not in reported.brokers and known and leader not in complete:
                self._complain(
                    "I15",
                    partition,
                    f"broker {leader} was elected without a report of its log: {sorted(known)} have reported",
                )
            return
        self._probe("a complete replica leads by evidence" if leader in complete else "unclean election by evidence")
        ranks = {broker: rank(runs) for broker, runs in known.items()}
        if not all(log.with_epochs for broker, log in logs.items() if broker in reported.brokers):
            self._probe("logs compared by their lengths")
            if self._by_rule and leader in complete:
                return
            ranks = {
                broker: (broker in complete and ranks[broker] != (), end_of(runs)) for broker, runs in known.items()
            }
        deleted = max(map(first_offset, known.values()))
        for broker, runs in known.items():
            if ranks[broker] > ranks[leader] and end_of(runs) > deleted:
                found = f"broker {leader} with {shown(known[leader])}, not {broker} with {shown(runs)}"
                self._complain("I15", partition, f"an election by evidence chose {found}")


def rank(runs: Sequence[Run]) -> tuple[int, ...]:
    """Return (epoch of the last record, end offset), () for an empty log; the higher, the better."""
    return next(((run.epoch, run.end) for _, run in reversed([*spans(runs)])), ())
