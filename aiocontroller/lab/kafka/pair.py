"""Measures whether and how soon the live replica leads when two replicas die in turns.

The partition is on brokers 1 and 2; a third broker only keeps the cluster together.  One replica dies and comes back
into the ISR, and then the other one dies, again and again.  Below inter.broker.protocol.version 2.7, leaders write ISRs
to ZooKeeper themselves, so the controller learns late which replicas are in sync.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from aiocontroller.core.ids import NO_LEADER, Broker, LeaderAndIsr
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker
from aiocontroller.lab.kafka.controllers import OurController, ZooKeeperController, until
from aiocontroller.lab.kafka.played_cluster import PlayedCluster
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

TOPIC = "pair"
BYSTANDER = 3
"""The broker that never dies; it is the controller if a broker is."""
DELAYS_S = (0.0, 0.05, 0.3, 1.0, 3.0)
"""Times between the return of the full ISR and the next death."""
ELECTED_WITHIN_S = 45.0
BACK_WITHIN_S = 120.0
POLL_S = 0.005


class Round(NamedTuple):
    delay_s: float
    after_kill_s: float
    """From SIGKILL until ZooKeeper has a leader; most of it is the session timeout."""
    after_session_s: float
    """From the end of the dead broker's registration, as observed in ZooKeeper."""
    leaderless: bool
    """Whether the state in ZooKeeper had no leader for a time although an in-sync replica was alive."""


async def stand_on(cluster: PlayedCluster, controller: str) -> ZooKeeperController:
    """Put ``controller`` in charge; if it is Kafka's own, make the broker that never dies the controller."""
    ours = cluster.controllers["aiocontroller"]
    cluster.controller = held = cluster.controllers[controller]
    assert isinstance(ours, OurController) and isinstance(held, ZooKeeperController)
    if held is ours:
        if not ours.running:
            await ours.take()
        return held
    if ours.running:
        await ours.give()

    async def by_bystander() -> bool:
        if await held.holder() == BYSTANDER:
            return True
        await held.take()
        return False

    await until(by_bystander, f"broker {BYSTANDER} is the controller")
    return held


class Pair:
    """The partition between two rounds: ``leader`` is alone in the ISR, ``follower`` is dead."""

    def __init__(self, cluster: PlayedCluster) -> None:
        self._cluster = cluster
        self._leader, self._follower = 1, 2

    async def begin(self, zk: KafkaZkClient) -> None:
        await AdminZkClient(zk).create_topic(TOPIC, {0: (1, 2)})
        await until_led(zk, 1, 1, 2, within_s=BACK_WITHIN_S)
        self._cluster.brokers[2].kill()
        await until_led(zk, 1, 1, within_s=ELECTED_WITHIN_S)

    async def round(self, zk: KafkaZkClient, delay_s: float) -> Round:
        """Play one round.  Raises AssertionError if the live replica does not lead."""
        leader, follower = self._leader, self._follower
        await start(self._cluster.brokers[follower])
        await until_led(zk, leader, leader, follower, within_s=BACK_WITHIN_S)
        await asyncio.sleep(delay_s)
        self._cluster.brokers[leader].kill()
        killed_s = time.monotonic()
        gone_s, led_s, leaderless = await _watched(zk, leader, follower)
        await until_led(zk, follower, follower, within_s=ELECTED_WITHIN_S)
        self._leader, self._follower = follower, leader
        return Round(delay_s, led_s - killed_s, led_s - gone_s, leaderless)


async def rounds(
    cluster: PlayedCluster,
    controllers: Sequence[str],
    count: int,
    seed: int = 26,
    *,
    block: int = 5,
    on_round: Callable[[str, int, Round], None] = lambda controller, number, one: None,
) -> dict[str, list[Round]]:
    """Play ``count`` rounds under each of the controllers, in turns of ``block`` rounds, with the same delays.

    Raises AssertionError if the live replica does not lead.
    """
    found: dict[str, list[Round]] = {controller: [] for controller in controllers}
    chance = {controller: random.Random(seed) for controller in controllers}
    pair = Pair(cluster)
    begun = False
    while any(len(of) < count for of in found.values()):
        for name in controllers:
            controller = await stand_on(cluster, name)
            if not begun:
                await pair.begin(controller.zk)
                begun = True
            for _ in range(min(block, count - len(found[name]))):
                found[name].append(await pair.round(controller.zk, chance[name].choice(DELAYS_S)))
                on_round(name, len(found[name]), found[name][-1])
    return found


async def start(broker: RealKafkaBroker) -> None:
    child = broker.launch()

    async def up() -> bool:
        nonlocal child
        if not child.running:
            child = broker.launch()  # an old release exits if its predecessor's registration still exists
        return await asyncio.to_thread(broker.answers)

    await until(up, f"broker {broker.id} is up")


async def _watched(zk: KafkaZkClient, dead: int, live: int) -> tuple[float, float, bool]:
    """Watch a death in ZooKeeper.

    Returns the time when the registration of ``dead`` was gone, the time when ``live`` led, and whether there was a
    state without a leader.
    """
    deadline_s = time.monotonic() + ELECTED_WITHIN_S
    gone_s = 0.0
    leaderless = False
    while True:
        registered, (state,) = await asyncio.gather(
            zk.get_broker(dead, watch=False), zk.get_topic_partition_states([TOPIC], [0])
        )
        now_s = time.monotonic()
        if not gone_s and not isinstance(registered, Broker):
            gone_s = now_s
        if isinstance(state, LeaderAndIsr):
            if state.leader == live:
                return gone_s or now_s, now_s, leaderless
            leaderless = leaderless or state.leader == NO_LEADER
        assert now_s < deadline_s, f"{TOPIC}-0 is not led by the live broker {live}: {state}"
        await asyncio.sleep(POLL_S)


async def until_led(zk: KafkaZkClient, leader: int, *isr: int, within_s: float) -> None:
    """Wait until the partition has this leader and this ISR, in any order."""
    found: list[object] = []

    async def reached() -> bool:
        found[:] = await zk.get_topic_partition_states([TOPIC], [0])
        (state,) = found
        return isinstance(state, LeaderAndIsr) and state.leader == leader and set(state.isr) == set(isr)

    try:
        await until(reached, f"{TOPIC}-0 led by {leader} with ISR {isr}", within_s)
    except TimeoutError as error:
        raise AssertionError(f"{error}, found {found}") from error
