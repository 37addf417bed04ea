"""The queue of requests to one broker.  When a slow broker lets it grow, requests are merged: newer state wins.

LeaderAndIsr and UpdateMetadata carry state, so a broker that has fallen behind needs only the last one.  Rules.
 * Merging starts when ``MERGED_FROM`` requests wait; a broker that keeps up gets every request as it was queued.
 * The first request in the queue may be in flight, and is never merged.
 * Nothing is merged across a StopReplica, a closed barrier, or a topic deletion (whose rows may be gone when the
   request is encoded): these keep their places in the order.
 * Merging must pay: the requests overlap much, or are small altogether.  Pieces of one large batch stay separate.
 * Merged requests are encoded when sent: the broker list, LeaderAndIsr, UpdateMetadata.  The list comes first, since
   a follower does not fetch from a leader that its metadata does not know yet.
 * Before the context gets ahead of ZooKeeper, they are encoded where they wait (``settle``).
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import anyio

from aiocontroller.core.debts import Deletions
from aiocontroller.net.ports import Clock
from aiocontroller.wire.apis import ApiKey

MERGED_FROM = 16
"""Number of waiting requests at which merging starts."""
LITTLE = 4_000
"""Up to this many partitions are merged even if they do not overlap."""
MOST = 50_000
"""Partitions in a merged request."""
READ = 4 * MOST
"""Partitions checked to find out whether merging pays."""

Body = Sequence[bytes]
"""A request body, in pieces that may be shared with other brokers' requests."""
Encode = Callable[[int, int], Sequence[Body]]
"""(version, broker epoch) -> bodies, each sent as a request of its own; empty where nothing is left to send."""
EncodeNow = Callable[[Sequence[int], frozenset[int], int, int], Sequence[Body]]
"""(rows, those of them new to the broker, version, broker epoch) -> bodies with the current state."""


class Outgoing(NamedTuple):
    """A request waiting in a sender's queue."""

    api: ApiKey
    encode: Encode
    rows: Sequence[int]
    """The partitions that the request is about, for the handler of the response."""
    enqueued_s: float
    done: Callable[[], None] | None
    """Called once: when the request is answered, or given up because the broker is gone."""
    new: frozenset[int] = frozenset()
    anew: EncodeNow | None = None
    """Encodes the same kind of request for other partitions; None where the request must not be merged."""
    asked: Deletions | None = None
    """The deletions that a StopReplica asks for, for the handler of the response."""
    may_be_given_up: bool = False
    """The sender does not retry the request when the broker takes it but does not answer: its caller does, later."""


class Barrier:
    """Stands in the queues of several senders; once open, it stays open."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self.opened = anyio.Event()
        self._timer = clock.call_later(timeout_s, self.opened.set)

    def open(self) -> None:
        """Let through what waits behind it."""
        self._timer.cancel()
        self.opened.set()


class Late:
    """Encodes a merged request with the state in which it is sent, or with that in which it was last settled."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._settled: tuple[int, Sequence[Body]] | None = None
        """The version, and the bodies."""

    def __call__(self, version: int, broker_epoch: int) -> Sequence[Body]:
        """The bodies for this version."""
        if self._settled is not None and self._settled[0] == version:
            return self._settled[1]
        return self._encode(version, broker_epoch)

    def settle(self, version: int, broker_epoch: int) -> None:
        """Fix the request to the present state, whenever it is sent."""
        self._settled = version, self._encode(version, broker_epoch)


class Merged:
    """Requests of one kind that became one."""

    def __init__(self) -> None:
        self.rows: dict[int, None] = {}
        self.new: dict[int, None] = {}
        self.count = 0
        self._total_rows = 0
        self._oldest: Outgoing | None = None
        self._done: list[Callable[[], None]] = []

    def add(self, one: Outgoing) -> None:
        """Add a request that is not sent by itself."""
        self._oldest = self._oldest or one
        self._total_rows += len(one.rows)
        self.count += 1
        self.rows.update(dict.fromkeys(one.rows))
        self.new.update(dict.fromkeys(one.new))
        if one.done is not None:
            self._done.append(one.done)

    def is_worth_it(self) -> bool:
        """Whether one request for all rows is smaller than the requests that it replaces."""
        return len(self.rows) <= MOST and (self._total_rows <= LITTLE or self._total_rows >= 2 * len(self.rows))

    def outgoing(self, rows: Iterable[int] | None = None) -> Outgoing:
        """Return one request for all of them; for other ``rows``, the same kind of request without a callback."""
        assert self._oldest is not None and self._oldest.anew is not None
        whose = sorted(self.rows if rows is None else rows)
        new = frozenset(self.new)
        encode = Late(functools.partial(self._oldest.anew, whose, new))
        return self._oldest._replace(encode=encode, rows=whose, new=new, done=self._answered if rows is None else None)

    def _answered(self) -> None:
        for done in self._done:
            done()


