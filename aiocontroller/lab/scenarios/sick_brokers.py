"""Passages of a plan in which one broker becomes sick while nothing else happens.

For seconds after any other fault, judges of sickness must not trust what they see, so random steps hardly ever lead to
a verdict.  A passage heals the cluster, waits until judges trust what they see, and makes one broker slow.  The plan's
other steps follow, some of them while it is still sick.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from aiocontroller.lab.scenarios.restarts import Happening

TOPICS = ("busy", "steady")
"""One for each passage."""
FEWEST_BROKERS = 3
"""With only two brokers, neither is ever judged."""
BELIEVED_S = "8"
"""Long enough for judges to trust what they see again after brokers have started and leaders have changed."""
SLOW_S = {"network": "2", "answers": "0.5"}
"""Longer than the limits for staleness and for answers; shorter than a controller waits before it retries a request."""
LASTS_S = ("3", "8", "15")
"""In this order: too short for most verdicts, long enough for one, long enough for the treatment too."""


def draw_passages(seed: int, brokers: int, controllers: int, *, data: bool) -> tuple[tuple[Happening, ...], ...]:
    """Draw one or two passages; none if the cluster is too small for a verdict.

    Without logs (``data``) only slow answers show.
    """
    chance = random.Random(f"sick brokers {seed}")
    topics = TOPICS[: chance.choice((1, 2))] if brokers >= FEWEST_BROKERS else ()
    return tuple(tuple(_passage(chance, topic, brokers, controllers, data=data)) for topic in topics)


def _passage(chance: random.Random, topic: str, brokers: int, controllers: int, *, data: bool) -> Iterator[Happening]:
    ids = [str(broker) for broker in range(1, brokers + 1)]
    yield Happening("heal", 0.0)
    yield Happening("start_broker", 0.0, tuple(ids))
    for number in range(1, controllers + 1):
        yield Happening("start_controller", 0.0, (str(number),))
    order = chance.sample(ids, brokers)
    placed = [order[at:] + order[:at] for at in range(brokers)]
    yield Happening("create_topic", 0.0, (topic, *(",".join(replicas[:3]) for replicas in placed)))
    yield Happening("wait", 0.0, (BELIEVED_S,))
    sick, *others = order
    how = chance.choice(("disk", "disk", "network in", "network out", "answers")) if data else "answers"
    if how == "disk":
        yield Happening("sick_disk", chance.choice((0.0, 1.0, 3.0)), (sick,))
        return
    ways = {
        "network in": [(other, sick, SLOW_S["network"]) for other in others],
        "network out": [(sick, other, SLOW_S["network"]) for other in others],
        "answers": [(sick, "active", SLOW_S["answers"])],
    }
    for way in ways[how]:
        yield Happening("lag", 0.0, way)
    yield Happening("wait", 0.0, (chance.choice(LASTS_S),))
    if chance.random() < 0.5:
        yield Happening("heal", chance.choice((0.0, 1.0, 3.0)))
