"""The small storm of ``up --storm``."""

from __future__ import annotations

import asyncio
import random
from typing import Any

from aiocontroller.lab.storms import strikes as storms
from aiocontroller.lab.storms.strikes import draw, storm

HEALS = {"kill-broker": "start-broker", "stop-broker": "start-broker", "kill-controller": "start-controller"}


def test_every_strike_is_drawn_sooner_or_later_and_a_seed_draws_the_same() -> None:
    first, again = random.Random(5), random.Random(5)
    strikes = [draw(first, (1, 2, 3)) for _ in range(60)]
    assert strikes == [draw(again, (1, 2, 3)) for _ in range(60)]
    assert {s.command for s in strikes} == {*HEALS, "kill-zookeeper-session"}
    assert {s.broker for s in strikes if s.command.endswith("broker")} == {1, 2, 3}
    assert all(HEALS.get(s.command) == s.healed_by for s in strikes)
    assert all((s.broker is not None) == s.command.endswith("broker") for s in strikes)


async def test_each_strike_is_healed_and_led_again_before_the_next(monkeypatch: Any) -> None:
    monkeypatch.setattr(storms, "DOWN_S", (0, 0))
    monkeypatch.setattr(storms, "PAUSE_S", (0, 0))
    over, done = asyncio.Event(), list[str]()

    async def execute(command: str, broker: int | None) -> dict[str, str]:
        done.append(command)
        if len(done) > 20:
            over.set()  # in the middle of a strike, perhaps
        return {"done": command}

    async def led() -> None:
        done.append("led")

    shown: list[str] = []
    strikes = await storm(execute, led, (1, 2, 3), 1, shown.append, over)
    at = 0
    for _ in range(strikes):
        healing = HEALS.get(done[at])
        expected = [done[at], *([healing] if healing else []), "led"]
        assert done[at : at + len(expected)] == expected
        at += len(expected)
    assert at == len(done)
    assert len(shown) == len(done) - strikes
