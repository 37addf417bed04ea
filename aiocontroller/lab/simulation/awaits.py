"""Counts a handler's await points, so that its process can be killed at each of them.

A coroutine can be interrupted only where it awaits.  Crash points at awaits are finer than crash points at writes: they
include requests to brokers, reads and sleeps.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def counting(inner: Coroutine[Any, Any, T], at_await: Callable[[], object]) -> Generator[Any, Any, T]:
    """Run the coroutine, and call ``at_await`` each time it awaits something."""
    got: Any = None
    error: BaseException | None = None
    while True:
        try:
            waits_for = inner.send(got) if error is None else inner.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        at_await()
        got = error = None
        try:
            got = yield waits_for
        except BaseException as thrown:
            error = thrown
