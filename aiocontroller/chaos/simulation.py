"""A cluster in one process, drawn from one seed: controllers, brokers, ZooKeeper, the network and time.

What runs is the program itself: services with their listeners, senders and sessions, and simulated brokers; only the
network, the clock and chance are replaced (``net.simulated``), and ZooKeeper is a model that speaks its protocol.

A run has two phases.  *Faults*: the plan's steps (``plan``, ``steps``), while every change of a znode, every control
request and every answer is checked (``history``, ``observers``).  Then everything is *healed*: links carry, the dead
return, and within bounded virtual time the cluster must be whole again (``wholeness``) and stay so.

A run is a function of its plan: same plan, same digest, in any process.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from aiocontroller.chaos import coverage
from aiocontroller.chaos.awaits import counting
from aiocontroller.chaos.facts import Facts
from aiocontroller.chaos.history import ZNodeHistory
from aiocontroller.chaos.observed_zookeeper import ObservedZooKeeper
from aiocontroller.chaos.observers import BrokerObserver, RequestObserver, check_journal, wrap
from aiocontroller.chaos.plan import Plan, Step, draw
from aiocontroller.chaos.steps.steps import Steps
from aiocontroller.chaos.wholeness import what_is_missing
from aiocontroller.chaos.zookeeper_follower import Follower
from aiocontroller.chaos.zookeeper_server import ZooKeeperServer
from aiocontroller.cluster.simulated_broker import BrokerConfig, SimulatedBroker
from aiocontroller.config import Config
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.invariants import violations
from aiocontroller.journal.journal import MemoryJournal
from aiocontroller.journal.records import Record
from aiocontroller.net.ports import World
from aiocontroller.net.simulated import Host, SimulatedClock, SimulatedNetwork, run
from aiocontroller.service import Service
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.errors import SessionExpiredError
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.registration import BrokerIdInUseError
from aiocontroller.zookeeper.znode_json import topic_id_to_text

log = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 3_000
SILENCE_MS = 900
HEARTBEAT_MS = 300
FAST_BOUNCE_MS = 500
HEAL_WITHIN_S = 300.0
"""Virtual time in which a healed cluster must be whole."""
POLL_S = 2.0
WHOLE_POLLS = 2
"""How often in a row it must be found whole, with nothing written in between."""


class Report(msgspec.Struct, frozen=True):
    seed: int
    violations: list[str]
    virtual_s: float
    events: int
    """Controller events that were processed, by all controllers."""
    znode_writes: int
    controller_writes: int
    """Write requests of controllers to ZooKeeper, as traps count them."""
    awaits: int
    """Await points that the controllers' handlers came to."""
    steps: dict[str, int]
    marks: dict[str, int]
    """See ``coverage``."""
    digest: str
    """Of all journals and all znode writes."""

    @property
    def ok(self) -> bool:
        return not self.violations


class Process:
    """One actor with a host of its own, which can be killed without its knowing."""

    def __init__(self, name: str, host: Host, task: asyncio.Task[None]) -> None:
        self.name = name
        self.host = host
        self.task = task


class ObservedJournal(MemoryJournal):
    """Hands each record on as it is made."""

    def __init__(self, node: int, clock: SimulatedClock, observe: Callable[[Record], None]) -> None:
        super().__init__(node, clock)
        self._observe = observe

    def _put(self, record: Record) -> None:
        super()._put(record)
        self._observe(record)


