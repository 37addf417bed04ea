"""Faults and restarts of controllers; traps at their writes."""

from __future__ import annotations

import msgspec

from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import Release
from aiocontroller.lab.scenarios.arguments import known_number
from aiocontroller.lab.simulation.observed_zookeeper import Trap
from aiocontroller.lab.simulation.steps.base import StepTaker
from aiocontroller.lab.zookeeper.zookeeper_model import Connection, Session
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znodes import encode_partition_states


class ControllerSteps(StepTaker):
    """Steps for controllers, and for their writes."""

    def step_kill_controller(self) -> None:
        controller = self._one(self.simulation.controllers)
        if controller is not None:
            self.simulation.kill(self.simulation.controllers.pop(controller)[1])

    def step_expire_controller(self) -> None:
        controller = self._one(self.simulation.controllers)
        if controller is not None:
            self._end_session(self.simulation.controllers[controller][0].client.session_id)

    def step_cut_controller(self) -> None:
        self._cut(self.simulation.controllers)

    def step_pause_controller(self) -> None:
        """Suspend a controller, often for longer than its session lasts."""
        self._pause(self.simulation.controllers, (0.5, 2.0, 6.0, 10.0))

    def step_hush_controller(self) -> None:
        """Lose the packets between controllers; brokers and ZooKeeper still receive theirs."""
        hosts = [process.host.name for _, process in self.simulation.controllers.values()]
        for one in hosts:
            for other in hosts:
                if one != other:
                    self.simulation.network.block(one, other)

    async def step_delete_controller_znode(self) -> None:
        """Delete ``/controller``, as operators do to force an election."""
        await self._administer(self.simulation.zk.client.delete(paths.CONTROLLER))

    async def step_rewrite_controller_epoch(self) -> None:
        """Raise the epoch by hand, as Kafka's notes on a rollback from KRaft describe; this voids all fences."""
        node = self.simulation.model.tree.nodes.get(paths.CONTROLLER_EPOCH)
        if node is not None:
            value = self._given.take("number", int(node.data or b"0") + 1)
            higher = b"%d" % value
            await self._administer(self.simulation.zk.client.set(paths.CONTROLLER_EPOCH, higher, node.version))

    async def step_kraft_rollback(self) -> None:
        """Leave the cluster as after a KRaft controller that led it with this epoch and wrote the epoch into every
        state."""
        epoch, simulation = self._given.need("epoch"), self.simulation
        for (topic, number), state in sorted(simulation.history.states.items()):
            node = simulation.model.tree.nodes[paths.topic_partition_state(topic, number)]
            left = msgspec.structs.replace(state, controller_epoch=epoch)
            node.data = encode_partition_states([left])[0]
            simulation.history.states[topic, number] = left
        for broker, _ in simulation.brokers.values():
            broker.replicas.controller_epoch = epoch

    def step_release_controller(self) -> None:
        """Give the role back for good, as ``aiocontroller release`` does: the process does not contend again."""
        holder, history = self.simulation.holder(), self.simulation.history
        if holder in self.simulation.controllers:
            history.probe("the role is to be released")
            reply = Reply(lambda released: history.probe(f"release answered: {type(released).__name__}"))
            self.simulation.controllers[holder][0].queue.append(Release(reply=reply))

    def step_take_over(self) -> None:
        """Have a controller take the role, as ``aiocontroller takeover`` does."""
        controller = self._one(self.simulation.controllers)
        if controller is not None:
            self.simulation.take_over(controller)

    def step_jump_clock(self) -> None:
        """Set a controller's wall clock forwards or back; no decision may depend on it."""
        controller = self._one(self.simulation.controllers)
        if controller is not None:
            self.simulation.history.probe("wall clock set")
            host = self.simulation.controllers[controller][1].host
            host.wall_jump_s += self.chance.choice((-86_400.0, -5.0, 5.0, 3_600.0))

    def step_crash_at_await(self) -> None:
        """Kill the controller whose handler reaches the n-th await point from now."""
        drawn = self.chance.choice((1, 2, 3, 5, 8, 13, 21, 34, 55))
        self.simulation.crash_in = self._given.take("number", drawn)

    def step_trap_controller(self) -> None:
        """Strike at one of the next writes of any controller."""
        strikes = {
            "lose": self._lose,
            "kill": self._kill_writer,
            "expire": self._expire,
            "freeze": self._freeze,
            "depose": self._depose,
        }
        if (fault := self._given.take("fault")) is not None:
            write, before = self._given.need("write"), self._given.take("when") == "before"
            self.simulation.model.traps.append(Trap(write, before, strikes[fault]))
            return
        what = self.chance.choice(("lose", "lose", "kill", "expire", "freeze", "depose", "depose"))
        # a small countdown strikes the failover that follows an election
        countdown = self.chance.choice((1, 1, 1, 2, 2, 3, 4, 6, 8, 12))
        self.simulation.model.traps.append(Trap(countdown, self.chance.random() < 0.4, strikes[what]))
        if self.chance.random() < 0.5:
            self.step_expire_controller()

    def arm_crash(self, number: int, *, before: bool) -> None:
        """Kill the controller that makes the ``number``-th write from now, and start another one."""

        def strike(connection: Connection, session: Session) -> None:
            self._kill_writer(connection, session)
            self.simulation.clock.call_later(0.1, self.step_start_controller)

        if number:
            self.simulation.model.traps.append(Trap(number, before, strike))

    def _lose(self, connection: Connection, session: Session) -> None:
        connection.end()

    def _expire(self, connection: Connection, session: Session) -> None:
        self._end_session(session.id)
        connection.end()

    def _depose(self, connection: Connection, session: Session) -> None:
        """Let another controller take the role; the writer learns of it late and meanwhile continues its work."""
        simulation = self.simulation
        simulation.model.remove(paths.CONTROLLER, simulation.zookeeper.now_ms())
        for service, process in simulation.controllers.values():
            if service.client.session_id == session.id:
                simulation.network.lag("zookeeper", process.host.name, self.chance.choice((0.03, 0.1, 0.3)))

    def _kill_writer(self, connection: Connection, session: Session) -> None:
        connection.end()
        for number, (service, process) in list(self.simulation.controllers.items()):
            if service.client.session_id == session.id:
                del self.simulation.controllers[number]
                self.simulation.kill(process)

    def _freeze(self, connection: Connection, session: Session) -> None:
        """Freeze the controller with a write in flight, for longer than its session lasts."""
        for service, process in self.simulation.controllers.values():
            if service.client.session_id == session.id:
                self._pause_process(process, 6.0)

    def step_start_controller(self) -> None:
        simulation = self.simulation
        numbers = range(1, simulation.plan.controllers + 1)
        missing: dict[int, None] = {c: None for c in numbers if c not in simulation.controllers}
        named = self._given.take("controller")
        controller = self._one(missing) if named is None else known_number(named, numbers)
        if controller in missing and controller is not None:
            simulation.start_controller(controller)
