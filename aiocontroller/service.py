"""Runs a controller as a process: assembles all parts, starts them in order, and ends them in reverse order.

Each step of the end has a deadline, counted from the request to end (``leave``, ``stop``):

    2.5 s  the role is released, or the work in progress ends; 12 s if an operator had requested a release before
    3.0 s  a handler that is still running is interrupted, as in a crash
    3.6 s  the ZooKeeper session is closed, which gives a role back that was not released; so are HTTP connections
    4.1 s  the journal is written
    5.0 s  the process has ended (``ending``)
"""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from ssl import SSLContext

import anyio
import anyio.abc

from aiocontroller.config import Config, ConfigError, Detection
from aiocontroller.controller.channel_manager import ControllerChannelManager
from aiocontroller.controller.event_queue import EventQueue
from aiocontroller.controller.fence_command import FenceCommand
from aiocontroller.controller.heartbeats import Heartbeats
from aiocontroller.controller.kafka_controller import GivingUpError, KafkaController
from aiocontroller.controller.log_gathering import gather
from aiocontroller.controller.mirror import Mirror
from aiocontroller.controller.release import RELEASE_WITHIN_S
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.controller.sickness_probes import CONNECTIONS, SicknessProbes
from aiocontroller.core import sickness
from aiocontroller.core.event_kinds import Event, Reply
from aiocontroller.core.events import (
    ControllerSuspected,
    Release,
    ShutdownEventThread,
    SicknessChange,
    SuspectsChange,
)
from aiocontroller.core.failure_detector import DetectionLimits, FailureDetector
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.ending import Ending
from aiocontroller.http_pages import HttpPages
from aiocontroller.journal.journal import CLOSE_WITHIN_S as JOURNAL_CLOSED_WITHIN_S
from aiocontroller.journal.journal import Journal, NullJournal
from aiocontroller.journal.writer import FileJournal
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Listener, Timer, World
from aiocontroller.net.real import raise_descriptor_limit, real_world, return_memory
from aiocontroller.net.tasks import Tasks, task_group
from aiocontroller.pem_files import ended_certificates
from aiocontroller.server.controller_apis import PRELOADED
from aiocontroller.server.http import DebugHandler
from aiocontroller.server.socket_server import SocketServer
from aiocontroller.service_manager import ServiceManager
from aiocontroller.wire import cold
from aiocontroller.wire.apis import VersionRange
from aiocontroller.zookeeper.acl_follower import AclFollower
from aiocontroller.zookeeper.client import SessionEvent
from aiocontroller.zookeeper.kafka_zk_client import KafkaZkClient
from aiocontroller.zookeeper.securing import tls_context, zookeeper_client
from aiocontroller.zookeeper.session import CLOSE_WITHIN_S as SESSION_CLOSED_WITHIN_S

log = logging.getLogger(__name__)

OWN_DESCRIPTORS = 32
"""Descriptors for listeners, two ZooKeeper connections, the journal, standard output and the loop."""
DESCRIPTORS_PER_BROKER = 4
"""For the controller's requests, heartbeats, the survey, and questions about logs; ``SicknessProbes`` needs more."""
LAG_PROBE_S = 0.05
PRELOAD_AFTER_S = 10.0
"""How long the preload waits, because a process that has just started may be in a failover."""
PRELOAD_PAUSE_S = 0.02
"""The pause between two schemas; importing one takes a few milliseconds."""
ACLS_WITHIN_S = 10.0
RELEASED_WITHIN_S = 2.5
INTERRUPTED_AFTER_S, CLOSED_AFTER_S, WRITTEN_AFTER_S, ENDED_AFTER_S = 0.5, 1.1, 1.6, 2.5
"""Deadlines of the following steps, counted from that of the release."""

Ready = Callable[["Service"], None]
DebugHandlers = Callable[["Service"], Mapping[str, DebugHandler]]
"""Returns a service's handlers of ``POST /debug/NAME``, such as those of ``aiocontroller.lab.debugging``."""


