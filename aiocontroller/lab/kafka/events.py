"""Events that happen to a cluster, and how long its clients are affected.

An event strikes, and returns when the rest of the cluster works as it should without what was struck.  The effect on
clients is measured from just before the strike until every partition has acknowledged a record that was sent after the
event was over.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from aiocontroller.lab.cluster.load.clients import now_us
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.lab.kafka.view import PartitionKey, led_by, moved_off, whole

SETTLE_S = 0.3
"""The measurement goes on for this time, to include a stall that begins late."""

PEACE_S = 3.0


class Struck(NamedTuple):
    since_us: int
    led: frozenset[PartitionKey]
    """Partitions that lose their leader through the event."""


Strike = Callable[[PlayedCluster, int], Awaitable[Struck]]


class Felt(msgspec.Struct, frozen=True):
    """The effect of one event under one controller: for each partition, the longest time without an acknowledged
    record."""

    event: str
    subject: str
    led_ms: tuple[float, ...]
    others_ms: tuple[float, ...]
    seconds: float
    errors: tuple[str, ...]
    """Errors that clients reported to their users meanwhile."""


async def play(cluster: PlayedCluster, event: str, chance: random.Random) -> Felt:
    """Strike, wait until the event is over, measure, and heal.

    Raises TimeoutError if the cluster does not recover.
    """
    victim = chance.choice(sorted(cluster.brokers))
    subject = cluster.controller.name
    struck = await EVENTS[event](cluster, victim)
    await cluster.load.settled()
    await asyncio.sleep(SETTLE_S)
    until_us = now_us()
    gaps = cluster.load.longest_gaps_us(struck.since_us, until_us)
    felt = Felt(
        event,
        subject,
        tuple(gap / 1000 for key, gap in sorted(gaps.items()) if key in struck.led),
        tuple(gap / 1000 for key, gap in sorted(gaps.items()) if key not in struck.led),
        (until_us - struck.since_us) / 1e6,
        tuple(cluster.load.errors_since(struck.since_us)),
    )
    await cluster.heal()
    return felt


async def nothing(_: PlayedCluster, __: int) -> Struck:
    """Do nothing, to measure the noise of the machine."""
    since = now_us()
    await asyncio.sleep(PEACE_S)
    return Struck(since, frozenset())


async def takeover(cluster: PlayedCluster, _: int) -> Struck:
    """Let aiocontroller depose the active broker; for Kafka's own controller, delete ``/controller`` to force an
    election."""
    since = now_us()
    await cluster.controller.take()
    return Struck(since, frozenset())


async def release(cluster: PlayedCluster, _: int) -> Struck:
    since = now_us()
    await cluster.controller.give()
    return Struck(since, frozenset())


async def broker_sigkill(cluster: PlayedCluster, victim: int) -> Struck:
    led = led_by(await cluster.view(), victim)
    since = now_us()
    cluster.brokers[victim].kill()
    await _off(cluster, victim)
    return Struck(since, led)


async def broker_sigstop(cluster: PlayedCluster, victim: int) -> Struck:
    """Freeze a broker until its partitions have moved, then wake it.

    Its ZooKeeper session has expired by then.
    """
    led = led_by(await cluster.view(), victim)
    since = now_us()
    cluster.freeze(victim)
    await _off(cluster, victim)
    await cluster.load.settled()
    cluster.thaw(victim)
    await cluster.until(whole, "the frozen broker is in sync again")
    return Struck(since, led)


async def controlled_shutdown(cluster: PlayedCluster, victim: int) -> Struck:
    led = led_by(await cluster.view(), victim)
    since = now_us()
    cluster.brokers[victim].terminate()
    await _off(cluster, victim)
    await cluster.brokers[victim].ended(60)
    return Struck(since, led)


async def rolling_restart(cluster: PlayedCluster, _: int) -> Struck:
    """Restart every broker once; each partition loses its leader."""
    view = await cluster.view()
    since = now_us()
    for broker in cluster.brokers.values():
        broker.terminate()
        await broker.ended(60)
        await cluster.start(broker)
        await cluster.until(whole, "every replica is in sync")
    return Struck(since, frozenset(view))


async def leader_move(cluster: PlayedCluster, victim: int) -> Struck:
    """Move the leader of one partition per topic to the second replica: reorder the replicas, then elect."""
    view = await cluster.view()
    led = sorted(led_by(view, victim))
    chosen = [next(key for key in led if key[0] == topic) for topic in sorted({key[0] for key in led})]
    wanted = {key: (*view[key].replicas[1:], view[key].replicas[0]) for key in chosen}
    await cluster.reassign(wanted)
    await cluster.load.settled()
    since = now_us()
    await cluster.elect_preferred({key: replicas[0] for key, replicas in wanted.items()})
    return Struck(since, frozenset(chosen))


async def controller_sigkill(cluster: PlayedCluster, _: int) -> Struck:
    """Kill the controller; with Kafka's own controller, its broker dies too."""
    view = await cluster.view()
    since = now_us()
    dead = await cluster.controller.kill()
    await cluster.controller.succeeded()
    if dead:
        await _off(cluster, *dead)
    return Struck(since, frozenset().union(*(led_by(view, broker) for broker in dead)))


async def controller_and_broker_sigkill(cluster: PlayedCluster, victim: int) -> Struck:
    """Kill the active controller and one broker at once; Kafka's own controller and its broker are one process."""
    view = await cluster.view()
    since = now_us()
    dead = await cluster.controller.kill()
    if not dead:
        cluster.brokers[victim].kill()
        dead = frozenset((victim,))
    await cluster.controller.succeeded()
    await _off(cluster, *dead)
    return Struck(since, frozenset().union(*(led_by(view, broker) for broker in dead)))


async def sigkill_and_restart(cluster: PlayedCluster, victim: int) -> Struck:
    """Kill a broker and restart it immediately.

    The restart is repeated while the broker ends because its old registration still exists.
    """
    led = led_by(await cluster.view(), victim)
    since = now_us()
    cluster.brokers[victim].kill()
    await cluster.start(cluster.brokers[victim])
    await cluster.until(whole, "every replica is in sync")
    return Struck(since, led)


async def _off(cluster: PlayedCluster, *dead: int) -> None:
    gone = frozenset(dead)
    await cluster.until(lambda view: moved_off(view, gone), f"everything has moved off {sorted(gone)}")


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
