"""SaslHandshake and SaslAuthenticate, both sides of each; cold messages as in ``messages``.

As a client we use the versions that every broker since Kafka 1.0 knows.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiocontroller.wire import cold
from aiocontroller.wire.apis import ApiKey
from aiocontroller.wire.primitives import Buffer

HANDSHAKE_VERSION = 1
"""From this version on, SaslAuthenticate carries the tokens."""
AUTHENTICATE_VERSION = 0


def encode_handshake_request(mechanism: str) -> bytes:
    """SaslHandshake, in the version after which tokens come in requests (KIP-152)."""
    message = cold.request(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, mechanism=mechanism)
    return cold.encode_request(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, message)


def decode_handshake_request(version: int, body: Buffer) -> str:
    """Returns the mechanism. Raises FrameError for a malformed body."""
    return str(cold.decode_request(ApiKey.SASL_HANDSHAKE, version, body).mechanism)


def encode_handshake_response(version: int, error_code: int, mechanisms: Sequence[str]) -> bytes:
    """``mechanisms`` are those that the listener has."""
    message = cold.response(ApiKey.SASL_HANDSHAKE, version, error_code=error_code, mechanisms=list(mechanisms))
    return cold.encode_response(ApiKey.SASL_HANDSHAKE, version, message)


def decode_handshake_response(body: Buffer) -> tuple[int, list[str]]:
    """(error code, mechanisms)."""
    message = cold.decode_response(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, body)
    return int(message.error_code), list(message.mechanisms)


def encode_authenticate_request(token: bytes) -> bytes:
    """SaslAuthenticate with one token of the mechanism."""
    message = cold.request(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, auth_bytes=token)
    return cold.encode_request(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, message)


def decode_authenticate_request(version: int, body: Buffer) -> bytes:
    """Returns the token. Raises FrameError for a malformed body."""
    return bytes(cold.decode_request(ApiKey.SASL_AUTHENTICATE, version, body).auth_bytes)


def encode_authenticate_response(
    version: int, error_code: int, message: str | None, token: bytes, session_lifetime_ms: int = 0
) -> bytes:
    """``session_lifetime_ms`` is sent from version 1 on."""
    answer = cold.response(
        ApiKey.SASL_AUTHENTICATE,
        version,
        error_code=error_code,
        error_message=message,
        auth_bytes=token,
        session_lifetime=session_lifetime_ms,
    )
    return cold.encode_response(ApiKey.SASL_AUTHENTICATE, version, answer)


def decode_authenticate_response(body: Buffer) -> tuple[int, str | None, bytes]:
    """(error code, message, token)."""
    message = cold.decode_response(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, body)
    return int(message.error_code), message.error_message, bytes(message.auth_bytes)
