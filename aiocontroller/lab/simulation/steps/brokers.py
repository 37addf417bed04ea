"""Faults and restarts of brokers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aiocontroller.lab.scenarios.arguments import known_number
from aiocontroller.lab.simulation.steps.base import StepTaker

if TYPE_CHECKING:
    from aiocontroller.lab.simulation.process import Process


class BrokerSteps(StepTaker):
    """Steps for one broker or for all brokers."""

    def step_kill_broker(self) -> None:
        for broker in self._each(self.simulation.brokers):
            self.simulation.kill(self.simulation.brokers.pop(broker)[1])

    async def step_bounce_broker(self) -> None:
        """Restart a broker before the controller notices or, half of the time if the broker is drawn, a moment later.

        The step ends the broker's session.
        """
        is_drawn = "brokers" not in self._given
        for broker in self._each(self.simulation.brokers):
            unseen = not is_drawn or self.chance.random() < 0.5
            await self.simulation.bounces.bounce(broker, functools.partial(self._end_at_once, broker), unseen=unseen)

    def _end_at_once(self, broker: int) -> None:
        """Kill a broker and end its session."""
        process, actor = self.simulation.brokers.pop(broker)
        self.simulation.kill(actor)
        self._end_session(process.session_id)

    def step_stop_broker(self) -> None:
        for broker in self._each(self.simulation.brokers):
            self.simulation.brokers.pop(broker)[0].stop()

    async def step_fail_log_dir(self) -> None:
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            process = self.simulation.brokers[broker][0]
            hosted = sorted((p.topic, p.partition) for p in process.replicas.partitions())
            drawn = [replica for replica in hosted if self.chance.random() < 0.5]
            lost = self._given.take("partitions") or drawn
            await self._administer(process.fail_log_dir(lost))

    def step_expire_broker(self) -> None:
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            self._end_session(self.simulation.brokers[broker][0].session_id)

    def step_cut_broker(self) -> None:
        self._cut(self.simulation.brokers)

    def step_pause_broker(self) -> None:
        self._pause(self.simulation.brokers, (1.0, 3.0, 8.0))

    def step_trap_broker(self) -> None:
        """Kill a broker after it has accepted a control request and before it answers."""
        simulation = self.simulation
        apis = ("LeaderAndIsr", "StopReplica", "StopReplica", "UpdateMetadata")
        only = self._given.take("broker")
        if only is not None:
            known_number(only, range(1, simulation.plan.brokers + 1))
        api = self._given.take("request") or self.chance.choice(apis)
        countdown = 1 if only is not None else self.chance.randint(1, 3)

        def heard(broker: int, heard_api: str) -> None:
            nonlocal countdown
            if heard_api == api and only in (None, broker) and broker in simulation.brokers:
                countdown -= 1
                if countdown == 0:
                    simulation.kill(simulation.brokers.pop(broker)[1])

        simulation.heard = heard

    def step_slow_disk(self) -> None:
        """Make a broker slow at requests that touch its disk, and at writing records, until it is healed."""
        broker = self._one(self.simulation.brokers)
        delay_s = self._seconds(0.1, 0.5, 1.5)
        if broker is not None:
            self.simulation.history.probe("slow disk")
            self.simulation.brokers[broker][0].disk_delay_s = delay_s

    async def step_sick_disk(self) -> None:
        """Make a broker's disk so slow, for so long, that it holds others back, and wait for a part of that time."""
        broker = self._one(self.simulation.brokers)
        delay_s = self._seconds(1.5, 2.5)
        if broker is None:
            return
        made = self.simulation.brokers[broker][0]
        self.simulation.history.probe("sick disk")
        made.disk_delay_s = delay_s

        def heal() -> None:
            made.disk_delay_s = 0.0

        self.simulation.clock.call_later(self.chance.choice((6.0, 15.0)), heal)
        await self.simulation.clock.sleep(self.chance.choice((1.0, 5.0, 20.0)))

    def step_deafen_broker(self) -> None:
        """Close a live broker's listener for a time and end its connections, so that it seems to be dead."""
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            made, process = self.simulation.brokers[broker]
            self._deafen(made.port, process, self._seconds(0.05, 0.3, 1.0, 4.0))

    def _deafen(self, port: int, process: Process, duration_s: float) -> None:
        network = self.simulation.network
        listener = network.listeners.pop(port, None)
        network.cut(port)

        def listen_again() -> None:
            if listener is not None and not process.task.done() and not process.host.crashed:
                network.listeners[port] = listener

        self.simulation.repairs.append(listen_again)
        self.simulation.clock.call_later(duration_s, listen_again)

    async def step_flap_broker(self) -> None:
        broker = self._one(self.simulation.brokers)
        if broker is None:
            return
        made, process = self.simulation.brokers[broker]
        for _ in range(self.chance.choice((3, 6))):
            self._deafen(made.port, process, 0.3)
            await self.simulation.clock.sleep(self.chance.choice((0.5, 1.5)))

    def step_hush_broker(self) -> None:
        """Partition the network one way: the broker's packets do not reach the controllers, but theirs reach it."""
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            name = self.simulation.brokers[broker][1].host.name
            for _, process in self.simulation.controllers.values():
                self.simulation.network.block(name, process.host.name)

    def step_freeze_leader(self) -> None:
        """Suspend a broker for longer than early detection tolerates silence, but for less than a session.

        It wakes up believing that it still leads its partitions.
        """
        self._pause(self.simulation.brokers, (0.9, 1.5, 2.2))

    def step_freeze_all_brokers(self) -> None:
        duration_s = self._seconds(0.9, 1.5, 2.2)
        for broker in sorted(self.simulation.brokers):
            self._pause_process(self.simulation.brokers[broker][1], duration_s)

    def step_start_broker(self) -> None:
        simulation = self.simulation
        missing: dict[int, None] = {
            b: None for b in range(1, simulation.plan.brokers + 1) if b not in simulation.brokers
        }
        for broker in self._each(missing):
            simulation.start_broker(broker)
