"""All steps, including combinations of faults in orders that random steps would hardly produce."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiocontroller.lab.simulation.steps.admin import AdminSteps
from aiocontroller.lab.simulation.steps.brokers import BrokerSteps
from aiocontroller.lab.simulation.steps.config_requests import ConfigRequestSteps
from aiocontroller.lab.simulation.steps.controllers import ControllerSteps
from aiocontroller.lab.simulation.steps.data import DataSteps
from aiocontroller.lab.simulation.steps.hostile import HostileSteps
from aiocontroller.lab.simulation.steps.network import NetworkSteps
from aiocontroller.lab.simulation.steps.refusals import RefusalSteps
from aiocontroller.lab.simulation.steps.releases import ReleaseSteps
from aiocontroller.lab.simulation.steps.settings import SettingSteps
from aiocontroller.zookeeper import paths

FALLEN_BEHIND_S = 3.5
"""A leader has asked for an ISR without a follower if it has not heard from that follower for this long."""


class Steps(
    AdminSteps,
    BrokerSteps,
    ConfigRequestSteps,
    ControllerSteps,
    DataSteps,
    HostileSteps,
    NetworkSteps,
    RefusalSteps,
    ReleaseSteps,
    SettingSteps,
):
    """All steps that a plan may contain."""

    async def step_stop_controller(self) -> None:
        """Stop a controller, sometimes while it is busy and with the end of its session at the same moment."""
        simulation = self.simulation
        controller = self._one(simulation.controllers)
        if controller is None:
            return
        hurried = self.chance.random() < 0.4
        if hurried:
            self.step_reassign()
            await simulation.clock.sleep(0.003)
        if controller not in simulation.controllers:
            return  # a trap has killed it
        service = simulation.controllers.pop(controller)[0]
        service.stop()
        if hurried:
            self._end_session(service.client.session_id)

    def step_ask_much(self) -> None:
        """Send many requests at once, and sometimes end the controller's session after them."""
        for _ in range(self.chance.randint(3, 12)):
            self.chance.choice((self.step_list_reassignments, self.step_allocate_producer_ids, self.step_reassign))()
        if self.chance.random() < 0.5:
            self.step_expire_controller()

    def step_kill_controller_and_broker(self) -> None:
        self.step_kill_controller()
        self.step_kill_broker()

    async def step_win_again(self) -> None:
        """Let the active controller lose the role and win it again while answers to its earlier term are in flight.

        Brokers answer slowly, ZooKeeper's packets reach the controller late, and no other controller can contend.
        """
        simulation, network = self.simulation, self.simulation.network
        number, holder = simulation.holder(), simulation.holding()
        if number is None or holder is None:
            return
        host = holder[1].host.name
        brokers = [broker for broker, _ in simulation.brokers.values()]
        oldest, newest = list(self.topics)[:1], list(self.topics)[1:][-1:]
        await self._delete_topics(oldest)  # so that partitions have other row numbers in the next term
        await simulation.clock.sleep(0.3)
        for broker in brokers:
            broker.disk_delay_s = 0.6
        await (self._delete_topics(newest) if newest else self.step_create_topic())
        await simulation.clock.sleep(0.05)
        network.lag("zookeeper", host, 0.25)
        with self._others_cut_off(number):
            self.step_reassign()
            await simulation.clock.sleep(0.02)
            simulation.model.remove(paths.CONTROLLER, simulation.zookeeper.now_ms())
            await simulation.clock.sleep(1.5)
        network.lag("zookeeper", host, 0.0)
        for broker in brokers:
            broker.disk_delay_s = 0.0

    async def step_expire_in_failover(self) -> None:
        """End the session that won the role while the new controller waits for a broker that does not answer.

        The controller gets another session immediately, and no other controller wins.
        """
        simulation, network = self.simulation, self.simulation.network
        number, holder = simulation.holder(), simulation.holding()
        dead, silent = self._one(simulation.brokers), self._one(simulation.brokers)
        if number is None or holder is None or dead is None or silent is None or dead == silent:
            return
        service, process = holder
        link = simulation.brokers[silent][1].host.name, process.host.name
        with self._others_cut_off(number):
            gone, actor = simulation.brokers.pop(dead)
            simulation.model.remove(paths.CONTROLLER, simulation.zookeeper.now_ms())
            simulation.kill(actor)
            self._end_session(gone.session_id)
            network.block(*link)
            await simulation.clock.sleep(self.chance.choice((0.05, 0.2)))
            self._end_session(service.client.session_id)
            await simulation.clock.sleep(1.5)
        network.unblock(*link)

    @contextmanager
    def _others_cut_off(self, number: int) -> Iterator[None]:
        """Keep the other controllers from ZooKeeper inside the block."""
        network = self.simulation.network
        others = [process.host.name for n, (_, process) in self.simulation.controllers.items() if n != number]
        for name in others:
            network.block(name, "zookeeper")
        try:
            yield
        finally:
            for name in others:
                network.unblock(name, "zookeeper")

    async def step_repeat_late(self) -> None:
        """Deliver a leader's AlterPartition after its successors.

        The leader's first request is delayed.  The leader asks again on a new connection, and soon asks for the
        opposite, since a follower leaves and comes back; only then does the first request arrive.
        """
        simulation, network = self.simulation, self.simulation.network
        number = simulation.holder()
        pairs = sorted(
            (state.leader, follower)
            for state in simulation.history.states.values()
            for follower in state.isr
            if follower != state.leader and {follower, state.leader} <= simulation.brokers.keys()
        )
        if number not in simulation.controllers or not pairs:
            return
        leader, follower = (simulation.brokers[broker][1].host.name for broker in self.chance.choice(pairs))
        controller = simulation.controllers[number][1].host.name
        comes_late = self.chance.random() < 0.5
        network.block(follower, leader)  # the follower falls out of the ISR and keeps its session
        if comes_late:
            await simulation.clock.sleep(FALLEN_BEHIND_S)
            network.unblock(follower, leader)
        network.lag(leader, controller, self.chance.choice((5.0, 8.0)))
        await simulation.clock.sleep(0.5 if comes_late else FALLEN_BEHIND_S)
        network.hang_up(leader, controller)
        await simulation.clock.sleep(0.5)
        if comes_late:
            network.block(follower, leader)
            simulation.clock.call_later(FALLEN_BEHIND_S, lambda: network.unblock(follower, leader))
        else:
            network.unblock(follower, leader)
