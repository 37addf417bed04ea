"""Which kinds of events have failed, and for how long each is set aside (``docs/architecture.md``, "Faults").

A *kind* is what fails again if anything does: a signal itself (of one topic, where it names one); of requests and
brokers' answers their type, and the broker that they come from.

 * What failed once is suspect: it is handled by itself, never together with others of its type.
 * A signal waits for a growing while and is tried again; equal ones that come meanwhile are part of it.  When it
   succeeds it is forgotten.
 * A request or an answer may fail once.  From the second time on its kind is refused for a growing while, since each
   failure costs a reload, which nobody may cause for ever.  It is forgotten when it has not failed for some minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from typing import Any

from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import Event, Request, Signal
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
        """What is to be tried again."""
        self.failures = 0
        self.last_s = self.until_s = 0.0
        self.error = ""


class Faults:
    def __init__(self, now_s: Callable[[], float], metrics: Metrics) -> None:
        self._now_s = now_s
        self._kinds: dict[Hashable, _Kind] = {}
        self.failed_events = metrics.counter("aiocontroller", "Events", "Failed")
        self.refused = metrics.counter("aiocontroller", "Events", "Refused")
        self.reloads = metrics.counter("aiocontroller", "Events", "Reloads")
        metrics.gauge("aiocontroller", "Events", "SetAside", lambda: len(self._set_aside()))

    def failed(self, event: Event, error: BaseException, brokers: Collection[int]) -> float:
        """Returns for how long its kind is set aside; ``brokers`` are those that there are."""
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
        if self._kinds and isinstance(event, Signal):
            self._kinds.pop(event, None)

    def suspect(self, event: Event, brokers: Collection[int]) -> bool:
        return self._kind(event, brokers) is not None

    def is_set_aside(self, event: Event, brokers: Collection[int] = ()) -> bool:
        kind = self._kind(event, brokers)
        return kind is not None and kind.until_s > self._now_s()

    def refuse(self, event: Event) -> None:
        """What is set aside: a request is answered, an answer is dropped, a signal is tried again anyhow."""
        if not isinstance(event, Signal):
            self.refused.inc()
            refuse(event, KafkaErrorCode.UNKNOWN_SERVER_ERROR)

    def schedule_retries(self, queue: EventQueue) -> None:
        """Of all signals that are set aside; after a reload, which cancels whatever was scheduled."""
        now_s = self._now_s()
        for kind in self._kinds.values():
            if kind.event is not None:
                queue.schedule(f"retry {kind.event}", max(kind.until_s - now_s, 0.0), kind.event)

    def forget(self) -> None:
        """The term is over: another begins with a look at everything."""
        self._kinds.clear()

    def status(self) -> list[dict[str, Any]]:
        """What is set aside, the one that has been tried most often first."""
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
    """Its type, and what it is about, without what a client has sent."""
    about = [str(value) for field in ("topic", "broker", "step") if (value := getattr(event, field, None)) is not None]
    return " ".join([type(event).__name__, *about])


def refuse(event: Event, code: int) -> None:
    """Answer, if it was asked for and has not been answered."""
    if isinstance(event, Request):
        event.reply.ensure(code)


def _key(event: Event, brokers: Collection[int]) -> Hashable:
    """Of brokers that do not exist anybody can name as many as there are numbers: they are one kind."""
    if isinstance(event, Signal):
        return event
    broker = getattr(event, "broker", None)
    return type(event), broker if broker is None or broker in brokers else -1
