"""What operators' commands take: an empty body asks for the defaults, and nothing of another is passed over."""

from __future__ import annotations

import pytest

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.virtual_time import virtual_time
from aiocontroller.server.commands import Commands
from tests.unit.controller.virtual_cluster import begin, is_active, stage


@virtual_time
async def test_a_takeover_without_a_body_asks_for_the_defaults() -> None:
    async with stage() as it:
        service = await begin(it, 1)
        commands = Commands(service.shell, service.controller, lambda: None)
        for body in (b"", b"{}", b'{"keep_ours":["num.partitions"]}'):
            assert (await commands.take_over(body))["was_active"]


@pytest.mark.parametrize(
    "body, found", [(b'{"keep_ours":["num.partition"]}', "num.partition"), (b"{", "truncated"), (b"[]", "array")]
)
@virtual_time
async def test_a_takeover_that_asks_for_nonsense_is_refused(body: bytes, found: str) -> None:
    async with stage() as it:
        service = await begin(it, 1)
        with pytest.raises(BadInputError, match=found):
            await Commands(service.shell, service.controller, lambda: None).take_over(body)


@pytest.mark.parametrize("body, ends_in_ms", [(b"", None), (b'{"exit":true,"linger_ms":7}', 7)])
@virtual_time
async def test_a_release_ends_the_process_if_asked_to(body: bytes, ends_in_ms: int | None) -> None:
    async with stage() as it:
        service = await begin(it, 1)
        stopped: list[float] = []
        commands = Commands(service.shell, service.controller, lambda: stopped.append(it.world.clock.monotonic()))
        answer = await commands.release(body)
        answered_s = it.world.clock.monotonic()
        assert (answer["epoch"], answer["ends_in_ms"]) == (1, ends_in_ms)
        assert not is_active(service)
        await it.sleep(60)
        assert stopped == ([] if ends_in_ms is None else pytest.approx([answered_s + 0.007], abs=1e-6))
