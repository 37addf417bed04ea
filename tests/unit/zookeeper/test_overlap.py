"""The next step has begun while one is being finished; errors leave nothing behind."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.zookeeper.overlap import Give, overlapped, taken_in


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


@virtual_time
async def test_what_readers_give_is_taken_in_by_the_task_that_waits() -> None:
    left, taken, at_once = list(range(9)), [], 0
    here = asyncio.current_task()

    async def take_in(item: int) -> int:
        nonlocal at_once
        assert asyncio.current_task() is here
        assert at_once == 0, "one after the other"
        at_once += 1
        await asyncio.sleep(1)
        at_once -= 1
        taken.append(item)
        return item * 10

    async def read(give: Give) -> None:
        while left:
            item = left.pop(0)
            await asyncio.sleep(0.5)
            assert await give(partial(take_in, item)) == item * 10

    for readers in (1, 3):
        await taken_in(readers, read)
        assert sorted(taken) == list(range(9))
        left, taken = list(range(9)), []


@virtual_time
async def test_errors_of_readers_and_of_what_they_gave_end_all() -> None:
    cancelled = 0

    async def fail() -> None:
        raise ValueError("taken in")

    async def read(give: Give, *, gives: bool) -> None:
        nonlocal cancelled
        try:
            if gives:
                await give(fail)
            await asyncio.sleep(1)
            if not gives:
                raise KeyError("read")
        except asyncio.CancelledError:
            cancelled += 1
            raise

    with pytest.raises(ValueError, match="taken in"):
        await taken_in(2, lambda give: read(give, gives=True))
    assert cancelled == 2
    with pytest.raises(KeyError, match="read"):
        await taken_in(2, lambda give: read(give, gives=False))
    assert len(asyncio.all_tasks()) == 1


@virtual_time
@pytest.mark.parametrize("fails", [False, True])
async def test_what_has_begun_may_end_at_the_moment_of_the_cancellation(fails: bool) -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def begin(item: int) -> int:
        return await answer

    async def finish(item: int, result: int) -> None:
        raise AssertionError("nothing is finished any more")

    work = asyncio.create_task(overlapped(range(3), begin, finish))
    await asyncio.sleep(1)
    if fails:
        answer.set_exception(ValueError("too late"))
    else:
        answer.set_result(1)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
