"""Steps about records: clients that produce, and brokers that lose what was not flushed."""

from __future__ import annotations

from aiocontroller.lab.cluster.replication import ALL
from aiocontroller.lab.scenarios.arguments import StepArgumentError
from aiocontroller.lab.scenarios.facts import named
from aiocontroller.lab.simulation.steps.base import StepTaker


class DataSteps(StepTaker):
    """Steps that need brokers with logs."""

    def step_power_cut(self) -> None:
        """Kill a broker together with its operating system: what it has not flushed is lost."""
        for broker in self._each(self.simulation.brokers):
            self.simulation.kill(self.simulation.brokers.pop(broker)[1])
            if self.simulation.data is not None:
                self.simulation.data.power_cut(broker)

    async def step_produce(self) -> None:
        """Produce so many batches of one record, each after the one before was answered."""
        partition, batches, acks = self._rest()
        data = self.simulation.data
        if data is None or acks not in ("all", "1", "0"):
            raise StepArgumentError(f"found acks {acks}, expected all, 1 or 0, and a cluster with data")
        client = data.client(self.simulation.world("producer"))
        for _ in range(int(batches)):
            await client.produce(named(partition), ALL if acks == "all" else int(acks), 1)
        client.close()
