"""Work in steps of which the next has begun while one is being finished."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
T = TypeVar("T")


async def overlapped(
    items: Iterable[Item],
    begin: Callable[[Item], Coroutine[Any, Any, T]],
    finish: Callable[[Item, T], Awaitable[None]],
) -> None:
    """``finish(item, await begin(item))`` for each in order; while one is finished, the next one has begun.

    The first error ends all: what has begun is cancelled and waited for.
    """
    begun: deque[tuple[Item, asyncio.Task[T]]] = deque()

    async def finish_first() -> None:
        item, task = begun[0]
        result = await task
        await finish(item, result)
        begun.popleft()

    try:
        for item in items:
            begun.append((item, asyncio.ensure_future(begin(item))))
            if len(begun) > 1:
                await finish_first()
        while begun:
            await finish_first()
    finally:
        for _, task in begun:
            task.cancel()
        await asyncio.gather(*(task for _, task in begun), return_exceptions=True)
