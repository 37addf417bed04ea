"""How the program owns its background tasks: in task groups, whose owner ends with the error of the task that died.

``tests/unit/test_house_tasks.py`` holds the rule, and lists the places outside a group, each with its reason.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Protocol

import anyio
import anyio.abc


class Tasks(Protocol):
    """What a component needs of a task group: anyio's, or ``LooseTasks``."""

    def start_soon(self, func: Callable[..., Coroutine[Any, Any, Any]], *args: Any, name: object = None) -> Any:
        """Run ``func(*args)`` as a task; its first step runs in a later turn of the loop."""


@asynccontextmanager
async def task_group() -> AsyncIterator[anyio.abc.TaskGroup]:
    """anyio's task group, except that it raises the first error as itself, not in an ExceptionGroup.

    The first error cancels the rest, so that further errors are its consequences.
    """
    first: BaseException
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
        return
    except BaseExceptionGroup as errors:
        first = errors.exceptions[0]
    raise first


class LooseTasks:
    """Tasks of an object that is started and closed, perhaps in different tasks, as commands and tests do it.

    An anyio group must be left in the task that entered it, so it cannot serve them.  A task that dies is reported to
    the event loop's exception handler at once.
    """

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[Any], None] = {}

    def start_soon(self, func: Callable[..., Coroutine[Any, Any, Any]], *args: Any, name: object = None) -> None:
        """Run ``func(*args)`` as a task of the running loop; RuntimeError without one."""
        task = asyncio.get_running_loop().create_task(func(*args), name=None if name is None else str(name))
        self._running[task] = None
        task.add_done_callback(self._ended)

    def cancel(self) -> None:
        """Cancel the tasks that run, without waiting for their ends."""
        for task in self._running:
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._running[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            message = f"the task {task.get_name()} died"
            task.get_loop().call_exception_handler({"message": message, "exception": error, "task": task})