class Service:
    """One controller, active or standby.  ``run`` ends after ``stop``, or with GivingUpError."""

    def __init__(
        self,
        config: Config,
        world: World,
        *,
        journal: Journal | None = None,
        metrics: Metrics | None = None,
        with_http: bool = True,
        debug_handlers: DebugHandlers = lambda service: {},
        descriptors: int | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        """``descriptors``: the limit on open files and sockets; None: no limit.  ``manager``: gets status reports."""
        self.config = config
        self.world = world
        self.metrics = Metrics() if metrics is None else metrics
        self.journal = NullJournal(config.aiocontroller_id, world.clock) if journal is None else journal
        self.queue = EventQueue(world.clock)
        self.client = zookeeper_client(config, world, metrics=self.metrics)
        self.zk = KafkaZkClient(self.client)
        self.http_port = 0
        self.http_url = self.local_url = ""
        """The URL of the page, and that for commands from this machine (HTTP without TLS)."""
        self.endpoints: list[Endpoint] = []
        """The addresses on which brokers connect to this controller, with the actual ports."""
        self.token = secrets.token_hex(16)
        """The secret that authorizes commands by HTTP."""
        self._leaving = self._consuming = False
        self._released_by_s: float | None = None
        """Deadline of the release; None until the end is requested."""
        self._release_within_s = RELEASED_WITHIN_S
        self._deadline_timers: list[Timer] = []
        self._running: anyio.CancelScope | None = None
        self._step = "starting"
        self._with_http = with_http
        self._debug_handlers = debug_handlers
        self._descriptors = descriptors
        self._manager = manager
        self._tasks: anyio.abc.TaskGroup | None = None
        self._listeners: list[Listener] = []
        self._kafka: SocketServer | None = None
        self._http: HttpPages | None = None
        self._acls: AclFollower | None = None
        self._has_watched_brokers = False
        self.shell = ControllerShell(
            config, world, self.zk, self.queue, self.metrics, self.journal, self._new_channels, self._own_endpoints
        )
        self.controller = KafkaController(self.shell)
        election = self.controller.election
        if config.aiocontroller_standby == "warm":
            election.mirror = Mirror(self.shell, lambda: election.stands_by)
        self.controller.guard.on_brokers = self._watch_brokers

    async def run(self, on_ready: Ready | None = None) -> None:
        """Run until the process is to end.

        ``on_ready`` is called when the ports are open and ZooKeeper is connected; the election may still be going on.
        """
        cold.preload(PRELOADED)  # before there is a session whose heartbeats this would delay
        async with task_group() as foundations:
            try:
                with anyio.CancelScope() as self._running:
                    if self._released_by_s is None:
                        await self._serve(foundations, on_ready)
            finally:
                for timer in self._deadline_timers:
                    timer.cancel()
                with anyio.CancelScope(shield=True):
                    await self._close()

    async def _serve(self, foundations: Tasks, on_ready: Ready | None) -> None:
        """Start everything and handle events; the tasks in ``foundations``, of journal and session, end last."""
        self._step = "opening the journal"
        await self.journal.start(foundations)
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            if self._manager is not None:
                tasks.start_soon(self._manager.report, self.world.clock, self._status_line, name="service manager")
            await self._open(tasks, foundations)
            if on_ready is not None:
                on_ready(self)
            if self._manager is not None:
                self._manager.say("READY=1")
            self._step, self._consuming = "waiting for events", True
            await self.controller.run()
            self._step, self._consuming = "ending the other tasks", False
            tasks.cancel_scope.cancel()

    def stop(self) -> None:
        """Give the role back and end; queued events are preempted, and requests among them answered.

        Work in progress is cancelled if it takes too long; a start that is still under way is cancelled at once.
        """
        self._start_deadlines(RELEASED_WITHIN_S)
        self.queue.clear_and_put(ShutdownEventThread())
        if self._running is not None and not self._consuming:
            self._running.cancel()

    def leave(self) -> None:
        """Finish the work, release the role, then end; on a second call, or on standby, end at once.

        A standby may take the role, unless an operator had requested a release; that release keeps its own deadline.
        """
        if self._leaving or not self.controller.election.active:
            self.stop()
            return
        self._leaving = True
        self._start_deadlines(RELEASE_WITHIN_S if self.controller.releasing else RELEASED_WITHIN_S)
        self.queue.append(Release(reply=Reply(lambda _: self.stop()), for_good=False))
        self._deadline_timers.append(self.world.clock.call_later(self._release_within_s, self.stop))

    @property
    def end_within_s(self) -> float:
        """How long the process may take to end after the request; may be called from another thread."""
        return self._release_within_s + ENDED_AFTER_S

    @property
    def doing(self) -> str:
        """The work in progress, as text; may be called from another thread."""
        handling = self.controller.handling
        return f"handling {handling}" if self._consuming and handling else self._step

    def _status_line(self) -> str:
        """Return the state as a line for ``systemctl status``."""
        if not self._consuming:
            return self._step
        found = self.controller.readiness()
        epoch = f", epoch {self.shell.context.epoch}" if self.controller.election.active_and_connected else ""
        return "; ".join([found.state + epoch, *found.reasons])

    def _start_deadlines(self, release_within_s: float) -> None:
        if self._released_by_s is None:
            if self._manager is not None:
                self._manager.say("STOPPING=1")
            clock = self.world.clock
            self._release_within_s = release_within_s
            self._released_by_s = clock.monotonic() + release_within_s
            self._deadline_timers.append(clock.call_later(release_within_s + INTERRUPTED_AFTER_S, self._interrupt))

    def _interrupt(self) -> None:
        """Stop as in a crash: everything written is complete, and the next controller reads it."""
        log.warning("Ending while %s", self.doing)
        if self._running is not None:
            self._running.cancel()

    def _time_left_s(self, after_s: float, otherwise_s: float) -> float:
        """Return the time left for a step that must end ``after_s`` after the release's deadline; ``otherwise_s`` if no
        end was requested."""
        if self._released_by_s is None:
            return otherwise_s
        return max(self._released_by_s + after_s - self.world.clock.monotonic(), 0.1)

    async def _open(self, tasks: anyio.abc.TaskGroup, foundations: Tasks) -> None:
        config = self.config
        self._step = "opening listeners"
        kafka = self._kafka = SocketServer(
            self.shell,
            tasks,
            None if self._descriptors is None else self._connection_limit,
            return_memory,
        )
        await kafka.look_up_hosts()
        for listener in config.listeners:
            secured = self.shell.security.server(listener).server_tls is not None
            serving = await self.world.network.serve_through(
                kafka.gate(listener),
                listener.host,
                listener.port,
                ssl=functools.partial(self._server_tls, listener) if secured else None,
                handshake_timeout_s=kafka.login_timeout_s,
                backlog=config.socket_listen_backlog_size,
            )
            self._listeners.append(serving)
            self.endpoints.append(Endpoint(listener.listener, listener.host, serving.port, listener.security_protocol))
        if self._with_http:
            self._http = HttpPages(
                config,
                self.controller,
                self.metrics,
                token=self.token,
                stop=self.stop,
                debug=self._debug_handlers(self),
                tasks=tasks,
            )
            await self._http.open()
            self.http_port, self.http_url, self.local_url = self._http.port, self._http.url, self._http.local_url
            tasks.start_soon(self._watch_loop_lag, name="loop lag")
            tasks.start_soon(self._preload_codecs, kafka.apis.offered(), name="codecs")
        self.controller.election.heartbeats = self._heartbeats_of_controllers()
        self.shell.broker_heartbeats = self._heartbeats_of_brokers()
        if self.controller.election.heartbeats is not None and self.shell.broker_heartbeats is not None:
            self.controller.election.heartbeats.speaks_for = self.shell.broker_heartbeats.hears
        if self.config.aiocontroller_fence_command:
            self.shell.fence_command = FenceCommand(
                self.config, tasks, self.world.run_command, self.world.clock, self.journal, self.metrics
            )
        self.shell.log_questions.start(tasks, functools.partial(gather, self.shell))
        self.shell.sickness = self._sickness_probes(tasks)
        self._step = f"waiting for ZooKeeper at {config.zookeeper_connect}"
        log.info("Waiting for ZooKeeper at %s", config.zookeeper_connect)
        self.client.on_session = self._on_session
        self._warn_of_ended_certificates()
        bound_ms = config.zookeeper_connection_timeout_ms
        await self.client.start(bound_ms / 1000 if bound_ms else None, tasks=foundations)
        self.controller.guard.start(tasks)
        if self.controller.election.mirror is not None:
            tasks.start_soon(self.controller.election.mirror.run, name="copy of the cluster")
        if self._http is not None:
            self._http.connected()
        await self._follow_acls(tasks)
        log.info("Connected to ZooKeeper at %s, session 0x%x", config.zookeeper_connect, self.client.session_id)

    def _server_tls(self, listener: Endpoint) -> SSLContext:
        context = self.shell.security.server(listener).server_tls
        assert context is not None
        return context

    def read_certificates(self) -> None:
        """Read certificates and keys again, for new connections; if one is wrong, all stay as they are.

        As at startup, the loop reads the files itself: they are few and small.
        """
        try:
            of_zookeeper = tls_context(self.config)
            self.shell.security.read_again()
        except ConfigError as error:
            log.error("Keeping the old certificates: %s", error)
            return
        self.client.ssl = of_zookeeper
        log.info("Reloaded the certificates, for new connections")
        self._warn_of_ended_certificates()

    def _warn_of_ended_certificates(self) -> None:
        now = datetime.fromtimestamp(self.world.clock.wall_time_us() / 1e6, UTC)
        for complaint in ended_certificates(self.config, now):
            log.warning(complaint)

    async def _follow_acls(self, tasks: anyio.abc.TaskGroup) -> None:
        """Load ACLs before contending for the role: until then all but super users are refused."""
        if self.shell.acls is None:
            return
        follower = self._acls = AclFollower(self.shell.acls, self.world, self.shell.counts.bad_znodes.inc)
        self.zk.on_acl_change = follower.wake
        tasks.start_soon(follower.run, name="ACLs")
        with anyio.move_on_after(ACLS_WITHIN_S):
            await self.shell.acls.loaded.wait()

    def _connection_limit(self) -> int:
        """Return how many connections of brokers and clients are allowed: the descriptors that nothing else needs."""
        assert self._descriptors is not None
        per_broker_probes = 0 if self.shell.sickness is None else CONNECTIONS
        needed_elsewhere = (
            OWN_DESCRIPTORS
            + self.config.aiocontroller_http_max_connections
            + (DESCRIPTORS_PER_BROKER + per_broker_probes) * len(self.shell.context.brokers)
        )
        return max(1, self._descriptors - needed_elsewhere)

    async def _preload_codecs(self, offered: Mapping[int, VersionRange]) -> None:
        """Import kio's schemas early: importing one at a client's first request would delay all others."""
        await self.world.clock.sleep(PRELOAD_AFTER_S)
        for _ in cold.preloading(offered):
            await self.world.clock.sleep(PRELOAD_PAUSE_S)

    async def _watch_loop_lag(self) -> None:
        """Measure how late the loop runs callbacks that are due, which shows its longest step."""
        lag = self.metrics.timer("aiocontroller", "EventLoop", "LagMs")
        clock = self.world.clock
        while True:
            due_s = clock.monotonic() + LAG_PROBE_S
            await clock.sleep(LAG_PROBE_S)
            lag.observe(max(0.0, clock.monotonic() - due_s))

    async def _close(self) -> None:
        for listener in self._listeners:
            listener.close()
        if self._kafka is not None:
            self._kafka.close()
        if self.shell.broker_heartbeats is not None:
            self.shell.broker_heartbeats.stop()
        if self.shell.sickness is not None:
            self.shell.sickness.stop()
        self._step = "closing the ZooKeeper session"
        within_s = self._time_left_s(CLOSED_AFTER_S, SESSION_CLOSED_WITHIN_S)
        async with anyio.create_task_group() as closing:
            closing.start_soon(self.client.close, within_s)
            if self._http is not None:
                closing.start_soon(self._http.close)
        self._step = "writing the journal"
        await self.journal.close(self._time_left_s(WRITTEN_AFTER_S, JOURNAL_CLOSED_WITHIN_S))
        self._step = "ending"

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
            protocol=lambda: shell.policy.protocol,
            connect_timeout_s=shell.policy.controller_socket_timeout_ms / 1000,
            request_timeout_s=shell.policy.request_timeout_ms / 1000,
            metrics=self.metrics,
            journal=self.journal,
            heartbeats=shell.broker_heartbeats,
            security=shell.security,
        )

    def _watch_brokers(self, brokers: Sequence[Broker]) -> None:
        """On a standby, send heartbeats to registered brokers, so that it has evidence of its own when it is elected.

        On the active controller, handlers do this.  A broker seen at the first call may already be dead; one that
        is new at a later call registers before it listens.
        """
        heartbeats = self.shell.broker_heartbeats
        if heartbeats is None or self.shell.is_active:
            return
        heartbeats.keep_only({broker.id for broker in brokers})
        first, self._has_watched_brokers = not self._has_watched_brokers, True
        for broker in brokers:
            endpoint_of = functools.partial(self.shell.endpoint_of, broker)
            heartbeats.watch(broker.id, broker.epoch, endpoint_of, settled=first)

    def _sickness_probes(self, tasks: anyio.abc.TaskGroup) -> SicknessProbes | None:
        config = self.config
        if config.aiocontroller_sickness_mode == "off":
            return None
        return SicknessProbes(
            self.world,
            tasks,
            sickness.SicknessLimits(
                staleness_s=config.aiocontroller_sickness_staleness_ms / 1000,
                latency_s=config.aiocontroller_sickness_latency_ms / 1000,
                healthy_s=config.aiocontroller_sickness_healthy_ms / 1000,
            ),
            lambda: self.queue.append(SicknessChange()),
            acts=config.aiocontroller_sickness_mode == "act",
            metrics=self.metrics,
            journal=self.journal,
            security=self.shell.security,
        )

    def _heartbeats_of_brokers(self) -> Heartbeats | None:
        config = self.config
        share = config.aiocontroller_early_detection_max_suspected_percentage / 100
        return self._heartbeats(
            "broker", config.aiocontroller_early_broker_detection, SuspectsChange(), DetectionLimits(share=share)
        )

    def _heartbeats_of_controllers(self) -> Heartbeats | None:
        """Heartbeats of other controllers."""
        mode = self.config.aiocontroller_early_controller_detection
        return self._heartbeats("controller", mode, ControllerSuspected(), DetectionLimits(share=1.0))

    def _heartbeats(self, kind: str, mode: Detection, event: Event, limits: DetectionLimits) -> Heartbeats | None:
        if mode == "off":
            return None
        assert self._tasks is not None

        def changed() -> None:
            if kind == "controller" or self.shell.is_active:
                self.queue.append(event)

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
            changed,
            kind=kind,
            interval_s=interval_s,
            metrics=self.metrics,
            journal=self.journal,
            security=self.shell.security,
        )

    def _own_endpoints(self) -> Sequence[Endpoint]:
        """The advertised endpoint of each of our listeners."""
        configured = {each.listener: each for each in self.config.advertised_listeners or ()}
        return [self._advertised(each, configured.get(each.listener)) for each in self.endpoints]

    @staticmethod
    def _advertised(taken: Endpoint, configured: Endpoint | None) -> Endpoint:
        if configured is None:
            return taken
        return Endpoint(taken.listener, configured.host, configured.port or taken.port, taken.security_protocol)


