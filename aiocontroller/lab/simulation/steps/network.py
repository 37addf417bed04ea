"""Faults of links and of ZooKeeper, and their healing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiocontroller.lab.scenarios.arguments import known_number
from aiocontroller.lab.simulation.steps.base import StepTaker


class NetworkSteps(StepTaker):
    """Steps for the network and for ZooKeeper."""

    def _hosts(self) -> list[str]:
        simulation = self.simulation
        processes = [process for _, process in [*simulation.controllers.values(), *simulation.brokers.values()]]
        return ["zookeeper", *(process.host.name for process in processes)]

    def step_block(self) -> None:
        """Block one or both directions between two random hosts.

        If the step names hosts, block both directions; if it names only one, block it from the active controller.
        """
        hosts = self._hosts()
        if two := self._named_hosts():
            self.simulation.network.block(*two)
            self.simulation.network.block(*reversed(two))
        elif len(hosts) > 1:
            self._block(*self.chance.sample(hosts, 2))

    def _named_hosts(self) -> tuple[str, str] | None:
        """Return the two hosts that the step names; if it names only one, the active controller is the other."""
        named = self._given.take("host")
        if named is None:
            return None
        other_named = self._given.take("other")
        one, other = self._host(named), self._host("active" if other_named is None else other_named)
        return (one, other) if one is not None and other is not None else None

    def _host(self, word: str | int) -> str | None:
        simulation = self.simulation
        if word == "zookeeper":
            return "zookeeper"
        if not isinstance(word, int):
            controller = self._controller(word)
            return None if controller is None else simulation.controllers[controller][1].host.name
        found = simulation.brokers.get(known_number(word, range(1, simulation.plan.brokers + 1)))
        return None if found is None else found[1].host.name

    def step_block_brokers(self) -> None:
        hosts = [process.host.name for _, process in self.simulation.brokers.values()]
        if len(hosts) > 1:
            self._block(*self.chance.sample(sorted(hosts), 2))

    def _block(self, one: str, other: str) -> None:
        self.simulation.network.block(one, other)
        if self.chance.random() < 0.5:
            self.simulation.network.block(other, one)

    def step_lag(self) -> None:
        """Delay data on existing connections, while new connections are fast.

        From a controller to a broker, the delay is always too short for a retry of the request: nothing in Kafka's
        protocol shows a broker that an UpdateMetadata is older than the last one of the same epoch.
        """
        hosts = self._hosts()
        two = self._named_hosts()
        if two or len(hosts) > 1:
            one, other = two or self.chance.sample(hosts, 2)
            bounded = one.startswith("controller") and other.startswith("broker")
            self.simulation.network.lag(one, other, self._seconds(*((0.2, 0.8) if bounded else (0.2, 1.0, 4.0))))

    async def step_restart_zookeeper(self) -> None:
        async with self._zookeeper_away(self._seconds(0.1, 1.0, 5.0)):
            pass

    async def step_elect_zookeeper_leader(self) -> None:
        """Make another ZooKeeper server the leader; meanwhile, none of them serves."""
        async with self._zookeeper_away(self._seconds(0.2, 1.0, 4.0)):
            self.simulation.model.new_leader(self.simulation.zookeeper.now_ms())

    @asynccontextmanager
    async def _zookeeper_away(self, duration_s: float) -> AsyncIterator[None]:
        servers = [self.simulation.zookeeper, *self.simulation.followers]
        for server in servers:
            server.stop()
        await self.simulation.clock.sleep(duration_s)
        yield
        for server in servers:
            await server.start()

    def step_pause_zookeeper(self) -> None:
        """Suspend ZooKeeper: connections succeed and requests get no answer, as in a disk stall; no session expires
        meanwhile."""
        host = self.simulation.zookeeper_host
        if not host.paused:
            host.pause()
            self.simulation.clock.call_later(self._seconds(0.5, 2.0, 6.0), host.resume)

    def step_lag_followers(self) -> None:
        """Make reads from ZooKeeper followers return outdated data until the step is healed."""
        self.simulation.followers_lag_s = self._seconds(0.2, 1.0, 3.0)

    def step_heal(self) -> None:
        self.simulation.network.heal()

    async def step_wait(self) -> None:
        await self.simulation.clock.sleep(self._seconds(1.0, 3.0, 8.0))
