"""``up --storm``: kills and restarts brokers, and moves the controller, as drawn from a seed, until it is asked to end.

Each strike is healed before the next, so that a healthy cluster has a partition offline for no longer than an election
takes.  The same seed draws the same strikes; their number depends on the machine.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

PAUSE_S = (1.0, 4.0)
"""Between strikes."""
DOWN_S = (1.0, 9.0)
"""How long a broker stays down: shorter and longer than its session timeout."""

Execute = Callable[[str, int | None], Awaitable[Any]]


class Strike(NamedTuple):
    command: str
    broker: int | None
    healed_by: str | None
    down_s: float
    pause_s: float


def draw(chance: random.Random, brokers: Sequence[int]) -> Strike:
    """Draw the next strike.  Brokers are hit more often than the controller, since there are more of them."""
    kind = chance.choice(("kill-broker", "kill-broker", "stop-broker", "kill-controller", "kill-zookeeper-session"))
    broker = chance.choice(list(brokers)) if kind.endswith("broker") else None
    down_s, pause_s = chance.uniform(*DOWN_S), chance.uniform(*PAUSE_S)
    healing = {"kill-zookeeper-session": None, "kill-controller": "start-controller"}
    return Strike(kind, broker, healing.get(kind, "start-broker"), down_s, pause_s)


async def storm(
    execute: Execute,
    until_led: Callable[[], Awaitable[None]],
    brokers: Sequence[int],
    seed: int,
    say: Callable[[str], None],
    over: asyncio.Event,
) -> int:
    """Strike until ``over``; returns the number of strikes.  At the end everything runs and is led again."""
    chance = random.Random(seed)
    strikes = 0
    while not over.is_set():
        strike = draw(chance, brokers)
        strikes += 1
        say(f"storm: {(await execute(strike.command, strike.broker))['done']}")
        await _pause(over, strike.down_s)
        if strike.healed_by is not None:
            say(f"storm: {(await execute(strike.healed_by, strike.broker))['done']}")
        await until_led()
        await _pause(over, strike.pause_s)
    return strikes


async def _pause(over: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(over.wait(), seconds)
    except TimeoutError:
        pass
