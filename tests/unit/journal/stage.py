"""A clock that is moved by hand, and journals in files that use it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

from aiocontroller.journal.writer import FileJournal
from aiocontroller.net.ports import World
from aiocontroller.net.real import RealNetwork


class ManualTimer:
    def __init__(self, due_s: float, callback: Callable[[], object]) -> None:
        self.due_s, self.callback = due_s, callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualClock:
    """Moves only when told to; wall time one microsecond further at each look."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.wall_us = 1_700_000_000_000_000
        self.timers: list[ManualTimer] = []

    def monotonic(self) -> float:
        return self.now_s

    def wall_time_us(self) -> int:
        self.wall_us += 1
        return self.wall_us

    def call_later(self, delay_s: float, callback: Callable[[], object]) -> ManualTimer:
        self.timers.append(ManualTimer(self.now_s + delay_s, callback))
        return self.timers[-1]

    async def sleep(self, delay_s: float) -> None:
        raise NotImplementedError

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        due = [t for t in self.timers if t.due_s <= self.now_s and not t.cancelled]
        self.timers = [t for t in self.timers if t.due_s > self.now_s and not t.cancelled]
        for timer in due:
            timer.callback()


class NoChance:
    def random(self) -> float:
        raise NotImplementedError

    def randrange(self, stop: int, /) -> int:
        raise NotImplementedError


def file_journal(directory: Path, clock: ManualClock, **options: object) -> FileJournal:
    return FileJournal(directory, 7, world=World(RealNetwork(), clock, NoChance()), **options)  # type: ignore[arg-type]


def names(directory: Path) -> list[str]:
    return sorted(p.name for p in directory.iterdir())


def lines(directory: Path) -> list[dict[str, object]]:
    return [json.loads(line) for p in sorted(directory.iterdir()) for line in p.read_text().splitlines()]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.002)
