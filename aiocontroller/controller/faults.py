"""Tracks the kinds of events that have failed, and how long each is set aside (``docs/architecture.md``, "Faults").

A *kind* groups events that are likely to fail together: a signal is its own kind (per topic, where it names one);
requests and brokers' responses of one type from one broker are a kind.

 * A kind that has failed is suspect: its events are handled alone, never together with others of their type.
 * A signal is retried after a growing delay; equal signals that arrive meanwhile are merged into it.  It is forgotten
   when it succeeds.
 * A request or response may fail once.  From the second failure on its kind is refused for a growing time, since each
   failure costs a reload, and a client must not cause reloads forever.  A kind that has not failed for some minutes is
   forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any

from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.event_kinds import Event, Request, Signal
from aiocontroller.metrics import Metrics

FIRST_RETRY_S = 1.0
LONGEST_RETRY_S = 60.0
FIRST_REFUSAL_S = 2.0
LONGEST_REFUSAL_S = 300.0
FORGOTTEN_S = 600.0
MAX_ERROR_LENGTH = 300


class _Kind:
    __slots__ = ("error", "event", "failures", "last_s", "name", "until_s")

    def __init__(self, name: str, event: Event) -> None:
        self.name = name
        self.event = event if isinstance(event, Signal) else None
        """The signal to be retried."""
        self.failures = 0
        self.last_s = self.until_s = 0.0
        self.error = ""


class Faults:
    """Sets aside events that keep failing; ``now_s`` is a monotonic time in seconds."""

    def __init__(self, now_s: Callable[[], float], metrics: Metrics) -> None:
        self._now_s = now_s
        self._kinds: dict[Hashable, _Kind] = {}
        self.failed_events = metrics.counter("aiocontroller", "Events", "Failed")
        self.refused = metrics.counter("aiocontroller", "Events", "Refused")
        self.reloads = metrics.counter("aiocontroller", "Events", "Reloads")
        metrics.gauge("aiocontroller", "Events", "SetAside", lambda: len(self._set_aside()))

    def failed(self, event: Event, error: BaseException, brokers: Collection[int]) -> float:
        """Record a failure; returns for how long its kind is set aside.  ``brokers`` are the known ones."""
        self.failed_events.inc()
        key = _key(event, brokers)
        kind = self._kinds.setdefault(key, _Kind(name_of(event), event))
        now_s = self._now_s()
        kind.failures += 1
        kind.last_s = now_s
        kind.error = repr(error)[:MAX_ERROR_LENGTH]
        delay_s = 0.0
        if isinstance(event, Signal):
            delay_s = min(FIRST_RETRY_S * 2.0 ** min(kind.failures - 1, 30), LONGEST_RETRY_S)
        elif kind.failures > 1:
            delay_s = min(FIRST_REFUSAL_S * 4.0 ** min(kind.failures - 2, 30), LONGEST_REFUSAL_S)
        kind.until_s = now_s + delay_s
        return delay_s

    def succeeded(self, event: Event) -> None:
        """A signal that has failed before has been handled."""
        if self._kinds and isinstance(event, Signal):
            self._kinds.pop(event, None)

    def suspect(self, event: Event, brokers: Collection[int]) -> bool:
        """Whether events of this kind have failed lately."""
        return self._kind(event, brokers) is not None

    def is_set_aside(self, event: Event, brokers: Collection[int] = ()) -> bool:
        """Whether events of this kind are not to be handled now."""
        kind = self._kind(event, brokers)
        return kind is not None and kind.until_s > self._now_s()

    def refuse(self, event: Event) -> None:
        """Refuse an event that is set aside: answer a request, drop a response; a signal is retried anyway."""
        if not isinstance(event, Signal):
            self.refused.inc()
            refuse(event, KafkaErrorCode.UNKNOWN_SERVER_ERROR)

    def schedule_retries(self, queue: EventQueue) -> None:
        """Schedule the retries of all failed signals after a reload, which cancels all scheduled events."""
        now_s = self._now_s()
        for kind in self._kinds.values():
            if kind.event is not None:
                queue.schedule(f"retry {kind.event}", max(kind.until_s - now_s, 0.0), kind.event)

    def forget(self) -> None:
        """Called at the end of a term: the next one starts by reading everything."""
        self._kinds.clear()

    def status(self) -> list[dict[str, Any]]:
        """The kinds that are set aside, most failures first."""
        now_s = self._now_s()
        kinds = sorted(self._set_aside(), key=lambda kind: (-kind.failures, kind.name))
        return [
            {
                "event": kind.name,
                "failures": kind.failures,
                "error": kind.error,
                "for_s": round(max(kind.until_s - now_s, 0.0), 1),
            }
            for kind in kinds
        ]

    def _set_aside(self) -> list[_Kind]:
        now_s = self._now_s()
        return [kind for kind in self._kinds.values() if kind.event is not None or kind.until_s > now_s]

    def _kind(self, event: Event, brokers: Collection[int]) -> _Kind | None:
        if not self._kinds:
            return None
        key = _key(event, brokers)
        kind = self._kinds.get(key)
        if kind is not None and kind.event is None and kind.last_s + FORGOTTEN_S < self._now_s():
            del self._kinds[key]
            return None
        return kind


def name_of(event: Event) -> str:
    """The event's type and subject, without data sent by a client."""
    about = [str(value) for field in ("topic", "broker", "step") if (value := getattr(event, field, None)) is not None]
    return " ".join([type(event).__name__, *about])


def refuse(event: Event, code: int) -> None:
    """Answer a request that has not been answered yet."""
    if isinstance(event, Request):
        event.reply.ensure(code)


def _key(event: Event, brokers: Collection[int]) -> Hashable:
    """The kind's key.  A client can name any number of nonexistent brokers, so these share one kind."""
    if isinstance(event, Signal):
        return event
    broker = getattr(event, "broker", None)
    return type(event), broker if broker is None or broker in brokers else -1
