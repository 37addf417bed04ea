"""A broker's end of a connection that follows a script: it answers, stays silent, closes or sends nonsense."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, cast

from aiocontroller.net.ports import Listener, World
from aiocontroller.wire.apis import SUPPORTED, ApiKey, VersionRange
from aiocontroller.wire.frames import FrameReader, RequestHeader, decode_request_header, response_frame
from aiocontroller.wire.messages import encode_api_versions_response

NEWEST = {
    api: SUPPORTED[api]
    for api in (ApiKey.API_VERSIONS, ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA)
}

Reaction = Callable[["PeerConnection", RequestHeader], None]


class Arrived(NamedTuple):
    at_s: float
    connection: int
    header: RequestHeader
    body: bytes


class Peer:
    """A scripted broker: each request uses up one of ``reactions``, and later ones are answered.

    ApiVersions is always answered, with ``offers``.
    """

    def __init__(self, world: World, offers: dict[ApiKey, VersionRange] | None = None) -> None:
        self.world = world
        self.offers = NEWEST if offers is None else offers
        self.reactions: deque[Reaction] = deque()
        self.arrived: list[Arrived] = []
        """All requests but ApiVersions."""
        self.handshakes = 0
        self.on_handshake: Callable[[], object] = lambda: None
        """Called when ApiVersions has been answered."""
        self.connections: list[PeerConnection] = []
        self._listener: Listener | None = None

    async def listen(self, port: int = 0) -> int:
        self._listener = await self.world.network.serve(lambda: PeerConnection(self), "127.0.0.1", port)
        return self._listener.port

    def refuse(self) -> None:
        assert self._listener is not None
        self._listener.close()

    def break_connections(self) -> None:
        for connection in self.connections:
            connection.close()

    @property
    def bodies(self) -> list[bytes]:
        return [arrived.body for arrived in self.arrived]


class PeerConnection(asyncio.Protocol):
    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.number = len(peer.connections)
        peer.connections.append(self)
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for frame in self._reader.feed(data):
            header, body = decode_request_header(frame)
            if header.api_key == ApiKey.API_VERSIONS:
                self.peer.handshakes += 1
                self.answer(header, encode_api_versions_response(header.api_version, self.peer.offers))
                self.peer.on_handshake()
                continue
            self.peer.arrived.append(Arrived(self.peer.world.clock.monotonic(), self.number, header, bytes(body)))
            reaction = self.peer.reactions.popleft() if self.peer.reactions else answer
            reaction(self, header)

    def answer(self, header: RequestHeader, body: bytes) -> None:
        self.send(b"".join(response_frame(header.api_key, header.api_version, header.correlation_id, body)))

    def send(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


# -- reactions ---------------------------------------------------------------------------------------------------------


def answer(connection: PeerConnection, header: RequestHeader) -> None:
    connection.answer(header, b"ok")


def silence(connection: PeerConnection, header: RequestHeader) -> None:
    pass


def hang_up(connection: PeerConnection, header: RequestHeader) -> None:
    connection.close()


def wrong_correlation_id(connection: PeerConnection, header: RequestHeader) -> None:
    body = b"not yours"
    connection.send(b"".join(response_frame(header.api_key, header.api_version, header.correlation_id + 1, body)))


def cut_short(connection: PeerConnection, header: RequestHeader) -> None:
    """A frame that is too small to hold a correlation id."""
    connection.send((2).to_bytes(4, "big") + b"xx")


def impossible_length(connection: PeerConnection, header: RequestHeader) -> None:
    connection.send(b"\xff\xff\xff\xff")


def after(delay_s: float) -> Reaction:
    def later(connection: PeerConnection, header: RequestHeader) -> None:
        connection.peer.world.clock.call_later(delay_s, lambda: answer(connection, header))

    return later
