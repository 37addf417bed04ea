"""How stale followers are, from where replicas' logs end.

A follower is *stale* by t if what it lacks was in its leader's log t seconds ago.  So one that has everything is not
stale, however long nothing was written, and one that is always a little behind is stale by that little.  A follower
that stands still while its leader goes on becomes staler every second, and remains so if the leader stops because its
producers wait for the follower.

Each observation compares the follower's end with what the leader's end was at earlier observations: what it lacks was
first seen t seconds ago, so it is stale by t at least, whatever was not observed in between.  A follower that does not
answer does not become staler: then nothing is known of it.

A *pair* is a leader and a follower of it.  Its staleness is that of the partitions that were written to recently, each
weighted by how much it was written to: the upper median, by ``activity``, of each partition's worst in the last
``MEMORY_S``.  So a single stuck replica is not held against a broker, partitions that are hardly written to do not hide
a stale broker, and a follower that writes in bursts does not look well between them.  A partition that was not written
to says nothing, unless its follower still lacks something.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from aiocontroller.core.ids import TopicPartition

MEMORY_S = 2.0
FRESH_S = 1.0
"""An answer that is older says nothing about now."""
SETTLE_S = 3.0
"""Followers of a new leader may wait for a second or two before they fetch from it."""
ACTIVITY_S = 10.0
EARLIER_ENDS = 300
"""Kept of each leader: a minute, at five observations a second."""

Pair = tuple[int, int]
"""(leader, follower)"""


class Watched(NamedTuple):
    """A partition whose replicas are asked for the ends of their logs."""

    leader: int
    leader_epoch: int
    followers: tuple[int, ...]
    """The other replicas."""
    isr: tuple[int, ...]


class Lag(NamedTuple):
    """How stale a follower is behind one leader."""

    seconds: float
    in_sync: bool
    """It is in an ISR of these partitions, so that producers wait for it."""


class _Seen(NamedTuple):
    """The leader's log was first seen to end at ``end`` at this time, in seconds."""

    end: int
    first_s: float


class _Log:
    """One watched partition."""

    __slots__ = ("answered_s", "begun_s", "ends", "grew_s", "lags", "watched")

    def __init__(self, watched: Watched, now_s: float) -> None:
        self.watched = watched
        self.begun_s = now_s
        self.ends: deque[_Seen] = deque(maxlen=EARLIER_ENDS)
        """Of the leader, ascending."""
        self.grew_s = float("-inf")
        self.answered_s = float("-inf")
        """When the leader's end was last seen."""
        self.lags: dict[int, deque[tuple[float, float]]] = {follower: deque() for follower in watched.followers}
        """Follower -> (time, how stale it was), of the last ``MEMORY_S``."""

    def watch(self, watched: Watched) -> None:
        """The same leader in the same epoch, perhaps with other followers."""
        self.watched = watched
        self.lags = {follower: self.lags.get(follower, deque()) for follower in watched.followers}

    def leader_ends(self, end: int, now_s: float) -> None:
        self.answered_s = now_s
        if self.ends and end < self.ends[-1].end:
            self.ends.clear()  # it has truncated its log
        if self.ends and end == self.ends[-1].end:
            return
        if self.ends:
            self.grew_s = now_s
        self.ends.append(_Seen(end, now_s))

    def follower_ends(self, follower: int, end: int, now_s: float) -> None:
        lags = self.lags.get(follower)
        if lags is None or not self.ends:
            return
        lag_s = 0.0
        if end < self.ends[-1].end:
            lag_s = now_s - self.ends[bisect_right(self.ends, end, key=lambda seen: seen.end)].first_s
        lags.append((now_s, lag_s))
        while lags and now_s - lags[0][0] > MEMORY_S:
            lags.popleft()

    def activity(self, now_s: float) -> int:
        """How many observations in the last ``ACTIVITY_S`` found that something was written; at least 1."""
        earlier = bisect_left(self.ends, now_s - ACTIVITY_S, lo=min(1, len(self.ends)), key=lambda seen: seen.first_s)
        return max(1, len(self.ends) - earlier)

    def lag_s(self, follower: int, now_s: float) -> float | None:
        """The worst staleness of the last ``MEMORY_S``; None if it is unknown, or nothing was written."""
        lags = self.lags[follower]
        if now_s - self.begun_s < SETTLE_S or now_s - self.answered_s > FRESH_S:
            return None
        if not lags or now_s - lags[-1][0] > FRESH_S or lags[-1][0] - lags[0][0] < MEMORY_S / 2:
            return None
        worst_s = max(lag_s for _, lag_s in lags)
        return worst_s if worst_s > 0 or now_s - self.grew_s <= MEMORY_S else None

    def forget(self, broker: int) -> None:
        if broker == self.watched.leader:
            self.ends.clear()
            self.answered_s = self.grew_s = float("-inf")
            for lags in self.lags.values():
                lags.clear()
        elif broker in self.lags:
            self.lags[broker].clear()


