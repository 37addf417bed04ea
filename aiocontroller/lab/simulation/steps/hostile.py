"""Hostile clients at a controller's listener, and damaged znodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from aiocontroller.lab.cluster.simulated_broker import LOOPBACK
from aiocontroller.lab.hostile.inputs import Maker, Message
from aiocontroller.lab.simulation.steps.foreign import ForeignSteps
from aiocontroller.lab.zookeeper.zookeeper_tree import Transaction
from aiocontroller.wire.apis import ApiKey
from aiocontroller.zookeeper import paths

OBEYED = frozenset({ApiKey.ELECT_LEADERS, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.FIND_COORDINATOR})
"""Requests that a controller must obey even from a hostile client: they elect uncleanly, take all leaders from a live
broker, and create topics of fifty partitions."""
DAMAGE = (b"", b"\xff\x00", b"{", b"[]", b"null", b"{}", b'{"version":9}', b'{"version":1,"config":[]}', b"9" * 400)

PLACES = ("topic", "state", "settings")


class HostileSteps(ForeignSteps):
    """Steps that no well-behaved client would take."""

    def step_send_garbage(self) -> None:
        """Send damaged requests to a listener, one after the other, and ignore the answers."""
        active = [service for service, _ in self.simulation.controllers.values() if service.controller.election.active]
        if active:
            maker, service = Maker(self.chance), self.chance.choice(active)
            inputs = [message for _ in range(self.chance.randint(1, 6)) for message in self._input(maker)]
            self._begin(self._play(service.endpoints[0].port, inputs))

    def _input(self, maker: Maker) -> list[Message]:
        made = maker.mutated(maker.fresh(), maker.fresh())
        return [message for message in made if message.api not in OBEYED]

    async def _play(self, port: int, messages: Iterable[Message]) -> None:
        network = self.simulation.clients
        for number, message in enumerate(messages):
            try:
                transport, _ = await network.connect(asyncio.Protocol, LOOPBACK, port, timeout_s=5.0)
            except OSError:
                continue
            transport.write(message.frame(number))
            self.simulation.history.probe("a damaged request")
            await self.simulation.clock.sleep(0.2)
            transport.close()

    async def step_damage_znode(self) -> None:
        """Write garbage into a topic's znode, a state or the settings, and repair it later, in peace at the latest.

        Arguments name the topic, and one of ``topic``, ``state`` and ``settings``.
        """
        found = self._a_partition()
        if found is None:
            return
        topic, number = found[0]
        places = {
            "topic": paths.topic(topic),
            "state": paths.topic_partition_state(topic, number),
            "settings": paths.config_entity("topics", topic),
        }
        path, damage = places[self._place()], self.chance.choice(DAMAGE)
        simulation, nodes = self.simulation, self.simulation.model.tree.nodes
        if path not in nodes:
            return
        before = nodes[path].data or b""
        simulation.history.probe("a damaged znode")

        def mend() -> None:
            if path in nodes and nodes[path].data == damage:
                self._forget_moves_of(topic)
                simulation.foreign_writes += 1
                written = lambda transaction: transaction.set_data(path, before, -1)  # noqa: E731
                simulation.model.write_by_hand(written, simulation.zookeeper.now_ms())

        def write(transaction: Transaction) -> None:
            transaction.set_data(path, damage, -1)

        await self._write(topic, write)
        simulation.repairs.append(mend)
        simulation.clock.call_later(self.chance.choice((0.5, 3.0, 10.0)), mend)

    def _place(self) -> str:
        drawn = self.chance.choice(PLACES)
        place: str = self._given.take("place", drawn)
        return place
