"""Work of which the next piece has begun while one is being finished."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

import anyio
import anyio.abc

Item = TypeVar("Item")
T = TypeVar("T")

TURNS = 4
"""Of the loop, in which what has just begun gets onto the wire: finishing may be all work, without a pause."""


async def overlapped(
    items: Iterable[Item],
    begin: Callable[[Item], Coroutine[Any, Any, T]],
    finish: Callable[[Item, T], Awaitable[None]],
) -> None:
    """``finish(item, await begin(item))`` for each in order; while one is finished, the next one has begun.

    The first error ends all: what has begun is cancelled and waited for.
    """
    waiting = list(items)
    if len(waiting) == 1:
        await finish(waiting[0], await begin(waiting[0]))
        return
    begun: deque[asyncio.Task[T]] = deque()
    try:
        for at, item in enumerate(waiting):
            for ahead in waiting[at + len(begun) : at + 2]:
                begun.append(asyncio.ensure_future(begin(ahead)))
            for _ in range(TURNS):
                await asyncio.sleep(0)
            result = await begun[0]
            begun.popleft()
            await finish(item, result)
    finally:
        for task in begun:
            task.cancel()
        if begun:
            await asyncio.gather(*begun, return_exceptions=True)


async def in_window(workers: int, work: Callable[[], Awaitable[None]]) -> None:
    """Run ``work`` (which ends when nothing is left to do) several times at once; the first error ends all."""
    if workers <= 1:
        await work()
        return
    errors: list[Exception] = []

    async def run(group: anyio.abc.TaskGroup) -> None:
        try:
            await work()
        except Exception as error:
            errors.append(error)
            group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        for _ in range(workers):
            group.start_soon(run, group)
    if errors:
        raise errors[0]
