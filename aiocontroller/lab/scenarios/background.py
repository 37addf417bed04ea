"""Background work of steps, for which the plan does not wait: an operator's commands, starts of processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

ADMIN_TIMEOUT_S = 20.0
PATIENCE_S = 3.0
"""The time that a plan waits for an operator's command before it goes on to the next step."""


class BackgroundTasks:
    def __init__(self) -> None:
        self._background: dict[asyncio.Task[None], None] = {}

    async def settle(self) -> None:
        """Wait until all background work has ended."""
        while self._background:
            await asyncio.wait(list(self._background))

    def _begin(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(doing)
        self._background[task] = None
        task.add_done_callback(lambda done: self._background.pop(done, None))
        return task

    async def _administer(self, doing: Awaitable[Any]) -> None:
        """Run an operator's command in the background, and wait for it for PATIENCE_S.

        During faults a command may fail or take long.  The state in ZooKeeper shows whether it took effect.
        """

        async def attempt() -> None:
            try:
                async with asyncio.timeout(ADMIN_TIMEOUT_S):
                    await doing
            except Exception as error:
                log.info("refused: %r", error)

        await asyncio.wait([self._begin(attempt())], timeout=PATIENCE_S)