class Staleness:
    """Of the watched partitions; all times are given by the caller, in seconds."""

    def __init__(self) -> None:
        self._logs: dict[TopicPartition, _Log] = {}

    def watch(self, partitions: Mapping[TopicPartition, Watched], now_s: float) -> list[Watched]:
        """Watch these, and no others; what is known of a partition counts until it has another leader or epoch.

        Returns those with a new leader or epoch, about which nothing is known for ``SETTLE_S``.
        """
        logs: dict[TopicPartition, _Log] = {}
        changed = []
        for partition, watched in partitions.items():
            known = self._logs.get(partition)
            if known is None or known.watched[:2] != watched[:2]:
                if known is not None:
                    changed.append(watched)
                known = _Log(watched, now_s)
            known.watch(watched)
            logs[partition] = known
        self._logs = logs
        return changed

    def ended(self, broker: int, ends: Mapping[TopicPartition, int], now_s: float) -> None:
        """The broker has answered where its replicas' logs end."""
        for partition, end in ends.items():
            log = self._logs.get(partition)
            if log is not None and broker == log.watched.leader:
                log.leader_ends(end, now_s)
            elif log is not None:
                log.follower_ends(broker, end, now_s)

    def forget(self, broker: int | None = None) -> None:
        """Nothing that was observed of this broker, or of all, counts any longer."""
        for log in self._logs.values():
            for each in (log.watched.leader, *log.watched.followers) if broker is None else (broker,):
                log.forget(each)

    def slept(self, broker: int) -> None:
        """What was observed of this broker as a follower does not count any longer."""
        for log in self._logs.values():
            if broker in log.lags:
                log.lags[broker].clear()

    def busy(self, now_s: float) -> list[TopicPartition]:
        """The watched partitions that were written to recently, the busiest first, and those too new to tell.

        Of a partition that is watched without its followers, two observations are enough.
        """
        by_activity = sorted(self._logs.items(), key=lambda item: -item[1].activity(now_s))
        return [
            partition
            for partition, log in by_activity
            if now_s - log.grew_s <= ACTIVITY_S or (log.lags and now_s - log.begun_s < SETTLE_S) or self._is_behind(log)
        ]

    @staticmethod
    def _is_behind(log: _Log) -> bool:
        return any(lags and lags[-1][1] > 0 for lags in log.lags.values())

    def is_unknown(self, follower: int, now_s: float) -> bool:
        """Whether it is unknown how stale the follower is in a partition that was written to recently."""
        return any(
            follower in log.lags and now_s - log.grew_s <= MEMORY_S and log.lag_s(follower, now_s) is None
            for log in self._logs.values()
        )

    def worst_s(self, follower: int, now_s: float) -> float:
        """The follower's worst recent staleness, in seconds; 0 if nothing is known."""
        return max((lag.seconds for (_, other), lag, _ in self._lags(now_s) if other == follower), default=0.0)

    def pairs(self, now_s: float) -> dict[Pair, Lag]:
        """What is known of each pair that has something to copy."""
        found: dict[Pair, list[tuple[Lag, int]]] = {}
        for pair, lag, activity in self._lags(now_s):
            found.setdefault(pair, []).append((lag, activity))
        return {pair: _median(lags) for pair, lags in found.items()}

    def _lags(self, now_s: float) -> Iterator[tuple[Pair, Lag, int]]:
        for log in self._logs.values():
            for follower in log.lags:
                lag_s = log.lag_s(follower, now_s)
                if lag_s is not None:
                    lag = Lag(lag_s, follower in log.watched.isr)
                    yield (log.watched.leader, follower), lag, log.activity(now_s)


def _median(lags: list[tuple[Lag, int]]) -> Lag:
    """The upper median, weighted, of the partitions for which producers wait, or of all if they wait for none."""
    some = [weighted for weighted in lags if weighted[0].in_sync] or lags
    rest = sum(activity for _, activity in some) / 2
    worst_first = sorted(some, reverse=True)
    for lag, activity in worst_first:
        rest -= activity
        if rest <= 0:
            return lag
    return worst_first[-1][0]
