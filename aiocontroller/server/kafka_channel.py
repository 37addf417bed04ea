"""One connection of a broker or client: frames, login, limits (Kafka's ``KafkaChannel``).

As in Kafka, one request is processed at a time: later ones stay unread until it is answered, so answers come in the
order of requests.  Reading also stops while the client does not read its answers, while there is no memory for the
announced frame, and while it is other connections' turn (``socket_server``).  ``kafka_apis`` handles the requests.

A frame that is too long, truncated, or of an API or version not offered closes its connection with a log line; other
connections are not affected.  A client that is silent, slow or does not read for too long is disconnected.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, cast

import anyio

from aiocontroller.authorizer.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from aiocontroller.authorizer.principals import PrincipalError, SslPrincipalMapper, java_address
from aiocontroller.controller.heartbeats import CLIENT_ID as HEARTBEAT
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Endpoint
from aiocontroller.core.witness import hearing_of
from aiocontroller.security import ANONYMOUS
from aiocontroller.server.memory_pool import SMALL_BYTES
from aiocontroller.server.request import KafkaRequest, RequestContext
from aiocontroller.server.sasl import SaslError, SaslLogin
from aiocontroller.wire import sasl_messages
from aiocontroller.wire.apis import ApiKey, VersionRange, api_name, check_supported
from aiocontroller.wire.errors import FrameError, UnsupportedApiError
from aiocontroller.wire.frames import FrameBuffer, decode_request_header, response_frame
from aiocontroller.wire.messages import answer_api_versions_request, encode_api_versions_response

if TYPE_CHECKING:
    from aiocontroller.server.socket_server import SocketServer

log = logging.getLogger(__name__)

LOGIN_APIS: dict[int, VersionRange] = {
    ApiKey.SASL_HANDSHAKE: VersionRange(1, 1),
    ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2),
}
RENEWED_AFTER_S = 1.0
"""As in Kafka, the least time between the starts of two authentications of a client."""
_REQUEST_START = Struct(">hhi")


class KafkaChannel(asyncio.Protocol):
    """The protocol object of one connection; ``abort`` closes it while it has no transport yet."""

    def __init__(self, server: SocketServer, at: Endpoint, address: str, abort: Callable[[], object]) -> None:
        self.address = address
        """The peer's IP address."""
        self._server = server
        self._listener = at
        self._abort = abort
        self._security = server.shell.security.server(at)
        self._login: SaslLogin | None = server.login(self._security)
        self._session_ends_s = math.inf
        """When the client must have re-authenticated."""
        self._renewed_s = -math.inf
        """When it last started to authenticate."""
        self._certified: str | None = None
        """The principal from the client's certificate."""
        self._transport: asyncio.Transport | None = None
        self._peer, self._host = address, java_address(address)
        self._gone = self._closing = False

        self._buffer = FrameBuffer(server.max_bytes)
        self._request: KafkaRequest | None = None
        self._serial = 0
        """Number of the current request; answers to other requests are dropped."""
        self._in_flight = False
        self._frame_begun = False
        """Part of a frame has arrived."""
        self._frame_checked = False
        """The frame's header has been checked, and its announced size taken from the pool."""
        self._lacks_memory = False
        self._pool = server.memory if self._login is None else server.login_memory
        self._taken_bytes = 0
        self._queued = False
        """The connection waits for its turn."""
        self._answers_unread = False
        """Answers wait for the client to read them."""
        self._muted = False
        """The client has exceeded a quota and has to wait."""
        self._paused = False
        """Reading is paused."""

        self.since_s = self._server.now()
        """When the current activity started, …"""
        self.deadline_s = self.since_s + server.login_timeout_s
        """… and when it must be over."""

    @property
    def listener(self) -> str:
        """The name of its listener."""
        return self._listener.listener

    # -- the connection --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note peer and certificate, refuse a certificate without principal, and await the first request."""
        transport = cast(asyncio.Transport, transport)  # uvloop's transport is not a subclass of it
        self._transport = transport
        self._peer = str(transport.get_extra_info("peername"))
        if self._gone:  # it was evicted
            transport.abort()
            return
        try:
            self._certified = _principal_of(transport, self._security.principals)
        except PrincipalError as error:
            self.refuse(error)
            return
        if not self._before_login:
            self._set_deadline(self._server.idle_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection holds; also called if it was never established."""
        if self._gone and self._transport is None:
            return
        self._gone, self._transport = True, None
        self._server.forget(self)
        self._free_memory()
        request, self._request = self._request, None
        if request is not None and request.when_gone is not None:
            request.when_gone()

    def pause_writing(self) -> None:
        """The client does not read answers: stop reading requests, and set the deadline ``send_timeout_s``."""
        self._answers_unread = True
        self._set_deadline(self._server.send_timeout_s)
        self._server.answers_unread(self, 0 if self._transport is None else self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """The client reads again: continue with what it has sent."""
        self._answers_unread = False
        self._server.answers_read(self)
        if not self._in_flight and not self._muted and not self._closing:
            self._go_on()

    def close(self) -> None:
        """Close once the client has read the answers already written; read and write nothing more."""
        if self._closing:
            return
        self._closing = True
        self._set_deadline(self._server.send_timeout_s)
        self._free_memory()
        if self._transport is not None:
            self._transport.close()  # uvloop raises when something is written afterwards
        else:
            self._abort()

    def evict(self) -> None:
        """Close at once, and free the descriptor."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
        else:
            self._gone = True
            self._server.forget(self)
            self._abort()

    def refuse(self, reason: object) -> None:
        """Close the connection, with a log line for the reason."""
        if not self._closing:
            self._server.complaints.warn("connections closed", "Closing the connection from %s: %s", self._peer, reason)
            self.close()

    @property
    def _before_login(self) -> bool:
        return self._login is not None and self._login.principal is None

    def _set_deadline(self, delay_s: float) -> None:
        if self._before_login and not self._closing:
            return  # a login has a single deadline
        self.since_s = self._server.now()
        self.deadline_s = self.since_s + delay_s

    def deadline_passed(self) -> None:
        """Close the connection, whose deadline has passed."""
        if self._closing or self._answers_unread:
            reason = "answers are not read"
        elif self._before_login:
            reason = "no login" if self._transport is not None else "no TLS handshake"
        elif self._frame_begun and not self._in_flight:
            reason = f"an incomplete request: {len(self._buffer)} bytes received"
        else:
            reason = ""  # idle: nothing is wrong
        if reason:
            self._server.complaints.warn(
                "connections that took too long", "Closing the connection from %s: %s", self._peer, reason
            )
        self.evict()

    @property
    def is_receiving(self) -> bool:
        """Whether the connection holds memory for an incomplete frame."""
        return bool(self._taken_bytes) and not self._in_flight

    # -- from bytes to a request -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Buffer the bytes; the next request is processed when the one before it has been answered."""
        if self._closing:
            return
        self._buffer.put(data)
        if self._in_flight or self._answers_unread or self._queued or self._lacks_memory or self._muted:
            self._pause()
        else:
            self._receive()

    def memory_is_free(self) -> None:
        """Go on with the request for which there was no memory; the pool has reserved it now."""
        self._lacks_memory = False
        self._frame_checked = True
        self._taken_bytes = self._buffer.size() or 0
        self._set_deadline(self._server.receive_timeout_s)
        self._go_on()

    def take_turn(self) -> None:
        """Process a request; the server calls this when it is the connection's turn."""
        self._queued = False
        if not (self._closing or self._gone or self._in_flight or self._answers_unread or self._lacks_memory):
            self._receive()

    def _go_on(self) -> None:
        """Go on after a wait: queue for a turn if there is input, else read."""
        if len(self._buffer):
            self._queue()
        else:
            self._resume()

    def _queue(self) -> None:
        self._pause()
        if not self._queued:
            self._queued = True
            self._server.queue(self)

    def _pause(self) -> None:
        if not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._paused and self._transport is not None and not self._closing:
            self._paused = False
            self._transport.resume_reading()

    def _receive(self) -> None:
        """Process the next request, if it is complete and it is our turn."""
        try:
            if not self._frame_checked and not self._check():
                return
            if not self._buffer.is_whole:
                self._resume()
            elif self._server.may_work():
                self._frame_begun = self._frame_checked = False
                self._handle(self._buffer.take() or b"")
            else:
                self._queue()
        except (FrameError, UnsupportedApiError) as error:
            self.refuse(error)

    def _check(self) -> bool:
        """Whether the incoming frame may be received; FrameError if it would be refused."""
        size = self._buffer.size()
        if not self._frame_begun:
            self._frame_begun = True
            self._set_deadline(self._server.receive_timeout_s)
        if size is None:
            self._resume()
            return False
        if self._before_login and size > self._server.login_max_bytes:
            raise FrameError(f"frame before the login: found {size} bytes, expected {self._server.login_max_bytes}")
        if size > SMALL_BYTES:
            start = self._buffer.peek(SMALL_BYTES)
            if start is None:
                self._resume()
                return False
            self._check_large(size, start)
            if not self._pool.take(self, size):
                self._lacks_memory = True
                self._set_deadline(self._server.idle_s)
                self._pause()
                return False
            self._taken_bytes = size
        self._frame_checked = True
        return True

    def _check_large(self, size: int, start: bytes) -> None:
        api, version, _ = _REQUEST_START.unpack_from(start)
        if self._before_login:
            check_supported(api, version, LOGIN_APIS)
            return
        most = self._server.largest_request(api, start)
        if size > most:
            raise FrameError(f"{api_name(api)}: found a request of {size} bytes, expected at most {most}")

    def _free_memory(self) -> None:
        if self._lacks_memory:
            self._lacks_memory = False
            self._pool.forget(self)
        taken, self._taken_bytes = self._taken_bytes, 0
        if taken:
            self._pool.give_back(taken)

    # -- requests --------------------------------------------------------------------------------------------------

    def _handle(self, frame: bytes) -> None:
        api, version, correlation_id = _REQUEST_START.unpack_from(frame) if len(frame) >= 8 else (-1, -1, -1)
        self._serial += 1
        self._in_flight = True
        self._server.begin(self)
        self._set_deadline(self._server.idle_s)
        ended = self._server.now() > self._session_ends_s
        if api == ApiKey.API_VERSIONS and not ended:
            offered = dict(self._server.apis.offered())
            if self._login is not None:
                offered |= LOGIN_APIS
            header, body = decode_request_header(frame)
            answer = answer_api_versions_request(version, body, offered)
            if version == 0 and (header.client_id or "").startswith(HEARTBEAT):
                if self._may_speak_for_brokers():
                    self._server.shell.vouched(hearing_of(header.client_id or ""))
                if self._server.shell.hands_over:
                    answer = encode_api_versions_response(0, {}, error_code=KafkaErrorCode.NOT_CONTROLLER)
            answered = version if version in range(offered[api].max + 1) else 0
            self._answer(self._serial, response_frame(api, answered, correlation_id, answer))
        elif self._login is not None and self._login.principal is None:
            self._log_in(api, version, correlation_id, frame, self._login)
        elif self._login is not None and api == ApiKey.SASL_HANDSHAKE and self._may_log_in_again:
            self._log_in(api, version, correlation_id, frame, self._renewal(self._login))
        elif ended:
            self._server.session_has_ended()
            self.refuse("its login has ended: connections.max.reauth.ms is over, or the delegation token has expired")
        else:
            self._request = self._kafka_request(api, version, correlation_id, frame)
            self._server.apis.handle(self._request)

    def _may_speak_for_brokers(self) -> bool:
        """Whether to believe which brokers a heartbeat's sender hears; unlike ApiVersions, this needs ClusterAction."""
        if self._login is not None and self._login.principal is None:
            return False
        authorize = self._server.shell.authorizer.authorize
        return authorize(self._principal, self._host, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME)

    def _kafka_request(self, api: int, version: int, correlation_id: int, frame: bytes) -> KafkaRequest:
        header, body = decode_request_header(frame)
        serial = self._serial
        context = RequestContext(
            api=api,
            version=version,
            correlation_id=correlation_id,
            client_id=header.client_id,
            principal=self._principal,
            host=self._host,
            listener=self._listener,
            authenticated=self._login is not None or self._certified is not None,
            token_authenticated=self._login is not None and self._login.by_token,
        )

        def refuse(reason: str) -> None:
            if serial == self._serial:
                self.refuse(reason)

        return KafkaRequest(
            context,
            bytes(body),
            respond=lambda answer: self._answer(serial, response_frame(api, version, correlation_id, answer)),
            refuse=refuse,
        )

    def _answer(self, serial: int, pieces: list[bytes]) -> None:
        """Answer the current request, and go on to the next one."""
        if serial != self._serial or not self._in_flight:
            return
        mute_ms = 0 if self._request is None else self._request.mute_ms
        self._in_flight = False
        self._request = None
        self._free_memory()
        if self._closing or self._transport is None:
            return
        self._server.end(self)
        self._set_deadline(self._server.idle_s)
        self._transport.writelines(pieces)
        if mute_ms:
            self._muted = True
            self._pause()
            self._server.shell.world.clock.call_later(mute_ms / 1000, self._unmute)
        elif not self._answers_unread:
            self._go_on()

    def _unmute(self) -> None:
        self._muted = False
        if not (self._closing or self._gone or self._answers_unread):
            self._set_deadline(self._server.idle_s)
            self._go_on()

    @property
    def _principal(self) -> str:
        if self._login is not None and self._login.principal is not None:
            return self._login.principal
        return self._certified or ANONYMOUS

    # -- logins ----------------------------------------------------------------------------------------------------

    @property
    def _may_log_in_again(self) -> bool:
        """Whether the client may re-authenticate: only a session that ends, or has ended, can be renewed (KIP-368)."""
        return self._session_ends_s < math.inf and self._server.now() - self._renewed_s >= RENEWED_AFTER_S

    def _renewal(self, before: SaslLogin) -> SaslLogin:
        """Start re-authentication; until it succeeds, nothing else is served."""
        self._set_deadline(self._server.login_timeout_s)
        self._renewed_s = self._server.now()
        login = self._login = self._server.login(self._security, before)
        assert login is not None
        return login

    def _log_in(self, api: int, version: int, correlation_id: int, frame: bytes, login: SaslLogin) -> None:
        _, body = decode_request_header(frame)
        check_supported(api, version, LOGIN_APIS)
        if api == ApiKey.SASL_HANDSHAKE and login.has_begun:
            answer = sasl_messages.encode_handshake_response(version, KafkaErrorCode.ILLEGAL_SASL_STATE, ())
            self._answer(self._serial, response_frame(api, version, correlation_id, answer))
            self.refuse("a second SaslHandshake within a login")
        elif api == ApiKey.SASL_HANDSHAKE:
            known = login.choose(sasl_messages.decode_handshake_request(version, body))
            code = KafkaErrorCode.NONE if known else KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM
            answer = sasl_messages.encode_handshake_response(version, code, login.mechanisms)
            self._answer(self._serial, response_frame(api, version, correlation_id, answer))
        else:
            token = sasl_messages.decode_authenticate_request(version, body)
            if login.changes_mechanism:
                self.refuse("re-authentication with another mechanism")
                return

            def answered(code: KafkaErrorCode, message: str | None, answer: bytes, lifetime_ms: int) -> None:
                encoded = sasl_messages.encode_authenticate_response(version, code, message, answer, lifetime_ms)
                self._answer(self._serial, response_frame(api, version, correlation_id, encoded))

            self._server.tasks.start_soon(self._authenticate, login, token, answered, name="login")

    async def _authenticate(
        self, login: SaslLogin, token: bytes, answered: Callable[[KafkaErrorCode, str | None, bytes, int], None]
    ) -> None:
        try:
            with anyio.fail_after(self._server.login_timeout_s):  # ZooKeeper may be unavailable for long
                answer = await login.take(token)
        except SaslError as error:
            self._server.login_failed(self._peer, error, again=login.is_renewal)
            message = str(error)

            def fail() -> None:
                answered(KafkaErrorCode.SASL_AUTHENTICATION_FAILED, message, b"", 0)
                self.close()

            # As in Kafka, each failed login is answered after a delay, which slows down password guessing.
            self._server.shell.world.clock.call_later(self._server.failed_login_delay_s, fail)
            return
        except TimeoutError:
            self.refuse("the credentials for its login could not be read in time")
            return
        lifetime_ms = None
        if login.principal is not None:
            lifetime_ms = login.lifetime_ms(self._server.wall_time_ms())
            self._session_ends_s = math.inf if lifetime_ms is None else self._server.now() + lifetime_ms / 1000
            self._server.login_succeeded(again=login.is_renewal)
        answered(KafkaErrorCode.NONE, None, answer, lifetime_ms or 0)
        if login.principal is not None:
            self._pool = self._server.memory  # the login's memory goes back to the pool it came from


def _principal_of(transport: asyncio.Transport, principals: SslPrincipalMapper | None) -> str | None:
    """The principal from the client certificate; PrincipalError when no rule matches it."""
    tls = transport.get_extra_info("ssl_object")
    certificate = None if principals is None or tls is None else tls.getpeercert(binary_form=True)
    return None if principals is None or not certificate else principals.principal_of(certificate)
