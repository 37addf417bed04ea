"""What can happen to a cluster, and how long its clients feel it.

An event strikes, and returns when the cluster is as it should be without what was struck; what clients felt is measured
from just before the strike until every partition has acknowledged a record that was sent after it was over.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from aiocontroller.chaos.kafka.stage import Stage
from aiocontroller.chaos.kafka.view import PartitionKey, led_by, moved_off, whole
from aiocontroller.cluster.load.clients import now_us

SETTLE_S = 0.3
"""The stretch measured goes on for so long, so that a stall that begins late is seen."""

PEACE_S = 3.0


class Struck(NamedTuple):
    since_us: int
    led: frozenset[PartitionKey]
    """Partitions that lost their leader by it."""


Strike = Callable[[Stage, int], Awaitable[Struck]]


class Felt(msgspec.Struct, frozen=True):
    """One event under one controller: the longest time without an acknowledged record, for each partition."""

    event: str
    subject: str
    led_ms: tuple[float, ...]
    others_ms: tuple[float, ...]
    seconds: float
    errors: tuple[str, ...]
    """What clients gave to their users meanwhile."""


async def play(stage: Stage, event: str, chance: random.Random) -> Felt:
    """Strike, wait until it is over, measure, and heal.  TimeoutError when the cluster does not come back."""
    victim = chance.choice(sorted(stage.brokers))
    subject = stage.office.name
    struck = await EVENTS[event](stage, victim)
    await stage.load.settled()
    await asyncio.sleep(SETTLE_S)
    until_us = now_us()
    gaps = stage.load.longest_gaps_us(struck.since_us, until_us)
    felt = Felt(
        event,
        subject,
        tuple(gap / 1000 for key, gap in sorted(gaps.items()) if key in struck.led),
        tuple(gap / 1000 for key, gap in sorted(gaps.items()) if key not in struck.led),
        (until_us - struck.since_us) / 1e6,
        tuple(stage.load.errors_since(struck.since_us)),
    )
    await stage.heal()
    return felt


async def nothing(_: Stage, __: int) -> Struck:
    """What the machine's noise makes of an undisturbed cluster."""
    since = now_us()
    await asyncio.sleep(PEACE_S)
    return Struck(since, frozenset())


async def takeover(stage: Stage, _: int) -> Struck:
    """aiocontroller deposes the broker in office; Kafka's counterpart: ``/controller`` is deleted and won anew."""
    since = now_us()
    await stage.office.take()
    return Struck(since, frozenset())


async def release(stage: Stage, _: int) -> Struck:
    since = now_us()
    await stage.office.give()
    return Struck(since, frozenset())


async def broker_sigkill(stage: Stage, victim: int) -> Struck:
    led = led_by(await stage.view(), victim)
    since = now_us()
    stage.brokers[victim].kill()
    await _off(stage, victim)
    return Struck(since, led)


async def broker_sigstop(stage: Stage, victim: int) -> Struck:
    """Frozen until its partitions have moved, and then awake again, with a session that has ended."""
    led = led_by(await stage.view(), victim)
    since = now_us()
    stage.freeze(victim)
    await _off(stage, victim)
    await stage.load.settled()
    stage.thaw(victim)
    await stage.until(whole, "the frozen broker is in sync again")
    return Struck(since, led)


async def controlled_shutdown(stage: Stage, victim: int) -> Struck:
    led = led_by(await stage.view(), victim)
    since = now_us()
    stage.brokers[victim].terminate()
    await _off(stage, victim)
    await stage.brokers[victim].ended(60)
    return Struck(since, led)


async def rolling_restart(stage: Stage, _: int) -> Struck:
    """Every broker once; each partition loses its leader."""
    view = await stage.view()
    since = now_us()
    for broker in stage.brokers.values():
        broker.terminate()
        await broker.ended(60)
        await stage.start(broker)
        await stage.until(whole, "every replica is in sync")
    return Struck(since, frozenset(view))


async def leader_move(stage: Stage, victim: int) -> Struck:
    """One partition of each topic goes to its second replica, by a reassignment in order only and an election."""
    view = await stage.view()
    led = sorted(led_by(view, victim))
    chosen = [next(key for key in led if key[0] == topic) for topic in sorted({key[0] for key in led})]
    wanted = {key: (*view[key].replicas[1:], view[key].replicas[0]) for key in chosen}
    await stage.reassign(wanted)
    await stage.load.settled()
    since = now_us()
    await stage.elect_preferred(chosen)
    await stage.until(lambda now: all(now[key].leader == wanted[key][0] for key in chosen), "the leaders have moved")
    return Struck(since, frozenset(chosen))


async def controller_sigkill(stage: Stage, _: int) -> Struck:
    """Under Kafka's own, the broker that it is in dies with it."""
    view = await stage.view()
    since = now_us()
    dead = await stage.office.kill()
    await stage.office.succeeded()
    if dead:
        await _off(stage, *dead)
    return Struck(since, frozenset().union(*(led_by(view, broker) for broker in dead)))


async def controller_and_broker_sigkill(stage: Stage, victim: int) -> Struck:
    """The active controller and one broker at once; under Kafka's own they are one process."""
    view = await stage.view()
    since = now_us()
    dead = await stage.office.kill()
    if not dead:
        stage.brokers[victim].kill()
        dead = frozenset((victim,))
    await stage.office.succeeded()
    await _off(stage, *dead)
    return Struck(since, frozenset().union(*(led_by(view, broker) for broker in dead)))


async def sigkill_and_restart(stage: Stage, victim: int) -> Struck:
    """Started again at once, as often as it ends because its old registration is still there."""
    led = led_by(await stage.view(), victim)
    since = now_us()
    stage.brokers[victim].kill()
    await stage.start(stage.brokers[victim])
    await stage.until(whole, "every replica is in sync")
    return Struck(since, led)


async def _off(stage: Stage, *dead: int) -> None:
    gone = frozenset(dead)
    await stage.until(lambda view: moved_off(view, gone), f"everything has moved off {sorted(gone)}")


EVENTS: dict[str, Strike] = {
    "nothing": nothing,
    "takeover": takeover,
    "release": release,
    "broker SIGKILL": broker_sigkill,
    "broker SIGSTOP": broker_sigstop,
    "controlled shutdown": controlled_shutdown,
    "rolling restart": rolling_restart,
    "leader move": leader_move,
    "controller SIGKILL": controller_sigkill,
    "controller and broker": controller_and_broker_sigkill,
    "SIGKILL and restart": sigkill_and_restart,
}
