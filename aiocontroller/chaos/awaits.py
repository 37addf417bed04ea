"""A handler's await points, counted: so that its process can be killed at each of them.

Between two awaits nothing can happen to a coroutine; at one, everything can.  A crash there loses exactly what the
handler had not yet done, which is finer than a crash at a write: requests to brokers, reads and sleeps are in between.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def counting(inner: Coroutine[Any, Any, T], at_await: Callable[[], object]) -> Generator[Any, Any, T]:
    """The same coroutine; ``at_await`` is called each time that it waits for something."""
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
