"""Overlaps work: reads the next piece while one is being applied."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from aiocontroller.net.tasks import task_group

Item = TypeVar("Item")
T = TypeVar("T")

TURNS = 4
"""Turns of the loop in which the next item's request gets sent: finishing may never pause."""


async def overlapped(
    items: Iterable[Item],
    begin: Callable[[Item], Coroutine[Any, Any, T]],
    finish: Callable[[Item, T], Awaitable[None]],
) -> None:
    """Run ``finish(item, await begin(item))`` for each item in order; each item begins while the one before finishes.

    The first error ends everything: work that has begun is cancelled and awaited.
    """
    waiting = list(items)
    if len(waiting) == 1:
        await finish(waiting[0], await begin(waiting[0]))
        return
    begun: deque[asyncio.Future[T]] = deque()

    async def run(item: Item, done: asyncio.Future[T]) -> None:
        try:
            result = await begin(item)
        except Exception as error:  # raised when its turn comes, after what was begun before it
            if not done.cancelled():
                done.set_exception(error)
                done.exception()  # marks it as retrieved, even if an earlier error ends everything
        else:
            if not done.cancelled():  # as it is if who waits for it is cancelled at this moment
                done.set_result(result)

    async with task_group() as tasks:
        for at, item in enumerate(waiting):
            for ahead in waiting[at + len(begun) : at + 2]:
                begun.append(asyncio.get_running_loop().create_future())
                tasks.start_soon(run, ahead, begun[-1])
            for _ in range(TURNS):
                await asyncio.sleep(0)
            await finish(item, await begun.popleft())


async def in_window(workers: int, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``work`` (which ends when nothing is left to do) several times at once; the first error ends them all."""
    if workers <= 1:
        await work()
        return
    async with task_group() as tasks:
        for _ in range(workers):
            tasks.start_soon(work)


class Give(Protocol):
    """Hands over a reader's result: runs ``take_in`` in the task that waits for readers, and returns its result."""

    async def __call__(self, take_in: Callable[[], Awaitable[T]]) -> T:
        """Return what ``take_in`` returned; its error ends all readers."""


async def taken_in(readers: int, read: Callable[[Give], Coroutine[Any, Any, None]]) -> None:
    """Run ``read`` in several tasks, and the functions that they give in this task, one after the other.

    ``read`` ends when nothing is left to read.  The first error, of a reader or of a given function, ends everything.
    """
    if readers <= 1:
        await read(_taken_in_at_once)
        return
    given: asyncio.Queue[tuple[Callable[[], Awaitable[Any]], asyncio.Future[Any]] | None] = asyncio.Queue()

    async def give(take_in: Callable[[], Awaitable[T]]) -> T:
        taken: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        given.put_nowait((take_in, taken))
        return await taken

    errors: list[Exception] = []

    async def run() -> None:
        try:
            await in_window(readers, lambda: read(give))
        except Exception as error:  # raised once everything given before it has been taken in
            errors.append(error)
        given.put_nowait(None)

    async with task_group() as tasks:
        tasks.start_soon(run)
        while (one := await given.get()) is not None:
            take_in, taken = one
            if not taken.cancelled():
                result = await take_in()
                if not taken.cancelled():
                    taken.set_result(result)
        if errors:
            raise errors[0]


async def _taken_in_at_once(take_in: Callable[[], Awaitable[T]]) -> T:
    return await take_in()
