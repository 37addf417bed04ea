"""Records which brokers have started uncleanly: without a controlled shutdown before, so that the ends of their logs
may be lost.

Theory.  A start is clean if two things came before it: a ControlledShutdown of the incarnation that ended and, soon
after it, the end of its session, which a broker closes once its logs are flushed.  A controller that may have missed
something must treat a start as unclean.  So what has been seen is kept in ZooKeeper, written under the fence; the next
controller continues this record (``taken_over``), unless another kind of controller was active in between.

The record has:
 * each broker's last known incarnation, whether it has asked for its controlled shutdown, and since which incarnation
   all stops were clean;
 * the number of registrations in the cluster's life.  If it has grown by more than the known starts, some incarnation
   was never seen: a broker that stopped cleanly may have started and crashed since;
 * the controller epoch from which on the eligible replicas of partition states count (``core.eligible_replicas``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from aiocontroller.core.ids import Broker


class Incarnation(NamedTuple):
    """The last known incarnation of a broker."""

    epoch: int
    """The czxid of its registration."""
    clean_from: int
    """The epoch of the earliest incarnation after which every stop was clean: the broker still has what it had then.
    0 if it has not started since the record began."""
    stopping: bool = False
    """It has asked for its controlled shutdown."""
    gone: bool = False
    """It is not registered, and its partitions have been handled."""
    proven: bool = False
    """Since it started there has been a moment when it was in no ISR without a leader: it has joined all that have lost
    theirs since."""


class BrokerStarts(msgspec.Struct, frozen=True):
    """The record; a value that is replaced with each change."""

    controller_epoch: int
    """The epoch of the last controller that has kept the record."""
    valid_from: int
    """Eligible replicas count in states that were written in this controller epoch or later.  Above
    ``controller_epoch``: in none yet."""
    registrations: int
    min_isr: int
    """The lowest ``min.insync.replicas`` of any broker, for topics without their own."""
    brokers: Mapping[int, Incarnation]


class Observed(NamedTuple):
    """What a look at the registrations shows."""

    starts: BrokerStarts
    unclean: list[int]
    """Brokers that have started uncleanly since the previous look."""

    def unheard(self, before: BrokerStarts) -> list[int]:
        """Those of ``unclean`` that were registered at the previous look: the end of that incarnation has not been
        handled."""
        return [broker for broker in self.unclean if broker in before.brokers and not before.brokers[broker].gone]

    def ended(self, before: BrokerStarts) -> list[int]:
        """Brokers that have gone since the previous look: their end has not been handled either."""
        return [b for b, known in self.starts.brokers.items() if known.gone and not before.brokers[b].gone]

    def but_for(self, brokers: Iterable[int], before: BrokerStarts) -> BrokerStarts:
        """The record as if these had not started yet: the next look finds them again."""
        kept = {broker: before.brokers[broker] for broker in brokers}
        if not kept:
            return self.starts
        return replace(self.starts, registrations=before.registrations, brokers={**self.starts.brokers, **kept})


def taken_over(
    found: BrokerStarts | None, epoch: int, registered: Sequence[Broker], registrations: int, min_isr: int | None
) -> Observed:
    """The record as the controller of this epoch continues it; ``min_isr`` is None until a broker has reported its own.

    A record that the controller of the previous epoch did not keep says nothing about what has happened since; then the
    record starts again, and no earlier state's eligible replicas count.
    """
    if found is None or not epoch - 1 <= found.controller_epoch <= epoch:
        brokers = {broker.id: Incarnation(broker.epoch, 0) for broker in registered}
        return Observed(BrokerStarts(epoch, epoch, registrations, min_isr or 1, brokers), [])
    if min_isr is not None:
        found = with_min_isr(found, min_isr)
    return observed(replace(found, controller_epoch=epoch), registered, registrations)


def with_min_isr(starts: BrokerStarts, min_isr: int) -> BrokerStarts:
    """The record with this ``min.insync.replicas``.

    A lower value lets leaders commit without the eligible replicas, so those written in the record's term or earlier no
    longer count.
    """
    if min_isr < starts.min_isr:
        return replace(starts, min_isr=min_isr, valid_from=starts.controller_epoch + 1)
    return replace(starts, min_isr=min_isr)


def without_eligible(starts: BrokerStarts) -> BrokerStarts:
    """The record of a term in which no replica is eligible."""
    return replace(starts, valid_from=starts.controller_epoch + 1)


def observed(
    starts: BrokerStarts,
    registered: Sequence[Broker],
    registrations: int,
    unreadable: Collection[int] = (),
    closed: Collection[int] = (),
) -> Observed:
    """Take in the registrations; ``registrations`` was counted before they were read.

    ``closed``: the brokers whose sessions, if they have ended, were closed and did not expire.  A broker closes its
    session once its logs are flushed; one whose session expires may have lost power before that.

    A registration between the two is not counted yet, so it is treated as unclean; that costs eligibility, never
    records.
    """
    present = {broker.id for broker in registered}.union(unreadable)  # membership only
    brokers = {number: known._replace(gone=number not in present) for number, known in starts.brokers.items()}
    started = [b for b in registered if b.id not in brokers or brokers[b.id].epoch != b.epoch]
    all_seen = registrations == starts.registrations + len(started)
    epochs = {broker.id: broker.epoch for broker in registered}
    for number, known in brokers.items():
        was_flushed = starts.brokers[number].gone or number in closed
        if known.stopping and epochs.get(number) != known.epoch and not (was_flushed and all_seen):
            brokers[number] = known._replace(stopping=False)
    unclean = []
    for broker in started:
        before = brokers.get(broker.id)
        if before is not None and before.stopping and before.clean_from <= before.epoch < broker.epoch:
            brokers[broker.id] = Incarnation(broker.epoch, before.clean_from)
        else:
            brokers[broker.id] = Incarnation(broker.epoch, broker.epoch)
            unclean.append(broker.id)
    return Observed(replace(starts, registrations=registrations, brokers=brokers), unclean)


def with_ends_unhandled(starts: BrokerStarts, brokers: Iterable[int]) -> BrokerStarts:
    """The record while partitions still refer to these brokers, which have gone."""
    known = {broker: starts.brokers[broker]._replace(gone=False) for broker in brokers}
    return replace(starts, brokers={**starts.brokers, **known}) if known else starts


def stopping(starts: BrokerStarts, broker: int, epoch: int) -> BrokerStarts:
    """The incarnation of this epoch has asked for its controlled shutdown.

    A later incarnation than the known one changes nothing: it says nothing about how the known one ended.
    """
    return _with_stopping(starts, broker, True) if _is_known(starts, broker, epoch) else starts


def removed(starts: BrokerStarts, broker: int, epoch: int) -> BrokerStarts:
    """The registration of this incarnation is about to be removed: its end will not show that the logs were flushed."""
    return _with_stopping(starts, broker, False) if _is_known(starts, broker, epoch) else starts


def _is_known(starts: BrokerStarts, broker: int, epoch: int) -> bool:
    return broker in starts.brokers and starts.brokers[broker].epoch == epoch


def _with_stopping(starts: BrokerStarts, broker: int, value: bool) -> BrokerStarts:
    return replace(starts, brokers={**starts.brokers, broker: starts.brokers[broker]._replace(stopping=value)})


def proven(starts: BrokerStarts, brokers: Iterable[int]) -> BrokerStarts:
    """These brokers are in no ISR of a partition without a leader."""
    known = {broker: starts.brokers[broker]._replace(proven=True) for broker in brokers}
    return replace(starts, brokers={**starts.brokers, **known}) if known else starts


def disk_failed(starts: BrokerStarts, broker: int) -> BrokerStarts:
    """A log directory of the broker has failed; the disk may be replaced by an empty one before its next start, which
    therefore is unclean."""
    known = starts.brokers.get(broker)
    if known is None:
        return starts
    return replace(starts, brokers={**starts.brokers, broker: known._replace(clean_from=known.epoch + 1, proven=False)})
