"""The next step has begun while one is being finished; errors leave nothing behind."""

from __future__ import annotations

import asyncio

import pytest

from aiocontroller.zookeeper.overlap import overlapped
from tests.virtual_time import virtual_time


class Steps:
    def __init__(self, failing: str = "") -> None:
        self.log: list[str] = []
        self.failing = failing

    async def begin(self, item: int) -> int:
        self.log.append(f"begin {item}")
        try:
            await asyncio.sleep(1 + item)
        except asyncio.CancelledError:
            self.log.append(f"cancel {item}")
            raise
        self._maybe_fail(f"begin {item}")
        return item * 10

    async def finish(self, item: int, result: int) -> None:
        assert result == item * 10
        await asyncio.sleep(0.5)
        self._maybe_fail(f"finish {item}")
        self.log.append(f"finish {item}")

    def _maybe_fail(self, what: str) -> None:
        if what == self.failing:
            raise ValueError(what)


@virtual_time
async def test_each_is_finished_in_order_while_the_next_is_under_way() -> None:
    steps = Steps()
    await overlapped(range(3), steps.begin, steps.finish)
    assert steps.log == ["begin 0", "begin 1", "finish 0", "begin 2", "finish 1", "finish 2"]


@virtual_time
async def test_nothing_and_one() -> None:
    steps = Steps()
    await overlapped([], steps.begin, steps.finish)
    await overlapped([7], steps.begin, steps.finish)
    assert steps.log == ["begin 7", "finish 7"]


@virtual_time
async def test_an_error_while_finishing_ends_what_has_begun() -> None:
    steps = Steps("finish 0")
    with pytest.raises(ValueError, match="finish 0"):
        await overlapped(range(3), steps.begin, steps.finish)
    assert steps.log == ["begin 0", "begin 1", "cancel 1"]


@virtual_time
async def test_an_error_while_beginning_comes_in_its_turn() -> None:
    steps = Steps("begin 1")
    with pytest.raises(ValueError, match="begin 1"):
        await overlapped(range(3), steps.begin, steps.finish)
    assert "finish 0" in steps.log
    assert "finish 1" not in steps.log
