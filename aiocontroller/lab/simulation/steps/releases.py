"""Restarts of brokers with another release of Kafka or another inter-broker protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiocontroller.core.errors import BadInputError
from aiocontroller.lab.cluster.generations import GENERATIONS, Protocol
from aiocontroller.lab.scenarios.arguments import StepArgumentError, known_number
from aiocontroller.lab.scenarios.fleet import Version, check
from aiocontroller.lab.simulation.steps.base import StepTaker

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.process import Process

ENDS_WITHIN_S = 10.0
LOOK_S = 0.1


class Restarts(StepTaker):
    """Restarts of brokers whose release, protocol or file has changed."""

    async def _restart(self, broker: int) -> None:
        """Stop the broker, or sometimes kill it, and start it again; one that is down stays down."""
        simulation = self.simulation
        if broker in simulation.brokers:
            running, process = simulation.brokers.pop(broker)
            if self.chance.random() < 0.8:
                running.stop()
            else:
                simulation.kill(process)
            await self._ended(process)
            if broker not in simulation.brokers:
                simulation.start_broker(broker)

    async def _ended(self, process: Process) -> None:
        """Stop the broker as an operator's script does: wait, then kill it."""
        clock = self.simulation.clock
        give_up = clock.monotonic() + ENDS_WITHIN_S
        while not process.task.done() and clock.monotonic() < give_up:
            await clock.sleep(LOOK_S)
        if not process.task.done():
            self.simulation.kill(process)


class ReleaseSteps(Restarts):
    """Rolling upgrades, one broker at a time."""

    async def step_upgrade_broker(self) -> None:
        """Stop a broker, or sometimes kill it, and restart it with the release and protocol that the arguments name."""
        simulation = self.simulation
        broker = self._given.take("broker")
        if broker is None:
            broker = self.chance.choice(sorted(simulation.fleet.brokers))
        known_number(broker, simulation.fleet.brokers)
        present = simulation.fleet.brokers[broker]
        release = self._given.take("release") or self.chance.choice(list(GENERATIONS))
        protocol = self._given.take("protocol")
        wanted = Version(release, present.protocol if protocol is None else protocol)
        if not self._fits(wanted):
            return
        simulation.fleet.brokers[broker] = wanted
        for what in ("release", "protocol"):
            if getattr(wanted, what) != getattr(present, what):
                simulation.history.probe(f"a broker's {what} is rolled")
        await self._restart(broker)

    def _fits(self, wanted: Version) -> bool:
        """Return whether the fleet allows this version.

        When a shrunk plan leaves out a step, a later one may lack its precondition (an old binary, a new protocol).
        """
        try:
            check(wanted)
        except BadInputError as error:
            if wanted.release not in GENERATIONS:
                raise StepArgumentError(str(error)) from None
            return False
        spoken = [
            Protocol.of(version.protocol) for version in self.simulation.fleet.brokers.values() if version.protocol
        ]
        return all(protocol[:2] <= Protocol.of(wanted.release)[:2] for protocol in spoken)
