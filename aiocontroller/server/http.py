"""HTTP for operators and their tools: ``/metrics``, ``/healthz``, ``/readyz``, ``/status``, ``/settings``, questions
about the cluster, commands and debug handlers.

``/`` is the page for people (``static``), which asks the same questions.  ``/healthz`` answers 200 while the process
can do its work, ``/readyz`` while it is the controller or could become it; otherwise 503 with the reasons, one per
line.  Answers to GET are made from memory and never wait for the cluster.

The ``Host`` header is checked (``host_check``): if only this machine can connect, for all requests but ``PROBES``;
otherwise only for the page and questions about the cluster, so that scrapers may use any name for us.  The page and
questions about the cluster are for readers only (``reader_check``), and a request to do something is accepted from our
own page only (``origin_check``).
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, NamedTuple

import msgspec
from aiohttp import web

from aiocontroller.core.errors import AioControllerError, BadInputError
from aiocontroller.metrics import Metrics
from aiocontroller.net.ports import Clock, Listener, TlsNow, World
from aiocontroller.server import host_check, origin_check, reader_check, static
from aiocontroller.server.actor_check import HttpPeer, NotAllowedError
from aiocontroller.server.commands import Command, CommandRefusedError
from aiocontroller.server.http_connections import HttpConnection, HttpGate
from aiocontroller.server.partition_pages import NotInChargeError, UnknownTopicError
from aiocontroller.server.reader_check import TOKEN_HEADER

log = logging.getLogger("aiocontroller.http")

DebugHandler = Callable[[], Awaitable[object]]
"""Its result is sent as JSON, an exception as status 500 with its text."""

PagePost = Callable[[HttpPeer, bytes], Awaitable[Mapping[str, Any]]]
"""Takes the peer and JSON; NotAllowedError is answered by status 403, other AioControllerErrors by 409."""

Question = Callable[[Mapping[str, str]], Awaitable[Mapping[str, Any]]]
"""Takes a query; BadInputError is answered by status 400, UnknownTopicError 404, NotInChargeError 503."""

Stream = Callable[[web.Request], Awaitable[web.StreamResponse]]

PROBES = frozenset(("healthz", "readyz"))
"""Supervisors and load balancers may use any name for us in requests for these."""
LOCAL = "127.0.0.1"
SHUTDOWN_TIMEOUT_S = 0.3
LINGERING_S = 1.0
"""How long an unwanted body is read, so that its sender receives the answer."""
_encoder = msgspec.json.Encoder(enc_hook=repr)


class Limits(NamedTuple):
    """What the HTTP server allows its clients."""

    max_connections: int = 64
    max_request_bytes: int = 1 << 20
    """Largest body."""
    timeout_s: float = 10.0
    """The limit for receiving a header, for receiving a body, for reading an answer, and for an idle connection."""


DEFAULT_LIMITS = Limits()


class HttpServer:
    """A running server; ``local`` is where it also listens for this machine, without TLS, if it has TLS."""

    def __init__(self, host: str, listener: Listener, runner: web.AppRunner, local: Listener | None) -> None:
        self.host = host
        self._listener = listener
        self._runner = runner
        self._local = local

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._listener.port

    @property
    def url(self) -> str:
        """URL for messages and clients; a wildcard address is shown as loopback."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self.host, self.host)
        scheme = "http" if self._local is None else "https"
        return f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"

    @property
    def local_url(self) -> str:
        """URL for commands and other programs of this machine, without TLS."""
        return self.url if self._local is None else f"http://{LOCAL}:{self._local.port}"

    async def close(self) -> None:
        """Stop listening; running requests get ``SHUTDOWN_TIMEOUT_S`` to finish, and as long to be cancelled.
        Idempotent."""
        self._listener.close()
        if self._local is not None:
            self._local.close()
        await self._runner.cleanup()


