"""A controller as a running process: everything put together, started in order, ended in the reverse order."""

from __future__ import annotations

import asyncio
import gc
import logging
import secrets
import signal
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import anyio.abc
import msgspec

from aiocontroller.config import Config, Detection
from aiocontroller.controller.channel_manager import ControllerChannelManager
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.heartbeats import Heartbeats
from aiocontroller.controller.kafka_controller import GivingUpError, KafkaController
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.events import ControllerSuspected, Event, Release, Reply, ShutdownEventThread, SuspectsChange
from aiocontroller.core.failure_detector import FailureDetector, Limits
from aiocontroller.core.ids import Endpoint
from aiocontroller.core.invariants import violations
from aiocontroller.journal.journal import Journal, NullJournal
from aiocontroller.journal.writer import FileJournal
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Listener, World
from aiocontroller.net.real import real_world
from aiocontroller.server import http
from aiocontroller.server.commands import Commands
from aiocontroller.server.controller_apis import PRELOADED
from aiocontroller.server.socket_server import SocketServer
from aiocontroller.wire import cold
from aiocontroller.zookeeper.acl_follower import AclFollower
from aiocontroller.zookeeper.client import SessionEvent
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.securing import zookeeper_client

log = logging.getLogger(__name__)

LAG_PROBE_S = 0.05
ACLS_WITHIN_S = 10.0
LEAVE_WITHIN_S = 15.0
"""What is being handled when SIGTERM comes may take long: loading a large cluster."""

Ready = Callable[["Service"], None]


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """A controller's inside at one moment, for checkers: what a controller that stands by holds is all empty."""

    id: int
    session_id: int
    active: bool
    queued_events: int
    queued_requests: int
    """That wait for brokers."""
    senders: bool
    timers: int
    watches: int
    partitions: int
    brokers: list[int]
    live_brokers: list[int]
    reassigning: int
    deleting: list[str]
    violations: list[str]
    """Of what a context must always be (``core.invariants``)."""


