"""Plays a full story of a cluster on virtual time and the modelled ZooKeeper; prints all decisions and requests.

Run as a module, so that it can be run under any hash seed: ``python -m tests.integration.controller.rehearsal [SEED]``.
"""

from __future__ import annotations

import asyncio
import sys

from aiocontroller.lab import virtual_loop
from aiocontroller.lab.simulated_net import SimulatedNetwork, simulated_world
from aiocontroller.lab.zookeeper.session_expiry import expire_session
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from tests.integration.controller.harness import Cluster, idle, journal_of, running

BROKERS = (1, 2, 3, 4, 5)
TOPICS = ("orders", "payments", "zebra", "a", "__consumer_offsets")


async def story(cluster: Cluster) -> None:
    """Play creation, deaths, a bounce, expansion, deletion, a session that ends, a standby that takes over."""
    for broker in BROKERS:
        await cluster.add_broker(broker)
    first = await cluster.add_controller(aiocontroller_id=101)
    await cluster.active()
    for i, topic in enumerate(TOPICS):
        await cluster.create_topic(topic, {p: [(p + i + k) % 5 + 1 for k in range(3)] for p in range(7)})
    await asyncio.sleep(5)
    second = await cluster.add_controller(aiocontroller_id=102)
    await cluster.kill_broker(2)
    await asyncio.sleep(10)
    await cluster.bounce_broker(4)
    await cluster.add_broker(2)
    await asyncio.sleep(10)
    await cluster.client.create("/admin/delete_topics/zebra")
    await cluster.create_topic("late", {p: [5, 3, 1] for p in range(3)})
    await asyncio.sleep(10)
    await expire_session(first.client)
    await asyncio.sleep(400)
    await cluster.kill_broker(5)
    await asyncio.sleep(10)
    await idle(second)


async def play(seed: int) -> bytes:
    """Print the journals of all controllers, and all requests that brokers got."""
    world = simulated_world(SimulatedNetwork(), seed)
    server = await ZooKeeperServer(world).start()
    content = []
    async with running(world, server.address) as cluster:
        await story(cluster)
        for service in cluster.services:
            content.append(journal_of(service).content())
        for broker in cluster.brokers.values():
            content += [f"{broker.id} {r.api.name} {r.version} {r.request!r}\n".encode() for r in broker.received]
    server.stop()
    return b"".join(content)


def main(seed: int = 1) -> bytes:
    return virtual_loop.run(play(seed))


if __name__ == "__main__":
    sys.stdout.buffer.write(main(*(int(argument) for argument in sys.argv[1:])))
