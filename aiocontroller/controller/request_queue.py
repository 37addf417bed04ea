"""The queue of requests to one broker.  When a slow broker makes it grow, requests are merged: newer state wins.

LeaderAndIsr and UpdateMetadata carry state, so a broker that has fallen behind needs only the last one.  Rules.
 * Merging starts when ``MERGED_FROM`` requests wait; a broker that keeps up gets every request as it was queued.
 * The first request in the queue may be in flight, and is never merged.
 * Nothing is merged across a StopReplica, a closed barrier, or a topic deletion (whose rows may be gone when the
   request is encoded): these keep their places in the order.
 * Requests are merged only if they overlap much, or are small altogether.  Pieces of one large batch stay separate.
 * Merged requests are encoded when sent: the broker list, LeaderAndIsr, UpdateMetadata.  The list comes first, since
   a follower does not fetch from a leader that its metadata does not know yet.
 * Before the context gets ahead of ZooKeeper, they are encoded where they wait (``encode_merged``).
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
"""Merging starts when this many requests wait."""
LITTLE = 4_000
"""Requests with this many partitions or fewer, in all, are merged even if they do not overlap."""
MOST = 50_000
"""The most partitions in a merged request."""
READ = 4 * MOST
"""The most partitions that are checked to find out whether merging saves anything."""

Body = Sequence[bytes]
"""A request body, in pieces that may be shared with other brokers' requests."""
Encode = Callable[[int, int], Sequence[Body]]
"""(version, broker epoch) -> bodies, each sent as a request of its own; empty where nothing is left to send."""
EncodeCurrent = Callable[[Sequence[int], frozenset[int], int, int], Sequence[Body]]
"""(rows, those of them that are new to the broker, version, broker epoch) -> bodies with the current state."""


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
    encode_current: EncodeCurrent | None = None
    """Encodes the same kind of request for other partitions; None where the request must not be merged."""
    asked: Deletions | None = None
    """The deletions that a StopReplica asks for, for the handler of the response."""
    may_be_given_up: bool = False
    """If the broker reads the request but does not answer, the sender does not retry it: its caller does, later."""


class Barrier:
    """Holds back the requests behind it, in the queues of several senders; once open, it stays open."""

    def __init__(self, clock: Clock, timeout_s: float) -> None:
        self.opened = anyio.Event()
        self._timer = clock.call_later(timeout_s, self.opened.set)

    def open(self) -> None:
        """Let the requests behind it go."""
        self._timer.cancel()
        self.opened.set()


class LateEncoding:
    """Encodes a merged request when it is sent, or earlier, when ``encode_now`` is called."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._encoded: tuple[int, Sequence[Body]] | None = None
        """The version, and the bodies."""

    def __call__(self, version: int, broker_epoch: int) -> Sequence[Body]:
        """The bodies for this version."""
        if self._encoded is not None and self._encoded[0] == version:
            return self._encoded[1]
        return self._encode(version, broker_epoch)

    def encode_now(self, version: int, broker_epoch: int) -> None:
        """Encode the present state; the request is sent with it unless the broker's version changes."""
        self._encoded = version, self._encode(version, broker_epoch)


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

    def pays(self) -> bool:
        """Whether merging pays: one request for all rows is smaller than the requests that it replaces."""
        return len(self.rows) <= MOST and (self._total_rows <= LITTLE or self._total_rows >= 2 * len(self.rows))

    def outgoing(self, rows: Iterable[int] | None = None) -> Outgoing:
        """The merged request; with ``rows``, a request of the same kind for these rows only, without a callback."""
        assert self._oldest is not None and self._oldest.encode_current is not None
        merged_rows = sorted(self.rows if rows is None else rows)
        new = frozenset(self.new)
        encode = LateEncoding(functools.partial(self._oldest.encode_current, merged_rows, new))
        return self._oldest._replace(
            encode=encode, rows=merged_rows, new=new, done=self._answered if rows is None else None
        )

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

    def can_merge(self, one: Outgoing) -> bool:
        """Whether ``one`` is small, or repeats partitions that are included already."""
        known = self._by_api[one.api].rows
        if len(known) + len(one.rows) > MOST:
            return False
        return len(one.rows) + len(known) <= LITTLE or 2 * sum(map(known.__contains__, one.rows)) >= len(one.rows)

    def pays(self) -> bool:
        """Whether merging pays.  Without an UpdateMetadata nothing is merged, because it carries the broker list."""
        partitions = self._by_api[ApiKey.UPDATE_METADATA].count
        return partitions > 0 and all(merged.pays() for merged in self._by_api.values())

    def requests(self) -> list[Outgoing]:
        """The requests to send instead: the live brokers first, because followers look their leaders up there."""
        control, metadata = self._by_api[ApiKey.LEADER_AND_ISR], self._by_api[ApiKey.UPDATE_METADATA]
        if not control.count:
            return [metadata.outgoing()]
        return [metadata.outgoing(()), control.outgoing(), metadata.outgoing()]


class RequestQueue:
    """One broker's requests, the oldest first; a long queue is merged."""

    def __init__(self) -> None:
        self._waiting: deque[Outgoing | Barrier | CatchUp] = deque()
        self._merged_from = MERGED_FROM
        """Merging is tried from this length on; doubled when it did not pay, so that a long queue is scanned rarely."""

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, one: Outgoing | Barrier) -> None:
        """Add a request or barrier at the end."""
        self._waiting.append(one)

    def merge(self, one: Outgoing) -> bool:
        """Merge a request into the waiting ones if possible; it is then neither encoded nor queued itself."""
        if one.encode_current is None or not self._waiting:
            return False
        last = self._waiting[-1]
        if isinstance(last, CatchUp) and last.can_merge(one):
            last.add(one)
            return True
        return len(self._waiting) >= self._merged_from and self._begin_to_merge(one)

    def _begin_to_merge(self, one: Outgoing) -> bool:
        run, total_rows, taken = [one], len(one.rows), 0
        for each in reversed(list(islice(self._waiting, 1, None))):
            if isinstance(each, Outgoing) and each.encode_current is not None and total_rows + len(each.rows) <= READ:
                run.append(each)
                total_rows += len(each.rows)
            elif not (isinstance(each, Barrier) and each.opened.is_set()):
                break
            taken += 1
        catch_up = CatchUp()
        for each in reversed(run):
            catch_up.add(each)
        if not taken or not catch_up.pays():
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
        """Remove the head, which has been answered or opened."""
        self._waiting.popleft()
        if len(self._waiting) < MERGED_FROM:
            self._merged_from = MERGED_FROM

    def encode_merged(self, version: Callable[[ApiKey], int], broker_epoch: int) -> None:
        """Encode merged requests now, because the context is about to change to a state that must not be sent yet."""
        taken, self._waiting = self._waiting, deque()
        for each in taken:
            self._waiting.extend(each.requests() if isinstance(each, CatchUp) else (each,))
        for one in self._waiting:
            if isinstance(one, Outgoing) and isinstance(one.encode, LateEncoding):
                one.encode.encode_now(version(one.api), broker_epoch)

    def give_up(self) -> None:
        """Drop all requests and call their callbacks."""
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            for one in each.requests() if isinstance(each, CatchUp) else (each,):
                if isinstance(one, Outgoing) and one.done is not None:
                    one.done()
