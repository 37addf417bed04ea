"""Connections to the HTTP server: limited in number, each with deadlines, and without tracebacks for clients' errors.

They have a limit of their own, so that Kafka clients cannot use it up, and make room for each other in the same way
(``connection_quotas``).  aiohttp has the deadlines for request headers and idle connections; this module has those for
answers that are not read, and ``http`` those for bodies.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from aiohttp import web

from aiocontroller.metrics import Metrics
from aiocontroller.net.complaints import Complaints
from aiocontroller.net.ports import Clock, Timer, TlsNow
from aiocontroller.server.connection_quotas import ConnectionQuotas

log = logging.getLogger("aiocontroller.http")


class HttpConnection(web.RequestHandler):
    """One connection; it can be evicted to make room for another."""

    listener = "http"

    def __init__(self, gate: HttpGate, address: str, abort: Callable[[], object], **options: Any) -> None:
        super().__init__(gate.server, loop=asyncio.get_running_loop(), **options)
        self.address = address
        self._gate = gate
        self._abort = abort
        self._evicted = False
        self._deadline: Timer | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve, unless this connection had to make room in the meantime."""
        super().connection_made(transport)
        self._abort = transport.abort  # type: ignore[attr-defined]
        if self._evicted:
            self._abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop counting the connection; called exactly once, even without ``connection_made``."""
        self._gate.quotas.leave(self)
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def outdated(self) -> bool:
        """Whether certificates have been reloaded since TLS verified the client's."""
        tls, now = None if self.transport is None else self.transport.get_extra_info("ssl_object"), self._gate.tls
        return tls is not None and now is not None and tls.context is not now()

    def complain(self, kind: str, what: str) -> None:
        """Log why a request was refused; refusals of one ``kind`` that come together share a line."""
        self._gate.complaints.warn(kind, "HTTP request from %s refused: %s", self.address, what)

    def evict(self) -> None:
        """Make room for another connection: end at once."""
        self._evicted = True
        self._abort()

    def pause_writing(self) -> None:
        """The client does not read: evict it if that lasts longer than the gate's ``timeout_s``."""
        super().pause_writing()
        self._deadline = self._gate.clock.call_later(self._gate.timeout_s, self.evict)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._stop_waiting()

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def begin(self) -> None:
        """A request has started."""
        self._gate.quotas.begin(self)

    def end(self) -> None:
        """A request has been answered."""
        self._gate.quotas.end(self)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """A malformed request is the client's error: log it without a traceback."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        reason = (message or repr(exc)).partition("\n")[0]
        self._gate.complaints.warn(
            "malformed HTTP requests", "HTTP request from %s refused (%d): %s", self.address, status, reason
        )
        answer = web.Response(status=status, text=f"{reason}\n")
        answer.force_close()
        return answer

    def log_exception(self, *args: Any, **options: Any) -> None:
        """A malformed body that no handler reads is the client's error too."""
        if isinstance(options.get("exc_info"), web.RequestPayloadError):
            reason = str(options["exc_info"]).partition("\n")[0]
            self._gate.complaints.warn(
                "malformed HTTP bodies", "The body of an HTTP request from %s is malformed: %s", self.address, reason
            )
        else:
            super().log_exception(*args, **options)


class HttpGate:
    """``net.ports.Gate`` of the HTTP server; ``options`` are those of aiohttp's handlers."""

    def __init__(
        self,
        server: web.Server,
        clock: Clock,
        metrics: Metrics,
        places: int,
        timeout_s: float,
        tls: TlsNow | None = None,
        **options: Any,
    ) -> None:
        self.server = server
        self.clock = clock
        self.timeout_s = timeout_s
        self.tls = tls
        self.quotas = ConnectionQuotas(lambda: places)
        self.complaints = Complaints(log, clock)
        self._options = options
        metrics.gauge("aiocontroller", "HttpServer", "Connections", lambda: len(self.quotas))
        metrics.gauge("aiocontroller", "HttpServer", "EvictedConnections", lambda: self.quotas.evicted)

    def enter(self, address: str, abort: Callable[[], object]) -> HttpConnection | None:
        """A connection for a new client; None if it is refused."""
        if self.quotas.refusal(address) is not None:
            return None
        connection = HttpConnection(self, address, abort, keepalive_timeout=self.timeout_s, **self._options)
        self.quotas.enter(connection)
        return connection
