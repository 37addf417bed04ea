"""An event loop on virtual time: time passes only while all tasks wait, and jumps to the next deadline.

It does not use the operating system, so every run is the same; an idle day costs nothing.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from heapq import heappop, heappush
from typing import Any, Protocol, TypeVar, cast

from aiocontroller.lab.ordered_scopes import ordered_scopes

T = TypeVar("T")


class DeadlockError(RuntimeError):
    """All tasks wait and no deadline is set, so nothing can ever happen again."""


class _NoSelector(selectors.BaseSelector):
    """Replaces the operating system's selector; it never reports an event."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return selectors.SelectorKey(fileobj, 0, 0, None)

    def get_map(self) -> Any:
        return {}

    def close(self) -> None:
        pass


class Due(Protocol):
    """What the loop runs at its time."""

    _cancelled: bool

    def _run(self) -> None: ...


class Deadline:
    """A callback that the loop calls once: a minimal ``asyncio.TimerHandle``."""

    __slots__ = ("_callback", "_cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self._callback = callback
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True

    def _run(self) -> None:
        self._callback()


def _shuffle_tasks(ready: deque[Due], chance: random.Random) -> None:
    """Shuffle the ready tasks; other callbacks keep their places.  A task is ready only once: its steps keep order."""
    places = [
        place
        for place, handle in enumerate(ready)
        if isinstance(getattr(getattr(handle, "_callback", None), "__self__", None), asyncio.Task)
    ]
    if len(places) > 1:
        drawn = [ready[place] for place in places]
        chance.shuffle(drawn)
        for place, handle in zip(places, drawn, strict=True):
            ready[place] = handle


class VirtualLoop(asyncio.SelectorEventLoop):
    """asyncio's loop on virtual time: ready callbacks run in order; with none ready, the clock jumps to the next timer.

    It has its own heap of timers, because asyncio's compares handles in Python, and half of a simulation is timers.
    Timers with the same deadline run in the order in which they were set.

    With ``task_order``, tasks that are ready at the same time run in a drawn order, so that no task can rely on its
    place.  Callbacks keep their order, as the bytes of a connection must.
    """

    task_order: random.Random | None = None

    _ready: deque[Due]  # asyncio's own, by its name there

    def __init__(self) -> None:
        super().__init__(_NoSelector())
        self._now_s = 0.0
        self._timers: list[tuple[float, int, Due]] = []
        self._set = 0

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """Like asyncio's, without its checks for other threads and closed loops."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._set += 1
        heappush(self._timers, (when, self._set, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def at(self, when: float, due: Due) -> None:
        """Like ``call_at``, for what has no context of its own; costs a third."""
        self._set += 1
        heappush(self._timers, (when, self._set, due))

    def _run_once(self) -> None:
        """One round; asyncio calls it until the loop is stopped."""
        ready, timers = self._ready, self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not ready and not self._stopping:  # type: ignore[attr-defined]
            if not timers:
                raise DeadlockError("every task waits and no timer is set")
            if timers[0][0] > self._now_s:
                self._now_s = timers[0][0]
        now_s = self._now_s
        while timers and timers[0][0] <= now_s:
            ready.append(heappop(timers)[2])
        if self.task_order is not None and len(ready) > 1:
            _shuffle_tasks(ready, self.task_order)
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()


def running_loop() -> VirtualLoop:
    return cast(VirtualLoop, asyncio.get_running_loop())


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a new virtual loop."""
    with ordered_scopes(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)
