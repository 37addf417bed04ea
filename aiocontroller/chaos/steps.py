"""What a plan's steps do: the operator's work, faults, repairs.  Each draws from its own seed alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from aiocontroller.chaos.facts import named
from aiocontroller.chaos.observed_zookeeper import Trap
from aiocontroller.chaos.operator_steps import OperatorSteps
from aiocontroller.chaos.words import WordsError, amount
from aiocontroller.chaos.zookeeper_model import Connection, Session
from aiocontroller.core.ids import TopicPartition
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znodes import encode_partition_states

if TYPE_CHECKING:
    from aiocontroller.chaos.simulation import Process

log = logging.getLogger(__name__)

NAMES = tuple(f"topic-{n}" for n in range(6))
"""Few, so that a name is used again after its topic was deleted."""
ADMIN_TIMEOUT_S = 20.0
PATIENCE_S = 3.0
"""How long the plan waits for an operator's command before it goes on to the next step."""

FALLEN_BEHIND_S = 3.5
"""After so long without a word from a follower its leader has asked for an ISR without it."""

Targets = dict[TopicPartition, tuple[int, ...] | None]


class Steps(OperatorSteps):
    """All steps: those of the operator, faults and repairs."""

    # -- faults of brokers -----------------------------------------------------------------------------------------

    def step_kill_broker(self) -> None:
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            self.simulation.kill(self.simulation.brokers.pop(broker)[1])

    def step_bounce_broker(self) -> None:
        """Dead and back at once, within one look of the controller: its session is ended for it."""
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            process, actor = self.simulation.brokers.pop(broker)
            self.simulation.kill(actor)
            self._end_session(process.session_id)
            self.simulation.start_broker(broker)

    def step_stop_broker(self) -> None:
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            self.simulation.brokers.pop(broker)[0].stop()

    async def step_fail_log_dir(self) -> None:
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            process = self.simulation.brokers[broker][0]
            hosted = sorted((p.topic, p.partition) for p in process.replicas.partitions())
            drawn = [replica for replica in hosted if self.chance.random() < 0.5]
            lost = [named(word) for word in self._rest()] or drawn
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
        """A broker dies when it has taken a control request, before it answers."""
        simulation = self.simulation
        apis = ("LeaderAndIsr", "StopReplica", "StopReplica", "UpdateMetadata")
        words = self._rest()
        only = amount(words[0], range(1, simulation.plan.brokers + 1)) if words else None
        api = words[1] if len(words) > 1 else self.chance.choice(apis)
        countdown = 1 if words else self.chance.randint(1, 3)

        def heard(broker: int, heard_api: str) -> None:
            nonlocal countdown
            if heard_api == api and only in (None, broker) and broker in simulation.brokers:
                countdown -= 1
                if countdown == 0:
                    simulation.kill(simulation.brokers.pop(broker)[1])

        simulation.heard = heard

    # -- what early detection must not be fooled by -----------------------------------------------------------------

    def step_deafen_broker(self) -> None:
        """Its listener is closed for a while, and its connections end: it lives, and seems to be dead."""
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

    def step_hush_broker(self) -> None:
        """What it says does not reach the controllers, who still reach it: a partition in one direction."""
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            name = self.simulation.brokers[broker][1].host.name
            for _, process in self.simulation.controllers.values():
                self.simulation.network.block(name, process.host.name)

    def step_hush_controller(self) -> None:
        """What the controllers say to each other is lost; brokers and ZooKeeper hear them."""
        hosts = [process.host.name for _, process in self.simulation.controllers.values()]
        for one in hosts:
            for other in hosts:
                if one != other:
                    self.simulation.network.block(one, other)

    def step_freeze_leader(self) -> None:
        """Longer than silence may last, shorter than a session: it wakes up as a leader that is none any more."""
        self._pause(self.simulation.brokers, (0.9, 1.5, 2.2))

    def step_freeze_all_brokers(self) -> None:
        duration_s = self._seconds(0.9, 1.5, 2.2)
        for broker in sorted(self.simulation.brokers):
            self._pause_process(self.simulation.brokers[broker][1], duration_s)

    async def step_flap_broker(self) -> None:
        broker = self._one(self.simulation.brokers)
        if broker is None:
            return
        made, process = self.simulation.brokers[broker]
        for _ in range(self.chance.choice((3, 6))):
            self._deafen(made.port, process, 0.3)
            await self.simulation.clock.sleep(self.chance.choice((0.5, 1.5)))

    def step_kill_controller_and_broker(self) -> None:
        self.step_kill_controller()
        self.step_kill_broker()

    # -- faults of controllers -------------------------------------------------------------------------------------

    def step_kill_controller(self) -> None:
        controller = self._one(self.simulation.controllers)
        if controller is not None:
            self.simulation.kill(self.simulation.controllers.pop(controller)[1])

    async def step_stop_controller(self) -> None:
        """Sometimes while it is at work, and its session ends in the same moment."""
        simulation = self.simulation
        controller = self._one(simulation.controllers)
        if controller is None:
            return
        hurried = self.chance.random() < 0.4
        if hurried:
            self.step_reassign()
            await simulation.clock.sleep(0.003)
        service = simulation.controllers.pop(controller)[0]
        service.stop()
        if hurried:
            self._end_session(service.client.session_id)

    def step_ask_much(self) -> None:
        """Many requests at once, and sometimes the session's end behind them."""
        for _ in range(self.chance.randint(3, 12)):
            self.chance.choice((self.step_list_reassignments, self.step_allocate_producer_ids, self.step_reassign))()
        if self.chance.random() < 0.5:
            self.step_expire_controller()

    def step_expire_controller(self) -> None:
        controller = self._one(self.simulation.controllers)
        if controller is not None:
            self._end_session(self.simulation.controllers[controller][0].client.session_id)

    def _end_session(self, session_id: int) -> None:
        model = self.simulation.model
        session = model.sessions.get(session_id)
        if session is not None:
            model.end_session(session, self.simulation.zookeeper.now_ms())
            if session.connection is not None:
                session.connection.end()

    def step_cut_controller(self) -> None:
        self._cut(self.simulation.controllers)

    def step_pause_controller(self) -> None:
        """Often longer than its session."""
        self._pause(self.simulation.controllers, (0.5, 2.0, 6.0, 10.0))

    async def step_delete_controller_znode(self) -> None:
        """An operator's way to move the role."""
        await self._administer(self.simulation.zk.client.delete(paths.CONTROLLER))

    async def step_rewrite_controller_epoch(self) -> None:
        """Somebody raises the epoch by hand, as Kafka's notes on a rollback from KRaft have it: all fences are void."""
        node = self.simulation.model.tree.nodes.get(paths.CONTROLLER_EPOCH)
        if node is not None:
            value = int(self._words.popleft()) if self._words else int(node.data or b"0") + 1
            higher = b"%d" % value
            await self._administer(self.simulation.zk.client.set(paths.CONTROLLER_EPOCH, higher, node.version))

    def step_trap_controller(self) -> None:
        """Something happens at one of the next writes of whichever controller writes then."""
        strikes = {
            "lose": self._lose,
            "kill": self._kill_writer,
            "expire": self._expire,
            "freeze": self._freeze,
            "depose": self._depose,
        }
        if words := self._rest():  # what, at which write, and whether before it is applied
            what, number, *when = words
            if what not in strikes:
                raise WordsError(f"found {what!r}, expected one of {', '.join(strikes)}")
            self.simulation.model.traps.append(Trap(int(number), when == ["before"], strikes[what]))
            return
        what = self.chance.choice(("lose", "lose", "kill", "expire", "freeze", "depose", "depose"))
        # early ones strike the failover that an election begins
        countdown = self.chance.choice((1, 1, 1, 2, 2, 3, 4, 6, 8, 12))
        self.simulation.model.traps.append(Trap(countdown, self.chance.random() < 0.4, strikes[what]))
        if self.chance.random() < 0.5:
            self.step_expire_controller()

    async def step_win_again(self) -> None:
        """The active controller loses the role and is the one that wins it, while answers to its term are under way.

        Brokers answer slowly, ZooKeeper's words travel slowly to it, and nobody else can stand.
        """
        simulation, network = self.simulation, self.simulation.network
        number = simulation.holder()
        if number not in simulation.controllers:
            return
        host = simulation.controllers[number][1].host.name
        brokers = [broker for broker, _ in simulation.brokers.values()]
        oldest, newest = list(self.topics)[:1], list(self.topics)[1:][-1:]
        await self._delete_topics(oldest)  # so that the next term numbers partitions otherwise
        await simulation.clock.sleep(0.3)
        for broker in brokers:
            broker.disk_delay_s = 0.6
        await (self._delete_topics(newest) if newest else self.step_create_topic())
        await simulation.clock.sleep(0.05)
        network.lag("zookeeper", host, 0.25)
        with self._nobody_else_stands(number):
            self.step_reassign()
            await simulation.clock.sleep(0.02)
            simulation.model.remove(paths.CONTROLLER, simulation.zookeeper.now_ms())
            await simulation.clock.sleep(1.5)
        network.lag("zookeeper", host, 0.0)
        for broker in brokers:
            broker.disk_delay_s = 0.0

    async def step_expire_in_failover(self) -> None:
        """The session in which the role was won ends while the new controller waits for a broker that does not answer;
        it has another session at once, and nobody else wins."""
        simulation, network = self.simulation, self.simulation.network
        number, dead, silent = simulation.holder(), self._one(simulation.brokers), self._one(simulation.brokers)
        if number not in simulation.controllers or dead is None or silent is None or dead == silent:
            return
        service, process = simulation.controllers[number]
        link = simulation.brokers[silent][1].host.name, process.host.name
        with self._nobody_else_stands(number):
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
    def _nobody_else_stands(self, number: int) -> Iterator[None]:
        """The other controllers do not reach ZooKeeper inside the block."""
        network = self.simulation.network
        others = [process.host.name for n, (_, process) in self.simulation.controllers.items() if n != number]
        for name in others:
            network.block(name, "zookeeper")
        try:
            yield
        finally:
            for name in others:
                network.unblock(name, "zookeeper")

    def arm_crash(self, number: int, *, before: bool) -> None:
        """Whoever makes the ``number``-th write from now is killed at it, and another begins in its place."""

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
        """Another may take the role while the writer, which hears everything late, goes on with what it was doing."""
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
        """It stands still with a write under way, for longer than its session."""
        for service, process in self.simulation.controllers.values():
            if service.client.session_id == session.id:
                self._pause_process(process, 6.0)

    def _cut(self, group: dict[int, tuple[Any, Process]]) -> None:
        number = self._one(group)
        if number is not None:
            self.simulation.network.cut_host(group[number][1].host.name)

    def _pause(self, group: dict[int, tuple[Any, Process]], durations_s: tuple[float, ...]) -> None:
        number = self._one(group)
        duration_s = self._seconds(*durations_s)
        if number is not None:
            self._pause_process(group[number][1], duration_s)

    # -- the network and ZooKeeper ---------------------------------------------------------------------------------

    def _hosts(self) -> list[str]:
        simulation = self.simulation
        processes = [process for _, process in [*simulation.controllers.values(), *simulation.brokers.values()]]
        return ["zookeeper", *(process.host.name for process in processes)]

    def step_block(self) -> None:
        """One direction, or both, between two hosts.  Named ones: both; of one alone: to the controller in office."""
        hosts = self._hosts()
        if two := self._named_hosts():
            self.simulation.network.block(*two)
            self.simulation.network.block(*reversed(two))
        elif len(hosts) > 1:
            self._block(*self.chance.sample(hosts, 2))

    def _named_hosts(self) -> tuple[str, str] | None:
        """Two of: ``zookeeper``, a broker's number, ``active``, ``standby``."""
        words = [word for word in (self._words.popleft() for _ in range(min(2, len(self._words)))) if word]
        if not words:
            return None
        one, other = (self._host(word) for word in [*words, "active"][:2])
        return (one, other) if one is not None and other is not None else None

    def _host(self, word: str) -> str | None:
        simulation = self.simulation
        if word == "zookeeper":
            return word
        if word in ("active", "standby"):
            controller = self._controller(word)
            return None if controller is None else simulation.controllers[controller][1].host.name
        found = simulation.brokers.get(amount(word, range(1, simulation.plan.brokers + 1)))
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
        """What is sent over a connection arrives late, while new connections are fast.

        From a controller to a broker never so late that the request is sent again meanwhile: nothing in Kafka's
        protocol tells a broker that an UpdateMetadata of the same epoch is older than the last.
        """
        hosts = self._hosts()
        two = self._named_hosts()
        if two or len(hosts) > 1:
            one, other = two or self.chance.sample(hosts, 2)
            bounded = one.startswith("controller") and other.startswith("broker")
            self.simulation.network.lag(one, other, self._seconds(*((0.2, 0.8) if bounded else (0.2, 1.0, 4.0))))

    async def step_repeat_late(self) -> None:
        """What a leader asks its controller is long under way.  It asks again over a new connection, and soon for the
        contrary, since a follower comes and goes; only then does its first request arrive."""
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
        network.block(follower, leader)  # it falls out of the ISR, its session lives
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

    async def step_kraft_rollback(self) -> None:
        """A KRaft controller of this epoch has led the cluster, written it into every state, and is gone again."""
        epoch, simulation = int(self._words.popleft()), self.simulation
        for (topic, number), state in sorted(simulation.history.states.items()):
            node = simulation.model.tree.nodes[paths.topic_partition_state(topic, number)]
            left = msgspec.structs.replace(state, controller_epoch=epoch)
            node.data = encode_partition_states([left])[0]
            simulation.history.states[topic, number] = left
        for broker, _ in simulation.brokers.values():
            broker.replicas.controller_epoch = epoch

    def step_heal(self) -> None:
        self.simulation.network.heal()

    async def step_restart_zookeeper(self) -> None:
        servers = [self.simulation.zookeeper, *self.simulation.followers]
        for server in servers:
            server.stop()
        await self.simulation.clock.sleep(self._seconds(0.1, 1.0, 5.0))
        for server in servers:
            await server.start()

    def step_lag_followers(self) -> None:
        """Whoever reads through a ZooKeeper server that follows reads what was true a while ago; until healed."""
        self.simulation.followers_lag_s = self._seconds(0.2, 1.0, 3.0)

    def step_slow_disk(self) -> None:
        """A broker takes its time for what touches its disk: LeaderAndIsr and StopReplica; until all is healed."""
        broker = self._one(self.simulation.brokers)
        delay_s = self._seconds(0.1, 0.5, 1.5)
        if broker is not None:
            self.simulation.history.probe("slow disk")
            self.simulation.brokers[broker][0].disk_delay_s = delay_s

    def step_jump_clock(self) -> None:
        """Somebody sets a controller's wall clock, forwards or back; no decision may depend on it."""
        controller = self._one(self.simulation.controllers)
        if controller is not None:
            self.simulation.history.probe("wall clock set")
            host = self.simulation.controllers[controller][1].host
            host.wall_jump_s += self.chance.choice((-86_400.0, -5.0, 5.0, 3_600.0))

    def step_crash_at_await(self) -> None:
        """Whoever comes to the n-th await point of a handler from now is killed there."""
        drawn = self.chance.choice((1, 2, 3, 5, 8, 13, 21, 34, 55))
        self.simulation.crash_in = int(self._words.popleft()) if self._words else drawn

    def step_pause_zookeeper(self) -> None:
        """It takes connections and says nothing, as under a stalled disk: no session ends meanwhile either."""
        host = self.simulation.zookeeper_host
        if not host.paused:
            host.pause()
            self.simulation.clock.call_later(self._seconds(0.5, 2.0, 6.0), host.resume)

    # -- repairs ---------------------------------------------------------------------------------------------------

    def step_start_broker(self) -> None:
        simulation = self.simulation
        missing: dict[int, None] = {
            b: None for b in range(1, simulation.plan.brokers + 1) if b not in simulation.brokers
        }
        broker = self._one(missing)
        if broker is not None:
            simulation.start_broker(broker)

    def step_start_controller(self) -> None:
        simulation = self.simulation
        numbers = range(1, simulation.plan.controllers + 1)
        missing: dict[int, None] = {c: None for c in numbers if c not in simulation.controllers}
        word = self._words.popleft() if self._words else ""
        controller = amount(word, numbers) if word else self._one(missing)
        if controller in missing and controller is not None:
            simulation.start_controller(controller)

    async def step_wait(self) -> None:
        await self.simulation.clock.sleep(self._seconds(1.0, 3.0, 8.0))
