"""The single event queue (after KRaft's ``KafkaEventQueue`` and Kafka's ``ControllerEventManager``).

Watch callbacks, the request listener, senders and timers append; one consumer takes.  Rules:
 * first in, first out; ``prepend`` is for what must come next;
 * a signal equal to one that waits is not queued twice, so a burst of changes costs one read;
 * ``clear_and_put`` drops all that waits, answers the requests among it, and leaves one event: for the end of a
   session and of the process;
 * ``schedule`` queues an event at a deadline under a tag; the same tag again replaces it.

What can wait is bounded: signals by their coalescing, requests and responses by one in flight per connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from aiocontroller.core.events import Event, Request, Response, ShutdownEventThread, Signal
from aiocontroller.net.ports import Clock, Timer


class QueuedEvent(NamedTuple):
    event: Event
    enqueued_s: float
    """``Clock.monotonic`` at the time of queueing."""


class QueueStatistics(NamedTuple):
    size: int
    deferred: int
    appended: int
    coalesced: int
    preempted: int


class EventQueue:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: deque[QueuedEvent] = deque()
        self._signals: set[Event] = set()  # membership only, never iterated
        self._deferred: dict[str, Timer] = {}
        self._wakeup: asyncio.Future[None] | None = None
        self._appended = self._coalesced = self._preempted = 0

    def __len__(self) -> int:
        return len(self._events)

    def append(self, event: Event) -> None:
        if self._admit(event):
            self._events.append(QueuedEvent(event, self._clock.monotonic()))
            self._wake()

    def prepend(self, event: Event) -> None:
        if self._admit(event):
            self._events.appendleft(QueuedEvent(event, self._clock.monotonic()))
            self._wake()

    def schedule(self, tag: str, delay_s: float, event: Event) -> None:
        """Append the event after ``delay_s``; replaces what is scheduled under the tag."""
        self.cancel(tag)

        def due() -> None:
            del self._deferred[tag]
            self.append(event)

        self._deferred[tag] = self._clock.call_later(delay_s, due)

    def cancel(self, tag: str) -> None:
        timer = self._deferred.pop(tag, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        for tag in list(self._deferred):
            self.cancel(tag)

    def drop_responses(self) -> None:
        """Brokers' answers to a term that is over are nobody's any more."""
        self._events = deque(queued for queued in self._events if not isinstance(queued.event, Response))

    def clear_and_put(self, event: Event) -> None:
        """Drop all that waits or is scheduled, answer what was asked, and leave this event alone in the queue.

        Only the end of the process, if that waits, still comes: a session that expires must not undo it.
        """
        dropped = list(self._events)
        self._events.clear()
        self._signals.clear()
        self.cancel_all()
        for queued in dropped:
            self._preempted += 1
            if isinstance(queued.event, Request):
                queued.event.preempt()
        self.append(event)
        if any(isinstance(queued.event, ShutdownEventThread) for queued in dropped):
            self.append(ShutdownEventThread())

    async def get(self) -> QueuedEvent:
        """The next event; waits for one."""
        while not self._events:
            self._wakeup = asyncio.get_running_loop().create_future()
            try:
                await self._wakeup
            finally:
                self._wakeup = None
        return self._take()

    def _take(self) -> QueuedEvent:
        queued = self._events.popleft()
        if isinstance(queued.event, Signal):
            self._signals.discard(queued.event)
        return queued

    def take_more_like(self, event: Event, at_most: int) -> list[QueuedEvent]:
        """The events of the same class that come next, without waiting for any."""
        more: list[QueuedEvent] = []
        while self._events and len(more) < at_most and type(self._events[0].event) is type(event):
            more.append(self._take())
        return more

    def statistics(self) -> QueueStatistics:
        return QueueStatistics(len(self._events), len(self._deferred), self._appended, self._coalesced, self._preempted)

    def _admit(self, event: Event) -> bool:
        if isinstance(event, Signal):
            if event in self._signals:
                self._coalesced += 1
                return False
            self._signals.add(event)
        self._appended += 1
        return True

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)
