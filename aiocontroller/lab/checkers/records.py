"""Checks that records which were promised to stay are not lost, and that replicas agree on them.

 * I13: a record that was acknowledged with acks=all is in the log of every later leader, unless Kafka's rules give it
   up.
 * I14: records below a high watermark are the same in every log, and every later leader has them.

A leader is judged when it begins an epoch; an acknowledgement that arrives later is judged by the log with which the
newest leader began.  The rules give a record up if, after it was written,

 * a leader was elected from outside the ISR, and that was allowed;
 * the leader, a broker in sync, had lost it with its page cache or its disk, unless another replica, in sync or
   eligible to lead outside the ISR, was alive all the time, or the controller knew that the leader had started
   uncleanly and did not ask the other live replicas about their logs;
 * all live members of the ISR had lost it, and a replica with a better log led in their place;
 * a foreign client wrote to the topic's znodes.

Each is counted.  What retention deletes from the beginning of a log is not lost, and no log may begin later than that.
A deleted topic is forgotten, and so is one whose deletion was requested or has taken a replica, except where its logs
begin; replicas of an earlier topic of the same name prove nothing about a new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from aiocontroller.lab.checkers.eligible import EligibleTwin
from aiocontroller.lab.cluster.logs import (
    Run,
    are_the_same,
    between,
    diverges_at,
    end_of,
    first_offset,
    shown,
    spans,
    with_beginning,
)

Partition = tuple[str, int]
NO_ID = ""


class Records(NamedTuple):
    """Records that one leader appended in one epoch, up to offset ``end``, exclusive."""

    epoch: int
    leader: int
    start: int
    end: int

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end - 1} of epoch {self.epoch} by broker {self.leader}"

    def are_in(self, runs: Sequence[Run]) -> bool:
        """Whether the log has the records, or has deleted them as old ones."""
        kept_from = max(self.start, first_offset(runs))
        return kept_from >= self.end or between(runs, kept_from, self.end) == [Run(self.epoch, self.leader, self.end)]

    def lost_from(self, offset: int, runs: Sequence[Run]) -> bool:
        """Whether the log lacks only records from the offset on: all below it are there."""
        return self._replace(end=min(self.end, offset)).are_in(runs)


class Excuse(NamedTuple):
    """Why, since an epoch, records of earlier epochs from this offset on may be missing."""

    epoch: int
    offset: int
    why: str


class Leadership(NamedTuple):
    """The newest leader's epoch, and its log when it began to lead."""

    epoch: int
    runs: Sequence[Run]


class Ledger:
    """The records that one partition of one topic has promised to keep."""

    def __init__(self, deleted: int = 0) -> None:
        self.acknowledged: list[Records] = []
        self.committed: list[Run] = []
        """The longest log that was below a high watermark."""
        self.excuses: list[Excuse] = []
        self.newest = Leadership(0, ())
        self.deleted = deleted
        """Retention has deleted records before this offset; no log may begin later."""

    def excuse(self, records: Records, leader: Leadership, more: Iterable[Excuse] = ()) -> str | None:
        """Return why a leader may lack the records; None if it must have them.

        ``more`` applies to records of the leader's own epoch, too.
        """
        valid = [each for each in self.excuses if records.epoch < each.epoch <= leader.epoch]
        found = [each.why for each in (*valid, *more) if records.lost_from(each.offset, leader.runs)]
        return found[0] if found else None


