"""A question to a broker, beside the senders' queues: one connection, a few requests, an end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.controller.connecting import connect_to_broker
from aiocontroller.controller.shell import ControllerShell
from aiocontroller.core.ids import Broker
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import decode_response_header, encode_request_header
from aiocontroller.wire.messages import ApiVersions, decode_api_versions_response, encode_api_versions_request

CLIENT_ID = "aiocontroller"
TELLS_MIGRATION = 3
"""The first version of ApiVersions whose answer says that a broker is ready to migrate to KRaft."""


class BrokerClient:
    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection
        self.certificate = connection.certificate
        self.host = connection.host

    async def request(self, api: ApiKey, version: int, body: bytes) -> bytes:
        frame = await self._connection.request([encode_request_header(api, version, 0, CLIENT_ID), body])
        return bytes(decode_response_header(api, version, frame)[1])

    async def api_versions(self) -> ApiVersions:
        """What it offers; a broker that is too old for this version of the question is asked in the oldest one."""
        version = TELLS_MIGRATION
        while True:
            body = encode_api_versions_request(version, CLIENT_ID, "0")
            answer = decode_api_versions_response(version, await self.request(ApiKey.API_VERSIONS, version, body))
            if not answer.error_code or version == 0:
                return answer
            version = 0


@asynccontextmanager
async def asking(shell: ControllerShell, broker: Broker, within_s: float) -> AsyncIterator[BrokerClient]:
    """A connection that is closed after the questions, or when ``within_s`` is up; OSError when there is none."""
    endpoint = shell.endpoint_of(broker)
    if endpoint is None:
        raise ConnectionError("it has no endpoint that the controller can use")
    connection = await connect_to_broker(shell.world, shell.security, endpoint, timeout_s=within_s)
    silence = shell.world.clock.call_later(within_s, connection.close)
    try:
        yield BrokerClient(connection)
    finally:
        silence.cancel()
        connection.close()
