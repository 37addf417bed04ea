"""A leader's knowledge of its followers' logs, and its answers to their fetches.  Pure; after Kafka's ``Partition``.

* A follower reports the end of its log and its last epoch whenever they have changed.  Every report also counts as a
  fetch of the other partitions at the ends that it reported earlier (as in Kafka's fetch sessions).
* A fetch that is out of range, or whose last epoch ends elsewhere in the leader's log, does not count: until the next
  fetch the follower's end is unknown.
* A follower is in sync while its end equals the leader's, or did so within the last ``replica_lag_time_max_ms``.  So a
  dead follower stays in sync while there is nothing to fetch.
* A follower whose log ends before the leader's begins deletes its log and begins there.  Otherwise it deletes what the
  leader has deleted.
* It may join the ISR when its end is at least the high watermark and the start of the leader's epoch.
* The high watermark is the least end among the largest ISR that may be in force (KIP-497) and the followers that have
  just caught up.  Before 2.7, a leader that writes its ISR holds its lock meanwhile, so nothing moves.
* From 3.7 on, the high watermark does not advance while the ISR is smaller than ``min.insync.replicas`` (KAFKA-15583).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec

from aiocontroller.lab.cluster.logs import NO_EPOCH, NO_OFFSET, UNKNOWN_END, EpochEnd, Log, Run

NEVER_MS = -(1 << 60)
ALL = -1
"""``acks=all``."""


class FetchAnswer(msgspec.Struct, array_like=True):
    """A leader's answer to a follower for one partition: records from ``start`` on, or where their logs diverge."""

    topic: str
    partition: int
    leader_epoch: int
    hw: int
    start: int
    runs: list[Run]
    diverging: EpochEnd | None
    log_start: int = 0
    """Where the leader's log begins."""


class FollowerEnd:
    """A follower's log as its leader knows it; ``sent_hw`` is the last high watermark that it was sent."""

    __slots__ = ("caught_up_ms", "end", "epoch", "fetched_ms", "leader_end", "offset", "sent_hw")

    def __init__(self, caught_up_ms: int) -> None:
        self.offset = NO_OFFSET
        """Where it fetches, which is where its log ends."""
        self.end = NO_OFFSET
        """The offset below which it has the leader's records, by its last fetch; -1 if that did not show it."""
        self.epoch = NO_EPOCH
        self.caught_up_ms = caught_up_ms
        self.fetched_ms = NEVER_MS
        self.leader_end = -1
        """The leader's end at the last fetch."""
        self.sent_hw = -1


class Leading:
    """A leader's log during one leader epoch; creating it notes the beginning of the epoch in the log."""

    __slots__ = ("_ends", "_isr", "_now_ms", "epoch", "epoch_start", "lag_ms", "leader", "log")

    def __init__(self, log: Log, epoch: int, leader: int, isr: Collection[int], now_ms: int, lag_ms: int) -> None:
        self.log = log
        self.epoch = epoch
        self.leader = leader
        self.lag_ms = lag_ms
        self.epoch_start = log.end
        self._isr = isr
        self._now_ms = now_ms
        self._ends: dict[int, FollowerEnd] = {}
        log.begin(epoch, leader)

    def _known(self, follower: int) -> FollowerEnd:
        known = self._ends.get(follower)
        if known is None:
            known = self._ends[follower] = FollowerEnd(self._now_ms if follower in self._isr else NEVER_MS)
        return known

    def reported(self, follower: int, end: int, epoch: int) -> None:
        """Note a follower's log end and last epoch; the end is -1 while it only asks where the epoch ends."""
        known = self._known(follower)
        known.offset, known.epoch, known.sent_hw = end, epoch, -1

    def fetched(self, follower: int, now_ms: int, topic: str, partition: int) -> FetchAnswer | None:
        """Count a fetch at the reported end; returns what is new for the follower, or None."""
        known, log = self._known(follower), self.log
        diverging = self._diverging(known)
        if diverging is not None:
            known.end = NO_OFFSET
            return FetchAnswer(topic, partition, self.epoch, log.hw, known.offset, [], diverging, log.start)
        known.end = known.offset
        if known.end >= log.end:
            known.caught_up_ms = max(known.caught_up_ms, now_ms)
        elif known.end >= known.leader_end:
            known.caught_up_ms = max(known.caught_up_ms, known.fetched_ms)
        known.leader_end, known.fetched_ms = log.end, now_ms
        runs = log.between(known.end, log.end)
        if not runs and known.sent_hw == log.hw:
            return None
        known.sent_hw = log.hw
        return FetchAnswer(topic, partition, self.epoch, log.hw, known.end, runs, None, log.start)

    def _diverging(self, known: FollowerEnd) -> EpochEnd | None:
        if NO_OFFSET < known.offset < self.log.start:
            return EpochEnd(NO_EPOCH, self.log.start)
        out_of_range = EpochEnd(NO_EPOCH, self.log.end)  # Kafka: OFFSET_OUT_OF_RANGE; a longer follower truncates to it
        if (
            known.epoch == NO_EPOCH
        ):  # a follower without records, or one before 2.7, which fetches without its last epoch
            return out_of_range if known.offset > self.log.end else None
        found = self.log.end_for(known.epoch)
        if known.offset == NO_OFFSET:
            return found
        if found == UNKNOWN_END:
            return out_of_range
        return found if found.epoch < known.epoch or found.end < known.offset else None

    def in_sync(self, follower: int, now_ms: int) -> bool:
        known = self._known(follower)
        return known.end == self.log.end or now_ms - known.caught_up_ms <= self.lag_ms

    def may_join(self, follower: int) -> bool:
        end = self._known(follower).end
        return end >= self.log.hw and end >= self.epoch_start

    def raise_hw(self, isr: Collection[int], others: Callable[[int], bool], now_ms: int) -> bool:
        """Raise the high watermark as far as this ISR, and the ``others`` that may join it soon, allow."""
        hw = self.log.end
        for follower in isr:
            if follower != self.leader:
                hw = min(hw, self._known(follower).end)
        for follower, known in self._ends.items():
            if known.end < hw and follower not in isr and self.in_sync(follower, now_ms) and others(follower):
                hw = known.end
        if hw <= self.log.hw:
            return False
        self.log.hw = hw
        return True


def take_answer(log: Log, answer: FetchAnswer) -> tuple[bool, bool]:
    """Apply a leader's answer to a follower's log.

    Returns whether the log has changed, and whether the follower has to ask again where their logs diverge.
    """
    if answer.log_start > log.end:
        log.start_at(answer.log_start)
        return True, False
    if answer.diverging is not None:
        before = log.end
        offset, agreed = log.truncation(answer.diverging)
        log.truncate(offset)
        return True, not agreed and log.end < before
    if answer.start != log.end:
        return True, False
    log.copy_from(answer.start, answer.runs)
    log.hw = max(min(answer.hw, log.end), log.start)
    log.delete_before(answer.log_start)
    return bool(answer.runs), False
