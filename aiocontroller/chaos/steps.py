"""What a plan's steps do: the operator's work, faults, repairs.  Each draws from its own seed alone."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from aiocontroller.chaos.observed_zookeeper import Trap
from aiocontroller.chaos.plan import Step
from aiocontroller.chaos.zookeeper_model import Connection, Session
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.events import (
    AllocateProducerIds,
    ApiPartitionReassignment,
    ElectionType,
    ListPartitionReassignments,
    ReplicaLeaderElection,
    Reply,
    Request,
)
from aiocontroller.core.ids import TopicPartition
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.znodes import encode_partitions, encode_reassignment

if TYPE_CHECKING:
    from aiocontroller.chaos.simulation import Process, Simulation

log = logging.getLogger(__name__)

NAMES = tuple(f"topic-{n}" for n in range(6))
"""Few, so that a name is used again after its topic was deleted."""
ADMIN_TIMEOUT_S = 20.0
PATIENCE_S = 3.0
"""How long the plan waits for an operator's command before it goes on to the next step."""

Targets = dict[TopicPartition, tuple[int, ...] | None]


class Steps:
    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.taken: dict[str, int] = {}
        self.topics: dict[str, int] = {}
        """Topics as the operator knows them -> number of partitions."""
        self.chance = random.Random(0)
        self._last_asked: Targets = {}
        self._under_way: dict[asyncio.Task[None], None] = {}

    async def take(self, step: Step) -> None:
        self.chance = random.Random(step.seed)
        self.taken[step.kind] = self.taken.get(step.kind, 0) + 1
        log.info("%.3f %s", self.simulation.clock.monotonic(), step.kind)
        result = getattr(self, f"step_{step.kind}")()
        if result is not None:
            await result
        await self.simulation.clock.sleep(step.pause_s)

    def _one(self, group: dict[int, Any]) -> int | None:
        return self.chance.choice(sorted(group)) if group else None

    # -- the operator ----------------------------------------------------------------------------------------------

    async def _administer(self, doing: Awaitable[Any]) -> None:
        """What an operator does while things break may fail or last; what was begun is judged by ZooKeeper."""

        async def attempt() -> None:
            try:
                async with asyncio.timeout(ADMIN_TIMEOUT_S):
                    await doing
            except Exception as error:
                log.info("refused: %r", error)

        task = asyncio.ensure_future(attempt())
        self._under_way[task] = None
        task.add_done_callback(lambda done: self._under_way.pop(done, None))
        await asyncio.wait([task], timeout=PATIENCE_S)

    async def step_create_topic(self) -> None:
        ids = sorted(self.simulation.brokers)
        free = [name for name in NAMES if name not in self.topics]
        if not ids or not free:
            return
        name = self.chance.choice(free)
        factor = self.chance.randint(1, min(3, len(ids)))
        count = self.chance.randint(1, 6)
        self.topics[name] = count
        assignment = {p: self.chance.sample(ids, factor) for p in range(count)}
        await self._administer(self.simulation.admin.create_topic(name, assignment))

    async def step_delete_topic(self) -> None:
        if self.topics:
            name = self.chance.choice(sorted(self.topics))
            del self.topics[name]
            self._forget_targets(name)
            await self._administer(self.simulation.admin.delete_topic(name))

    async def step_add_partitions(self) -> None:
        simulation = self.simulation
        if not self.topics or not simulation.brokers:
            return
        name = self.chance.choice(sorted(self.topics))
        node = simulation.model.tree.nodes.get(paths.topic(name))
        if node is None:
            return
        read = await simulation.zk.get_topic_assignments([name], watch=False)
        if read.found and 0 in read.found[0].partitions:
            present = read.found[0].partitions
            factor = min(len(present[0].replicas), len(simulation.brokers))
            new = {len(present): self.chance.sample(sorted(simulation.brokers), factor)}
            self.topics[name] = len(present) + 1
            await self._administer(simulation.admin.add_partitions(name, new))

    async def step_allow_unclean(self) -> None:
        if self.topics:
            name = self.chance.choice(sorted(self.topics))
            value = self.chance.choice(("true", "true", "false"))
            change = {"unclean.leader.election.enable": value}
            await self._administer(self.simulation.admin.change_topic_configs(name, change))

    async def step_notify_isr_change(self) -> None:
        partitions = self._partitions(3)
        if partitions:
            await self._administer(self.simulation.zk.propagate_isr_changes(partitions))

    async def step_elect_by_znode(self) -> None:
        partitions = self._partitions(3)
        if partitions:
            client = self.simulation.zk.client
            data = encode_partitions(partitions)
            await self._administer(client.create(paths.PREFERRED_REPLICA_ELECTION, data))

    async def step_reassign_by_znode(self) -> None:
        targets = {tp: target for tp, target in self._targets().items() if target}
        for tp in targets:
            self.simulation.targets.pop(tp, None)
        if targets and not await self._reassignment_waits():
            client = self.simulation.zk.client
            await self._administer(client.create(paths.REASSIGN_PARTITIONS, encode_reassignment(targets)))

    async def _reassignment_waits(self) -> bool:
        return paths.REASSIGN_PARTITIONS in self.simulation.model.tree.nodes

    # -- requests to the controller --------------------------------------------------------------------------------

    def _partitions(self, most: int) -> list[TopicPartition]:
        known = [TopicPartition(name, n) for name in sorted(self.topics) for n in range(self.topics[name])]
        return self.chance.sample(known, min(self.chance.randint(1, most), len(known)))

    def _targets(self) -> Targets:
        ids = sorted(self.simulation.brokers)
        if not ids:
            return {}
        factor = self.chance.randint(1, min(3, len(ids)))
        return {tp: tuple(self.chance.sample(ids, factor)) for tp in self._partitions(3)}

    def step_reassign(self) -> None:
        self._reassign(self._targets())

    def step_cancel_reassignment(self) -> None:
        moving = [tp for tp in sorted(self.simulation.targets) if tp.topic in self.topics]
        chosen = self.chance.sample(moving, 1) if moving else self._partitions(2)
        self._reassign(dict.fromkeys(chosen))

    def _reassign(self, targets: Targets) -> None:
        """What is not acknowledged may have happened: then nothing is known of where the partition is to be."""
        known = self.simulation.targets
        self._last_asked = dict(targets)
        for tp in targets:
            known.pop(tp, None)

        def answered(answers: Any) -> None:
            for tp in targets:
                known.pop(tp, None)  # also where all of it is refused: it may have been carried out before
            if isinstance(answers, KafkaErrorCode):
                return
            for tp, (code, _) in answers.items():
                target = targets[tp]
                if code == KafkaErrorCode.NONE and target is not None and tp.topic in self.topics:
                    known[tp] = target

        self._ask(ApiPartitionReassignment(targets=targets, reply=Reply(answered)) if targets else None)

    async def step_delete_while_moving(self) -> None:
        """A topic is asked to go while its replicas are on their way."""
        self.step_reassign()
        moving = sorted({tp.topic for tp in self._last_asked if tp.topic in self.topics})
        if moving:
            name = self.chance.choice(moving)
            await self.simulation.clock.sleep(self.chance.choice((0.0, 0.02, 0.1)))
            del self.topics[name]
            self._forget_targets(name)
            await self._administer(self.simulation.admin.delete_topic(name))

    async def step_move_and_fail(self) -> None:
        """Replicas are added and come into sync; those from before die; then the move is overridden."""
        simulation = self.simulation
        found = self._partitions(1)
        state = simulation.history.states.get((found[0].topic, found[0].partition)) if found else None
        others = [b for b in sorted(simulation.brokers) if state is not None and b not in state.isr]
        if state is None or not others:
            return
        added = self.chance.choice(others)
        dead = self.chance.choice(others)
        self._reassign({found[0]: tuple(dict.fromkeys((added, dead)))})
        await simulation.clock.sleep(self.chance.choice((0.1, 1.0)))
        for broker in state.isr:
            if broker in simulation.brokers and self.chance.random() < 0.8:
                simulation.kill(simulation.brokers.pop(broker)[1])
        await simulation.clock.sleep(self.chance.choice((0.1, 4.0, 6.0)))
        ids = sorted(simulation.brokers)
        self._reassign({found[0]: (self.chance.choice(ids),) if ids and self.chance.random() < 0.7 else None})

    async def step_undo_under_another(self) -> None:
        """A move that cannot end; another controller takes over and is told otherwise; the first comes back."""
        simulation = self.simulation
        found = self._partitions(1)
        state = simulation.history.states.get((found[0].topic, found[0].partition)) if found else None
        others = [b for b in sorted(simulation.brokers) if state is not None and b not in state.isr]
        if state is None or not others:
            return
        slow = self.chance.choice(others)
        self._pause_process(simulation.brokers[slow][1], 2.5)
        for target in ((slow,), state.isr[:1]):
            self._reassign({found[0]: target})
            await simulation.clock.sleep(0.2)
            simulation.model.remove(paths.CONTROLLER, simulation.zookeeper.now_ms())
            await simulation.clock.sleep(0.4)

    def _forget_targets(self, topic: str) -> None:
        known = self.simulation.targets
        for tp in [tp for tp in known if tp.topic == topic]:
            del known[tp]

    def step_elect_preferred(self) -> None:
        partitions = tuple(self._partitions(3))
        kind = self.chance.choice((ElectionType.PREFERRED, ElectionType.PREFERRED, ElectionType.UNCLEAN))
        if kind is ElectionType.UNCLEAN:
            self.simulation.history.allow_unclean({tp.topic for tp in partitions})
        if partitions:
            self._ask(ReplicaLeaderElection(partitions=partitions, election_type=kind, reply=Reply(lambda _: None)))

    def step_allocate_producer_ids(self) -> None:
        broker = self._one(self.simulation.brokers)
        if broker is not None:
            epoch = self.simulation.brokers[broker][0].epoch
            self._ask(AllocateProducerIds(broker=broker, broker_epoch=epoch, reply=Reply(lambda _: None)))

    def step_list_reassignments(self) -> None:
        self._ask(ListPartitionReassignments(partitions=None, reply=Reply(lambda _: None)))

    def step_ask_much(self) -> None:
        """Many requests at once, and sometimes the session's end behind them."""
        for _ in range(self.chance.randint(3, 12)):
            self.chance.choice((self.step_list_reassignments, self.step_allocate_producer_ids, self.step_reassign))()
        if self.chance.random() < 0.5:
            self.step_expire_controller()

    def _ask(self, request: Request | None) -> None:
        """Whoever says that it is in office gets the request; a deposed controller may, too."""
        active = [s for s, process in self.simulation.controllers.values() if s.controller.election.active]
        if request is not None and active:
            self.chance.choice(active).queue.append(request)

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
            replicas = sorted((p.topic, p.partition) for p in process.replicas.partitions())
            lost = [replica for replica in replicas if self.chance.random() < 0.5]
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
        api = self.chance.choice(("LeaderAndIsr", "StopReplica", "StopReplica", "UpdateMetadata"))
        countdown = self.chance.randint(1, 3)

        def heard(broker: int, heard_api: str) -> None:
            nonlocal countdown
            if heard_api == api and broker in simulation.brokers:
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
            self._deafen(made.port, process, self.chance.choice((0.05, 0.3, 1.0, 4.0)))

    def _deafen(self, port: int, process: Process, duration_s: float) -> None:
        network = self.simulation.network
        listener = network.listeners.pop(port, None)
        network.cut(port)

        def listen_again() -> None:
            if listener is not None and not process.task.done() and not process.host.crashed:
                network.listeners[port] = listener

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
        duration_s = self.chance.choice((0.9, 1.5, 2.2))
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

    def step_expire_controller(self) -> None:
        ids = {number: s.client.session_id for number, (s, _) in self.simulation.controllers.items()}
        controller = self._one(ids)
        if controller is not None:
            self._end_session(ids[controller])

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
            higher = b"%d" % (int(node.data or b"0") + 1)
            await self._administer(self.simulation.zk.client.set(paths.CONTROLLER_EPOCH, higher, node.version))

    def step_trap_controller(self) -> None:
        """Something happens at one of the next writes of whichever controller writes then."""
        strikes = (self._lose, self._lose, self._kill_writer, self._expire, self._freeze, self._depose, self._depose)
        strike = self.chance.choice(strikes)
        # early ones strike the failover that an election begins
        countdown = self.chance.choice((1, 1, 1, 2, 2, 3, 4, 6, 8, 12))
        self.simulation.model.traps.append(Trap(countdown, self.chance.random() < 0.4, strike))
        if self.chance.random() < 0.5:
            self.step_expire_controller()

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
        if number is not None:
            self._pause_process(group[number][1], self.chance.choice(durations_s))

    def _pause_process(self, process: Process, duration_s: float) -> None:
        if not process.host.paused:
            process.host.pause()
            self.simulation.clock.call_later(duration_s, process.host.resume)

    # -- the network and ZooKeeper ---------------------------------------------------------------------------------

    def _hosts(self) -> list[str]:
        simulation = self.simulation
        processes = [process for _, process in [*simulation.controllers.values(), *simulation.brokers.values()]]
        return ["zookeeper", *(process.host.name for process in processes)]

    def step_block(self) -> None:
        """One direction, or both, between two hosts."""
        hosts = self._hosts()
        if len(hosts) > 1:
            self._block(*self.chance.sample(hosts, 2))

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
        if len(hosts) > 1:
            one, other = self.chance.sample(hosts, 2)
            bounded = one.startswith("controller") and other.startswith("broker")
            self.simulation.network.lag(one, other, self.chance.choice((0.2, 0.8) if bounded else (0.2, 1.0, 4.0)))

    async def step_repeat_late(self) -> None:
        """What a leader asks its controller arrives late, and once more, sooner, over another connection."""
        simulation = self.simulation
        broker, controller = self._one(simulation.brokers), self._one(simulation.controllers)
        if broker is None or controller is None:
            return
        network = simulation.network
        sender = simulation.brokers[broker][1].host.name
        receiver = simulation.controllers[controller][1].host.name
        network.lag(sender, receiver, self.chance.choice((2.0, 5.0, 8.0)))
        others = [b for b in sorted(simulation.brokers) if b != broker]
        if others:  # a follower falls behind and comes back: the leader asks twice
            follower = self.chance.choice(others)
            self._pause_process(simulation.brokers[follower][1], 2.5)
        await simulation.clock.sleep(self.chance.choice((2.2, 2.7, 3.2)))
        network.hang_up(sender, receiver)

    def step_heal(self) -> None:
        self.simulation.network.heal()

    async def step_restart_zookeeper(self) -> None:
        self.simulation.zookeeper.stop()
        await self.simulation.clock.sleep(self.chance.choice((0.1, 1.0, 5.0)))
        await self.simulation.zookeeper.start()

    # -- repairs ---------------------------------------------------------------------------------------------------

    def step_start_broker(self) -> None:
        simulation = self.simulation
        missing = {b: None for b in range(1, simulation.plan.brokers + 1) if b not in simulation.brokers}
        broker = self._one(missing)
        if broker is not None:
            simulation.start_broker(broker)

    def step_start_controller(self) -> None:
        simulation = self.simulation
        missing = {c: None for c in range(simulation.plan.controllers) if c not in simulation.controllers}
        controller = self._one(missing)
        if controller is not None:
            simulation.start_controller(controller)

    async def step_wait(self) -> None:
        await self.simulation.clock.sleep(self.chance.choice((1.0, 3.0, 8.0)))
