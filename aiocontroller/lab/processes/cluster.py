"""A cluster of real processes that fails on command: ZooKeeper, brokers, controllers, and a proxy on every link.

Each process reaches ZooKeeper through a proxy of its own, and the others reach it through another one, so that a link
can be cut, blocked or slowed for one process alone.  Everything listens on loopback and ends with the caller
(``lab.cluster.processes``).

    clients, brokers, controllers ──> front ──> PROCESS ──> one proxy per server ──> ZooKeeper
"""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from aiocontroller.core.errors import AioControllerError
from aiocontroller.lab.cluster.broker_server import BrokerStatus
from aiocontroller.lab.cluster.embedded_zookeeper import EmbeddedZooKeeper, ZooKeeperEnsemble
from aiocontroller.lab.cluster.processes import Child
from aiocontroller.lab.cluster.real_kafka import RealKafkaBroker
from aiocontroller.lab.cluster.simulated_broker import BrokerConfig, broker_command, read_ready, read_status
from aiocontroller.lab.processes.link_proxy import LinkProxy
from aiocontroller.lab.processes.wall_clock import WallClock
from aiocontroller.lab.zookeeper.fault_proxy import FaultProxy
from aiocontroller.net.ports import World
from aiocontroller.net.real import real_world
from aiocontroller.zookeeper.admin_zk_client import AdminZkClient
from aiocontroller.zookeeper.client import ZooKeeperClient
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient

FIRST_CONTROLLER_ID = 1_000_001
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
HTTP_TIMEOUT_S = 2.0
POLL_S = 0.1

CONTROLLER_PROPERTIES = {
    "leader.imbalance.check.interval.seconds": "5",
    "controller.socket.timeout.ms": "2000",
    "request.timeout.ms": "5000",
}
"""Shorter than Kafka's defaults, so that the controller notices faults within the duration of a storm."""


class NotWholeError(AioControllerError):
    """The cluster did not become as expected in time; the message names what is missing."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The processes to run, and their timeouts in milliseconds."""

    data_dir: Path
    brokers: int = 3
    controllers: int = 2
    ensemble: bool = False
    """Run three ZooKeeper servers instead of one."""
    kafka: bool = False
    """Run Kafka's own brokers (3.9.1) instead of simulated ones."""
    session_timeout_ms: int = 4_000
    replica_lag_time_max_ms: int = 4_000
    controller_properties: Mapping[str, str] = {}


class _Ready(msgspec.Struct, frozen=True):
    """The content of a controller's ``controller.json``."""

    id: int
    pid: int
    http: str
    listeners: list[str]


class Actor:
    """A broker or a controller: its process, if it runs, and its proxies."""

    def __init__(self, name: str, id_: int, folder: Path, zookeeper_ports: Iterable[int]) -> None:
        self.name = name
        self.id = id_
        self.folder = folder
        self.to_zookeeper = [FaultProxy(port) for port in zookeeper_ports]
        # Kafka's protocol cannot show that a request on an old connection is older than one of the same epoch on a new
        # connection: a broker would create a deleted replica again (docs/chaos.md, "What the checks allow").
        self.front = LinkProxy(late=not name.startswith("broker"))
        self.wall_clock = WallClock(folder / "wall-clock")
        """The wall clock of a controller; brokers and ZooKeeper use the machine's clock."""
        self.child: Child | None = None
        self.paused = False
        self.meant_to_run = False
        self.ready = False
        """The process has reported that it serves requests."""
        self.http = ""

    async def open(self) -> None:
        for proxy in self.proxies():
            await proxy.start()

    async def close(self) -> None:
        for proxy in self.proxies():
            await proxy.close()
        self.forget_clock()

    def proxies(self) -> list[FaultProxy]:
        return [*self.to_zookeeper, self.front]

    @property
    def zookeeper(self) -> str:
        return ",".join(proxy.address for proxy in self.to_zookeeper)

    @property
    def running(self) -> bool:
        return self.child is not None and self.child.running

    def send(self, number: signal.Signals) -> None:
        if self.child is not None:
            self.child.send_signal(number)
        self.paused = number is signal.SIGSTOP or (self.paused and number is not signal.SIGCONT)

    def launch(self, command: list[str], env: Mapping[str, str] | None = None) -> Child:
        self.forget_clock()
        self.child = Child(self.name, command, log=self.folder / "log", env=env)
        self.meant_to_run, self.ready = True, False
        return self.child

    def forget_clock(self) -> None:
        """Remove what the ended process's clock has left on the machine."""
        if self.child is not None and not self.running:
            self.wall_clock.forget(self.child.pid)

    def kill(self) -> None:
        self.meant_to_run = False
        if self.child is not None:
            self.child.kill()
        self.paused = False

    async def stop(self, timeout_s: float = STOP_TIMEOUT_S, ask: signal.Signals = signal.SIGTERM) -> None:
        self.meant_to_run = False
        if self.child is not None:
            await self.child.stop_async(timeout_s, ask)
        self.paused = False

    def heal(self) -> None:
        """Restore the actor's links, and resume it if it is suspended."""
        for proxy in self.proxies():
            proxy.thaw()
        self.send(signal.SIGCONT)


