"""A client that sends one request at a time and tells what became of it: bytes in, bytes out, nothing hidden."""

from __future__ import annotations

import asyncio
import ssl
import struct
from pathlib import Path
from typing import NamedTuple

from aiocontroller.wire import sasl_messages
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import decode_response_header, encode_request_header
from aiocontroller.wire.scram import ScramClient
from tests.authorization.principals import CERTIFICATE, PLAIN, SSL, Way, password

CLIENT_ID = "oracle"
CONNECT_TIMEOUT_S = 10.0
ANSWER_TIMEOUT_S = 10.0
IMPATIENT_S = 1.0
"""After ``PATIENCE`` requests that were not answered: a side that never answers should not cost hours."""
PATIENCE = 5


class Outcome(NamedTuple):
    """``answered`` with a body, or ``closed``, ``silent``, ``refused`` (no connection, or no login) without."""

    what: str
    body: bytes = b""
    detail: str = ""


class Side:
    """A broker, or the controller: the port of each listener."""

    def __init__(self, name: str, node_id: int, ports: dict[str, int], stores: Path) -> None:
        self.name = name
        self.node_id = node_id
        self.ports = ports
        self.stores = stores
        self.silences = 0
        self._visits: dict[Way, Visit] = {}

    async def ask(self, way: Way, api: int, version: int, body: bytes, timeout_s: float = ANSWER_TIMEOUT_S) -> Outcome:
        """On a connection that is kept for the next request of the same kind of visitor."""
        visit = self._visits.get(way)
        if visit is None:
            visit = self._visits[way] = Visit(self, way)
        return await visit.ask(api, version, body, timeout_s if self.silences < PATIENCE else IMPATIENT_S)

    async def close(self) -> None:
        for visit in self._visits.values():
            visit.leave()
        self._visits.clear()


class Visit:
    """One visitor's connection; made again for the next request when it has ended."""

    def __init__(self, side: Side, way: Way) -> None:
        self._side = side
        self._way = way
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._correlation_id = 0

    async def ask(self, api: int, version: int, body: bytes, timeout_s: float) -> Outcome:
        if self._streams is None or self._streams[0].at_eof():
            self.leave()
            try:
                await asyncio.wait_for(self._come(), CONNECT_TIMEOUT_S)
            except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                self.leave()
                return Outcome("refused", detail=f"{type(error).__name__}: {error}")
        try:
            answer = await asyncio.wait_for(self._exchange(api, version, body), timeout_s)
        except TimeoutError:
            self._side.silences += timeout_s > IMPATIENT_S
            self.leave()
            return Outcome("silent")
        except (OSError, asyncio.IncompleteReadError):
            self.leave()
            return Outcome("closed")
        return Outcome("answered", answer)

    def leave(self) -> None:
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None

    async def _exchange(self, api: int, version: int, body: bytes) -> bytes:
        assert self._streams is not None
        reader, writer = self._streams
        self._correlation_id += 1
        frame = request_header(api, version, self._correlation_id) + body
        writer.write(struct.pack(">i", len(frame)) + frame)
        await writer.drain()
        (length,) = struct.unpack(">i", await reader.readexactly(4))
        answer = await reader.readexactly(length)
        correlation_id, rest = response_header(api, version, answer)
        assert correlation_id == self._correlation_id, f"correlation id {correlation_id}"
        return rest

    async def _come(self) -> None:
        context = tls(self._side.stores, self._way) if self._way.listener in ("SSL", "MTLS", "SASL_SSL") else None
        port = self._side.ports[self._way.listener]
        self._streams = await asyncio.open_connection("127.0.0.1", port, ssl=context, limit=1 << 24)
        if self._way.listener.startswith("SASL"):
            await self._log_in()

    async def _log_in(self) -> None:
        user, mechanism = self._way.who, self._way.proof
        await self._exchange(ApiKey.SASL_HANDSHAKE, 1, sasl_messages.encode_handshake_request(mechanism))
        if mechanism == PLAIN:
            await self._token(f"\0{user}\0{password(user)}".encode())
            return
        exchange = ScramClient(mechanism, user, password(user), "nonce-of-a-test")
        challenge = await self._token(exchange.first())
        exchange.verify(await self._token(exchange.respond(challenge)))

    async def _token(self, token: bytes) -> bytes:
        version = sasl_messages.AUTHENTICATE_VERSION
        body = await self._exchange(ApiKey.SASL_AUTHENTICATE, version, sasl_messages.encode_authenticate_request(token))
        code, message, answer = sasl_messages.decode_authenticate_response(body)
        if code:
            raise ConnectionError(f"login refused: {message}")
        return answer


_KNOWN = frozenset(ApiKey)


def request_header(api: int, version: int, correlation_id: int) -> bytes:
    """Also for unknown APIs."""
    if api in _KNOWN:
        return encode_request_header(api, version, correlation_id, CLIENT_ID)
    return struct.pack(">hhih", api, version, correlation_id, len(CLIENT_ID)) + CLIENT_ID.encode()


def response_header(api: int, version: int, frame: bytes) -> tuple[int, bytes]:
    if api in _KNOWN:
        correlation_id, rest = decode_response_header(api, version, frame)
        return correlation_id, bytes(rest)
    return struct.unpack_from(">i", frame)[0], frame[4:]


_contexts: dict[tuple[Path, str | None], ssl.SSLContext] = {}


def tls(stores: Path, way: Way) -> ssl.SSLContext:
    """That trusts all certificates of the stage, and shows this visitor's certificate where it has one."""
    own = way.who if way.listener in (SSL, "MTLS") and way.proof == CERTIFICATE else None
    context = _contexts.get((stores, own))
    if context is None:
        context = _contexts[stores, own] = ssl.create_default_context(cafile=stores / "all.pem")
        if own is not None:
            context.load_cert_chain(stores / f"{own}.pem")
    return context
