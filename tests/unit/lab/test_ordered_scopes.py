"""Cancellation in the order of beginnings."""

from __future__ import annotations

import gc

import anyio

from aiocontroller.lab.simulation.campaign import quiet
from aiocontroller.lab.simulation.simulation import simulate
from aiocontroller.lab.virtual_loop import run


def test_tasks_are_cancelled_in_the_order_in_which_they_began() -> None:
    ended: list[int] = []

    async def sleeps(number: int) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(number)

    async def main() -> None:
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(sleeps, number)
            await anyio.sleep(1)
            tasks.cancel_scope.cancel()

    run(main())
    assert ended == list(range(200))


def test_a_seed_has_one_course_whatever_lies_where_in_memory() -> None:
    quiet()
    gc.disable()  # so that every run finds other addresses
    try:
        assert len({simulate(44).digest for _ in range(5)}) == 1
    finally:
        gc.enable()
