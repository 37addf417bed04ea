"""Background tasks have an owner that learns of their death."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiocontroller.net.tasks import LooseTasks, task_group


class Death(Exception):
    pass


async def die() -> None:
    raise Death("of a task")


async def test_a_group_raises_the_first_error_as_itself() -> None:
    ended: list[str] = []

    async def live() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("live")
            raise ValueError("a consequence")

    async def own() -> None:
        async with task_group() as tasks:
            tasks.start_soon(live)
            await asyncio.sleep(0)
            tasks.start_soon(die)
            await asyncio.Event().wait()

    with pytest.raises(Death, match="of a task"):
        await own()
    assert ended == ["live"]


async def test_an_error_in_the_body_ends_the_tasks() -> None:
    ended: list[str] = []

    async def live() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("live")

    async def own() -> None:
        async with task_group() as tasks:
            tasks.start_soon(live)
            await asyncio.sleep(0)
            raise KeyError("body")

    with pytest.raises(KeyError, match="body"):
        await own()
    assert ended == ["live"]


async def test_a_loose_task_that_dies_is_reported_at_once() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    LooseTasks().start_soon(die, name="the watcher")
    for _ in range(3):
        await asyncio.sleep(0)
    assert [context["message"] for context in reported] == ["the task the watcher died"]
    assert isinstance(reported[0]["exception"], Death)


async def test_loose_tasks_are_cancelled_together() -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    ended: list[int] = []

    async def live(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    tasks = LooseTasks()
    for number in (1, 2):
        tasks.start_soon(live, number)
    await asyncio.sleep(0)
    tasks.cancel()
    for _ in range(3):
        await asyncio.sleep(0)
    assert ended == [1, 2]
    assert reported == []
