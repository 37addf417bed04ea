"""Cancels the tasks of anyio's groups in the order in which they began.

anyio keeps the tasks and the child scopes of a cancel scope in sets, whose order follows the addresses of objects.  So
the same seed could cancel in another order, and take another course: seed 44 had three.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from anyio._backends._asyncio import CancelScope


class _Ordered(dict[Any, None]):
    """As much of a set as a cancel scope uses, in order of insertion."""

    def add(self, item: Any) -> None:
        self[item] = None

    def discard(self, item: Any) -> None:
        self.pop(item, None)

    def remove(self, item: Any) -> None:
        del self[item]


@contextmanager
def ordered_scopes() -> Iterator[None]:
    """Order the cancel scopes that are made inside the block."""
    plain: Any = CancelScope.__init__

    def ordered(self: Any, *arguments: Any, **options: Any) -> None:
        plain(self, *arguments, **options)
        self._child_scopes, self._tasks = _Ordered(), _Ordered()

    with patch.object(CancelScope, "__init__", ordered):
        yield
