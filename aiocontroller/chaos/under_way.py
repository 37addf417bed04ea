"""What steps have begun and do not wait for: an operator's commands, starts of processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from typing import Any

log = logging.getLogger(__name__)

ADMIN_TIMEOUT_S = 20.0
PATIENCE_S = 3.0
"""How long a plan waits for an operator's command before it goes on to the next step."""


class UnderWay:
    def __init__(self) -> None:
        self._under_way: dict[asyncio.Task[None], None] = {}

    async def settle(self) -> None:
        """Until all that was begun has ended."""
        while self._under_way:
            await asyncio.wait(list(self._under_way))

    def _begin(self, doing: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(doing)
        self._under_way[task] = None
        task.add_done_callback(lambda done: self._under_way.pop(done, None))
        return task

    async def _administer(self, doing: Awaitable[Any]) -> None:
        """What an operator does while things break may fail or last; what was begun is judged by ZooKeeper."""

        async def attempt() -> None:
            try:
                async with asyncio.timeout(ADMIN_TIMEOUT_S):
                    await doing
            except Exception as error:
                log.info("refused: %r", error)

        await asyncio.wait([self._begin(attempt())], timeout=PATIENCE_S)
