"""Steps about records: clients that produce, and brokers that lose what was not flushed."""

from __future__ import annotations

from aiocontroller.lab.cluster.replication import ALL
from aiocontroller.lab.scenarios.arguments import StepArgumentError
from aiocontroller.lab.simulation.process import Process
from aiocontroller.lab.simulation.steps.base import StepTaker


class DataSteps(StepTaker):
    """Steps that need brokers with logs."""

    def step_power_cut(self) -> None:
        """Kill a broker together with its operating system: what it has not flushed is lost.

        This includes a broker that is still stopping.
        """
        for broker in self._each({b: None for b in range(1, self.simulation.plan.brokers + 1) if self._processes(b)}):
            self._cut_power(broker)

    def step_reboot_broker(self) -> None:
        """Cut a broker's power and start it again at once; the step ends its session.

        The broker takes longer to register than the controller takes to see that it is gone, unless the step pauses the
        controller (``unseen``).
        """
        unseen_s = self._given.take("unseen")
        holder = self.simulation.holding()
        if unseen_s is not None and holder is not None:
            self._pause_process(holder[1], unseen_s)
        for broker in self._each(self.simulation.brokers):
            session_id = self.simulation.brokers[broker][0].session_id
            self._cut_power(broker)
            self._end_session(session_id)
            self.simulation.start_broker(broker)

    def _processes(self, broker: int) -> list[Process]:
        """Return the broker's processes, including one that is still stopping and those that wait for its disk."""
        return [
            process for process in self.simulation.processes if process.alive and process.name == f"broker {broker}"
        ]

    def _cut_power(self, broker: int) -> None:
        self.simulation.brokers.pop(broker, None)
        for process in self._processes(broker):
            self.simulation.kill(process)
        if self.simulation.data is not None:
            self.simulation.data.power_cut(broker)

    async def step_produce(self) -> None:
        """Produce this many batches of one record, each after the answer to the previous one."""
        partition, batches, acks = map(self._given.need, ("partition", "batches", "acks"))
        data = self.simulation.data
        if data is None:
            raise StepArgumentError("found a cluster without data, expected one with data")
        client = data.client(self.simulation.world("producer"))
        for _ in range(batches):
            await client.produce(partition, ALL if acks == "all" else int(acks), 1)
        client.close()
