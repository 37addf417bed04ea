"""Splits long work into turns, so that other tasks can run in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

import anyio.lowlevel

T = TypeVar("T")

ITEMS_A_TURN = 500
"""A few milliseconds, if an item takes some microseconds."""


async def in_turns(items: Iterable[T], at_once: int = ITEMS_A_TURN) -> AsyncIterator[T]:
    """Yield the items, and let other ready tasks run after every ``at_once`` of them."""
    for n, item in enumerate(items, 1):
        yield item
        if n % at_once == 0:
            await anyio.lowlevel.checkpoint()
