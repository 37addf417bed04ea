"""Events that happen to a cluster, and how long its clients are affected.

An event strikes, and returns when the rest of the cluster works as it should without the victim.  The effect on clients
is measured from just before the strike until every partition has acknowledged a record that was sent after the event
was over; the effect of a slow broker is measured as long as the broker is slow.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec

from aiocontroller.lab.cluster.load.clients import now_us
from aiocontroller.lab.cluster.slowness import Slowness
from aiocontroller.lab.kafka.interference import measured_interference
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.lab.kafka.view import PartitionKey, led_by, moved_off, whole

SETTLE_S = 0.3
"""The measurement continues for this time, to include a stall that begins late."""

PEACE_S = 3.0
SLOW_S = 30.0
"""The time for which a broker is slow."""
DISK_MS, NETWORK_MS = 2000, 200
"""The delay of each write to a log, or of each send to a socket."""
FLOWS_GAP_MS = 1000
"""A partition flows while its acknowledgements have no longer gap than this."""


class Struck(NamedTuple):
    since_us: int
    led: frozenset[PartitionKey]
    """Partitions that lose their leader by the event, or whose leader is slow."""
    until_us: int | None = None
    """The end of the measurement; None: when everything works again."""


Strike = Callable[[PlayedCluster, int], Awaitable[Struck]]


class Stall(msgspec.Struct, frozen=True):
    """The effect of one event on one partition."""

    client: str
    """The kind of the client."""
    led: bool
    """Whether the victim led the partition."""
    longest_ms: float
    """The longest time without an acknowledged record."""
    flows_after_ms: float
    """From the strike until the last stall of more than ``FLOWS_GAP_MS`` had ended."""


class Felt(msgspec.Struct, frozen=True):
    """The effect of one event under one controller."""

    event: str
    subject: str
    stalls: tuple[Stall, ...]
    """The stall of each partition."""
    seconds: float
    errors: tuple[str, ...]
    """Errors that clients reported to their users during the event."""
    interference_ms: float = 0.0
    """The longest delay of a process that was ready to run, on this machine."""


async def play(cluster: PlayedCluster, event: str, chance: random.Random) -> Felt:
    """Strike, wait until the event is over, measure, and heal.

    Raises TimeoutError if the cluster does not recover.
    """
    victim = chance.choice(sorted(cluster.brokers))
    async with measured_interference() as interference:
        struck = await EVENTS[event](cluster, victim)
        await cluster.load.settled()
        await asyncio.sleep(SETTLE_S)
        await interference.end()
    until_us = struck.until_us or now_us()
    felt = Felt(
        event,
        cluster.controller.name,
        _stalls(cluster, struck, until_us),
        (until_us - struck.since_us) / 1e6,
        tuple(cluster.load.errors_since(struck.since_us)),
        interference.worst_ms,
    )
    await cluster.heal()
    return felt


def _stalls(cluster: PlayedCluster, struck: Struck, until_us: int) -> tuple[Stall, ...]:
    longest_us = cluster.load.longest_gaps_us(struck.since_us, until_us)
    flows_us = cluster.load.flows_after_us(struck.since_us, until_us, FLOWS_GAP_MS * 1000)
    kinds = cluster.load.kinds()
    return tuple(
        Stall(kinds[key[0]], key in struck.led, longest_us[key] / 1000, flows_us[key] / 1000)
        for key in sorted(longest_us)
    )


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

    Its ZooKeeper session has expired by then.  If a fence command has ended it, it is started again.
    """
    led = led_by(await cluster.view(), victim)
    since = now_us()
    cluster.freeze(victim)
    await _off(cluster, victim)
    await cluster.load.settled()
    cluster.thaw(victim)
    await _returns(cluster, victim)
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


async def slow_disk(cluster: PlayedCluster, victim: int) -> Struck:
    """Delay each write to a log of the broker by ``DISK_MS``, for ``SLOW_S``."""
    return await _slow(cluster, victim, lambda slowness: slowness.slow_disk(DISK_MS))


async def slow_network(cluster: PlayedCluster, victim: int) -> Struck:
    """Delay each send of the broker to a socket by ``NETWORK_MS``, for ``SLOW_S``."""
    return await _slow(cluster, victim, lambda slowness: slowness.slow_network(NETWORK_MS))


async def _slow(cluster: PlayedCluster, victim: int, slow_down: Callable[[Slowness], None]) -> Struck:
    slowness = cluster.brokers[victim].slowness
    assert slowness is not None, "the cluster was not started for this"
    led = led_by(await cluster.view(), victim)
    since = now_us()
    slow_down(slowness)
    try:
        await asyncio.sleep(SLOW_S)
        until = now_us()
    finally:
        slowness.heal()
    await _returns(cluster, victim)
    return Struck(since, led, until)


async def _returns(cluster: PlayedCluster, victim: int) -> None:
    """Start the broker again if it has been ended, and wait until it is in every ISR."""
    if not cluster.brokers[victim].running:
        await cluster.start(cluster.brokers[victim])
    await cluster.until(whole, "every replica is in sync")


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
    "slow disk": slow_disk,
    "slow network": slow_network,
}
SLOW = frozenset({"slow disk", "slow network"})
"""Events for which a cluster must be started ``slowable``; reports also show when partitions flow again."""
