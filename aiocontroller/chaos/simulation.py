"""A cluster in one process, drawn from one seed: controllers, brokers, ZooKeeper, the network and time.

What runs is the program itself: services with their listeners, senders and sessions, and simulated brokers; only the
network, the clock and chance are replaced (``net.simulated``), and ZooKeeper is a model that speaks its protocol.

A run has two phases.  *Faults*: whatever the seed draws, while every change of a znode is checked against the
invariants of ``history``.  Then everything is *healed*: links carry, the dead return, and within bounded virtual time
the cluster must be whole again: one controller in office, every partition led by a live broker, all replicas in sync,
what was to be deleted or moved done, and every broker's metadata equal to what ZooKeeper says.

Each seed also draws which kinds of faults exist and how often (a swarm), so that rare combinations are not drowned.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import random
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.chaos.history import ZNodeHistory
from aiocontroller.chaos.zookeeper_model import ZooKeeperModel
from aiocontroller.chaos.zookeeper_server import ZooKeeperServer
from aiocontroller.chaos.zookeeper_tree import CHANGED, CREATED, DELETED, Transaction
from aiocontroller.cluster.simulated_broker import BrokerConfig, SimulatedBroker
from aiocontroller.config import Config
from aiocontroller.core.events import ApiPartitionReassignment, Reply
from aiocontroller.core.ids import LeaderAndIsr, TopicPartition
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.net.ports import World
from aiocontroller.net.simulated import Host, SimulatedClock, SimulatedNetwork, run
from aiocontroller.service import Service
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

log = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 3_000
HEAL_WITHIN_S = 300.0
"""Virtual time in which a healed cluster must be whole."""


class Plan(msgspec.Struct, frozen=True):
    """What a seed draws before anything runs."""

    seed: int
    brokers: int
    controllers: int
    steps: int
    weights: dict[str, int]
    """How often each kind of step is drawn; kinds that this seed does without are absent."""


class Report(msgspec.Struct, frozen=True):
    seed: int
    violations: list[str]
    virtual_s: float
    events: int
    """Controller events that were processed, by all controllers."""
    znode_writes: int
    steps: dict[str, int]
    journal_hash: str

    @property
    def ok(self) -> bool:
        return not self.violations


KINDS = (
    "kill_broker",
    "start_broker",
    "stop_broker",
    "kill_controller",
    "start_controller",
    "expire_controller",
    "cut_controller",
    "cut_broker",
    "block",
    "heal",
    "restart_zookeeper",
    "create_topic",
    "delete_topic",
    "add_partitions",
    "reassign",
    "cancel_reassignment",
    "pause",
)
ALWAYS = frozenset({"start_broker", "start_controller", "create_topic", "heal", "pause"})


def draw(seed: int) -> Plan:
    chance = random.Random(seed)
    kinds = [kind for kind in KINDS if kind in ALWAYS or chance.random() < 0.6]
    return Plan(
        seed,
        brokers=chance.choice((2, 3, 3, 4)),
        controllers=chance.choice((1, 2, 2, 3)),
        steps=chance.choice((15, 30, 60)),
        weights={kind: chance.choice((1, 2, 4, 8)) for kind in kinds},
    )


class ObservedZooKeeper(ZooKeeperModel):
    """Tells the history of every change."""

    def __init__(self, history: ZNodeHistory) -> None:
        super().__init__()
        self.history = history

    def _commit(self, transaction: Transaction) -> None:
        for kind, path in transaction.events:
            if kind in (CREATED, CHANGED) and path in self.tree.nodes:
                node = self.tree.nodes[path]
                self.history.changed(path, node.data, node.version)
            elif kind == DELETED:
                self.history.deleted(path)
        super()._commit(transaction)


class Process:
    """One actor with a host of its own, which can be killed without its knowing."""

    def __init__(self, name: str, host: Host, task: asyncio.Task[None]) -> None:
        self.name = name
        self.host = host
        self.task = task


class Simulation:
    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.chance = random.Random(plan.seed * 2 + 1)
        self.network = SimulatedNetwork(jitter_s=lambda: self.chance.random() * 0.003)
        self.clock = SimulatedClock()
        self.history = ZNodeHistory()
        self.zookeeper = ZooKeeperServer(self._world("zookeeper"), ObservedZooKeeper(self.history), port=2181)
        self.brokers: dict[int, tuple[SimulatedBroker, Process]] = {}
        self.controllers: dict[int, tuple[Service, Process]] = {}
        self.journals: list[MemoryJournal] = []
        self.taken: dict[str, int] = {}
        self.topics: dict[str, int] = {}
        self._folder = folder
        self._born = 0
        self._problems: list[str] = []

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> Report:
        await self.zookeeper.start()
        client = ZooKeeperClient(self.zookeeper.address, world=self._world("admin"), session_timeout_s=10)
        await client.start()
        self.zk = KafkaZkClient(client)
        self.admin = AdminZkClient(self.zk)
        await self.zk.create_top_level_paths()
        try:
            for broker in range(1, self.plan.brokers + 1):
                self._start_broker(broker)
            for controller in range(self.plan.controllers):
                self._start_controller(controller)
            await self.clock.sleep(2)
            await self.step_create_topic()
            for _ in range(self.plan.steps):
                await self._step()
                if self.history.violations:
                    break
            await self._heal_everything()
            await self._must_become_whole()
        finally:
            await self._end(client)
        return self._report()

    def _report(self) -> Report:
        content = b"".join(journal.content() for journal in self.journals)
        return Report(
            self.plan.seed,
            [str(v) for v in self.history.violations] + self._problems,
            round(self.clock.monotonic(), 3),
            sum(len(journal.of_kind("event")) for journal in self.journals),
            self.history.writes,
            dict(sorted(self.taken.items())),
            hashlib.sha256(content).hexdigest()[:16],
        )

    async def _end(self, client: ZooKeeperClient) -> None:
        for _, process in [*self.controllers.values(), *self.brokers.values()]:
            self._kill(process)
        await client.close()
        self.zookeeper.stop()

    def _world(self, name: str) -> World:
        self._host = self.network.host(name)
        return World(self._host, self.clock, random.Random(f"{self.plan.seed} {name}"))

    def _start(self, name: str, make: Callable[[World], Awaitable[None]]) -> Process:
        self._born += 1
        world = self._world(f"{name}#{self._born}")
        host = self._host
        process = Process(name, host, asyncio.ensure_future(make(world)))
        process.task.add_done_callback(lambda task: self._ended(process, task))
        return process

    def _ended(self, process: Process, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self._problems.append(f"{process.name} ended with {task.exception()!r}")

    def _kill(self, process: Process) -> None:
        """As SIGKILL: nothing that it does from now on reaches anybody."""
        self.network.crash(process.host)
        process.task.cancel()

    def _start_broker(self, broker: int) -> None:
        made: list[SimulatedBroker] = []

        async def serve(world: World) -> None:
            made.append(
                SimulatedBroker(
                    BrokerConfig(
                        broker,
                        self.zookeeper.address,
                        self._folder,
                        zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
                        replica_lag_time_max_ms=2_000,
                    ),
                    world,
                )
            )
            self.brokers[broker] = (made[0], process)
            await made[0].run()

        process = self._start(f"broker {broker}", serve)

    def _start_controller(self, number: int) -> None:
        config = msgspec.structs.replace(
            Config(),
            zookeeper_connect=self.zookeeper.address,
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            controller_socket_timeout_ms=1_000,
            request_timeout_ms=2_000,
            leader_imbalance_check_interval_seconds=20,
            aiocontroller_id=1_000_001 + number,
        )

        async def serve(world: World) -> None:
            journal = MemoryJournal(config.aiocontroller_id, self.clock)
            self.journals.append(journal)
            service = Service(config, world, journal=journal, with_http=False)
            self.controllers[number] = (service, process)
            await service.run()

        process = self._start(f"controller {number}", serve)

    # -- the fault phase -------------------------------------------------------------------------------------------

    async def _step(self) -> None:
        weights = self.plan.weights
        kind = self.chance.choices(list(weights), list(weights.values()))[0]
        self.taken[kind] = self.taken.get(kind, 0) + 1
        log.info("%.3f %s", self.clock.monotonic(), kind)
        step: Callable[[], Any] = getattr(self, f"step_{kind}")
        result = step()
        if result is not None:
            await result
        await self.clock.sleep(self.chance.choice((0.0, 0.01, 0.2, 1.0, 3.0)))

    def step_kill_broker(self) -> None:
        if self.brokers:
            _, process = self.brokers.pop(self.chance.choice(sorted(self.brokers)))
            self._kill(process)

    def step_stop_broker(self) -> None:
        if self.brokers:
            broker, _ = self.brokers.pop(self.chance.choice(sorted(self.brokers)))
            broker.stop()

    def step_start_broker(self) -> None:
        missing = [b for b in range(1, self.plan.brokers + 1) if b not in self.brokers]
        if missing:
            self._start_broker(self.chance.choice(missing))

    def step_kill_controller(self) -> None:
        if self.controllers:
            _, process = self.controllers.pop(self.chance.choice(sorted(self.controllers)))
            self._kill(process)

    def step_start_controller(self) -> None:
        missing = [c for c in range(self.plan.controllers) if c not in self.controllers]
        if missing:
            self._start_controller(self.chance.choice(missing))

    def step_expire_controller(self) -> None:
        model = self.zookeeper.model
        ours = {service.client.session_id for service, _ in self.controllers.values()}
        sessions = [s for number, s in sorted(model.sessions.items()) if number in ours]
        if sessions:
            session = self.chance.choice(sessions)
            model.end_session(session, self.zookeeper.now_ms())
            if session.connection is not None:
                session.connection.end()

    def step_cut_controller(self) -> None:
        self._cut(self.controllers)

    def step_cut_broker(self) -> None:
        self._cut(self.brokers)

    def _cut(self, group: dict[int, tuple[Any, Process]]) -> None:
        if group:
            self.network.cut_host(group[self.chance.choice(sorted(group))][1].host.name)

    def step_block(self) -> None:
        hosts = ["zookeeper"]
        hosts += [process.host.name for _, process in [*self.controllers.values(), *self.brokers.values()]]
        one, other = self.chance.sample(hosts, 2) if len(hosts) > 1 else (hosts[0], hosts[0])
        self.network.block(one, other)
        if self.chance.random() < 0.5:
            self.network.block(other, one)

    def step_heal(self) -> None:
        self.network.heal()

    async def step_restart_zookeeper(self) -> None:
        self.zookeeper.stop()
        await self.clock.sleep(self.chance.choice((0.1, 1.0, 5.0)))
        await self.zookeeper.start()

    async def step_pause(self) -> None:
        await self.clock.sleep(self.chance.choice((1.0, 5.0, 15.0)))

    async def step_create_topic(self) -> None:
        ids = sorted(self.brokers)
        if not ids or len(self.topics) >= 6:
            return
        name = f"topic-{self._born}-{len(self.topics)}-{self.taken.get('create_topic', 0)}"
        factor = self.chance.randint(1, min(3, len(ids)))
        partitions = self.chance.randint(1, 6)
        assignment = {p: self.chance.sample(ids, factor) for p in range(partitions)}
        self.topics[name] = partitions
        await self._administer(self.admin.create_topic(name, assignment))

    async def step_delete_topic(self) -> None:
        if self.topics:
            name = self.chance.choice(sorted(self.topics))
            del self.topics[name]
            await self._administer(self.admin.delete_topic(name))

    async def step_add_partitions(self) -> None:
        if self.topics and self.brokers:
            name = self.chance.choice(sorted(self.topics))
            new = {self.topics[name]: self.chance.sample(sorted(self.brokers), 1)}
            self.topics[name] += 1
            await self._administer(self.admin.add_partitions(name, new))

    async def _administer(self, doing: Awaitable[Any]) -> None:
        """What an operator does while things break may fail; what was begun is judged by what ZooKeeper then says."""
        try:
            async with asyncio.timeout(20):
                await doing
        except Exception as error:
            log.info("refused: %r", error)

    def step_reassign(self) -> None:
        if self.topics and self.brokers:
            name = self.chance.choice(sorted(self.topics))
            ids = sorted(self.brokers)
            target = tuple(self.chance.sample(ids, self.chance.randint(1, min(3, len(ids)))))
            self._ask({TopicPartition(name, self.chance.randrange(self.topics[name])): target})

    def step_cancel_reassignment(self) -> None:
        if self.topics:
            name = self.chance.choice(sorted(self.topics))
            self._ask({TopicPartition(name, self.chance.randrange(self.topics[name])): None})

    def _ask(self, targets: dict[TopicPartition, tuple[int, ...] | None]) -> None:
        for service, _ in self.controllers.values():
            if service.controller.election.active:
                service.queue.append(ApiPartitionReassignment(targets=targets, reply=Reply(lambda _: None)))

    # -- the healing phase -----------------------------------------------------------------------------------------

    async def _heal_everything(self) -> None:
        self.network.heal()
        for broker in range(1, self.plan.brokers + 1):
            if broker not in self.brokers or self.brokers[broker][1].task.done():
                self._start_broker(broker)
        for controller in range(self.plan.controllers):
            if controller not in self.controllers or self.controllers[controller][1].task.done():
                self._start_controller(controller)

    async def _must_become_whole(self) -> None:
        deadline = self.clock.monotonic() + HEAL_WITHIN_S
        while True:
            await self.clock.sleep(1)
            missing = await self._what_is_missing()
            if not missing:
                return
            if self.clock.monotonic() > deadline:
                self._problems += [f"after {HEAL_WITHIN_S:.0f} s of peace: {problem}" for problem in missing[:10]]
                return

    async def _what_is_missing(self) -> list[str]:
        active = [s for s, _ in self.controllers.values() if s.controller.election.active]
        holder = await self.zk.get_controller(watch=False)
        if len(active) != 1 or getattr(holder, "owner_session", None) != active[0].client.session_id:
            return [f"I6: {len(active)} controllers in office, /controller is {holder}"]
        context = active[0].shell.context
        missing = [f"I9: {len(active[0].queue)} events wait"] if len(active[0].queue) > 5 else []
        if context.partitions_being_reassigned:
            missing.append(f"I8: {len(context.partitions_being_reassigned)} reassignments")
        missing += [f"I8: topics {list(context.topics_to_be_deleted)} to be deleted"] * bool(
            context.topics_to_be_deleted
        )
        if len(context.live) != self.plan.brokers:
            missing.append(f"I5: live brokers are {sorted(context.live)}")
        topics = await self.zk.get_all_topics_in_cluster(watch=False)
        found = await self.zk.get_topic_assignments(topics, watch=False)
        for assignment in found.found:
            missing += await self._partitions_missing(assignment.topic, assignment.partitions)
        return missing

    async def _partitions_missing(self, topic: str, partitions: dict[int, Any]) -> list[str]:
        numbers = sorted(partitions)
        states = await self.zk.get_topic_partition_states([topic] * len(numbers), numbers)
        missing = []
        for number, state in zip(numbers, states, strict=True):
            name = f"{topic}-{number}"
            if not isinstance(state, LeaderAndIsr) or state.leader < 0:
                missing.append(f"I5: {name} has no leader: {state}")
                continue
            if set(state.isr) != set(partitions[number].replicas):
                missing.append(f"I5: {name} has ISR {state.isr} of {partitions[number].replicas}")
            for broker, (process, _) in self.brokers.items():
                cached = process.metadata.topics.get(topic)
                known = cached.partitions.get(number) if cached is not None else None
                believed = (known.leader, known.leader_epoch) if known is not None else None
                if believed != (state.leader, state.leader_epoch):
                    missing.append(
                        f"I5: broker {broker} believes {believed} of {name}, it is {(state.leader, state.leader_epoch)}"
                    )
        return missing


def simulate(seed: int) -> Report:
    """One seed, from nothing to its verdict."""
    with tempfile.TemporaryDirectory() as folder:
        return run(Simulation(draw(seed), Path(folder)).run())