class ProcessCluster:
    """Use ``start``, ``lab.processes.steps`` and ``stop``, or ``async with``."""

    def __init__(self, shape: Shape, world: World | None = None) -> None:
        self.shape = shape
        self.world = world or real_world()
        self.brokers: dict[int, Actor] = {}
        self.controllers: dict[int, Actor] = {}
        """The controllers by number, from 1; their ids start at ``FIRST_CONTROLLER_ID``."""
        self.servers: list[EmbeddedZooKeeper] = []
        self.client: ZooKeeperClient
        self.zk: KafkaZkClient
        self.admin: AdminZkClient
        self._ensemble: ZooKeeperEnsemble | None = None
        self._connected = False

    # -- life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> ProcessCluster:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start every process and wait until all are ready.  If one fails, leave nothing running."""
        try:
            await self._start_zookeeper()
            self.client = ZooKeeperClient(self.zookeeper, world=self.world, session_timeout_s=20)
            await self.client.start(START_TIMEOUT_S)
            self._connected = True
            self.zk = KafkaZkClient(self.client)
            self.admin = AdminZkClient(self.zk)
            await self.zk.create_top_level_paths()
            for number in range(1, self.shape.controllers + 1):
                await self._open(self.controllers, number, "controller", FIRST_CONTROLLER_ID + number - 1)
            for number in range(1, self.shape.brokers + 1):
                await self._open(self.brokers, number, "broker", number)
            await asyncio.gather(*map(self.start_controller, self.controllers), *map(self.start_broker, self.brokers))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """End all processes, within a few seconds."""
        if self._connected:
            self._connected = False
            await self.client.close()
        actors = [*self.controllers.values(), *self.brokers.values()]
        for actor in actors:
            actor.kill()
        await asyncio.gather(*(actor.close() for actor in actors))
        for server in self.servers:
            server.kill()

    async def _start_zookeeper(self) -> None:
        folder = self.shape.data_dir / "zookeeper"
        if self.shape.ensemble:
            self._ensemble = ZooKeeperEnsemble(folder)
            await asyncio.to_thread(self._ensemble.start)
            self.servers = self._ensemble.servers
            return
        server = EmbeddedZooKeeper(folder)
        self.servers = [server]
        await server.start_async()

    async def _open(self, group: dict[int, Actor], number: int, name: str, id_: int) -> None:
        folder = self.shape.data_dir / f"{name}-{number}"
        actor = group[number] = Actor(f"{name} {number}", id_, folder, [server.port for server in self.servers])
        await actor.open()

    # -- addresses ---------------------------------------------------------------------------------------------------

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's own addresses, which bypass all proxies."""
        return ",".join(server.address for server in self.servers)

    @property
    def bootstrap(self) -> str:
        return ",".join(actor.front.address for actor in self.brokers.values())

    async def active_controller(self) -> int | None:
        """Return the number of the controller that ``/controller`` names."""
        holder = await self.zk.get_controller(watch=False)
        named = getattr(holder, "controller_id", None)
        return next((number for number, actor in self.controllers.items() if actor.id == named), None)

    def leader_server(self) -> EmbeddedZooKeeper:
        """Return the leader of the ensemble, or the only server.  Blocks for up to two seconds per server."""
        leader = self._ensemble.leader() if self._ensemble is not None else None
        return leader or self.servers[0]

    # -- processes -------------------------------------------------------------------------------------------------

    async def start_broker(self, number: int) -> None:
        actor = self.brokers[number]
        if self.shape.kafka:
            await self._start_kafka(actor)
            return
        config = BrokerConfig(
            number,
            actor.zookeeper,
            actor.folder,
            zookeeper_session_timeout_ms=self.shape.session_timeout_ms,
            replica_lag_time_max_ms=self.shape.replica_lag_time_max_ms,
            advertised_port=actor.front.port,
        )
        (actor.folder / "broker.json").unlink(missing_ok=True)
        command = broker_command(config, "aiocontroller.lab.processes.observed_broker")
        child = actor.launch([sys.executable, *command])

        def listens() -> bool:
            reported = read_ready(actor.folder)
            if reported is None or reported.pid != child.pid:
                return False
            actor.front.target_port = reported.port
            actor.ready = True
            return True

        await child.wait_until_async(listens, START_TIMEOUT_S)

    async def _start_kafka(self, actor: Actor) -> None:
        overrides = {"zookeeper.session.timeout.ms": str(self.shape.session_timeout_ms)}
        overrides["advertised.listeners"] = f"PLAINTEXT://{actor.front.address}"
        port, factor = actor.front.target_port, min(3, self.shape.brokers)
        broker = RealKafkaBroker(
            actor.id, actor.zookeeper, actor.folder, port=port, replication_factor=factor, overrides=overrides
        )
        actor.child = broker.launch()
        actor.front.target_port = broker.port
        await actor.child.wait_until_async(broker.answers, START_TIMEOUT_S)

    async def start_controller(self, number: int) -> None:
        actor = self.controllers[number]
        ready_file = actor.folder / "controller.json"
        ready_file.unlink(missing_ok=True)
        child = actor.launch(self._controller_command(actor), actor.wall_clock.env)

        def listens() -> bool:
            try:
                reported = msgspec.json.decode(ready_file.read_bytes(), type=_Ready)
            except (FileNotFoundError, msgspec.MsgspecError):
                return False
            if reported.pid != child.pid:
                return False
            actor.http = reported.http
            actor.front.target_port = int(reported.listeners[0].rpartition(":")[2])
            actor.ready = True
            return True

        await child.wait_until_async(listens, START_TIMEOUT_S)

    def _controller_command(self, actor: Actor) -> list[str]:
        properties = {
            **CONTROLLER_PROPERTIES,
            # Kafka's brokers also contend for the role, and may win it first
            "aiocontroller.takeover.policy": "takeover" if self.shape.kafka else "wait",
            "zookeeper.session.timeout.ms": str(self.shape.session_timeout_ms),
            "advertised.listeners": f"PLAINTEXT://{actor.front.address}",
            **self.shape.controller_properties,
        }
        command = [sys.executable, "-m", "aiocontroller", "run", "--debug", "--id", str(actor.id)]
        command += ["--zookeeper", actor.zookeeper, "--listen", "127.0.0.1:0", "--http-port", "0"]
        command += ["--data", str(actor.folder)]
        return command + [part for key, value in properties.items() for part in ("--property", f"{key}={value}")]

    # -- queries -----------------------------------------------------------------------------------------------------

    async def broker_status(self, number: int) -> BrokerStatus:
        """Return a simulated broker's status, bypassing its proxy.  Raises OSError if it does not answer."""
        port = self.brokers[number].front.target_port
        async with asyncio.timeout(HTTP_TIMEOUT_S):
            return await read_status(self.world, "127.0.0.1", port, with_metadata=True)

    async def ask(self, number: int, method: str, page: str) -> Any:
        """Request a page of a controller's HTTP server.  Raises OSError or ``aiohttp.ClientError`` if it does not
        answer."""
        timeout = aiohttp.ClientTimeout(total=HTTP_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            async with session.request(method, f"{self.controllers[number].http}{page}") as response:
                response.raise_for_status()
                return msgspec.json.decode(await response.read())

    async def until(self, missing: Callable[[], Awaitable[Iterable[str]]], within_s: float) -> float:
        """Wait until ``missing`` yields nothing, and return the seconds that this took.  Raises NotWholeError after
        ``within_s``."""
        began_s = self.world.clock.monotonic()
        while True:
            left = list(await missing())
            passed_s = self.world.clock.monotonic() - began_s
            if not left:
                return passed_s
            if passed_s > within_s:
                raise NotWholeError(f"after {within_s:g} s: {'; '.join(left[:5])}")
            await asyncio.sleep(POLL_S)

    def remove_data(self) -> None:
        shutil.rmtree(self.shape.data_dir, ignore_errors=True)