class CatchUp:
    """Merged requests for a broker that has fallen behind."""

    def __init__(self) -> None:
        self._by_api = {ApiKey.LEADER_AND_ISR: Merged(), ApiKey.UPDATE_METADATA: Merged()}

    def add(self, one: Outgoing) -> None:
        """Add a request that is not sent by itself."""
        self._by_api[one.api].add(one)

    def takes(self, one: Outgoing) -> bool:
        """Whether ``one`` is small, or repeats partitions that are included already."""
        known = self._by_api[one.api].rows
        if len(known) + len(one.rows) > MOST:
            return False
        return len(one.rows) + len(known) <= LITTLE or 2 * sum(map(known.__contains__, one.rows)) >= len(one.rows)

    def is_worth_it(self) -> bool:
        """Whether merging pays; an UpdateMetadata is needed for the broker list."""
        partitions = self._by_api[ApiKey.UPDATE_METADATA].count
        return partitions > 0 and all(merged.is_worth_it() for merged in self._by_api.values())

    def requests(self) -> list[Outgoing]:
        """What is sent instead: the live brokers first, as leaders are looked up there."""
        control, metadata = self._by_api[ApiKey.LEADER_AND_ISR], self._by_api[ApiKey.UPDATE_METADATA]
        if not control.count:
            return [metadata.outgoing()]
        return [metadata.outgoing(()), control.outgoing(), metadata.outgoing()]


class RequestQueue:
    """One broker's requests, the oldest first; a long queue is merged."""

    def __init__(self) -> None:
        self._waiting: deque[Outgoing | Barrier | CatchUp] = deque()
        self._merged_from = MERGED_FROM
        """Doubled by each attempt that did not pay, so that a long queue is not scanned again and again."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, one: Outgoing | Barrier) -> None:
        """Add at the end."""
        self._waiting.append(one)

    def merge(self, one: Outgoing) -> bool:
        """Merge a request into the waiting ones if possible; it is then neither encoded nor queued itself."""
        if one.anew is None or not self._waiting:
            return False
        last = self._waiting[-1]
        if isinstance(last, CatchUp) and last.takes(one):
            last.add(one)
            return True
        return len(self._waiting) >= self._merged_from and self._begin_to_merge(one)

    def _begin_to_merge(self, one: Outgoing) -> bool:
        run, total_rows, taken = [one], len(one.rows), 0
        for each in reversed(list(islice(self._waiting, 1, None))):
            if isinstance(each, Outgoing) and each.anew is not None and total_rows + len(each.rows) <= READ:
                run.append(each)
                total_rows += len(each.rows)
            elif not (isinstance(each, Barrier) and each.opened.is_set()):
                break
            taken += 1
        catch_up = CatchUp()
        for each in reversed(run):
            catch_up.add(each)
        if not taken or not catch_up.is_worth_it():
            self._merged_from = 2 * len(self._waiting)
            return False
        for _ in range(taken):
            self._waiting.pop()
        self._waiting.append(catch_up)
        return True

    def head(self) -> Outgoing | Barrier:
        """The next request or barrier; IndexError when the queue is empty."""
        first = self._waiting[0]
        if isinstance(first, CatchUp):
            self._waiting.popleft()
            self._waiting.extendleft(reversed(first.requests()))
            return self.head()
        return first

    def pop(self) -> None:
        """Remove the head, which has been answered."""
        self._waiting.popleft()
        if len(self._waiting) < MERGED_FROM:
            self._merged_from = MERGED_FROM

    def settle(self, version: Callable[[ApiKey], int], broker_epoch: int) -> None:
        """Encode merged requests with the present state, as the next state must not be sent yet."""
        taken, self._waiting = self._waiting, deque()
        for each in taken:
            self._waiting.extend(each.requests() if isinstance(each, CatchUp) else (each,))
        for one in self._waiting:
            if isinstance(one, Outgoing) and isinstance(one.encode, Late):
                one.encode.settle(version(one.api), broker_epoch)

    def give_up(self) -> None:
        """Drop all requests and call their callbacks."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            for one in each.requests() if isinstance(each, CatchUp) else (each,):
                if isinstance(one, Outgoing) and one.done is not None:
                    one.done()