def run_service(
    config: Config,
    ending: Ending,
    *,
    data: Path | None = None,
    debug_handlers: DebugHandlers = lambda service: {},
    manager: ServiceManager | None = None,
    on_ready: Ready | None = None,
) -> int:
    """Run until SIGTERM or SIGINT; return the process's exit code.

    The loop stays open: closing it would wait for its threads, for instance one that waits for a name server.
    """

    async def main() -> int:
        world = real_world()
        folder = _journal_dir(config, data)
        metrics = Metrics()
        journal = _file_journal(folder, config, world, metrics) if folder else None
        service = Service(
            config,
            world,
            journal=journal,
            metrics=metrics,
            debug_handlers=debug_handlers,
            descriptors=raise_descriptor_limit(),
            manager=manager,
        )
        ending.attach(
            service.leave,
            within_s=lambda: service.end_within_s,
            doing=lambda: service.doing,
            rescue=service.journal.rescue,
            reread=service.read_certificates,
        )
        # Loaded code stays and has no cycles: the collector should run rarely, and skip all objects that exist now.
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

    return asyncio.Runner(loop_factory=_loop_factory()).run(main())


def _file_journal(folder: Path, config: Config, world: World, metrics: Metrics) -> FileJournal:
    limit = config.aiocontroller_journal_retention_bytes
    retention_bytes = None if limit == -1 else limit
    return FileJournal(folder, config.aiocontroller_id, world=world, metrics=metrics, retention_bytes=retention_bytes)


def _journal_dir(config: Config, data: Path | None) -> Path | None:
    if config.aiocontroller_journal_dir is not None:
        return Path(config.aiocontroller_journal_dir)
    return None if data is None else data / "journal"


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's factory, if available; None: asyncio's own loop."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
