"""Tests on virtual time: the body runs on a loop of its own where waiting costs nothing and order is fixed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any

from aiocontroller.lab import virtual_loop


def virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Turn a coroutine function into a plain test that runs under ``virtual_loop.run``."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        virtual_loop.run(test(*args, **kwargs))

    return run


async def turns(number: int = 3) -> None:
    """Let everything that is ready run, without time passing."""
    for _ in range(number):
        await asyncio.sleep(0)
