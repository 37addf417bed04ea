"""One thread for all work that may wait for a disk; the process never waits for the thread.

``concurrent.futures`` joins its threads when the interpreter ends, so a disk that hangs would keep the process alive.
A daemon thread does not.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")


class DiskThread:
    """Runs functions one after the other, from its creation until ``end``."""

    def __init__(self, name: str) -> None:
        self._jobs: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Queue a function; may be called from any thread."""
        future: Future[T] = Future()
        self._jobs.put((future, function))
        return future

    async def run(self, function: Callable[[], T]) -> T:
        """Return the function's result, or raise its error; functions run one after the other, in their order."""
        return await asyncio.wrap_future(self.submit(function))

    def end(self) -> None:
        """End after the submitted functions; does not wait."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = function()
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(result)