class Simulation:
    """The cluster; ``Steps`` does things to it; ``told`` is called after each of them, and with None in the end."""

    def __init__(self, plan: Plan, told: Callable[[Step | None, float], None] = lambda step, at_s: None) -> None:
        self.plan = plan
        self._told = told
        jitter = random.Random(f"{plan.seed} jitter")
        self._drift = random.Random(f"{plan.seed} drift")
        self.network = SimulatedNetwork(jitter_s=lambda: jitter.random() * 0.003)
        self.clock = SimulatedClock()
        self.model: ObservedZooKeeper = ObservedZooKeeper(
            ZNodeHistory(lambda path: path in self.model.tree.nodes, self._broker_epoch), self.is_controller
        )
        self.history = self.model.history
        self.zookeeper = ZooKeeperServer(self._world("zookeeper"), self.model, port=2181)
        self.zookeeper_host = self._host
        self.followers: list[ZooKeeperServer] = []
        self.followers_lag_s = 0.0
        """What each transaction takes longer to a follower."""
        self.awaits = 0
        """Await points that controllers' handlers have come to."""
        self.crash_in = 0
        """After so many of them the one that is at it is killed; 0: none is."""
        self.brokers: dict[int, tuple[SimulatedBroker, Process]] = {}
        self.controllers: dict[int, tuple[Service, Process]] = {}
        self.targets: dict[TopicPartition, tuple[int, ...]] = {}
        """Where partitions were last moved to, where that was acknowledged and nothing came after it."""
        self.marks: coverage.Marks = Counter()
        self.problems: list[str] = []
        self.repairs: list[Callable[[], None]] = []
        """What ends faults that would otherwise end by themselves, later."""
        self.heard: Callable[[int, str], None] = lambda broker, api: None
        """Called for each control request that a broker accepts."""
        self._services: list[tuple[int, Service]] = []
        """All that ever were, with their numbers."""
        self._journals: list[ObservedJournal] = []
        self._requests: dict[int, RequestObserver] = {}
        self._born = 0

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> Report:
        asyncio.get_running_loop().set_exception_handler(self._unhandled)
        await self.zookeeper.start()
        await self._start_followers()
        client = ZooKeeperClient(self.zookeeper.address, world=self._world("admin"), session_timeout_s=10)
        await client.start()
        self.zk = KafkaZkClient(client)
        self.admin = AdminZkClient(self.zk)
        await self.zk.create_top_level_paths()
        steps = Steps(self)
        steps.arm_crash(self.plan.crash_at, before=self.plan.crash_before)
        self.crash_in = self.plan.crash_await
        with coverage.watching(self.marks):
            try:
                for broker in range(1, self.plan.brokers + 1):
                    self.start_broker(broker)
                for controller in range(1, self.plan.controllers + 1):
                    self.start_controller(controller)
                await self.clock.sleep(2)
                for step in self.plan.steps:
                    await steps.take(step)
                    self._told(step, self.clock.monotonic())
                    if self.history.violations or self.problems:
                        break
                else:
                    self._heal_everything()
                    await self._must_become_whole()
                    self._told(None, self.clock.monotonic())
            finally:
                await self._end(client)
        return self._report(steps.taken)

    async def _start_followers(self) -> None:
        lag = random.Random(f"{self.plan.seed} followers")
        for number in range(1, self.plan.followers + 1):
            follower = Follower(self.model, self.clock, lambda: lag.random() * 0.02 + self.followers_lag_s)
            world = World(self.zookeeper_host, self.clock, lag)
            server = ZooKeeperServer(world, self.model, port=2181 + number, follower=follower)
            self.followers.append(await server.start())

    @property
    def zookeeper_connect(self) -> str:
        return ",".join(server.address for server in [self.zookeeper, *self.followers])

    def _report(self, taken: dict[str, int]) -> Report:
        digest = self.history.digest
        for journal in self._journals:
            digest.update(journal.content())
            self.problems += check_journal(journal.records)
        for name, count in self.history.probes.items():
            self.marks[f"probe/{name}"] += count
        seen = {
            "stale read": self.model.stale_reads,
            "overtaken on another connection": self.network.reordered,
            "clocks of different speed": int(self.plan.drift_percent > 0),
        }
        self.marks.update({f"probe/{name}": count for name, count in seen.items() if count})
        return Report(
            self.plan.seed,
            [str(v) for v in self.history.violations] + self.problems,
            round(self.clock.monotonic(), 3),
            sum(len(journal.of_kind("event")) for journal in self._journals),
            self.history.writes,
            self.model.controller_writes,
            self.awaits,
            dict(sorted(taken.items())),
            dict(sorted(self.marks.items())),
            digest.hexdigest()[:16],
        )

    async def _end(self, client: ZooKeeperClient) -> None:
        for _, process in [*self.controllers.values(), *self.brokers.values()]:
            self.kill(process)
        self.network.heal()
        await client.close()
        self.zookeeper.stop()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = str(context.get("message"))
        if (
            "never retrieved" not in message
        ):  # told by the garbage collector: often of killed processes, and at no fixed time
            self.problems.append(f"bug: {message}: {context.get('exception')!r}")

    # -- processes -------------------------------------------------------------------------------------------------

    def _world(self, name: str) -> World:
        self._host = self.network.host(name)
        return World(self._host, SimulatedClock(self._host), random.Random(f"{self.plan.seed} {name}"))

    def _start(self, name: str, serve: Callable[[World], Awaitable[None]]) -> Process:
        self._born += 1
        world = self._world(f"{name}#{self._born}")
        self._host.clock_rate = 1.0 + self.plan.drift_percent / 100 * (2 * self._drift.random() - 1)
        process = Process(name, self._host, asyncio.ensure_future(serve(world)))
        process.task.add_done_callback(lambda task: self._ended(process, task))
        return process

    def _ended(self, process: Process, task: asyncio.Task[None]) -> None:
        if task.cancelled() or process.host.crashed or (error := task.exception()) is None:
            return
        expected = isinstance(error, BaseExceptionGroup) and error.split(BrokerIdInUseError)[1] is None
        if not expected:  # Kafka's broker gives up as well when its predecessor's session does not end
            self.problems.append(f"bug: {process.name} ended with {error!r}")

    def kill(self, process: Process) -> None:
        """As SIGKILL: nothing that it does from now on reaches anybody."""
        self.network.crash(process.host)
        process.task.cancel()

    def start_broker(self, broker: int) -> None:
        config = BrokerConfig(
            broker,
            self.zookeeper_connect,
            None,
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            replica_lag_time_max_ms=2_000,
        )

        async def serve(world: World) -> None:
            made = SimulatedBroker(config, world)
            BrokerObserver(self.history, made, self._heard)
            self.brokers[broker] = (made, process)
            await made.run()

        process = self._start(f"broker {broker}", serve)

    def _heard(self, broker: int, api: str) -> None:
        self.heard(broker, api)

    def start_controller(self, number: int) -> None:
        config = msgspec.structs.replace(
            Config(),
            zookeeper_connect=self.zookeeper_connect,
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            controller_socket_timeout_ms=1_000,
            request_timeout_ms=2_000,
            leader_imbalance_check_interval_seconds=20,
            aiocontroller_id=1_000_000 + (1 if self.plan.shared_id else number),
            aiocontroller_takeover_policy="takeover" if self.plan.takeover else Config().aiocontroller_takeover_policy,
            aiocontroller_early_broker_detection=self.plan.broker_detection,
            aiocontroller_early_controller_detection=self.plan.controller_detection,
            aiocontroller_early_detection_silence_ms=SILENCE_MS,
            aiocontroller_early_detection_heartbeat_interval_ms=HEARTBEAT_MS,
            aiocontroller_early_fast_bounce_ms=FAST_BOUNCE_MS if self.plan.fast_bounce else 0,
        )

        async def serve(world: World) -> None:
            journal = ObservedJournal(config.aiocontroller_id, self.clock, lambda r: self._recorded(service, r))
            self._journals.append(journal)
            service = Service(config, world, journal=journal, with_http=False)
            self._services.append((number, service))
            self._requests[number] = RequestObserver(service.queue, self.clock.monotonic)
            wrap(service.controller, "_handle", lambda handle, events: counting(handle(events), self._at_await(number)))
            self.controllers[number] = (service, process)
            await service.run()

        process = self._start(f"controller {number}", serve)

    def _at_await(self, number: int) -> Callable[[], None]:
        def at_await() -> None:
            self.awaits += 1
            if self.crash_in:
                self.crash_in -= 1
                if not self.crash_in and number in self.controllers:
                    self.history.probe("crash at an await point")
                    self.kill(self.controllers.pop(number)[1])
                    self.clock.call_later(0.1, lambda: self._start_again(number))

        return at_await

    def _start_again(self, number: int) -> None:
        if number not in self.controllers:
            self.start_controller(number)

    def _broker_epoch(self, broker: int) -> int:
        """The incarnation that the controller in office knows, whom alone it tells anything; 0 where it knows none."""
        owner = self._owner()
        for _, service in self._services if owner else ():
            if service.client.session_id == owner:
                known = service.shell.context.brokers.get(broker)
                return 0 if known is None else known.epoch
        return 0

    def _owner(self) -> int:
        """The session that owns ``/controller``; 0 where nobody does."""
        node = self.model.tree.nodes.get(paths.CONTROLLER)
        return 0 if node is None else node.owner

    def holder(self) -> int | None:
        """The number of the controller whose session owns ``/controller``; it may be dead."""
        owner = self._owner()
        return next((number for number, s in self._services if s.client.session_id == owner), None) if owner else None

    def facts(self) -> Facts:
        """What ZooKeeper says, and what brokers believe."""
        history, nodes = self.history, self.model.tree.nodes
        holder = self.holder()
        return Facts(
            controller=holder,
            controller_runs=holder in self.controllers,
            epoch=history.controller_epoch,
            brokers=frozenset(b for b in range(1, self.plan.brokers + 1) if paths.broker_id(b) in nodes),
            states={p: s for p, s in sorted(history.states.items()) if paths.topic(p[0]) in nodes},
            topics=frozenset(topic for topic in history.topic_ids if paths.topic(topic) in nodes),
            believed={
                number: {(p.topic, p.partition): (p.leader, p.leader_epoch) for p in broker.status().metadata}
                for number, (broker, _) in sorted(self.brokers.items())
            },
        )

    def is_controller(self, session_id: int) -> bool:
        """Whether a session is that of a controller, also of one that is being stopped."""
        return any(service.client.session_id == session_id for _, service in self._services)

    def _recorded(self, service: Service, record: Record) -> None:
        if record.kind == "suspicion":
            self.marks[f"suspicion/{record.state}/{record.event}/{record.detail}"] += 1
        if record.kind != "event":
            return
        outcome = str(record.detail or "done").partition(":")[0]
        for fault in self.faults() or ["-"]:
            self.marks[f"event/{record.event}/{outcome}/{fault}"] += 1
        if service.controller.election.active and record.detail is None:
            wrong = violations(service.shell.context)
            self.problems += [f"context after {record.event}: {problem}" for problem in wrong if not self.problems]
        elif not service.controller.election.active and service.queue.statistics().deferred:
            self.problems.append(f"I12: a timer is set after {record.event}, and nobody is in office")

    def faults(self) -> list[str]:
        """What is wrong at this moment."""
        processes = [process for _, process in [*self.controllers.values(), *self.brokers.values()]]
        found = {
            "links": self.network.impaired,
            "followers lag": self.followers_lag_s > 0,
            "slow disk": any(broker.disk_delay_s for broker, _ in self.brokers.values()),
            "paused": any(process.host.paused for process in processes),
            "ZooKeeper down": not self.zookeeper.listening or self.zookeeper_host.paused,
            "broker down": len(self.brokers) < self.plan.brokers,
            "controller down": len(self.controllers) < self.plan.controllers,
            "log directory": any(broker.replicas.failed for broker, _ in self.brokers.values()),
        }
        return [name for name, present in found.items() if present]

    # -- the healing phase -----------------------------------------------------------------------------------------

    def _heal_everything(self) -> None:
        self.model.traps = []
        self.heard = lambda broker, api: None
        for _, process in [*self.controllers.values(), *self.brokers.values()]:
            process.host.resume()
        self.zookeeper_host.resume()
        self.followers_lag_s, self.crash_in = 0.0, 0
        for broker, _ in self.brokers.values():
            broker.disk_delay_s = 0.0
        self.network.heal()
        for repair in self.repairs:
            repair()
        for number in [b for b, (broker, _) in self.brokers.items() if broker.replicas.failed]:
            self.kill(self.brokers.pop(number)[1])  # a new disk needs a new process
        self._raise_the_dead()

    def _has_strays(self, broker: int, process: SimulatedBroker) -> bool:
        """Replicas of topics that are gone keep a broker from those of the same name, until it starts anew."""
        history = self.history
        for replica in process.replicas.partitions():
            partition = (replica.topic, replica.partition)
            assigned = broker in history.assigned.get(partition, ())
            same = topic_id_to_text(replica.topic_id) == history.topic_ids.get(replica.topic)
            if not (assigned and same) and history.is_excused(partition, broker):
                return True
        return False

    def _has_lost_its_registration(self, broker: int, process: SimulatedBroker) -> bool:
        """By a fast bounce that took it for dead: it lives, so does its session, and it does not register by itself."""
        return (
            self.plan.fast_bounce
            and process.status().epoch > 0
            and process.session_id in self.model.sessions
            and paths.broker_id(broker) not in self.model.tree.nodes
        )

    def _raise_the_dead(self) -> None:
        for number in [b for b, (broker, _) in self.brokers.items() if self._has_lost_its_registration(b, broker)]:
            self.history.probe("registration removed")
            self.kill(self.brokers.pop(number)[1])
        for number in [b for b, (broker, _) in self.brokers.items() if self._has_strays(b, broker)]:
            self.history.probe("stray replica")
            self.kill(self.brokers.pop(number)[1])
        for broker in range(1, self.plan.brokers + 1):
            if broker not in self.brokers or self.brokers[broker][1].task.done():
                self.start_broker(broker)
        for controller in range(1, self.plan.controllers + 1):
            if controller not in self.controllers or self.controllers[controller][1].task.done():
                self.start_controller(controller)

    async def _must_become_whole(self) -> None:
        deadline = self.clock.monotonic() + HEAL_WITHIN_S
        whole, writes = 0, -1
        while whole < WHOLE_POLLS:
            await self.clock.sleep(POLL_S)
            self._raise_the_dead()
            if self.history.violations or self.problems:
                return
            missing = await self._what_is_missing()
            if not missing and self.history.writes != writes:
                missing = [f"I9: {self.history.writes - writes} states were written in a cluster that is whole"]
                whole, writes = 1, self.history.writes
            else:
                whole = 0 if missing else whole + 1
            if self.clock.monotonic() > deadline:
                self.problems += [f"after {HEAL_WITHIN_S:.0f} s of peace: {problem}" for problem in missing[:10]]
                return
        for observer in self._requests.values():
            self.problems += observer.unanswered()

    async def _what_is_missing(self) -> list[str]:
        try:
            return await what_is_missing(
                self.zk,
                [service.inspect() for service, _ in self.controllers.values()],
                {number: broker.status() for number, (broker, _) in self.brokers.items()},
                self.targets,
                self.history,
            )
        except SessionExpiredError:  # the observer's own, which had its share of the faults
            return ["the observer's session has expired"]


def simulate(seed: int) -> Report:
    """One seed, from nothing to its verdict."""
    return simulate_plan(draw(seed))


def simulate_plan(plan: Plan) -> Report:
    return run(Simulation(plan).run())
