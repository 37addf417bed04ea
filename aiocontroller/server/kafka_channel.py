"""One connection of a broker or client: frames, login, answers in order (Kafka's ``KafkaChannel``).

A connection may have several requests outstanding; answers leave in the order of the requests, as Kafka's protocol
demands.  What a request asks for is not looked at here (``kafka_apis``).

A frame that is too long, cut short, or of an API or version that was not offered ends its connection with a log line;
the others do not notice.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, cast

from aiocontroller.authorizer.principals import PrincipalError, SslPrincipalMapper, java_address
from aiocontroller.core.errors import KafkaErrorCode
from aiocontroller.core.ids import Endpoint
from aiocontroller.security import ANONYMOUS
from aiocontroller.server.relay import Relay
from aiocontroller.server.request import KafkaRequest, RequestContext
from aiocontroller.server.sasl import SaslError, SaslLogin
from aiocontroller.wire import sasl_messages
from aiocontroller.wire.apis import ApiKey, VersionRange, api_name, check_supported
from aiocontroller.wire.errors import UnsupportedApiError
from aiocontroller.wire.frames import (
    FrameError,
    FrameReader,
    decode_request_header,
    response_frame,
)
from aiocontroller.wire.messages import encode_api_versions_response

if TYPE_CHECKING:
    from aiocontroller.server.socket_server import SocketServer

log = logging.getLogger(__name__)

OF_A_LOGIN: dict[int, VersionRange] = {
    ApiKey.SASL_HANDSHAKE: VersionRange(1, 1),
    ApiKey.SASL_AUTHENTICATE: VersionRange(0, 2),
}
_REQUEST_START = Struct(">hhi")
MAX_OUTSTANDING = 64
"""Requests of one connection that wait for their answers before it is no longer read."""


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = ("api", "correlation_id", "frame", "version")

    def __init__(self, api: int, version: int, correlation_id: int) -> None:
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.frame: list[bytes] | None = None


class KafkaChannel(asyncio.Protocol):
    def __init__(self, server: SocketServer, at: Endpoint) -> None:
        self._server = server
        self._at = at
        self._security = server.shell.security.server(at)
        self._login = server.login(self._security)
        self._logging_in = False
        self._certified: str | None = None
        """The principal that the client's certificate names."""
        self._reader = FrameReader()
        self._slots: deque[Slot] = deque()
        self._transport: asyncio.Transport | None = None
        self._peer, self._host = "?", ""
        self._relay: Relay | None = None
        self._relayed: deque[Slot] = deque()
        """Slots whose answers come from the broker behind the relay, in its order."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._peer, self._host = str(peer), java_address(str(peer[0])) if peer else ""
        self._server.connections[self] = None
        try:
            self._certified = _principal_of(transport, self._security.principals)
        except PrincipalError as error:
            log.warning("Closing the connection from %s: %s", self._peer, error)
            self._transport = None
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        self._transport = None
        self._slots.clear()
        if self._relay is not None:
            self._relay.close()

    def data_received(self, data: bytes) -> None:
        try:
            for frame in self._reader.feed(data):
                self._request(frame)
        except (FrameError, UnsupportedApiError) as error:
            log.warning("Closing the connection from %s: %s", self._peer, error)
            self.close()

    def _request(self, frame: bytes) -> None:
        api, version, correlation_id = _REQUEST_START.unpack_from(frame) if len(frame) >= 8 else (-1, -1, -1)
        slot = Slot(api, version, correlation_id)
        self._slots.append(slot)
        if len(self._slots) >= MAX_OUTSTANDING and self._transport is not None:
            self._transport.pause_reading()
        if api == ApiKey.API_VERSIONS:
            offered = dict(self._server.apis.offered())
            if self._login is not None:
                offered |= OF_A_LOGIN
            answered = version if version in range(offered[api].max + 1) else 0
            self._answer(slot, answered, encode_api_versions_response(version, offered))
        elif self._login is not None and self._login.principal is None:
            self._log_in(slot, frame, self._login)
        else:
            self._server.apis.handle(self._kafka_request(slot, frame))

    def _kafka_request(self, slot: Slot, frame: bytes) -> KafkaRequest:
        header, body = decode_request_header(frame)
        context = RequestContext(
            api=slot.api,
            version=slot.version,
            correlation_id=slot.correlation_id,
            client_id=header.client_id,
            principal=self._principal,
            host=self._host,
            listener=self._at,
            authenticated=self._login is not None or self._certified is not None,
        )

        def refuse(reason: str) -> None:
            log.warning("Closing the connection from %s: %s", self._peer, reason)
            self.close()

        return KafkaRequest(
            context,
            frame,
            bytes(body),
            respond=lambda answer: self._answer(slot, slot.version, answer),
            refuse=refuse,
            relay=lambda: self._pass_on(slot, frame),
        )

    def _log_in(self, slot: Slot, frame: bytes, login: SaslLogin) -> None:
        _, body = decode_request_header(frame)
        check_supported(slot.api, slot.version, OF_A_LOGIN)
        if self._logging_in:
            raise FrameError("a login goes one step after the other")
        if slot.api == ApiKey.SASL_HANDSHAKE:
            known = login.choose(sasl_messages.decode_handshake_request(slot.version, body))
            code = KafkaErrorCode.NONE if known else KafkaErrorCode.UNSUPPORTED_SASL_MECHANISM
            answer = sasl_messages.encode_handshake_response(slot.version, code, login.mechanisms)
            self._answer(slot, slot.version, answer)
        else:
            token = sasl_messages.decode_authenticate_request(slot.version, body)
            self._logging_in = True
            self._server.tasks.start_soon(self._authenticate, slot, login, token, name="login")

    async def _authenticate(self, slot: Slot, login: SaslLogin, token: bytes) -> None:
        code, message, answer = KafkaErrorCode.NONE, None, b""
        try:
            answer = await login.take(token)
        except SaslError as error:
            log.warning("Login from %s refused: %s", self._peer, error)
            code, message = KafkaErrorCode.SASL_AUTHENTICATION_FAILED, str(error)
        self._logging_in = False
        self._answer(
            slot, slot.version, sasl_messages.encode_authenticate_response(slot.version, code, message, answer)
        )
        if code:
            self.close()

    @property
    def _principal(self) -> str:
        if self._login is not None and self._login.principal is not None:
            return self._login.principal
        return self._certified or ANONYMOUS

    def _pass_on(self, slot: Slot, frame: bytes) -> None:
        if self._relay is None:
            endpoint = self._server.upstream(self._at)
            if endpoint is None:
                raise FrameError(f"{api_name(slot.api)} version {slot.version} is not served here, nor by a broker now")
            shell = self._server.shell
            self._relay = Relay(shell.world, shell.security, self._relay_answered, self.close)
            self._server.tasks.start_soon(self._relay.connect, endpoint, name="relay")
        self._relayed.append(slot)
        self._relay.forward(frame)

    def _relay_answered(self, frame: bytes) -> None:
        if not self._relayed:
            raise FrameError("an answer that nobody waits for")
        self._relayed.popleft().frame = [len(frame).to_bytes(4, "big"), frame]
        self._flush()

    def close(self) -> None:
        """Nothing is written from here on: uvloop raises for it, in whoever has an answer."""
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def _answer(self, slot: Slot, version: int, body: bytes) -> None:
        slot.frame = response_frame(slot.api, version, slot.correlation_id, body)
        self._flush()

    def _flush(self) -> None:
        transport = self._transport
        if transport is None:
            return
        while self._slots and self._slots[0].frame is not None:
            transport.writelines(self._slots.popleft().frame or [])
        if len(self._slots) < MAX_OUTSTANDING:
            transport.resume_reading()


def _principal_of(transport: asyncio.Transport, principals: SslPrincipalMapper | None) -> str | None:
    """By the certificate that was shown; PrincipalError where no rule names it."""
    tls = transport.get_extra_info("ssl_object")
    certificate = None if principals is None or tls is None else tls.getpeercert(binary_form=True)
    return None if principals is None or not certificate else principals.principal_of(certificate)
