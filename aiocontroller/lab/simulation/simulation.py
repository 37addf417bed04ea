"""Simulates a cluster in one process from one seed: controllers, brokers, ZooKeeper, the network and time.

The simulation runs the program itself: services with their listeners, senders and sessions, and simulated brokers.  It
replaces only the network, the clock and the random numbers (``lab.simulated_net``), and ZooKeeper by a model that
speaks its protocol.

A run has two phases.  In the *fault* phase it takes the plan's steps (``plan``, ``steps``) and checks every znode
change, every control request and every answer (``history``, ``observers``).  Then it makes *peace*, and within bounded
virtual time the cluster must be whole again and stay so (``peace``).

A run is a function of its plan: the same plan gives the same digest in any process.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Collection
from typing import Any

import msgspec

from aiocontroller.config import Config, load_config
from aiocontroller.core.event_kinds import Reply
from aiocontroller.core.events import TakeOver
from aiocontroller.core.ids import TopicPartition
from aiocontroller.core.mirror import MirroredCluster
from aiocontroller.lab.checkers.history import ZNodeHistory
from aiocontroller.lab.checkers.leaderless import LeaderWatch
from aiocontroller.lab.checkers.mirrored import stale_parts
from aiocontroller.lab.checkers.observers import BrokerObserver, RequestObserver, check_journal, wrap
from aiocontroller.lab.checkers.wire_observer import WireObserver
from aiocontroller.lab.cluster.simulated_broker import BrokerConfig, SimulatedBroker
from aiocontroller.lab.exploration.journals import first_stray, unrecorded
from aiocontroller.lab.scenarios.facts import Facts
from aiocontroller.lab.scenarios.fleet import Fleet
from aiocontroller.lab.scenarios.forks import format_forks
from aiocontroller.lab.scenarios.limits import in_force
from aiocontroller.lab.scenarios.plan import DELETION, UNCLEAN, Plan, ScenarioStep, draw
from aiocontroller.lab.simulated_net import SimulatedClock, SimulatedNetwork
from aiocontroller.lab.simulation import coverage
from aiocontroller.lab.simulation.awaits import counting
from aiocontroller.lab.simulation.bounces import Bounces
from aiocontroller.lab.simulation.broker_settings import IMBALANCE_CHECK, BrokerSettings
from aiocontroller.lab.simulation.chance import Chance, FirstTimes, Lookout
from aiocontroller.lab.simulation.data import RECOVERY_WITHIN_S, SimulatedData
from aiocontroller.lab.simulation.fencing import fence
from aiocontroller.lab.simulation.observed_journal import ObservedJournal
from aiocontroller.lab.simulation.observed_zookeeper import ObservedZooKeeper
from aiocontroller.lab.simulation.peace import Peace
from aiocontroller.lab.simulation.process import Process
from aiocontroller.lab.simulation.record_checks import RecordChecks
from aiocontroller.lab.simulation.report import SimulationReport
from aiocontroller.lab.simulation.sickness import SicknessWatch
from aiocontroller.lab.simulation.steps.steps import Steps
from aiocontroller.lab.virtual_loop import run, running_loop
from aiocontroller.lab.zookeeper.zookeeper_follower import Follower
from aiocontroller.lab.zookeeper.zookeeper_server import ZooKeeperServer
from aiocontroller.net.ports import World
from aiocontroller.property_values import Secret
from aiocontroller.service import Service
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.registration import BrokerIdInUseError

log = logging.getLogger(__name__)

SESSION_TIMEOUT_MS = 3_000
SILENCE_MS = 900
HEARTBEAT_MS = 300
FAST_BOUNCE_MS = 500
AUDIT_INTERVAL_MS = 5_000
HEALTHY_MS = 1_000
AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}
LOGIN = "secret"
DATA_RULES = ("I13", "I14")


class Simulation:
    """The cluster, on which ``Steps`` acts.

    ``on_step`` is called after each step, and with None at the end.  Only the invariants ``judged`` count, or all.
    """

    quorum = ""
    """``controller.quorum.voters`` of the brokers that start from now on; with it they are in migration mode."""

    def __init__(
        self,
        plan: Plan,
        on_step: Callable[[ScenarioStep | None, float], None] = lambda step, at_s: None,
        judged: Collection[str] = (),
        lookout: Lookout | None = None,
    ) -> None:
        self.plan = plan
        """A fork draws its remaining steps again."""
        self._judged = judged
        self._on_step = on_step
        self.chance = Chance(plan, lookout)
        jitter = self.chance.source("jitter")
        self._drift = self.chance.source("drift")
        self.network = SimulatedNetwork(jitter_s=lambda: jitter.random() * 0.003)
        self.clock = SimulatedClock()
        self.model: ObservedZooKeeper = ObservedZooKeeper(
            ZNodeHistory(lambda path: path in self.model.tree.nodes, self._broker_epoch, self.clock.monotonic),
            self.is_controller,
            self._broker_of,
        )
        self.fleet = Fleet(plan.releases, plan.protocol, plan.brokers)
        self.history = self.model.history
        self.settings = BrokerSettings(plan, lambda: self.model.tree.nodes)
        self._authorizer = AUTHORIZER if plan.authorizer else {}
        logins = [self.login(number) for number in range(1, plan.controllers + 1)]
        self.model.users = dict.fromkeys(logins, LOGIN) if plan.login else None
        self.history.unclean.by_default = "true" in self.settings.ever(UNCLEAN)
        self.history.deletion_forbidden = "true" not in self.settings.ever(DELETION)
        self.zookeeper = ZooKeeperServer(self.world("zookeeper"), self.model, port=2181)
        self.zookeeper_host = self._host
        self.followers: list[ZooKeeperServer] = []
        self.followers_lag_s = 0.0
        """Extra delay of each transaction to a follower."""
        self.awaits = 0
        """The number of await points that controllers' handlers have reached."""
        self.crash_in = 0
        """After this many more await points, kill the controller that reaches the last one; 0: kill none."""
        self.clients = self.network.host("clients")
        """The host of clients that send requests to controllers; its links have no faults."""
        self.brokers: dict[int, tuple[SimulatedBroker, Process]] = {}
        self._all_brokers: list[SimulatedBroker] = []
        """All brokers, including the dead ones."""
        self.controllers: dict[int, tuple[Service, Process]] = {}
        self.targets: dict[TopicPartition, tuple[int, ...]] = {}
        """The last acknowledged targets of reassignments, for partitions that nothing has changed since."""
        self.marks: coverage.Marks = FirstTimes(self.chance.reached)
        self.history.probes = FirstTimes(lambda name: self.chance.reached(f"probe/{name}"))
        self.problems: list[str] = []
        self.denied: dict[str, bool] = {}
        """Znodes that got an ACL that denies them to all processes, and whether they still have it."""
        self.foreign_writes = 0
        self.repairs: list[Callable[[], None]] = []
        """Functions that end faults early; without them, these faults end by themselves later."""
        self.heard: Callable[[int, str], None] = lambda broker, api: None
        """Called for each control request that a broker accepts."""
        self._services: list[tuple[int, Service]] = []
        """All services with their numbers, including the dead ones."""
        self.journals: list[ObservedJournal] = []
        self.requests: dict[int, RequestObserver] = {}
        """Controller -> the observer of its latest process."""
        self.wire = WireObserver(self.history.complain, lambda: self.history.controller_epoch)
        self.wire.watch(self.network)
        self.data = SimulatedData(self) if plan.data else None
        self.leader_watch, self.sickness = LeaderWatch(self), SicknessWatch(self)
        self.bounces, self._checks = Bounces(self), RecordChecks(self)
        self._begun = 0
        """Steps that have begun."""
        self.processes: list[Process] = []
        """All that were started, in this order."""

    def login(self, controller: int) -> str:
        """Return the name by which a controller logs in to ZooKeeper."""
        return f"controller-{controller}"

    # -- life ------------------------------------------------------------------------------------------------------

    async def run(self) -> SimulationReport:
        loop = running_loop()
        loop.set_exception_handler(self._unhandled)
        self.history.answers.avoided = self.plan.avoided
        loop.task_order = self.chance.source("tasks") if self.plan.task_order else None
        await self.zookeeper.start()
        await self._start_followers()
        client = ZooKeeperClient(self.zookeeper.address, world=self.world("admin"), session_timeout_s=10)
        await client.start()
        self.zk = KafkaZkClient(client)
        self.admin = AdminZkClient(self.zk)
        await self.zk.create_top_level_paths()
        self.steps = steps = Steps(self)
        steps.arm_crash(self.plan.crash_at, before=self.plan.crash_before)
        self.crash_in = self.plan.crash_await
        with coverage.watching(self.marks), in_force(self.plan.limits):
            try:
                await self._start_cluster()
                while self._begun < len(self.plan.steps):
                    step = self.plan.steps[self._begun]
                    self._begun += 1
                    self.sickness.stepped(step)
                    await steps.take(step)
                    self.sickness.stepped(step)
                    self._on_step(step, self.clock.monotonic())
                    if self.violations():
                        break
                else:
                    await Peace(self).make()
                    self._on_step(None, self.clock.monotonic())
            finally:
                await self._end(client)
        return self._report(steps.taken)

    async def _start_cluster(self) -> None:
        for broker in range(1, self.plan.brokers + 1):
            self.start_broker(broker)
        for controller in range(1, self.plan.controllers + 1):
            self.start_controller(controller)
        self.leader_watch.start()
        if self.data is not None:
            self.data.start_clients()
        await self.clock.sleep(2)

    async def _start_followers(self) -> None:
        lag = self.chance.source("followers")
        for number in range(1, self.plan.followers + 1):
            follower = Follower(self.model, self.clock, lambda: lag.random() * 0.02 + self.followers_lag_s)
            world = World(self.zookeeper_host, self.clock, lag)
            server = ZooKeeperServer(world, self.model, port=2181 + number, follower=follower)
            self.followers.append(await server.start())

    @property
    def zookeeper_connect(self) -> str:
        return ",".join(server.address for server in [self.zookeeper, *self.followers])

    def violations(self) -> list[str]:
        """Return all violations so far, of the invariants that are judged."""
        found = [str(v) for v in self.history.violations] + self.problems
        return [each for each in found if each.startswith(tuple(self._judged))] if self._judged else found

    def _report(self, taken: dict[str, int]) -> SimulationReport:
        digest = self.history.digest
        if self.data is not None:
            digest.update(self.history.data.digest.digest())
        for journal in self.journals:
            digest.update(journal.content())
            self.problems += check_journal(journal.records)
        records = [journal.records for journal in self.journals]
        stray = first_stray(records, unrecorded(records, self.history))
        if stray is not None:
            self.problems.append(f"specification: {stray}")
        for name, count in self.history.probes.items():
            self.marks[f"probe/{name}"] += count
        seen = {
            "stale read": self.model.stale_reads,
            "overtaken on another connection": self.network.reordered,
            "clocks of different speed": int(self.plan.drift_percent > 0),
            "small limits": len(self.plan.limits),
            "an authorizer": int(self.plan.authorizer),
            "drawn order of tasks": int(self.plan.task_order),
            "a broker that should not lead": self.plan.avoided,
            f"recovery strategy {self.plan.recovery}": int(self.data is not None),
            "seconds without a leader that a controller could have elected": round(self.leader_watch.spent_s),
        }
        self.marks.update({f"probe/{name}": count for name, count in seen.items() if count})
        return SimulationReport(
            self.plan.seed,
            self.violations(),
            round(self.clock.monotonic(), 3),
            sum(len(journal.of_kind("event")) for journal in self.journals),
            self.history.writes,
            self.model.controller_writes,
            self.awaits,
            dict(sorted(taken.items())),
            dict(sorted(self.marks.items())),
            digest.hexdigest()[:16],
            format_forks(self.chance.forks),
            dict(sorted(self.chance.rare.items())),
        )

    async def _end(self, client: ZooKeeperClient) -> None:
        for _, process in [*self.controllers.values(), *self.brokers.values()]:
            self.kill(process)
        self.network.heal()
        if self.data is not None:
            self.data.stop_clients()
        await client.close()
        self.zookeeper.stop()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        message = str(context.get("message"))
        if (
            "never retrieved" not in message
        ):  # logged by the garbage collector at no fixed time, often for killed processes
            self.problems.append(f"bug: {message}: {context.get('exception')!r}")

    # -- processes -------------------------------------------------------------------------------------------------

    def world(self, name: str) -> World:
        """Return the world of a process with a host of its own."""
        self._host = self.network.host(name)
        chance, run = self.chance.source(name), functools.partial(fence, self)
        return World(self._host, SimulatedClock(self._host), chance, run_command=run, debug=True)

    def _start(self, name: str, serve: Callable[[World], Awaitable[None]]) -> Process:
        world = self.world(f"{name}#{len(self.processes) + 1}")
        self._host.clock_rate = 1.0 + self.plan.drift_percent / 100 * (2 * self._drift.random() - 1)
        process = Process(name, self._host, asyncio.ensure_future(serve(world)))
        process.task.add_done_callback(lambda task: self._ended(process, task))
        self.processes.append(process)
        return process

    def _is_starting(self, name: str) -> bool:
        """Return whether the process was started but its task has not run yet; then a second one must not start."""
        return any(process.name == name and not process.begun for process in self.processes if process.alive)

    def _ended(self, process: Process, task: asyncio.Task[None]) -> None:
        if task.cancelled() or process.host.crashed or (error := task.exception()) is None:
            return
        expected = isinstance(error, BaseExceptionGroup) and error.split(BrokerIdInUseError)[1] is None
        if not expected:  # Kafka's broker also gives up if its predecessor's session does not end
            self.problems.append(f"bug: {process.name} ended with {error!r}")

    def kill(self, process: Process) -> None:
        """Kill a process as SIGKILL does: nothing that it does from now on has an effect."""
        self.network.crash(process.host)
        process.task.cancel()

    def start_broker(self, broker: int) -> None:
        if self._is_starting(f"broker {broker}"):
            return

        async def serve(world: World) -> None:
            made = SimulatedBroker(self._broker_config(broker), world)
            self._all_brokers.append(made)
            BrokerObserver(self.history, made, self._heard)
            self.brokers[broker] = (made, process)
            process.begun = True
            self._probe_fleet(broker)
            if self.data is not None:
                await self.data.mount(made, process, world)
            await made.run()

        process = self._start(f"broker {broker}", serve)

    def _broker_config(self, broker: int) -> BrokerConfig:
        """Return what the broker reads as it begins; until then steps may change it without a restart."""
        return BrokerConfig(
            broker,
            self.zookeeper_connect,
            None,
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            replica_lag_time_max_ms=2_000,
            release=self.fleet.brokers[broker].release,
            inter_broker_protocol_version=self.fleet.brokers[broker].protocol,
            settings=IMBALANCE_CHECK | self.settings.files[broker] | self._authorizer,
            retained_records=self.plan.retained,
            reports_policy=True,
            controller_quorum_voters=self.quorum,
        )

    def _probe_fleet(self, broker: int) -> None:
        version = self.fleet.brokers[broker]
        self.history.probe(f"a broker of {version.release}")
        if version.protocol:
            self.history.probe(f"inter-broker protocol {version.protocol}")
        if self.fleet.mixed:
            self.history.probe("brokers of several releases")

    def _heard(self, broker: int, api: str) -> None:
        self.heard(broker, api)

    def start_controller(self, number: int) -> None:
        if self._is_starting(f"controller {number}"):
            return
        ours, _ = load_config(overrides=self.settings.controllers[number] | self._authorizer)
        config = msgspec.structs.replace(
            ours,
            zookeeper_connect=self.zookeeper_connect,
            zookeeper_session_timeout_ms=SESSION_TIMEOUT_MS,
            controller_socket_timeout_ms=1_000,
            request_timeout_ms=2_000,
            aiocontroller_audit_interval_ms=AUDIT_INTERVAL_MS,
            aiocontroller_zookeeper_sasl_username=self.login(number) if self.plan.login else None,
            aiocontroller_zookeeper_sasl_password=Secret(LOGIN) if self.plan.login else None,
            aiocontroller_id=1_000_000 + (1 if self.plan.shared_id else number),
            aiocontroller_takeover_policy="takeover" if self.plan.takeover else Config().aiocontroller_takeover_policy,
            aiocontroller_standby="warm" if self.plan.warm else "cold",
            aiocontroller_early_broker_detection=self.plan.broker_detection,
            aiocontroller_early_controller_detection=self.plan.controller_detection,
            aiocontroller_early_detection_silence_ms=SILENCE_MS,
            aiocontroller_early_detection_heartbeat_interval_ms=HEARTBEAT_MS,
            aiocontroller_early_fast_bounce_ms=FAST_BOUNCE_MS if self.plan.fast_bounce else 0,
            aiocontroller_fence_command=("fence", "{broker}") if self.plan.fence else (),
            aiocontroller_fence_timeout_ms=2_000,
            aiocontroller_sickness_mode=self.plan.sickness,
            aiocontroller_sickness_healthy_ms=HEALTHY_MS,
            aiocontroller_leader_avoid_brokers=(self.plan.avoided,) if self.plan.avoided else (),
            aiocontroller_unclean_recovery_strategy=self.plan.recovery,
            aiocontroller_unclean_recovery_timeout_ms=round(RECOVERY_WITHIN_S * 1000),
        )

        async def serve(world: World) -> None:
            journal = ObservedJournal(
                config.aiocontroller_id, self.clock, lambda r: self._checks.take(number, service, r)
            )
            self.journals.append(journal)
            service = Service(config, world, journal=journal, with_http=False)
            self._services.append((number, service))
            if (mirror := service.controller.election.mirror) is not None:
                wrap(mirror, "take", lambda take: self._taken(service, take()))
            self.requests[number] = RequestObserver(service.queue, self.clock.monotonic)
            wrap(service.controller, "_handle", lambda handle, events: counting(handle(events), self._at_await(number)))
            self.controllers[number] = (service, process)
            process.begun = True
            await service.run()

        process = self._start(f"controller {number}", serve)

    def take_over(self, number: int) -> None:
        """Have a controller take the role, as an operator does; it may refuse."""

        def answered(reasons: object) -> None:
            self.history.probe(f"takeover {'refused' if reasons else 'done'}")

        self.controllers[number][0].queue.append(TakeOver(reply=Reply(answered)))

    def _taken(self, service: Service, copy: MirroredCluster | None) -> MirroredCluster | None:
        """A standby has been elected and continues with its copy of the cluster."""
        self.history.probe("failover of a warm standby, " + ("cold" if copy is None else "with its copy"))
        if copy is not None and self._owner() == service.client.session_id:
            self.problems += [f"copy: {stale}" for stale in stale_parts(copy, self.model.tree.nodes)]
        return copy

    def _at_await(self, number: int) -> Callable[[], None]:
        def at_await() -> None:
            self.awaits += 1
            self._fork_here()
            if self.crash_in:
                self.crash_in -= 1
                if not self.crash_in and number in self.controllers:
                    self.history.probe("crash at an await point")
                    self.kill(self.controllers.pop(number)[1])
                    self.clock.call_later(0.1, lambda: self._start_again(number))

        return at_await

    def _fork_here(self) -> None:
        """If the run forks here, draw everything that follows again."""
        if self.chance.at_await(self.awaits, steps_left=self._begun < len(self.plan.steps)):
            self.steps.chance.seed(f"{self.chance.lineage} step")
            if not self.plan.steps_stay:
                self.plan = self.plan.redrawn(self._begun, self.chance.lineage)

    def _start_again(self, number: int) -> None:
        if number not in self.controllers:
            self.start_controller(number)

    def _broker_epoch(self, broker: int) -> int:
        """Return the incarnation of a broker that the active controller knows, or 0 if it knows none.

        Only the active controller informs brokers.
        """
        owner = self._owner()
        for _, service in self._services if owner else ():
            if service.client.session_id == owner:
                known = service.shell.context.brokers.get(broker)
                return 0 if known is None else known.epoch
        return 0

    def _owner(self) -> int:
        """Return the session that owns ``/controller``, or 0 if there is none."""
        node = self.model.tree.nodes.get(paths.CONTROLLER)
        return 0 if node is None else node.owner

    def holder(self) -> int | None:
        """Return the number of the controller whose session owns ``/controller``; its process may be dead."""
        owner = self._owner()
        return next((number for number, s in self._services if s.client.session_id == owner), None) if owner else None

    def holding(self) -> tuple[Service, Process] | None:
        """Return the running process whose session owns ``/controller``: not one that was started after it."""
        owner = self._owner()
        return next((each for each in self.controllers.values() if owner and each[0].client.session_id == owner), None)

    def facts(self) -> Facts:
        """Return the state in ZooKeeper and the brokers' beliefs."""
        history, nodes = self.history, self.model.tree.nodes
        return Facts(
            controller=self.holder(),
            controller_runs=self.holding() is not None,
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
        """Return whether the session belongs to a controller, even if that controller is being stopped."""
        return any(service.client.session_id == session_id for _, service in self._services)

    def _broker_of(self, session_id: int) -> int:
        """Return the broker that owns the session, or -1 if no broker does."""
        return next((broker.config.id for broker in self._all_brokers if broker.session_id == session_id), -1)

    def faults(self) -> list[str]:
        """Return the names of the faults that are in force."""
        processes = [process for _, process in [*self.controllers.values(), *self.brokers.values()]]
        found = {
            "links": self.network.impaired,
            "followers lag": self.followers_lag_s > 0,
            "slow disk": any(broker.disk_delay_s for broker, _ in self.brokers.values()),
            "paused": any(process.host.paused for process in processes),
            "ZooKeeper down": not self.zookeeper.listening or self.zookeeper_host.paused,
            "ZooKeeper refuses": bool(self.model.refuses or self.model.requires_login or any(self.denied.values()))
            or (self.plan.login and len(self.model.users or ()) < self.plan.controllers),
            "broker down": len(self.brokers) < self.plan.brokers,
            "controller down": len(self.controllers) < self.plan.controllers,
            "log directory": any(broker.replicas.failed for broker, _ in self.brokers.values()),
        }
        return [name for name, present in found.items() if present]


def simulate(seed: int) -> SimulationReport:
    """Draw the plan of a seed, run it, and return its report."""
    return simulate_plan(draw(seed))


def simulate_plan(plan: Plan, judged: Collection[str] = ()) -> SimulationReport:
    return run(Simulation(plan, judged=judged).run())