class DataChecker:
    """Checks I13 and I14.

    ``topic_ids`` maps each existing topic to its id, empty if it has none; ``by_hand`` contains the topics with foreign
    writes; ``deleting`` returns whether a topic's deletion was requested.
    """

    def __init__(
        self,
        complain: Callable[[str, Partition, str], None],
        probe: Callable[[str], None],
        topic_ids: Mapping[str, str],
        by_hand: Mapping[str, object],
        deleting: Callable[[str], bool],
    ) -> None:
        self.digest = hashlib.sha256()
        """Over everything that was acknowledged."""
        self.acknowledgements = 0
        self._complain = complain
        self._probe = probe
        self._topic_ids = topic_ids
        self._by_hand = by_hand
        self._deleting = deleting
        self.eligible = EligibleTwin()
        self.live: Callable[[], Collection[int]] = tuple
        """The brokers that any controller can reach and must consider live."""
        self._no_excuse: dict[Partition, int] = {}
        """The leader epoch of the last election that should have had another result."""
        self._leaders: dict[Partition, int] = {}
        """The broker that began to lead last."""
        self._ledgers: dict[Partition, Ledger] = {}
        self._damaged: dict[tuple[int, Partition], tuple[int, int]] = {}
        """(broker, partition) -> the end of the log after it lost records, and before."""

    def _ledger(self, partition: Partition, topic_id: str, *, to_go: bool = False) -> Ledger | None:
        """Return the partition's ledger; None if its topic is gone or, unless ``to_go``, to be deleted."""
        known = self._topic_ids.get(partition[0])
        if known is None or NO_ID != topic_id != known != NO_ID or (self._deleting(partition[0]) and not to_go):
            return None
        return self._ledgers.setdefault(partition, Ledger())

    # -- what happens ----------------------------------------------------------------------------------------------

    def topic_gone(self, topic: str) -> None:
        self.eligible.topic_gone(topic)
        self._ledgers = {partition: ledger for partition, ledger in self._ledgers.items() if partition[0] != topic}

    def replica_gone(self, topic: str) -> None:
        """A replica was deleted with its topic, which stays if the deletion is refused: then nothing is promised any
        more, but the other replicas' logs still begin where retention has left them."""
        self.eligible.topic_gone(topic)
        for partition, ledger in self._ledgers.items():
            if partition[0] == topic:
                self._ledgers[partition] = Ledger(ledger.deleted)

    def not_excused(self, partition: Partition, leader_epoch: int) -> None:
        """This leader should not have been elected, so what its log has lost is no excuse."""
        self._no_excuse[partition] = leader_epoch

    def elected(self, partition: Partition, leader: int, leader_epoch: int, *, unasked: bool) -> None:
        """A leader is being elected; if it is live, and so is a complete replica, its log is no excuse.

        Unless the controller cannot know that it has started, as after a term that did not record starts.
        ``unasked``: there was no leader; the controller knew that this broker had started uncleanly and that others
        were live, and did not ask about their logs.
        """
        if (leader, partition) not in self._damaged:
            return
        if leader in self.live() and self.eligible.must_notice(leader) and self._is_better_than(partition, leader):
            self._probe("a damaged log was chosen before a complete one")
            self.not_excused(partition, leader_epoch)
        elif unasked:
            self._probe("a damaged log was chosen, and no other was asked about")
            self.not_excused(partition, leader_epoch)

    def elected_in_place_of(self, partition: Partition, leader_epoch: int, members: Collection[int]) -> None:
        """A replica with a better log than these ISR members was elected: what they all have lost may be missing.

        Everything may be if retention has deleted all that they have not lost.
        """
        self.not_excused(partition, leader_epoch)
        left = [self._damaged.get((member, partition)) for member in members]
        found = [damage[0] for damage in left if damage is not None]
        if len(found) == len(left):
            ledger = self._ledgers.setdefault(partition, Ledger())
            left_until = max(found) if max(found) > ledger.deleted else 0
            ledger.excuses.append(
                Excuse(leader_epoch, left_until, "a better log leads than those that are left of the ISR")
            )

    def _is_better_than(self, partition: Partition, leader: int) -> bool:
        """Whether the controller must know of another live replica that holds everything."""
        better = self.eligible.steady(partition).intersection(self.live())
        return any((replica, partition) not in self._damaged for replica in better - {leader})

    def elected_uncleanly(self, partition: Partition, leader_epoch: int) -> None:
        """A leader was elected from outside the ISR, and that was allowed."""
        self._ledgers.setdefault(partition, Ledger()).excuses.append(Excuse(leader_epoch, 0, "an unclean election"))

    def deleted_old(self, partition: Partition, before: int, topic_id: str) -> None:
        """Retention has deleted the records before this offset from a replica's log."""
        ledger = self._ledger(partition, topic_id, to_go=True)
        if ledger is not None:
            ledger.deleted = max(ledger.deleted, before)

    def damaged(self, broker: int, partition: Partition, after: int, before: int, *, noticed: bool = True) -> None:
        """The broker's log ended at ``before``, and lost everything from ``after`` on, with its power or its disk.

        What it had lost earlier and not fetched again is still lost.  If not ``noticed``, no controller can know of the
        loss before the broker registers again.
        """
        self.eligible.lost(broker, partition, noticed=noticed)
        if self._leaders.get(partition) == broker:
            self._no_excuse.pop(partition, None)  # it was elected before; if it leads on, that is judged by itself
        lowest, highest = self._damaged.get((broker, partition), (after, before))
        self._damaged[broker, partition] = min(lowest, after), max(highest, before)

    def copied(self, broker: int, partition: Partition, end: int) -> None:
        """The broker has fetched, and its log now ends at ``end``."""
        after, before = self._damaged.get((broker, partition), (end, end))
        self._damaged[broker, partition] = max(after, end), before
        if end >= before:
            self._regained(broker, partition)

    def acknowledged(self, partition: Partition, records: Records, topic_id: str) -> None:
        """A client's records were acknowledged with acks=all."""
        self.digest.update(f"{partition} {records}".encode())
        self.acknowledgements += 1
        ledger = self._ledger(partition, topic_id)
        if ledger is None:
            return
        newest = ledger.newest
        if records.epoch < newest.epoch and not records.are_in(newest.runs):
            self._lost("I13", partition, records, newest.epoch, ledger.excuse(records, newest))
            return
        last = ledger.acknowledged[-1] if ledger.acknowledged else None
        if last is not None and (last.epoch, last.leader, last.end) == records[:3]:
            ledger.acknowledged[-1] = last._replace(end=records.end)
        else:
            ledger.acknowledged.append(records)

    def led(self, broker: int, partition: Partition, epoch: int, runs: Sequence[Run], topic_id: str) -> None:
        """A broker begins to lead in this epoch, with this log; or it leads at the end of a run."""
        ledger = self._ledger(partition, topic_id, to_go=True)
        if ledger is None or epoch < ledger.newest.epoch:
            return
        if self._deleting(partition[0]) and all(epoch != each.epoch for each in ledger.excuses):
            return  # but records given up in this epoch stay given up if the deletion is refused
        self._check_beginning(broker, partition, ledger, runs)
        leader = Leadership(epoch, list(runs))
        after, _ = self._damaged.get((broker, partition), (None, None))
        damage = []
        leads_on = epoch == ledger.newest.epoch and self.eligible.must_notice(broker)
        if after is not None and leads_on and self._is_better_than(partition, broker):
            self._probe("a damaged log leads on before a complete one")
            self.not_excused(partition, epoch)
        if after is not None and self._no_excuse.get(partition) != epoch:
            damage.append(Excuse(epoch, after, "lost power or a lost disk"))
        kept = []
        for records in ledger.acknowledged:
            if records.are_in(runs):
                kept.append(records)
            else:
                self._lost("I13", partition, records, epoch, ledger.excuse(records, leader, damage))
        ledger.acknowledged = kept
        self._check_committed(partition, ledger, leader, damage)
        ledger.excuses += damage
        ledger.newest = leader
        self._leaders[partition] = broker
        self._settle(partition, end_of(runs))

    def raised(
        self, broker: int, partition: Partition, epoch: int, runs: Sequence[Run], hw: int, topic_id: str
    ) -> None:
        """A replica at this leader epoch has a new high watermark."""
        ledger = self._ledger(partition, topic_id)
        if ledger is None or partition[0] in self._by_hand or any(epoch < e.epoch for e in ledger.excuses):
            return
        self._check_beginning(broker, partition, ledger, runs)
        below = between(runs, 0, hw)
        at = diverges_at(ledger.committed, below)
        if at is not None:
            there = f"broker {broker} has {shown(below)}, committed is {shown(ledger.committed)}"
            self._complain("I14", partition, f"at offset {at}, below the high watermark {hw}: {there}")
        else:
            ledger.committed = max(ledger.committed, with_beginning(below, ledger.committed), key=end_of)

    def ended(
        self, partition: Partition, leader: int, epoch: int, logs: Mapping[int, Sequence[Run]], topic_id: str
    ) -> None:
        """The cluster is whole, no client writes any more, and these are the logs of the partition's replicas."""
        self.led(leader, partition, epoch, logs[leader], topic_id)
        for broker, runs in logs.items():
            if not are_the_same(runs, logs[leader]):
                self._complain("I14", partition, f"broker {broker} has {shown(runs)}, its leader {shown(logs[leader])}")

    def _settle(self, partition: Partition, end: int) -> None:
        """From now on only the leader's log counts, which ends at ``end``: other logs need not regain what it lacks."""
        for damaged, (after, before) in list(self._damaged.items()):
            if damaged[1] == partition:
                self._damaged[damaged] = after, min(before, end)
                if after >= end:
                    self._regained(*damaged)

    def _regained(self, broker: int, partition: Partition) -> None:
        del self._damaged[broker, partition]
        self.eligible.regained(broker, partition)

    # -- judging ---------------------------------------------------------------------------------------------------

    def _check_beginning(self, broker: int, partition: Partition, ledger: Ledger, runs: Sequence[Run]) -> None:
        if first_offset(runs) > ledger.deleted:
            begins = f"broker {broker} has {shown(runs)} and begins at {first_offset(runs)}"
            self._complain("I14", partition, f"{begins}, and retention has deleted what is before {ledger.deleted}")

    def _check_committed(
        self, partition: Partition, ledger: Ledger, leader: Leadership, damage: Iterable[Excuse]
    ) -> None:
        at = diverges_at(ledger.committed, leader.runs)
        at = end_of(leader.runs) if at is None else at
        for start, run in spans(ledger.committed):
            if run.end > at:
                records = Records(run.epoch, run.leader, max(start, at), run.end)
                self._lost("I14", partition, records, leader.epoch, ledger.excuse(records, leader, damage))
        ledger.committed = between(ledger.committed, 0, at)

    def _lost(self, rule: str, partition: Partition, records: Records, epoch: int, excuse: str | None) -> None:
        if partition[0] in self._by_hand:
            excuse = "a write by hand"
        if excuse is None:
            what = "acknowledged" if rule == "I13" else "committed"
            self._complain(rule, partition, f"the leader of epoch {epoch} has lost what was {what}: {records}")
        else:
            self._probe(f"{rule} excused: {excuse}")
