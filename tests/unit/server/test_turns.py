"""Long work is done in turns with everything else."""

from __future__ import annotations

import asyncio

from aiocontroller.server.turns import in_turns


async def test_others_run_between_the_pieces_of_a_long_request() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    seen = []
    async for item in in_turns(range(1000), 100):
        seen.append((item, turns))
    beside.cancel()
    assert [item for item, _ in seen] == list(range(1000))
    assert turns >= 10
    assert len({turn for _, turn in seen[:100]}) == 1, "a piece is done at once"
