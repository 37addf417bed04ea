"""Connects to a broker's listener by its security protocol: plaintext or TLS, with SASL where required."""

from __future__ import annotations

from aiocontroller.controller.broker_connection import BrokerConnection
from aiocontroller.core.ids import Endpoint
from aiocontroller.net.ports import World
from aiocontroller.security import PLAIN, Credentials, Security
from aiocontroller.wire import sasl_messages
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.frames import decode_response_header, encode_request_header
from aiocontroller.wire.scram import ScramClient, ScramError

CLIENT_ID = "aiocontroller"


async def connect_to_broker(world: World, security: Security, at: Endpoint, *, timeout_s: float) -> BrokerConnection:
    """Connect and log in.  OSError if the broker cannot be reached or refuses us; ConfigError for a bad property."""
    how = security.client(at)
    _, connection = await world.network.connect(
        BrokerConnection, at.host, at.port, timeout_s=timeout_s, ssl=how.client_tls
    )
    if how.credentials is not None:
        silence = world.clock.call_later(timeout_s, connection.close)
        try:
            await _log_in(world, connection, how.credentials)
        except BaseException:
            connection.close()
            raise
        finally:
            silence.cancel()
    return connection


async def _log_in(world: World, connection: BrokerConnection, who: Credentials) -> None:
    body = sasl_messages.encode_handshake_request(who.mechanism)
    code, offered = sasl_messages.decode_handshake_response(
        await _request(connection, ApiKey.SASL_HANDSHAKE, sasl_messages.HANDSHAKE_VERSION, body)
    )
    if code:
        raise ConnectionError(f"the broker does not take SASL {who.mechanism}: it offers {', '.join(offered)}")
    if who.mechanism == PLAIN:
        await _authenticate(connection, f"\0{who.username}\0{who.password.value}".encode())
        return
    nonce = f"{world.random.randrange(1 << 128):x}"
    exchange = ScramClient(who.mechanism, who.username, who.password.value, nonce)
    try:
        challenge = await _authenticate(connection, exchange.first())
        exchange.verify(await _authenticate(connection, exchange.respond(challenge)))
    except ScramError as error:
        raise ConnectionError(str(error)) from error


async def _authenticate(connection: BrokerConnection, token: bytes) -> bytes:
    version = sasl_messages.AUTHENTICATE_VERSION
    body = sasl_messages.encode_authenticate_request(token)
    code, message, answer = sasl_messages.decode_authenticate_response(
        await _request(connection, ApiKey.SASL_AUTHENTICATE, version, body)
    )
    if code:
        raise ConnectionError(f"the broker refuses our SASL credentials: {message or code}")
    return answer


async def _request(connection: BrokerConnection, api: ApiKey, version: int, body: bytes) -> bytes:
    frame = await connection.request([encode_request_header(api, version, 0, CLIENT_ID), body])
    return bytes(decode_response_header(api, version, frame)[1])
