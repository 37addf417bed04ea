"""Assembles what a controller answers by HTTP: the page, its questions, the operators' commands and the instances.

The parts are in ``server`` and ``controller``; a service has one ``HttpPages``.
"""

from __future__ import annotations

import functools
import platform
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from ssl import SSLContext
from typing import Any

from aiocontroller.config import HTTP_LISTENER, Config, ConfigError
from aiocontroller.controller.instances import Instances
from aiocontroller.controller.kafka_controller import KafkaController
from aiocontroller.controller.overview import sections
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import TlsNow
from aiocontroller.net.tasks import Tasks
from aiocontroller.server import http, partition_pages, static
from aiocontroller.server.actions import Actions
from aiocontroller.server.actor_check import Actors
from aiocontroller.server.check_page import Checks
from aiocontroller.server.commands import Commands
from aiocontroller.server.overview_pages import Overview


class HttpPages:
    """The HTTP side of one service.

    ``stop`` ends the process, ``token`` authorizes commands, ``debug`` answers ``POST /debug/NAME``.  Background work
    belongs to ``tasks``, and ends with them.
    """

    def __init__(
        self,
        config: Config,
        controller: KafkaController,
        metrics: Metrics,
        *,
        token: str,
        stop: Callable[[], object],
        debug: Mapping[str, http.DebugHandler],
        tasks: Tasks,
    ) -> None:
        self._config = config
        self._controller = controller
        self._metrics = metrics
        self._token = token
        self._stop = stop
        self._debug = debug
        self._server: http.HttpServer | None = None
        self._instances: Instances | None = None
        self._tasks = tasks
        self._checks = Checks(config, controller.shell.world.clock, tasks)

    @property
    def port(self) -> int:
        """The port that it listens on; 0 before ``open``."""
        return 0 if self._server is None else self._server.port

    @property
    def url(self) -> str:
        """The URL of the page, for people."""
        return "" if self._server is None else self._server.url

    @property
    def local_url(self) -> str:
        """The URL for commands from this machine."""
        return "" if self._server is None else self._server.local_url

    async def open(self) -> None:
        """Listen; OSError if the address cannot be bound, ConfigError if the properties of TLS are wrong."""
        config, shell = self._config, self._controller.shell
        commands = Commands(shell, self._controller, self._stop)
        actions = Actions(shell, self._actors())
        page = static.digest()
        own = {
            "page": lambda: page,
            "instances": self._known_instances,
            "check": self._checks.summary,
            "actions": actions.summary,
        }
        overview = Overview(
            {**sections(self._controller), **own},
            self._controller,
            shell.world.clock,
            config.aiocontroller_http_max_connections,
        )
        self._server = await http.serve(
            shell.world,
            config.aiocontroller_http_host,
            config.aiocontroller_http_port,
            metrics=self._metrics,
            ready=self._ready,
            status=self._controller.status,
            debug=self._debug,
            settings=commands.settings,
            commands=commands.by_name(),
            questions={
                "partitions": functools.partial(partition_pages.partitions, shell),
                "overview": overview.page,
                "search": overview.search,
                "findings": self._checks.findings,
            },
            page_posts={"check": self._checks.start, "dry-run": actions.dry_run, "confirm": actions.confirm},
            streams={"events": overview.stream},
            allowed_hosts=config.aiocontroller_http_allowed_hosts,
            tls=self._tls(),
            token=self._token,
            password=config.aiocontroller_http_password or "",
            limits=http.Limits(
                config.aiocontroller_http_max_connections,
                config.aiocontroller_http_max_request_bytes,
                config.aiocontroller_http_timeout_ms / 1000,
            ),
        )

    def _tls(self) -> TlsNow | None:
        """Return a function for the current TLS context, which changes when certificates are read again; None: no TLS.

        ConfigError if its properties are wrong.
        """
        endpoint, security = self._config.http_endpoint, self._controller.shell.security
        if endpoint.security_protocol == "PLAINTEXT":
            return None
        if security.server(endpoint).principals is not None and not self._trusts():
            raise ConfigError(
                "listener.name.http.ssl.truststore.location: found nothing, expected the certificates whose owners may "
                "read the page, since listener.name.http.ssl.client.auth asks for them"
            )

        def now() -> SSLContext:
            context = security.server(endpoint).server_tls
            assert context is not None
            return context

        return now

    def _actors(self) -> Actors:
        config, shell = self._config, self._controller.shell

        def principal_of(certificate: bytes) -> str:
            principals = shell.security.server(config.http_endpoint).principals
            assert principals is not None  # TLS has verified the certificate
            return principals.principal_of(certificate)

        password = config.aiocontroller_http_actor_password
        known = "" if password is None else password.value
        return Actors(known, config.aiocontroller_http_actors, principal_of, shell.world.clock)

    def _trusts(self) -> bool:
        return self._config.of_listener(HTTP_LISTENER, "ssl.truststore.location") is not None

    def connected(self) -> None:
        """Publish this instance in ZooKeeper, and follow the others, from now on; call once ZooKeeper is connected."""
        assert self._server is not None
        self._instances = Instances(self._controller, platform.node(), self._server.url, _release())
        self._tasks.start_soon(self._instances.run, name="instances")

    async def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.close()

    def _known_instances(self) -> Mapping[str, Any]:
        return {"instances": [], "problem": ""} if self._instances is None else self._instances.shown()

    def _ready(self) -> tuple[bool, str]:
        found = self._controller.readiness()
        return found.ready, str(found)


def _release() -> str:
    """Return the installed version; empty if the program runs from its sources without being installed."""
    try:
        return version("aiocontroller")
    except PackageNotFoundError:
        return ""