class Service:
    """One controller, in office or standing by.  ``run`` ends after ``stop``, or with GivingUpError."""

    def __init__(
        self,
        config: Config,
        world: World,
        *,
        journal: Journal | None = None,
        metrics: Metrics | None = None,
        with_http: bool = True,
        allow_session_expiry: bool = False,
    ) -> None:
        self.config = config
        self.world = world
        self.metrics = Metrics() if metrics is None else metrics
        self.journal = NullJournal() if journal is None else journal
        self.queue = EventQueue(world.clock)
        self.client = zookeeper_client(config, world, metrics=self.metrics)
        self.zk = KafkaZkClient(self.client)
        self.http_port = 0
        self.endpoints: list[Endpoint] = []
        """Where brokers reach this controller, with the ports that were really taken."""
        self.token = secrets.token_hex(16)
        """Who knows it may give commands by HTTP."""
        self._leaving = False
        self._with_http = with_http
        self._allow_session_expiry = allow_session_expiry
        self._tasks: anyio.abc.TaskGroup | None = None
        self._listeners: list[Listener] = []
        self._kafka: SocketServer | None = None
        self._http: http.HttpServer | None = None
        self._acls: AclFollower | None = None
        self.shell = ControllerShell(
            config, world, self.zk, self.queue, self.metrics, self.journal, self._new_channels, self._own_endpoints
        )
        self.controller = KafkaController(self.shell)

    async def run(self, on_ready: Ready | None = None) -> None:
        """``on_ready`` is called when the ports are open and ZooKeeper is connected; the role may come later."""
        cold.preload(PRELOADED)  # before there is a session whose heartbeats would have to wait
        await self.journal.start()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                await self._open(tasks)
                if on_ready is not None:
                    on_ready(self)
                await self.controller.run()
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

    def stop(self) -> None:
        """Give the role back and end; what waits in the queue is preempted, requests among it are answered."""
        self.queue.clear_and_put(ShutdownEventThread())

    def inspect(self) -> Inspection:
        shell, context = self.shell, self.shell.context
        return Inspection(
            id=shell.id,
            session_id=self.client.session_id,
            active=self.controller.election.active,
            queued_events=len(self.queue),
            queued_requests=sum(each.queued for each in shell.channels.statistics()) if shell.channels else 0,
            senders=shell.channels is not None,
            timers=self.queue.statistics().deferred,
            watches=self.client.statistics().watches,
            partitions=len(context.table),
            brokers=sorted(context.brokers),
            live_brokers=sorted(context.live),
            reassigning=len(context.partitions_being_reassigned),
            deleting=list(context.topics_to_be_deleted),
            violations=list(violations(context)),
        )

    def leave(self) -> None:
        """Release the role with nothing left undone, then end; asked twice, or out of office, end at once."""
        if self._leaving or not self.controller.election.active:
            self.stop()
            return
        self._leaving = True
        self.queue.append(Release(reply=Reply(lambda _: self.stop())))
        self.world.clock.call_later(LEAVE_WITHIN_S, self.stop)

    async def _open(self, tasks: anyio.abc.TaskGroup) -> None:
        config = self.config
        kafka = self._kafka = SocketServer(self.shell, tasks)
        for listener in config.listeners:
            how = self.shell.security.server(listener)
            serving = await self.world.network.serve_through(
                kafka.gate(listener),
                listener.host,
                listener.port,
                ssl=how.server_tls,
                handshake_timeout_s=kafka.login_timeout_s,
                backlog=config.socket_listen_backlog_size,
            )
            self._listeners.append(serving)
            self.endpoints.append(Endpoint(listener.listener, listener.host, serving.port, listener.security_protocol))
        if self._with_http:
            await self._open_http()
            tasks.start_soon(self._watch_loop_lag, name="loop lag")
        self.controller.election.heartbeats = self._heartbeats_of_controllers()
        log.info("Waiting for ZooKeeper at %s", config.zookeeper_connect)
        self.client.on_session = self._on_session
        bound_ms = config.zookeeper_connection_timeout_ms
        await self.client.start(bound_ms / 1000 if bound_ms else None)
        self.controller.guard.start(tasks)
        await self._follow_acls(tasks)
        log.info("Connected to ZooKeeper at %s, session 0x%x", config.zookeeper_connect, self.client.session_id)

    async def _follow_acls(self, tasks: anyio.abc.TaskGroup) -> None:
        """They are best known before there is a role: until then all but super users are refused."""
        if self.shell.acls is None:
            return
        follower = self._acls = AclFollower(self.shell.acls, self.world, self.shell.bad_znodes.inc)
        self.zk.on_acl_change = follower.wake
        tasks.start_soon(follower.run, name="ACLs")
        with anyio.move_on_after(ACLS_WITHIN_S):
            await self.shell.acls.loaded.wait()

    async def _watch_loop_lag(self) -> None:
        """How late the loop runs what is due: the longest step that anybody took is somewhere in it."""
        lag = self.metrics.timer("aiocontroller", "EventLoop", "LagMs")
        clock = self.world.clock
        while True:
            due_s = clock.monotonic() + LAG_PROBE_S
            await clock.sleep(LAG_PROBE_S)
            lag.observe(max(0.0, clock.monotonic() - due_s))

    async def _open_http(self) -> None:
        config = self.config
        self._http = await http.serve(
            self.world,
            config.aiocontroller_http_host,
            config.aiocontroller_http_port,
            metrics=self.metrics,
            ready=self._ready,
            alive=lambda: True,
            status=self.controller.status,
            debug=self._debug_handlers(),
            commands=Commands(self.shell, self.controller, self.stop).by_name(),
            token=self.token,
        )
        self.http_port = self._http.port

    def _ready(self) -> tuple[bool, str]:
        found = self.controller.readiness()
        return found.ready, str(found)

    async def _close(self) -> None:
        for listener in self._listeners:
            listener.close()
        if self._kafka is not None:
            self._kafka.close()
        await self.client.close()
        await self.journal.close()
        if self._http is not None:
            await self._http.close()

    def _on_session(self, event: SessionEvent) -> None:
        log.log(
            logging.INFO if event is SessionEvent.CONNECTED else logging.WARNING, "ZooKeeper session: %s", event.name
        )
        self.journal.append("session", detail=event.name)
        if self._acls is not None:
            self._acls.on_session(event)
        self.controller.on_session(event)

    def _new_channels(self, shell: ControllerShell) -> ControllerChannelManager:
        assert self._tasks is not None
        return ControllerChannelManager(
            self.world,
            self._tasks,
            self.controller.on_response,
            endpoint_of=shell.endpoint_of,
            connect_timeout_s=self.config.controller_socket_timeout_ms / 1000,
            request_timeout_s=self.config.request_timeout_ms / 1000,
            metrics=self.metrics,
            journal=self.journal,
            heartbeats=self._heartbeats_of_brokers(),
            security=shell.security,
        )

    def _heartbeats_of_brokers(self) -> Heartbeats | None:
        config = self.config
        share = config.aiocontroller_early_detection_max_suspected_percentage / 100
        return self._heartbeats(
            "broker", config.aiocontroller_early_broker_detection, SuspectsChange(), Limits(share=share)
        )

    def _heartbeats_of_controllers(self) -> Heartbeats | None:
        """There is one to watch."""
        mode = self.config.aiocontroller_early_controller_detection
        return self._heartbeats("controller", mode, ControllerSuspected(), Limits(share=1.0))

    def _heartbeats(self, kind: str, mode: Detection, event: Event, limits: Limits) -> Heartbeats | None:
        if mode == "off":
            return None
        assert self._tasks is not None
        config = self.config
        interval_s = config.aiocontroller_early_detection_heartbeat_interval_ms / 1000
        limits = limits._replace(
            silence_s=config.aiocontroller_early_detection_silence_ms / 1000 if mode == "full" else None,
            stall_s=5 * interval_s,
            trust_s=config.aiocontroller_early_detection_trust_ms / 1000,
            per_minute=config.aiocontroller_early_detection_max_alarms_per_minute,
        )
        return Heartbeats(
            self.world,
            self._tasks,
            FailureDetector(limits),
            lambda: self.queue.append(event),
            kind=kind,
            interval_s=interval_s,
            metrics=self.metrics,
            journal=self.journal,
            security=self.shell.security,
        )

    def _own_endpoints(self) -> Sequence[Endpoint]:
        """What brokers are told of each listener of ours."""
        told = {each.listener: each for each in self.config.advertised_listeners or ()}
        return [self._advertised(each, told.get(each.listener)) for each in self.endpoints]

    @staticmethod
    def _advertised(taken: Endpoint, told: Endpoint | None) -> Endpoint:
        if told is None:
            return taken
        return Endpoint(taken.listener, told.host, told.port or taken.port, taken.security_protocol)

    def _debug_handlers(self) -> dict[str, Callable[[], Awaitable[Any]]]:
        if not self._allow_session_expiry:
            return {}
        return {"expire-session": self.client.expire_session_for_test, "inspect": self._inspect_for_test}

    async def _inspect_for_test(self) -> Inspection:
        return self.inspect()


