"""Asks a broker a few questions on a connection of its own, outside the sender's queue."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.core.ids import Broker, Endpoint
from aiocontroller.net.ports import World
from aiocontroller.security import Security
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import decode_response_header, encode_request_header
from aiocontroller.wire.messages import ApiVersions, decode_api_versions_response, encode_api_versions_request

if TYPE_CHECKING:
    from aiocontroller.controller.shell import ControllerShell

CLIENT_ID = "aiocontroller"
TELLS_MIGRATION = 3
"""The first ApiVersions version whose response says whether a broker is ready to migrate to KRaft."""


class BrokerClient:
    """Asks one broker, one question at a time."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self.certificate = connection.certificate
        self.host = connection.host

    async def request(self, api: ApiKey, version: int, body: bytes) -> bytes:
        """Send a request and return the body of the answer.

        Raises OSError if the connection is lost, FrameError if the answer has no valid header.  No time limit.
        """
        frame = await self._connection.request([encode_request_header(api, version, 0, CLIENT_ID), body])
        return bytes(decode_response_header(api, version, frame)[1])

    async def api_versions(self) -> ApiVersions:
        """The broker's API versions; a broker too old for this ApiVersions version is asked again with version 0."""
        version = TELLS_MIGRATION
        while True:
            body = encode_api_versions_request(version, CLIENT_ID, "0")
            answer = decode_api_versions_response(version, await self.request(ApiKey.API_VERSIONS, version, body))
            if not answer.error_code or version == 0:
                return answer
            version = 0


@asynccontextmanager
async def asking(shell: ControllerShell, broker: Broker, within_s: float) -> AsyncIterator[BrokerClient]:
    """A client that is closed on exit or after ``within_s`` seconds; OSError when the broker cannot be reached."""
    endpoint = shell.endpoint_of(broker)
    if endpoint is None:
        raise ConnectionError("it has no endpoint that the controller can use")
    async with asking_at(shell.world, shell.security, endpoint, within_s) as client:
        yield client


@asynccontextmanager
async def asking_at(world: World, security: Security, at: Endpoint, within_s: float) -> AsyncIterator[BrokerClient]:
    """As ``asking``, for whatever listens at this endpoint; TimeoutError after ``within_s``.

    ConfigError when a property of the security protocol is missing.
    """
    connection = await connect_to_broker(world, security, at, timeout_s=within_s)
    silent = False

    def give_up() -> None:
        nonlocal silent
        silent = True
        connection.close()

    silence = world.clock.call_later(within_s, give_up)
    try:
        yield BrokerClient(connection)
    except OSError:
        if silent:
            raise TimeoutError(f"nothing received within {within_s:g} s") from None
        raise
    finally:
        silence.cancel()
        connection.close()
