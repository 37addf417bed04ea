"""The role is given back on request."""

from __future__ import annotations

import asyncio

import pytest

from aiocontroller.controller import release
from aiocontroller.core import events as ev
from aiocontroller.core.request_content import Released
from aiocontroller.lab.virtual_time import virtual_time
from tests.unit.controller.virtual_cluster import ask, begin, is_active, stage


@virtual_time
async def test_all_requests_for_a_release_are_answered_when_the_role_is_given_back() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        epoch = service.shell.context.epoch
        answers = await asyncio.gather(ask(service, ev.Release), ask(service, ev.Release))
        assert [answer.epoch for answer in answers] == [epoch, epoch]
        assert not is_active(service)
        assert await ask(service, ev.Release) == Released(0)


@virtual_time
async def test_reload_in_the_middle_of_a_release_does_not_leave_it_unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reload cancels the scheduled next step."""
    async with stage() as it:
        service = await begin(it, 1)
        left = [0]
        monkeypatch.setattr(release, "naming_controllers", lambda _: left)

        async def not_yet(*_: object) -> None:
            """The replica does not move, so the release looks again and again."""

        monkeypatch.setattr(release, "move_own_replicas", not_yet)
        answer = asyncio.create_task(ask(service, ev.Release))
        await it.sleep(1)
        service.queue.append(ev.ProtocolChange())
        await it.until(lambda: service.shell.faults.reloads.value == 1)
        left.clear()
        await it.sleep(5)
        assert answer.done(), "the release has gone on after the reload"
        assert (await answer).left == ()