def run_service(
    config: Config,
    *,
    data: Path | None = None,
    allow_session_expiry: bool = False,
    on_ready: Ready | None = None,
) -> int:
    """Run until SIGTERM or SIGINT; the process's exit code."""

    async def main() -> int:
        world = real_world()
        folder = _journal_dir(config, data)
        metrics = Metrics()
        journal = FileJournal(folder, config.aiocontroller_id, world=world, metrics=metrics) if folder else None
        service = Service(config, world, journal=journal, metrics=metrics, allow_session_expiry=allow_session_expiry)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, service.leave)
        # What is loaded stays, and is free of cycles: the collector should seldom look, and never at what is there now.
        gc.freeze()
        gc.set_threshold(100_000, 50, 100)
        try:
            await service.run(on_ready)
        except ExceptionGroup as errors:
            giving_up = errors.subgroup(GivingUpError)
            if giving_up is None or errors.split(GivingUpError)[1] is not None:
                raise
            log.critical("Giving up: %s", giving_up.exceptions[0])
            return 1
        return 0

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(main())


def _journal_dir(config: Config, data: Path | None) -> Path | None:
    if config.aiocontroller_journal_dir is not None:
        return Path(config.aiocontroller_journal_dir)
    return None if data is None else data / "journal"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it can be had."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
