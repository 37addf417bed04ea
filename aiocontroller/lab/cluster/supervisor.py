"""Runs the processes of ``aiocontroller up``: ZooKeeper, brokers (simulated or real) and the controller.

Children die with this process, whatever ends it (``processes``).  ``stop`` ends them in order within seconds: first the
controller, so that it holds no elections while the brokers leave, then the brokers, then ZooKeeper.  Real brokers end
before the controller, by a controlled shutdown that leaves clean logs.  The children's output is in the data folder:
``zookeeper/zookeeper.log``, ``controller/log``, ``broker-N/log`` (a real broker's: ``broker-N/broker.log``).

ZooKeeper's data stay in the folder, and the next start continues with them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from aiocontroller.cluster_file import (
    CLUSTER_FILE,
    ClusterFile,
    ClusterNotRunningError,
    read_cluster_file,
    write_cluster_file,
)
from aiocontroller.controller.obeyed_settings import OBEYED
from aiocontroller.core.ids import Broker
from aiocontroller.data_folder import FolderLock
from aiocontroller.lab.cluster.control import (
    BROKER_COMMANDS,
    COMMANDS,
    KRAFT_COMMANDS,
    LOOPBACK,
    ClusterSnapshot,
    CommandError,
    ControlServer,
    ProcessSnapshot,
    send_command,
)
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper
from aiocontroller.lab.cluster.migrating import MigratingBroker, MigrationController, Mode
from aiocontroller.lab.cluster.migration_order import claimed, refuse_mode, refuse_release, refuse_to_finalize
from aiocontroller.lab.cluster.processes import Child, ChildFailedError, stop_all
from aiocontroller.lab.cluster.real_kafka import START_TIMEOUT_S as REAL_START_TIMEOUT_S
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker, kafka_jars, release
from aiocontroller.lab.cluster.simulated_broker import BrokerConfig, broker_command, read_ready
from aiocontroller.lab.cluster.topics import create_missing_topics, partitions_without_leader
from aiocontroller.net.ports import World
from aiocontroller.net.real import real_world
from aiocontroller.net.taken_ports import refuse_a_taken_port
from aiocontroller.net.tasks import LooseTasks
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.znodes import SOFTWARE

__all__ = [
    "CLUSTER_FILE",
    "COMMANDS",
    "ClusterFile",
    "ClusterNotRunningError",
    "ClusterOptions",
    "ClusterSnapshot",
    "ClusterSupervisor",
    "CommandError",
    "read_cluster_file",
    "send_command",
]

log = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
CONTROLLER_STOP_TIMEOUT_S, BROKER_STOP_TIMEOUT_S, ZOOKEEPER_STOP_TIMEOUT_S = 3.5, 2.0, 1.5
"""A child that takes longer to stop is killed."""
CLIENT_STOP_TIMEOUT_S = 0.5
REAL_STOP_TIMEOUT_S = 15.0
SHUTDOWN_TIMEOUT_S = 120.0
"""A broker that takes longer is killed, and must recover its logs."""
LED_TIMEOUT_S = 120.0
WATCH_S = 0.2
MAX_EVENTS = 100

CONTROLLER_PROPERTIES = {
    "zookeeper.session.timeout.ms": "6000",
    "leader.imbalance.check.interval.seconds": "5",
}
"""Properties with smaller values than Kafka's defaults, so that effects show quickly."""
KRAFT = "kraft-controller"
SIGTERM_EXIT = 128 + signal.SIGTERM
"""A JVM's exit code after SIGTERM and a clean shutdown."""


class ClusterOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run.  A port of 0 takes a free one, which is kept across restarts.  Times in milliseconds."""

    data_dir: Path
    brokers: int = 3
    kafka: str | None = None
    """Real brokers of this Kafka version; None: simulated ones."""
    topics: int = 4
    partitions: int = 8
    """Partitions of each topic."""
    replication_factor: int = 3
    zookeeper_port: int = 0
    listen_port: int = 0
    """The controller's."""
    http_port: int = 0
    control_port: int = 0
    broker_session_timeout_ms: int = 6_000
    replica_lag_time_max_ms: int = 30_000
    zookeeper_tick_ms: int = 500
    controller_properties: Mapping[str, str] = {}
    """Override ``CONTROLLER_PROPERTIES``, by Kafka's names."""


