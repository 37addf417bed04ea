"""A simulated broker: a process that acts as a Kafka broker towards a controller and clients that ask for metadata.

It registers in ZooKeeper like a Kafka broker, serves Kafka's protocol on loopback with a broker's checks
(``broker_server``), leads and follows (``replica_manager``), and requests ISR changes and its own shutdown
(``broker_links``, ``zk_isr_manager``).  It stores no messages and serves neither Produce nor Fetch.  With a disk
(``mount``) it keeps the lengths and epochs of logs, and serves clients that use its own API (``client_requests``).

It behaves as a broker of one release with one inter.broker.protocol.version (``generations``).

    python -m aiocontroller.lab.cluster.simulated_broker --id 1 --zookeeper 127.0.0.1:2181 --data DIR

SIGTERM starts a controlled shutdown; after SIGKILL the session has to expire, as with Kafka.  SIGINT, which Kafka
treats like SIGTERM, only closes the session: it is for ending the whole cluster, when leaders cannot move anywhere.
``DIR/broker.json`` (pid, port, broker epoch) appears when the broker is registered.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.lab.cluster.broker_links import (
    BROKER_STATUS,
    CONNECT_TIMEOUT_S,
    LISTENER,
    PRIVATE_HEADER,
    AlterPartitionManager,
    FetcherLink,
    ShutdownRequest,
    ask_for_controlled_shutdown,
)
from aiocontroller.lab.cluster.broker_server import BrokerServer, BrokerStatus
from aiocontroller.lab.cluster.generations import GENERATIONS, NEWEST, TopicIds, generation, protocol_of
from aiocontroller.lab.cluster.logs import Disk
from aiocontroller.lab.cluster.metadata_cache import MetadataCache
from aiocontroller.lab.cluster.migration_mode import Heartbeat, QuorumLink
from aiocontroller.lab.cluster.replica_manager import ReplicaManager
from aiocontroller.lab.cluster.simulated_settings import Settings
from aiocontroller.lab.cluster.zk_isr_manager import ZkIsrManager
from aiocontroller.net.ports import Listener, World
from aiocontroller.net.real import real_world
from aiocontroller.wire.primitives import INT32
from aiocontroller.zookeeper import paths
from aiocontroller.zookeeper.client import SessionEvent, ZooKeeperClient
from aiocontroller.zookeeper.codec import Create, SetData
from aiocontroller.zookeeper.errors import SessionExpiredError
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.registration import BrokerIdInUseError
from aiocontroller.zookeeper.znodes import BrokerInfo, encode_controller, encode_controller_epoch

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
REGISTER_RETRY_S = 0.2
FLUSH_INTERVAL_S = 5.0
"""The interval at which logs are flushed, as by an operating system, and high watermarks checkpointed, as by Kafka."""
RETENTION_CHECK_S = 2.0
"""The interval at which old records are deleted (``log.retention.check.interval.ms``)."""
CLOSES_WITHIN_S = 0.2
"""The longest time between the end of a controlled shutdown and the flush of the broker's logs."""
KRAFT_MOVES_WITHIN_S = 300.0
"""How long a broker waits for a KRaft controller to move its leaders, as in Kafka."""


class BrokerConfig(msgspec.Struct, frozen=True):
    """A broker's settings.  Names and defaults are those of Kafka's properties, except for a shorter session."""

    id: int
    zookeeper: str
    data_dir: Path | None
    """The folder for ``broker.json``; None: no file is written."""
    port: int = 0
    rack: str | None = None
    zookeeper_session_timeout_ms: int = 6_000
    replica_lag_time_max_ms: int = 30_000
    controlled_shutdown_max_retries: int = 3
    controlled_shutdown_retry_backoff_ms: int = 500
    advertised_port: int = 0
    """The advertised port if it differs from ``port``, as behind a proxy; 0: the same."""
    release: str = NEWEST
    inter_broker_protocol_version: str = ""
    """Empty: the release's default."""
    settings: Mapping[str, str] = {}
    """Further properties that the broker reports by DescribeConfigs but does not obey."""
    retained_records: int = -1
    """How many records each log keeps, as ``log.retention.bytes`` in records; -1: all."""
    reports_policy: bool = False
    """Whether the broker reports all settings that a controller obeys; a controller with other values must then keep
    its own."""
    controller_quorum_voters: str = ""
    """With it, the broker is in migration mode (KIP-866)."""


class BrokerReady(msgspec.Struct, frozen=True):
    """Contents of ``broker.json``."""

    id: int
    pid: int
    port: int
    epoch: int


def read_ready(data_dir: Path) -> BrokerReady | None:
    """Return the latest contents of the folder's ``broker.json``; None before the broker is ready."""
    try:
        return msgspec.json.decode((data_dir / "broker.json").read_bytes(), type=BrokerReady)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


