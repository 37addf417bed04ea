"""One connection of a broker or client: frames, login, limits (Kafka's ``KafkaChannel``).

One request is under way at a time, as in Kafka: what comes behind it stays unread until it is answered, so answers
leave in the order of the requests.  Nothing is read either while answers are not read, while there is no memory for
what is announced, and while it is the turn of others (``socket_server``).  What a request asks for is looked at
elsewhere (``kafka_apis``).

A frame that is too long, cut short, or of an API or version that was not offered ends its connection with a log line;
the others do not notice.  Whoever is silent, slow or does not read for too long is hung up on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, cast

import anyio

from aiocontroller.authorizer.principals import PrincipalError, SslPrincipalMapper, java_address
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Endpoint
from aiocontroller.security import ANONYMOUS
from aiocontroller.server.memory_pool import SMALL_BYTES
from aiocontroller.server.request import KafkaRequest, RequestContext
from aiocontroller.server.sasl import SaslError, SaslLogin
from aiocontroller.wire import sasl_messages
from aiocontroller.wire.apis import ApiKey, VersionRange, api_name, check_supported
from aiocontroller.wire.errors import FrameError, UnsupportedApiError
from aiocontroller.wire.frames import FrameBuffer, decode_request_header, response_frame
from aiocontroller.wire.messages import answer_api_versions_request

if TYPE_CHECKING:
    from aiocontroller.server.socket_server import SocketServer

log = logging.getLogger(__name__)

OF_A_LOGIN: dict[int, VersionRange] = {
    ApiKey.SASL_HANDSHAKE: VersionRange(1, 1),
    ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2),
}
_REQUEST_START = Struct(">hhi")


class KafkaChannel(asyncio.Protocol):
    """``abort`` hangs up before there is a transport."""

    def __init__(self, server: SocketServer, at: Endpoint, address: str, abort: Callable[[], object]) -> None:
        self.address = address
        """The peer's IP address."""
        self._server = server
        self._at = at
        self._abort = abort
        self._security = server.shell.security.server(at)
        self._login: SaslLogin | None = server.login(self._security)
        self._certified: str | None = None
        """The principal that the client's certificate names."""
        self._transport: asyncio.Transport | None = None
        self._peer, self._host = address, java_address(address)
        self._gone = self._closing = False

        self._buffer = FrameBuffer(server.max_bytes)
        self._request: KafkaRequest | None = None
        self._serial = 0
        """Of the request under way: an answer to another one is none."""
        self._under_way = False
        self._begun = False
        """A frame has begun to come."""
        self._checked = False
        """Its header was looked at, and what it announces was taken from the pool."""
        self._lacks_memory = False
        self._pool = server.memory if self._login is None else server.login_memory
        self._taken_bytes = 0
        self._queued = False
        """For its turn."""
        self._unread = False
        """Answers wait to be read by the client."""
        self._paused = False
        """We do not read."""

        self.since_s = self._server.now()
        """When what it does now began, …"""
        self.deadline_s = self.since_s + server.login_timeout_s
        """… and when it must be over."""

    @property
    def listener(self) -> str:
        return self._at.listener

    # -- the connection --------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._transport = transport
        self._peer = str(transport.get_extra_info("peername"))
        if self._gone:  # it had to make room
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
        """Also when it was never made."""
        if self._gone and self._transport is None:
            return
        self._gone, self._transport = True, None
        self._server.forget(self)
        self._free_memory()
        request, self._request = self._request, None
        if request is not None and request.when_gone is not None:
            request.when_gone()

    def pause_writing(self) -> None:
        self._unread = True
        self._set_deadline(self._server.send_timeout_s)
        self._server.answers_unread(self, 0 if self._transport is None else self._transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        self._unread = False
        self._server.answers_read(self)
        if not self._under_way and not self._closing:
            self._go_on()

    def close(self) -> None:
        """What was answered still leaves, if it is read; nothing is read or written from here on."""
        if self._closing:
            return
        self._closing = True
        self._set_deadline(self._server.send_timeout_s)
        self._free_memory()
        if self._transport is not None:
            self._transport.close()  # uvloop raises for it when something is written later
        else:
            self._abort()

    def evict(self) -> None:
        """End at once, and free the descriptor."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()
        else:
            self._gone = True
            self._server.forget(self)
            self._abort()

    def refuse(self, reason: object) -> None:
        if not self._closing:
            self._server.complaints.warn("connections closed", "Closing the connection from %s: %s", self._peer, reason)
            self.close()

    @property
    def _before_login(self) -> bool:
        return self._login is not None and self._login.principal is None

    def _set_deadline(self, delay_s: float) -> None:
        if self._before_login and not self._closing:
            return  # a login has one for all of it
        self.since_s = self._server.now()
        self.deadline_s = self.since_s + delay_s

    def too_late(self) -> None:
        """The deadline has passed."""
        if self._closing or self._unread:
            reason = "answers are not read"
        elif self._before_login:
            reason = "no login" if self._transport is not None else "no TLS handshake"
        elif self._begun and not self._under_way:
            reason = f"a request that does not end: {len(self._buffer)} bytes of it have come"
        else:
            reason = ""  # idle: nothing is wrong
        if reason:
            self._server.complaints.warn(
                "connections that took too long", "Closing the connection from %s: %s", self._peer, reason
            )
        self.evict()

    @property
    def is_receiving(self) -> bool:
        """It holds memory for a frame that has not come whole."""
        return bool(self._taken_bytes) and not self._under_way

    # -- from bytes to a request -----------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self._buffer.put(data)
        if self._under_way or self._unread or self._queued or self._lacks_memory:
            self._pause()
        else:
            self._receive()

    def memory_is_free(self) -> None:
        self._lacks_memory = False
        self._checked = True
        self._taken_bytes = self._buffer.size() or 0
        self._set_deadline(self._server.receive_timeout_s)
        self._go_on()

    def take_turn(self) -> None:
        """Called by the server, to which this was queued."""
        self._queued = False
        if not (self._closing or self._gone or self._under_way or self._unread or self._lacks_memory):
            self._receive()

    def _go_on(self) -> None:
        """After something that it waited for."""
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
        """The next request, if it is there and it is our turn."""
        try:
            if not self._checked and not self._check():
                return
            if not self._buffer.is_whole:
                self._resume()
            elif self._server.may_work():
                self._begun = self._checked = False
                self._handle(self._buffer.take() or b"")
            else:
                self._queue()
        except (FrameError, UnsupportedApiError) as error:
            self.refuse(error)

    def _check(self) -> bool:
        """Whether the frame that is coming may be collected; FrameError when nobody would want it."""
        size = self._buffer.size()
        if not self._begun:
            self._begun = True
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
        self._checked = True
        return True

    def _check_large(self, size: int, start: bytes) -> None:
        api, version, _ = _REQUEST_START.unpack_from(start)
        if self._before_login:
            check_supported(api, version, OF_A_LOGIN)
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
        self._under_way = True
        self._server.begin(self)
        self._set_deadline(self._server.idle_s)
        if api == ApiKey.API_VERSIONS:
            offered = dict(self._server.apis.offered())
            if self._login is not None:
                offered |= OF_A_LOGIN
            answer = answer_api_versions_request(version, decode_request_header(frame)[1], offered)
            answered = version if version in range(offered[api].max + 1) else 0
            self._answer(self._serial, response_frame(api, answered, correlation_id, answer))
        elif self._login is not None and self._login.principal is None:
            self._log_in(api, version, correlation_id, frame, self._login)
        elif self._token_has_expired():
            self.refuse("the delegation token that it logged in with has expired")
        else:
            self._request = self._kafka_request(api, version, correlation_id, frame)
            self._server.apis.handle(self._request)

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
            listener=self._at,
            authenticated=self._login is not None or self._certified is not None,
            token_authenticated=self._login is not None and self._login.expiry_timestamp_ms is not None,
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
        """Answer the request under way, and go on to the next one."""
        if serial != self._serial or not self._under_way:
            return
        self._under_way = False
        self._request = None
        self._free_memory()
        if self._closing or self._transport is None:
            return
        self._server.end(self)
        self._set_deadline(self._server.idle_s)
        self._transport.writelines(pieces)
        if not self._unread:
            self._go_on()

    @property
    def _principal(self) -> str:
        if self._login is not None and self._login.principal is not None:
            return self._login.principal
        return self._certified or ANONYMOUS

    # -- logins ----------------------------------------------------------------------------------------------------

    def _token_has_expired(self) -> bool:
        ends_ms = None if self._login is None else self._login.expiry_timestamp_ms
        return ends_ms is not None and ends_ms < self._server.wall_time_ms()

    def _log_in(self, api: int, version: int, correlation_id: int, frame: bytes, login: SaslLogin) -> None:
        _, body = decode_request_header(frame)
        check_supported(api, version, OF_A_LOGIN)
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

            def answered(code: KafkaErrorCode, message: str | None, answer: bytes) -> None:
                encoded = sasl_messages.encode_authenticate_response(version, code, message, answer)
                self._answer(self._serial, response_frame(api, version, correlation_id, encoded))

            self._server.tasks.start_soon(self._authenticate, login, token, answered, name="login")

    async def _authenticate(
        self, login: SaslLogin, token: bytes, answered: Callable[[KafkaErrorCode, str | None, bytes], None]
    ) -> None:
        try:
            with anyio.fail_after(self._server.login_timeout_s):  # ZooKeeper may be away for long
                answer = await login.take(token)
        except SaslError as error:
            self._server.login_failed(self._peer, error)
            message = str(error)

            def fail() -> None:
                answered(KafkaErrorCode.SASL_AUTHENTICATION_FAILED, message, b"")
                self.close()

            # As in Kafka: whoever tries passwords waits for each.
            self._server.shell.world.clock.call_later(self._server.failed_login_delay_s, fail)
            return
        except TimeoutError:
            self.refuse("what a login is compared with was not to be had in time")
            return
        answered(KafkaErrorCode.NONE, None, answer)
        if login.principal is not None:
            self._pool = self._server.memory
            self._server.login_succeeded()


def _principal_of(transport: asyncio.Transport, principals: SslPrincipalMapper | None) -> str | None:
    """By the certificate that was shown; PrincipalError where no rule names it."""
    tls = transport.get_extra_info("ssl_object")
    certificate = None if principals is None or tls is None else tls.getpeercert(binary_form=True)
    return None if principals is None or not certificate else principals.principal_of(certificate)