async def serve(
    world: World,
    host: str,
    port: int,
    *,
    metrics: Metrics,
    ready: Callable[[], tuple[bool, str]],
    status: Callable[[], Mapping[str, Any]],
    settings: Callable[[], Mapping[str, Any]] = dict,
    alive: Callable[[], bool] = lambda: True,
    debug: Mapping[str, DebugHandler] | None = None,
    commands: Mapping[str, Command] | None = None,
    questions: Mapping[str, Question] | None = None,
    streams: Mapping[str, Stream] | None = None,
    page_posts: Mapping[str, PagePost] | None = None,
    token: str = "",
    password: str = "",
    allowed_hosts: Collection[str] = (),
    limits: Limits = DEFAULT_LIMITS,
    tls: TlsNow | None = None,
) -> HttpServer:
    """Listen on ``host:port`` (0: a free one); with ``tls`` by HTTPS, and then also without TLS for this machine alone.

    ``debug`` handlers answer ``POST /debug/{name}``, ``questions`` ``GET /{name}``, ``streams`` the same with endless
    answers, ``commands`` ``POST /{name}`` with the token in ``TOKEN_HEADER``, ``page_posts`` ``POST /{name}`` from our
    page.  Other machines need ``password`` for questions, streams and the page.  OSError when the address cannot be
    bound.
    """
    questions, streams, page_posts = questions or {}, streams or {}, page_posts or {}
    protected = {*questions, *streams, *page_posts, *static.FILES}
    meant_for_us = _meant_for_us((host, *allowed_hosts), None if host_check.is_loopback(host) else protected)
    application = web.Application(
        middlewares=[
            _with_present_certificates,
            meant_for_us,
            _from_readers(protected, password, token, world.clock),
            _in_turns(streams),
        ],
        client_max_size=limits.max_request_bytes,
    )
    for name, file in static.FILES.items():
        application.router.add_get(f"/{name}", static.answer(file))
    for name, stream in streams.items():
        application.router.add_get(f"/{name}", stream, allow_head=False)  # HEAD has no body, so it would not end
    application.router.add_get("/metrics", _metrics(metrics))
    application.router.add_get("/healthz", _probe(alive))
    application.router.add_get("/readyz", _readiness(ready))
    application.router.add_get("/status", _status(status))
    application.router.add_get("/settings", _status(settings))
    for name, question in questions.items():
        application.router.add_get(f"/{name}", _question(question))
    for name, handler in sorted((debug or {}).items()):
        application.router.add_post(f"/debug/{name}", _debug(name, handler))
    for name, command in sorted((commands or {}).items()):
        application.router.add_post(f"/{name}", _command(command, token, limits.timeout_s))
    for name, post in sorted(page_posts.items()):
        application.router.add_post(f"/{name}", _page_post(post, limits.timeout_s))
    return await _listening(world, host, port, application, metrics, limits, tls)


async def _listening(
    world: World,
    host: str,
    port: int,
    application: web.Application,
    metrics: Metrics,
    limits: Limits,
    tls: TlsNow | None,
) -> HttpServer:
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    assert runner.server is not None
    gate = HttpGate(
        runner.server,
        world.clock,
        metrics,
        limits.max_connections,
        limits.timeout_s,
        tls,
        access_log=None,
        auto_decompress=False,  # not needed, and a kilobyte may become a megabyte
        lingering_time=LINGERING_S,
    )
    network, timeout_s = world.network, limits.timeout_s
    try:
        listener = await network.serve_through(gate, host, port, ssl=tls, handshake_timeout_s=timeout_s)
        try:
            local = None if tls is None else await network.serve_through(gate, LOCAL, 0)
        except BaseException:
            listener.close()
            raise
    except BaseException:
        await runner.cleanup()
        raise
    return HttpServer(host, listener, runner, local)


_Handler = Callable[[web.Request], Awaitable[web.Response]]


def _in_turns(streams: Collection[str]) -> Any:
    """Middleware that keeps pipelined and concurrent requests from starving other tasks: one page is made at a time,
    and the event loop runs once between two pages.  Streams have turns of their own."""
    page = asyncio.Lock()

    @web.middleware
    async def middleware(request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]) -> Any:
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        connection.begin()
        try:
            if request.method == "POST" or request.path.removeprefix("/") in streams:
                return await handler(request)
            async with page:
                await asyncio.sleep(0)
                return await handler(request)
        finally:
            connection.end()

    return middleware