class _ControllerReady(msgspec.Struct, frozen=True):
    """The supervisor's part of the file that ``aiocontroller run`` writes when it is ready."""

    pid: int
    http: str
    listeners: list[str]


class ClusterSupervisor:
    """``start``, then ``execute`` commands and look at ``snapshot()``, then ``stop``; or ``async with``."""

    def __init__(self, options: ClusterOptions, world: World | None = None) -> None:
        self.options = options
        self._world = world or real_world()
        self._data = options.data_dir
        self._lock = FolderLock(options.data_dir)
        self._token = secrets.token_hex(16)
        self._control = ControlServer(self._token, self.execute)
        self._children: dict[str, Child] = {}
        self._kafka = None if options.kafka is None else release(options.kafka)
        self._real: dict[int, MigratingBroker] = {}
        self._kraft: MigrationController | None = None
        self._meant_to_run: dict[str, bool] = {}
        self._ports: dict[str, int] = {"controller": options.listen_port, "http": options.http_port}
        self._http = ""
        self._zookeeper = EmbeddedZooKeeper(
            self._data / "zookeeper",
            options.zookeeper_port,
            tick_ms=options.zookeeper_tick_ms,
            heap_mb=512 + options.topics * options.partitions // 500,
        )
        self._client: ZooKeeperClient | None = None
        self._zk: KafkaZkClient | None = None
        self._events: deque[str] = deque(maxlen=MAX_EVENTS)
        self._tasks = LooseTasks()
        self._one_at_a_time = asyncio.Lock()

    # -- life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> ClusterSupervisor:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start everything; wait until the topics exist, every partition has a leader, and our controller is active.

        Raises FolderInUseError, or ChildFailedError and JavaMissingError from the children; then all processes have
        been stopped.
        """
        self._lock.acquire()
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def _start(self) -> None:
        if self._kafka is not None:
            log.info("Looking for the jars of Kafka %s; the first time, Maven downloads about 50 MB", self._kafka)
            await asyncio.to_thread(kafka_jars, self._kafka)
        await self._zookeeper.start_async()
        self._note("zookeeper", f"runs on {self._zookeeper.address}")
        self._client = ZooKeeperClient(self._zookeeper.address, world=self._world)
        await self._client.start(START_TIMEOUT_S)
        self._zk = KafkaZkClient(self._client)
        if await claimed(self._zk):
            raise CommandError(f"{self._data}: found a cluster that KRaft has claimed: delete the folder to begin anew")
        await self._zk.create_top_level_paths()
        await asyncio.gather(
            self._start_controller(), *(self._start_broker(each) for each in range(1, self.options.brokers + 1))
        )
        await self._control.start(self.options.control_port)
        self._publish()
        self._tasks.start_soon(self._watch, name="watcher")
        options = self.options
        created = await create_missing_topics(
            self.zk, options.topics, options.partitions, options.replication_factor, options.brokers
        )
        if created:
            self._note("topics", f"created: {created} of {options.partitions} partitions each")
        await self.wait_until_led()
        if self._controller_properties().get("aiocontroller.takeover.policy") == "takeover":
            await self._until_taken_over()

    def claim(self) -> None:
        """Lock the folder, as ``start`` does.  Raises FolderInUseError."""
        self._lock.acquire()

    @property
    def stop_within_s(self) -> float:
        """The longest time that ``stop`` can take, even if all children hang."""
        real = 0.0 if self._kafka is None else REAL_STOP_TIMEOUT_S
        own = CLIENT_STOP_TIMEOUT_S + CONTROLLER_STOP_TIMEOUT_S + BROKER_STOP_TIMEOUT_S + ZOOKEEPER_STOP_TIMEOUT_S
        return real + own + 1.5

    async def stop(self) -> None:
        """End everything, even if a child hangs.  A second call does nothing."""
        self._tasks.cancel()
        await self._control.close()
        if self._client is not None:
            await self._client.close(CLIENT_STOP_TIMEOUT_S)
            self._client = self._zk = None
        controllers = [self._children.pop(name) for name in ("controller", KRAFT) if name in self._children]
        brokers, self._children = list(self._children.values()), {}
        if self._kafka is not None:
            await stop_all(brokers, REAL_STOP_TIMEOUT_S, signal.SIGTERM)
        await stop_all(controllers, CONTROLLER_STOP_TIMEOUT_S, signal.SIGTERM)
        await stop_all(brokers, BROKER_STOP_TIMEOUT_S, signal.SIGINT)
        await self._zookeeper.stop_async(ZOOKEEPER_STOP_TIMEOUT_S)
        if self._lock.held:
            (self._data / CLUSTER_FILE).unlink(missing_ok=True)
            self._lock.release()

    @property
    def zk(self) -> KafkaZkClient:
        """The supervisor's own connection to the cluster's ZooKeeper."""
        if self._zk is None:
            raise ClusterNotRunningError(f"no cluster runs in {self._data}")
        return self._zk

    @property
    def zookeeper_address(self) -> str:
        return self._zookeeper.address

    @property
    def bootstrap(self) -> str:
        return ",".join(
            f"127.0.0.1:{self._ports[name]}"
            for broker in self._broker_ids()
            if (name := f"broker-{broker}") in self._ports
        )

    @property
    def http(self) -> str:
        return self._http

    def snapshot(self) -> ClusterSnapshot:
        return ClusterSnapshot(
            ProcessSnapshot("zookeeper", self._zookeeper.running, self._zookeeper.pid or 0, self._zookeeper.port, None),
            self._process("controller"),
            {broker: self._process(f"broker-{broker}") for broker in self._broker_ids()},
            self._zookeeper.address,
            self.bootstrap,
            self._http,
            list(self._events),
        )

    # -- commands --------------------------------------------------------------------------------------------------

    async def execute(self, command: str, broker: int | None = None, mode: Mode | None = None) -> dict[str, Any]:
        """Execute one of ``COMMANDS``; returns its outcome.  CommandError if it is not possible."""
        if command not in COMMANDS:
            raise CommandError(f"command: found {command!r}, expected one of {', '.join(COMMANDS)}")
        if command == "status":
            return dict(msgspec.to_builtins(self.snapshot(), str_keys=True))
        if mode is not None or command in KRAFT_COMMANDS:
            refuse_release(self._kafka)
        async with self._one_at_a_time:
            if command in BROKER_COMMANDS:
                done = await self._broker_command(command, broker, mode)
            elif command in KRAFT_COMMANDS:
                done = await self._kraft_command(command)
            elif command == "kill-zookeeper-session":
                done = await self._kill_zookeeper_session()
            else:
                done = await self._controller_command(command)
            self._publish()
        return {"done": done}

    async def _broker_command(self, command: str, broker: int | None, mode: Mode | None) -> str:
        if broker is None:
            raise CommandError(f"{command}: found no broker id, expected one of {self._known_ids()}")
        name = f"broker-{broker}"
        if command == "start-broker":
            if self._running(name):
                raise CommandError(f"broker {broker} runs already (process {self._children[name].pid})")
            if broker not in self._broker_ids() and broker != max(self._broker_ids(), default=0) + 1:
                raise CommandError(
                    f"broker id: found {broker}, expected one of {self._known_ids()}, or the next higher"
                )
            await self._refuse_mode(broker, mode)
            return await self._started_broker(broker, mode)
        if name not in self._children:
            raise CommandError(f"broker id: found {broker}, expected one of {self._known_ids()}")
        if not self._running(name):
            raise CommandError(f"broker {broker} does not run")
        if command == "restart-broker":
            await self._refuse_mode(broker, mode)
        ended = await self._end(name, f"broker {broker}", kill=command == "kill-broker")
        return f"{ended}; {await self._started_broker(broker, mode)}" if command == "restart-broker" else ended

    async def _refuse_mode(self, broker: int, mode: Mode | None) -> None:
        """Raise CommandError if a real broker would not serve in this mode (None: as before)."""
        if self._kafka is not None:
            before = self._real[broker].mode if broker in self._real else Mode.ZOOKEEPER
            refuse_mode(mode or before, self._kraft, is_claimed=await claimed(self.zk))

    async def _started_broker(self, broker: int, mode: Mode | None) -> str:
        await self._start_broker(broker, mode)
        how = "" if mode is None else f" in {mode} mode"
        return f"broker {broker} runs again{how} (process {self._children[f'broker-{broker}'].pid})"

    async def _kraft_command(self, command: str) -> str:
        """Start, stop or finalize the one KRaft controller (``migrating``)."""
        runs = self._running(KRAFT)
        if command == "start-kraft-controller":
            if runs:
                raise CommandError(f"the KRaft controller runs already (process {self._children[KRAFT].pid})")
            return await self._start_kraft()
        if not runs or self._kraft is None:
            raise CommandError("the KRaft controller does not run")
        if command == "finalize-migration":
            refuse_to_finalize(self._real, self._kraft)
        ended = await self._end(KRAFT, "the KRaft controller", kill=False)
        if command == "stop-kraft-controller":
            return ended
        self._kraft.migrates = False
        return f"{ended}; {await self._start_kraft()} without ZooKeeper"

    async def _controller_command(self, command: str) -> str:
        runs = self._running("controller")
        if command == "start-controller":
            if runs:
                raise CommandError(f"the controller runs already (process {self._children['controller'].pid})")
            await self._start_controller()
            return f"the controller runs again (process {self._children['controller'].pid})"
        if not runs:
            raise CommandError("the controller does not run")
        return await self._end("controller", "the controller", kill=command == "kill-controller")

    async def _end(self, name: str, called: str, *, kill: bool) -> str:
        child = self._children[name]
        self._meant_to_run[name] = False
        if kill:
            child.kill()
            done = f"{called} was killed (process {child.pid}, SIGKILL)"
        else:
            code = await child.stop_async(SHUTDOWN_TIMEOUT_S)
            how = "shut down in a controlled way" if code in (0, SIGTERM_EXIT) else "did not shut down cleanly"
            done = f"{called} {how} (process {child.pid}, exit code {code})"
        self._note(name, "killed" if kill else "stopped")
        return done

    async def _kill_zookeeper_session(self) -> str:
        if not self._running("controller"):
            raise CommandError("the controller does not run")
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session,
                session.post(f"{self._http}/debug/expire-session") as response,
            ):
                if response.status >= 400:
                    raise CommandError(f"the controller refused: {response.status} {(await response.text())[:500]}")
        except (aiohttp.ClientError, TimeoutError) as error:
            raise CommandError(f"the controller at {self._http} does not answer: {error!r}") from error
        self._note("controller", "lost its ZooKeeper session")
        return "the controller's ZooKeeper session is over; it opens a new one and contends again"

    # -- children --------------------------------------------------------------------------------------------------

    async def _start_broker(self, broker: int, mode: Mode | None = None) -> None:
        if self._kafka is None:
            await self._start_simulated_broker(broker)
        else:
            await self._start_real_broker(broker, self._kafka, mode)

    async def _start_real_broker(self, broker: int, version: str, mode: Mode | None) -> None:
        name = f"broker-{broker}"
        if broker not in self._real:
            self._real[broker] = MigratingBroker(
                broker,
                self._zookeeper.address,
                self._data / name,
                version=version,
                replication_factor=min(3, self.options.brokers),
                overrides={
                    "zookeeper.session.timeout.ms": str(self.options.broker_session_timeout_ms),
                    **{name: value for name, value in self._controller_properties().items() if name in OBEYED},
                },
            )
        real = self._real[broker]
        real.mode = mode or real.mode
        if self._kraft is not None:
            real.voters = self._kraft.voter
        await self._until_unregistered(broker)
        await self._launch_real(name, real)
        self._note(name, f"answers: port {real.port}, Kafka {version}, {real.mode} mode")

    async def _start_kraft(self) -> str:
        """Start the KRaft controller, formatted anew unless it is in the middle of a migration."""
        if self._kraft is None:
            assert self._kafka is not None
            self._kraft = MigrationController(self._zookeeper.address, self._data / KRAFT, version=self._kafka)
        if await self.zk.get_migration() is None:
            cluster_id = await self.zk.get_cluster_id()
            if not isinstance(cluster_id, str):
                raise CommandError(f"cluster id: found {cluster_id}, expected the one that a broker has written")
            self._kraft.migrates = True
            await asyncio.to_thread(self._kraft.format, cluster_id)
        await self._launch_real(KRAFT, self._kraft)
        self._note(KRAFT, f"answers: {self._kraft.address}")
        return f"the KRaft controller runs (process {self._children[KRAFT].pid})"

    async def _launch_real(self, name: str, node: RealKafkaBroker) -> None:
        child = self._children[name] = node.launch()
        self._meant_to_run[name] = True
        self._ports[name] = node.port
        await self._until_ready(name, child, node.answers, REAL_START_TIMEOUT_S)

    async def _until_unregistered(self, broker: int) -> None:
        """Wait until the old registration is gone: a Kafka broker that finds one exits with an error."""
        while isinstance(await self.zk.get_broker(broker, watch=False), Broker):  # noqa: ASYNC110 - no event
            await asyncio.sleep(WATCH_S)

    async def _start_simulated_broker(self, broker: int) -> None:
        name = f"broker-{broker}"
        folder = self._data / name
        config = BrokerConfig(
            broker,
            self._zookeeper.address,
            folder,
            self._ports.get(name, 0),
            zookeeper_session_timeout_ms=self.options.broker_session_timeout_ms,
            replica_lag_time_max_ms=self.options.replica_lag_time_max_ms,
        )
        (folder / "broker.json").unlink(missing_ok=True)
        self._refuse_taken_ports(name)
        child = self._launch(name, [sys.executable, *broker_command(config)])

        def ready() -> bool:
            reported = read_ready(folder)
            return reported is not None and reported.pid == child.pid

        await self._until_ready(name, child, ready)
        reported = read_ready(folder)
        assert reported is not None
        self._ports[name] = reported.port
        self._note(name, f"registered: port {reported.port}, epoch {reported.epoch}")

    async def _start_controller(self) -> None:
        ready_file = self._data / "controller" / "controller.json"
        ready_file.unlink(missing_ok=True)
        self._refuse_taken_ports("controller", "http")
        child = self._launch("controller", self.controller_command())

        def ready() -> _ControllerReady | None:
            try:
                reported = msgspec.json.decode(ready_file.read_bytes(), type=_ControllerReady)
            except (FileNotFoundError, msgspec.MsgspecError):
                return None
            return reported if reported.pid == child.pid else None

        await self._until_ready("controller", child, lambda: ready() is not None)
        reported = ready()
        assert reported is not None
        self._http = reported.http
        self._ports["http"] = int(reported.http.rpartition(":")[2])
        self._ports["controller"] = int(reported.listeners[0].rpartition(":")[2])
        self._note("controller", f"runs: port {self._ports['controller']}, {reported.http}")

    def _controller_properties(self) -> dict[str, str]:
        """Return the controller's properties.

        With real brokers the controller takes over, since a broker may win the role before the controller starts.
        """
        policy = {} if self._kafka is None else {"aiocontroller.takeover.policy": "takeover"}
        return {**CONTROLLER_PROPERTIES, **policy, **self.options.controller_properties}

    def controller_command(self) -> list[str]:
        """Return the controller's command line; only this method knows the options of ``aiocontroller run``."""
        properties = self._controller_properties()
        return [
            sys.executable,
            "-m",
            "aiocontroller",
            "run",
            "--zookeeper",
            self._zookeeper.address,
            "--listen",
            f"127.0.0.1:{self._ports['controller']}",
            "--http-port",
            str(self._ports["http"]),
            "--data",
            str(self._data / "controller"),
            "--debug",
            *(part for key, value in properties.items() for part in ("--property", f"{key}={value}")),
        ]

    def _refuse_taken_ports(self, *names: str) -> None:
        """Fail early if a port is taken: otherwise a child would exit with the reason hidden in its log."""
        for name in names:
            try:
                refuse_a_taken_port(LOOPBACK, self._ports.get(name, 0))
            except OSError as error:
                raise ChildFailedError(f"{name}: {error.strerror}") from error

    def _launch(self, name: str, command: list[str]) -> Child:
        child = self._children[name] = Child(name, command, log=self._data / name / "log")
        self._meant_to_run[name] = True
        return child

    async def _until_ready(self, name: str, child: Child, ready: Any, timeout_s: float = START_TIMEOUT_S) -> None:
        try:
            await child.wait_until_async(ready, timeout_s)
        except BaseException:
            self._meant_to_run[name] = False
            child.kill()
            raise

    async def _watch(self) -> None:
        """Note children that end by themselves."""
        while True:
            await asyncio.sleep(WATCH_S)
            for name, child in self._children.items():
                if self._meant_to_run.get(name) and not child.running:
                    self._meant_to_run[name] = False
                    self._note(name, f"ended by itself with {child.exit_code}; see {child.log}")
                    self._publish()

    def _publish(self) -> None:
        processes = {name: child.pid for name, child in self._children.items() if child.running}
        if self._zookeeper.pid:
            processes["zookeeper"] = self._zookeeper.pid
        write_cluster_file(
            self._data,
            ClusterFile(
                os.getpid(),
                self._zookeeper.address,
                self.bootstrap,
                self._http,
                self._control.url,
                self._token,
                processes,
            ),
        )

    def _note(self, name: str, what: str) -> None:
        log.info("%s %s", name, what)
        self._events.append(f"{name} {what}")

    def _process(self, name: str) -> ProcessSnapshot:
        child = self._children.get(name)
        if child is None:
            return ProcessSnapshot(name, False, 0, self._ports.get(name, 0), None)
        return ProcessSnapshot(name, child.running, child.pid, self._ports.get(name, 0), child.exit_code)

    def _running(self, name: str) -> bool:
        child = self._children.get(name)
        return child is not None and child.running

    def _broker_ids(self) -> list[int]:
        started = (int(name.removeprefix("broker-")) for name in self._children if name.startswith("broker-"))
        return sorted(started)

    def _known_ids(self) -> str:
        return ", ".join(map(str, self._broker_ids()))

    # -- the cluster as a whole ------------------------------------------------------------------------------------

    async def wait_until_led(self, timeout_s: float = LED_TIMEOUT_S) -> None:
        """Wait until every partition of every topic has a live leader; CommandError after ``timeout_s``."""
        pause, deadline = 0.05, self._world.clock.monotonic() + timeout_s
        while (waiting := await partitions_without_leader(self.zk)) > 0:
            if self._world.clock.monotonic() > deadline:
                raise CommandError(f"{waiting} partitions have no leader after {timeout_s:g} s")
            await asyncio.sleep(pause)
            pause = min(1.5 * pause, 1.0)

    async def _until_taken_over(self) -> None:
        """Wait until our controller has the role, which a broker may have won first."""
        deadline = self._world.clock.monotonic() + LED_TIMEOUT_S
        while getattr(holder := await self.zk.get_controller(watch=False), "software", None) != SOFTWARE:
            if self._world.clock.monotonic() > deadline:
                raise CommandError(f"controller: found {holder}, expected ours after {LED_TIMEOUT_S:g} s")
            await asyncio.sleep(WATCH_S)
