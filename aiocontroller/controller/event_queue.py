"""The single event queue (after KRaft's ``KafkaEventQueue`` and Kafka's ``ControllerEventManager``).

Watch callbacks, the request listener, senders and timers append; one consumer takes.  Rules:
 * first in, first out; ``prepend`` is for an event that must come next;
 * a signal equal to a queued one is not queued again, so a burst of changes costs one read;
 * ``clear_and_put`` drops all queued events, answers the requests among them, and leaves one event: for the end of a
   session and of the process;
 * ``schedule`` queues an event at a deadline under a tag; the same tag again replaces it.

The length of the queue is bounded, and no event of ZooKeeper or of a broker is ever lost:
 * signals: one of each kind and name (brokers, topics), as equal ones are merged;
 * clients' requests: ``max_client_requests``; beyond that a request is refused with REQUEST_TIMED_OUT, so the client
   tries again.  ``server/admission.py`` lets far fewer in at once, and makes the others wait outside; the bound here
   holds for every way into the queue;
 * brokers' requests: admission has four places for each broker;
 * responses: at most one for each request that handlers have queued with the senders, and while events wait, none is
   added to those.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any, NamedTuple, TypeGuard

from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import (
    CertainRequest,
    Event,
    Request,
    Response,
    Signal,
)
from aiocontroller.core.events import ShutdownEventThread
from aiocontroller.net.ports import Clock, Timer

MAX_CLIENT_REQUESTS = 1000


class QueuedEvent(NamedTuple):
    """An event, and since when it has been waiting."""

    event: Event
    enqueued_s: float
    """``Clock.monotonic`` at the time of queueing."""


class QueueStatistics(NamedTuple):
    """A snapshot of the queue."""

    size: int
    """Number of events that wait."""
    signals: int
    client_requests: int
    deferred: int
    appended: int
    coalesced: int
    preempted: int
    refused: int


class EventQueue:
    """The one FIFO of events; only the consumer takes from it."""

    def __init__(self, clock: Clock, max_client_requests: int = MAX_CLIENT_REQUESTS) -> None:
        self._clock = clock
        self._max_client_requests = max_client_requests
        self._client_requests = 0
        self._events: deque[QueuedEvent] = deque()
        self._signals: set[Event] = set()  # membership only, never iterated
        self._deferred: dict[str, Timer] = {}
        self._wakeup: asyncio.Future[None] | None = None
        self._consumer: asyncio.Task[Any] | None = None
        self._appended = self._coalesced = self._preempted = self._refused = 0

    def __len__(self) -> int:
        return len(self._events)

    def __contains__(self, signal: Signal) -> bool:
        """Whether this signal waits."""
        return signal in self._signals

    def append(self, event: Event) -> None:
        """Put an event at the end, unless it is a signal equal to one that waits already."""
        if self._admit(event):
            self._events.append(QueuedEvent(event, self._clock.monotonic()))
            self._wake()

    def prepend(self, event: Event) -> None:
        """Put an event before all others."""
        if self._admit(event):
            self._events.appendleft(QueuedEvent(event, self._clock.monotonic()))
            self._wake()

    def schedule(self, tag: str, delay_s: float, event: Event) -> None:
        """Append the event after ``delay_s``; replaces the event scheduled under the same tag."""
        self.cancel(tag)

        def due() -> None:
            del self._deferred[tag]
            self.append(event)

        self._deferred[tag] = self._clock.call_later(delay_s, due)

    def scheduled(self, tag: str) -> bool:
        """Whether an event is scheduled under this tag."""
        return tag in self._deferred

    def cancel(self, tag: str) -> None:
        """Forget what is scheduled under this tag, if anything is."""
        timer = self._deferred.pop(tag, None)
        if timer is not None:
            timer.cancel()

    def cancel_all(self) -> None:
        """Forget everything that is scheduled."""
        for tag in list(self._deferred):
            self.cancel(tag)

    def drop_responses(self) -> None:
        """Drop brokers' responses to an earlier term."""
        self._events = deque(queued for queued in self._events if not isinstance(queued.event, Response))

    def clear_and_put(self, event: Event) -> None:
        """Drop all queued and scheduled events, answer the requests among them, and leave only this event.

        A queued ``ShutdownEventThread`` stays: the expiry of a session must not undo it.
        """
        dropped = list(self._events)
        self._events.clear()
        self._signals.clear()
        self._client_requests = 0
        self.cancel_all()
        for queued in dropped:
            self._preempted += 1
            if isinstance(queued.event, Request):
                queued.event.preempt()
        self.append(event)
        if any(isinstance(queued.event, ShutdownEventThread) for queued in dropped):
            self.append(ShutdownEventThread())

    async def get(self) -> QueuedEvent:
        """Wait for the next event and return it.  Only one task may do so as long as it runs."""
        task = asyncio.current_task()
        if task is not self._consumer:
            assert self._consumer is None or self._consumer.done(), "the event queue has one consumer"
            self._consumer = task
        while not self._events:
            self._wakeup = asyncio.get_running_loop().create_future()
            try:
                await self._wakeup
            finally:
                self._wakeup = None
        return self.take()

    def take(self) -> QueuedEvent:
        """The next event; IndexError if there is none."""
        queued = self._events.popleft()
        if isinstance(queued.event, Signal):
            self._signals.discard(queued.event)
        elif _is_clients(queued.event):
            self._client_requests -= 1
        return queued

    def take_more_like(self, event: Event, at_most: int) -> list[QueuedEvent]:
        """The following events of the same class, ``at_most`` of them, without waiting."""
        more: list[QueuedEvent] = []
        while self._events and len(more) < at_most and type(self._events[0].event) is type(event):
            more.append(self.take())
        return more

    def statistics(self) -> QueueStatistics:
        """A snapshot of the queue."""
        return QueueStatistics(
            len(self._events),
            len(self._signals),
            self._client_requests,
            len(self._deferred),
            self._appended,
            self._coalesced,
            self._preempted,
            self._refused,
        )

    def _admit(self, event: Event) -> bool:
        if isinstance(event, Signal):
            if event in self._signals:
                self._coalesced += 1
                return False
            self._signals.add(event)
        elif _is_clients(event):
            if self._client_requests >= self._max_client_requests:
                self._refused += 1
                event.reply.ensure(KafkaErrorCode.REQUEST_TIMED_OUT)
                return False
            self._client_requests += 1
        self._appended += 1
        return True

    def _wake(self) -> None:
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)


def _is_clients(event: Event) -> TypeGuard[Request]:
    return isinstance(event, Request) and not isinstance(event, CertainRequest)