@web.middleware
async def _with_present_certificates(
    request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Middleware that closes a connection if certificates have been reloaded since its client's was verified: that may
    no longer be trusted.  The client connects again, as it does when an idle connection is closed."""
    connection = request.protocol
    assert isinstance(connection, HttpConnection)
    if connection.outdated:
        connection.evict()
        return web.Response(status=503)
    return await handler(request)


def _meant_for_us(allowed: Collection[str], checked: Collection[str] | None) -> Any:
    """Middleware that checks the ``Host`` of requests for the ``checked`` names; None: of all but ``PROBES``."""

    @web.middleware
    async def middleware(request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]) -> Any:
        name = request.path.removeprefix("/")
        if name not in PROBES if checked is None else name in checked:
            why = host_check.refusal(request.headers.get("Host"), allowed)
            if why is not None:
                return _json({"error": why}, 403)
        return await handler(request)

    return middleware


def _from_readers(protected: Collection[str], password: str, token: str, clock: Clock) -> Any:
    """Middleware that refuses requests for the ``protected`` names from peers that may not read the cluster's state.  A
    wrong password is logged, and refused after a delay, so that guessing is slow and does not go unnoticed."""

    @web.middleware
    async def middleware(request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]) -> Any:
        if request.path.removeprefix("/") in protected:
            connection = request.protocol
            assert isinstance(connection, HttpConnection)
            certified = certificate_of(request) is not None
            why = reader_check.refusal(connection.address, request.headers, password, token, certified=certified)
            if why is not None:
                if reader_check.tried(request.headers):
                    connection.complain("wrong passwords for reading", f"found a wrong password for {request.path}")
                    await clock.sleep(reader_check.GUESS_S)
                refused = _json({"error": why}, 401 if password else 403)
                refused.headers.update(reader_check.CHALLENGE if password else {})
                return refused
        return await handler(request)

    return middleware


def certificate_of(request: web.Request) -> bytes | None:
    """The peer's certificate, verified by TLS, in DER; None if there is none."""
    tls = request.get_extra_info("ssl_object")
    return None if tls is None else tls.getpeercert(binary_form=True) or None


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=_encoder.encode(value) + b"\n", content_type="application/json", status=status)


def _metrics(metrics: Metrics) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        page, content_type = metrics.exposition(",".join(request.headers.getall("Accept", [])))
        return web.Response(body=page, headers={"Content-Type": content_type})

    return handle


def _probe(holds: Callable[[], bool]) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        return web.Response(text="ok\n") if holds() else web.Response(text="not ok\n", status=503)

    return handle


def _readiness(ready: Callable[[], tuple[bool, str]]) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        holds, text = ready()
        return web.Response(text=f"{text}\n", status=200 if holds else 503)

    return handle


def _status(status: Callable[[], Mapping[str, Any]]) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        return _json(status())

    return handle


def _question(question: Question) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        try:
            return _json(await question(request.query))
        except BadInputError as error:
            return _json({"error": str(error)}, 400)
        except UnknownTopicError as error:
            return _json({"error": str(error)}, 404)
        except NotInChargeError as error:
            return _json({"error": str(error)}, 503)

    return handle


def _debug(name: str, handler: DebugHandler) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        try:
            return _json(await handler())
        except AioControllerError as error:
            log.warning("debug handler %s: %s", name, error)
            return _json({"error": str(error)}, 500)
        except Exception as error:
            log.exception("debug handler %s failed", name)
            return _json({"error": repr(error)}, 500)

    return handle


def _command(command: Command, token: str, timeout_s: float) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        given = request.headers.get(TOKEN_HEADER, "").encode(errors="surrogateescape")
        if not token or not hmac.compare_digest(given, token.encode()):
            return _json({"error": "wrong token: expected the one in controller.json"}, 403)
        return await _carried_out(command, request, timeout_s)

    return handle


def _page_post(post: PagePost, timeout_s: float) -> _Handler:
    async def handle(request: web.Request) -> web.Response:
        why = origin_check.refusal(request.headers)
        if why is not None:
            return _json({"error": why}, 403)
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        encrypted = request.get_extra_info("ssl_object") is not None
        peer = HttpPeer(connection.address, encrypted, certificate_of(request))

        async def carry_out(body: bytes) -> Mapping[str, Any]:
            try:
                return await post(peer, body)
            except NotAllowedError as error:
                connection.complain("actions refused", str(error))
                raise

        return await _carried_out(carry_out, request, timeout_s)

    return handle


async def _carried_out(command: Command, request: web.Request, timeout_s: float) -> web.Response:
    try:
        async with asyncio.timeout(timeout_s):
            body = await request.read()
    except TimeoutError:
        return _json({"error": f"the request's body did not arrive within {timeout_s:g} s"}, 408)
    except web.RequestPayloadError as error:
        return _json({"error": f"the request's body cannot be understood: {error}"}, 400)
    try:
        return _json(await command(body))
    except NotAllowedError as error:
        return _json({"error": str(error)}, 403)
    except CommandRefusedError as error:
        return _json({"error": str(error), **error.details}, 409)
    except AioControllerError as error:
        return _json({"error": str(error)}, 409)