class SimulatedBroker:
    """``run`` serves until ``stop``, and then performs a controlled shutdown.

    BadInputError for an unknown release or protocol.
    """

    def __init__(self, config: BrokerConfig, world: World) -> None:
        self.config = config
        self.generation = generation(config.release)
        self.protocol = protocol_of(self.generation, config.inter_broker_protocol_version)
        self._world = world
        self._metadata = MetadataCache(ids_may_go=self.generation.topic_ids is TopicIds.MAY_GO)
        self._replicas = ReplicaManager(
            config.id,
            self._metadata,
            replica_lag_time_max_ms=config.replica_lag_time_max_ms,
            generation=self.generation,
            protocol=self.protocol,
            min_insync_replicas=int(config.settings.get("min.insync.replicas", "1")),
        )
        self._server = BrokerServer(
            world,
            self._metadata,
            self._replicas,
            settings=Settings(
                self.generation, config.inter_broker_protocol_version, config.settings, policy=config.reports_policy
            ),
            spawn=self._spawn,
            changed=self._something_changed,
        )
        self._quorum: QuorumLink | None = None
        if config.controller_quorum_voters:
            self._quorum = QuorumLink(world, config.controller_quorum_voters, self._heartbeat)
            self._metadata.voters[self._quorum.controller_id] = self._quorum.endpoint
            self._server.zk_migration_ready = True
        self._links: dict[int, FetcherLink] = {}
        self._client = ZooKeeperClient(
            config.zookeeper, world=world, session_timeout_s=config.zookeeper_session_timeout_ms / 1000
        )
        self._zk = KafkaZkClient(self._client)
        self._isr_manager = self._make_isr_manager()
        self._tasks: asyncio.TaskGroup | None = None
        self._running: dict[asyncio.Task[None], None] = {}
        self._stop = asyncio.Event()
        self._controlled = True
        self.port = 0

    def _make_isr_manager(self) -> AlterPartitionManager | ZkIsrManager:
        if not self.protocol.isr_by_alter_partition:
            return ZkIsrManager(self._world, self._replicas, self._zk)
        return AlterPartitionManager(
            self._world,
            self._replicas,
            self._metadata,
            lambda: self._server.broker_epoch,
            topic_ids=self.protocol.topic_ids,
        )

    @property
    def epoch(self) -> int:
        return self._server.broker_epoch

    @property
    def disk_delay_s(self) -> float:
        """The delay of each LeaderAndIsr, each StopReplica, and each write of records."""
        return self._server.disk_delay_s

    @disk_delay_s.setter
    def disk_delay_s(self, delay_s: float) -> None:
        self._server.disk_delay_s = self._server.clients.disk_delay_s = delay_s
        for link in self._links.values():
            link.disk_delay_s = delay_s

    def stop(self, *, controlled: bool = True) -> None:
        self._controlled = controlled
        self._stop.set()

    @property
    def metadata(self) -> MetadataCache:
        """The broker's metadata cache."""
        return self._metadata

    @property
    def replicas(self) -> ReplicaManager:
        """The broker's replicas."""
        return self._replicas

    def mount(self, disk: Disk) -> None:
        """Give the broker its logs, before it runs."""
        self._replicas.disk = disk

    @property
    def session_id(self) -> int:
        """The id of the broker's ZooKeeper session; 0 while there is none."""
        return self._client.session_id

    async def fail_log_dir(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Fail a log directory with these partitions: they go offline, and a znode notifies the controller."""
        self._replicas.fail_log_dir(partitions)
        await self._zk.propagate_log_dir_event(self.config.id)

    async def claim_role(self) -> None:
        """Become the controller in a vacancy, as a broker does, but do none of its work."""
        content = encode_controller(self.config.id, self._world.clock.wall_time_us() // 1000, software="")
        epoch, version = await self._zk.get_controller_epoch() or (0, 0)
        raised = SetData(paths.CONTROLLER_EPOCH, encode_controller_epoch(epoch + 1), version)
        await self._client.multi([Create(paths.CONTROLLER, content, ephemeral=True), raised])

    def status(self) -> BrokerStatus:
        """Return the broker's replicas and its metadata cache."""
        return self._server.status(with_metadata=True)

    async def run(self) -> None:
        """Serve until ``stop``.

        BrokerIdInUseError if another live session holds the id for longer than a session takes to expire.
        """
        listener = await self._world.network.serve(self._server.connection, LOOPBACK, self.config.port)
        self.port = listener.port
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                running = [tasks.create_task(task) for task in (self._isr_manager.run(), self._watch_isrs())]
                if isinstance(self._isr_manager, ZkIsrManager):
                    running.append(tasks.create_task(self._isr_manager.propagate()))
                if self._replicas.disk is not None:
                    running.append(tasks.create_task(self._flush(self._replicas.disk)))
                    if self.config.retained_records >= 0:
                        running.append(tasks.create_task(self._retain(self._replicas.disk)))
                joining = tasks.create_task(self._join_cluster())
                await self._stop.wait()
                if joining.done() and self._controlled:
                    await self._leave_cluster(listener)
                self._tasks = None  # later requests start no tasks
                joining.cancel()
                for task in (*running, *self._running):
                    task.cancel()
            if self._replicas.disk is not None:
                await self._world.clock.sleep(self._world.random.random() * CLOSES_WITHIN_S)
                self._replicas.disk.flush()
        finally:
            self._tasks = None
            listener.close()
            self._server.close()
            await self._client.close()

    # -- ZooKeeper -------------------------------------------------------------------------------------------------

    async def _join_cluster(self) -> None:
        self._client.on_session = self._on_session
        await self._client.start()
        while True:
            try:
                await self._prepare()
                break
            except SessionExpiredError:
                log.warning("the ZooKeeper session expired while the broker joined; beginning again")
        await self._register(patience_s=2 * self.config.zookeeper_session_timeout_ms / 1000)
        if self._quorum is not None:
            self._spawn(self._quorum.run())

    def _heartbeat(self, leaves: bool) -> Heartbeat:
        return Heartbeat(self.config.id, self.epoch, self.config.advertised_port or self.port, leaves)

    async def _prepare(self) -> None:
        await self._zk.create_top_level_paths()
        found = await self._zk.create_or_get_cluster_id(f"{self._world.random.randrange(1 << 128):032x}"[:22])
        self._server.cluster_id = found if isinstance(found, str) else None

    def _on_session(self, event: SessionEvent) -> None:
        if event is SessionEvent.NEW_SESSION and not self._stop.is_set():
            log.warning("the ZooKeeper session expired; registering again")
            self._spawn(self._register(patience_s=float("inf")))

    async def _register(self, *, patience_s: float) -> None:
        """Register; wait while a dead predecessor's session holds the id (Kafka's broker would exit instead)."""
        endpoint = Endpoint(LISTENER, LOOPBACK, self.config.advertised_port or self.port)
        broker = Broker(self.config.id, -1, (endpoint,), self.config.rack)
        now_ms = self._world.clock.wall_time_us() // 1000
        info = BrokerInfo(broker, now_ms, version=self.protocol.registration_version)
        give_up = self._world.clock.monotonic() + patience_s
        while True:
            try:
                self._server.registered(await self._zk.register_broker(info))
                break
            except SessionExpiredError:
                return  # the new session registers again
            except BrokerIdInUseError as error:
                if self._world.clock.monotonic() > give_up:
                    raise
                log.info("%s; waiting for that session's end", error)
                await self._world.clock.sleep(REGISTER_RETRY_S)
        self._announce()

    def _announce(self) -> None:
        ready = BrokerReady(self.config.id, os.getpid(), self.port, self.epoch)
        log.info("broker %d registered: port %d, epoch %d", ready.id, ready.port, ready.epoch)
        if self.config.data_dir is not None:
            temporary = self.config.data_dir / "broker.json.tmp"
            temporary.write_bytes(msgspec.json.encode(ready))
            temporary.replace(self.config.data_dir / "broker.json")

    async def _leave_cluster(self, listener: Listener) -> None:
        if self._quorum is not None and self._metadata.controller_id == self._quorum.controller_id:
            done = await self._quorum.leave(KRAFT_MOVES_WITHIN_S)
        else:
            done = await ask_for_controlled_shutdown(
                self._world,
                self._metadata,
                ShutdownRequest(self.config.id, self.epoch, self.protocol.controlled_shutdown),
                retries=self.config.controlled_shutdown_max_retries,
                backoff_s=self.config.controlled_shutdown_retry_backoff_ms / 1000,
                finds=self._finds_controller,
            )
        log.info("controlled shutdown %s", "succeeded" if done else "failed: proceeding to an unclean one")
        listener.close()

    async def _finds_controller(self, controller: int) -> bool:
        if self.generation.finds_any_controller:
            return True
        try:
            return await self._zk.get_broker(controller, watch=False) is not None
        except SessionExpiredError:
            return False

    # -- the tasks -------------------------------------------------------------------------------------------------

    def _spawn(self, task: Coroutine[Any, Any, None]) -> None:
        if self._tasks is None:
            task.close()
            return
        started = self._tasks.create_task(task)
        self._running[started] = None
        started.add_done_callback(lambda ended: self._running.pop(ended, None))

    def _something_changed(self) -> None:
        self._isr_manager.wake()
        for leader, fetcher in self._replicas.fetchers.items():
            link = self._links.get(leader)
            if link is None:
                link = self._links[leader] = FetcherLink(self._world, self._replicas, fetcher, self._metadata)
                link.disk_delay_s = self.disk_delay_s
                self._spawn(link.run())
            link.wake()

    async def _watch_isrs(self) -> None:
        while True:
            await self._world.clock.sleep(self.config.replica_lag_time_max_ms / 2000)
            asked = self._replicas.shrink_isrs(int(self._world.clock.monotonic() * 1000))
            if asked:
                log.info("%d partitions have followers out of sync", asked)
                self._isr_manager.wake()

    async def _flush(self, disk: Disk) -> None:
        while True:
            await self._world.clock.sleep(FLUSH_INTERVAL_S)
            disk.flush()

    async def _retain(self, disk: Disk) -> None:
        while True:
            await self._world.clock.sleep(RETENTION_CHECK_S)
            disk.retain(self.config.retained_records)


async def read_status(world: World, host: str, port: int, *, with_metadata: bool = False) -> BrokerStatus:
    """Ask a running simulated broker for its status; OSError when it does not answer."""
    _, connection = await world.network.connect(BrokerConnection, host, port, timeout_s=CONNECT_TIMEOUT_S)
    try:
        answer = await connection.request([PRIVATE_HEADER.pack(BROKER_STATUS, int(with_metadata), 0)])
    finally:
        connection.close()
    return msgspec.json.decode(answer[INT32.size :], type=BrokerStatus)


def broker_command(config: BrokerConfig, module: str = "aiocontroller.lab.cluster.simulated_broker") -> list[str]:
    """Return the arguments after ``python`` that start this broker as a process."""
    command = ["-m", module]
    command += ["--id", str(config.id), "--zookeeper", config.zookeeper]
    if config.data_dir is not None:
        command += ["--data", str(config.data_dir)]
    command += ["--port", str(config.port), "--advertised-port", str(config.advertised_port)]
    if config.rack is not None:
        command += ["--rack", config.rack]
    command += ["--session-timeout-ms", str(config.zookeeper_session_timeout_ms)]
    command += ["--replica-lag-time-max-ms", str(config.replica_lag_time_max_ms)]
    command += ["--release", config.release]
    if config.inter_broker_protocol_version:
        command += ["--protocol", config.inter_broker_protocol_version]
    return command


def _parse(arguments: list[str] | None) -> BrokerConfig:
    parser = argparse.ArgumentParser(prog="simulated_broker", description="A broker without data, for a controller.")
    parser.add_argument("--id", type=int, required=True)
    parser.add_argument("--zookeeper", required=True, help="host:port/chroot")
    parser.add_argument("--data", type=Path, required=True, help="folder for broker.json")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--advertised-port", type=int, default=0, help="0: the port itself")
    parser.add_argument("--rack")
    parser.add_argument("--session-timeout-ms", type=int, default=6_000)
    parser.add_argument("--replica-lag-time-max-ms", type=int, default=30_000)
    parser.add_argument("--release", default=NEWEST, choices=list(GENERATIONS), help="of Kafka, that it behaves as")
    parser.add_argument("--protocol", default="", help="inter.broker.protocol.version; that of the release if left out")
    given = parser.parse_args(arguments)
    return BrokerConfig(
        given.id,
        given.zookeeper,
        given.data,
        given.port,
        given.rack,
        given.session_timeout_ms,
        given.replica_lag_time_max_ms,
        advertised_port=given.advertised_port,
        release=given.release,
        inter_broker_protocol_version=given.protocol,
    )


async def _serve(config: BrokerConfig, prepare: Callable[[SimulatedBroker], None]) -> None:
    broker = SimulatedBroker(config, real_world())
    prepare(broker)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, broker.stop)
    loop.add_signal_handler(signal.SIGINT, lambda: broker.stop(controlled=False))
    await broker.run()


def main(arguments: list[str] | None = None, prepare: Callable[[SimulatedBroker], None] = lambda _: None) -> None:
    """Run a broker until a signal ends it; ``prepare`` is called with the broker before it starts."""
    import uvloop

    config = _parse(arguments)
    if config.data_dir is not None:
        config.data_dir.mkdir(parents=True, exist_ok=True)
        (config.data_dir / "broker.json").unlink(missing_ok=True)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s (%(name)s)")
    gc.set_threshold(50_000, 20, 50)  # avoid frequent full collections over 100,000 small long-lived objects
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, prepare))


if __name__ == "__main__":
    main()
