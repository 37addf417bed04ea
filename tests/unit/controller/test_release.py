"""The role is given back on request."""

from __future__ import annotations

import asyncio

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
