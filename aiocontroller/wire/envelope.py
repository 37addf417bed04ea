"""Envelope 0 (KIP-590): a client's request that a broker forwards with the client's principal.

Source: Kafka 3.9, ``EnvelopeRequest.json`` and ``DefaultPrincipalData.json``.
"""

from __future__ import annotations

import msgspec

from aiocontroller.wire.apis import ApiKey, check_supported
from aiocontroller.wire.errors import FrameError
from aiocontroller.wire.primitives import INT16, NO_TAGS, Buffer, Cursor, string, unsigned_varint

_PRINCIPAL_VERSION = 0


class EnvelopeRequest(msgspec.Struct, frozen=True):
    """A client's request that a broker forwards, with the client's principal and address."""

    request: bytes
    """With its header."""
    principal: bytes | None
    address: bytes
    """The client's address, 4 or 16 bytes."""


class ForwardedPrincipal(msgspec.Struct, frozen=True):
    """As Kafka's ``DefaultKafkaPrincipalBuilder`` serializes it."""

    type: str
    name: str
    token_authenticated: bool = False


def decode_envelope_request(version: int, body: Buffer) -> EnvelopeRequest:
    """The forwarded request is left encoded, header included. Raises FrameError for a malformed body."""
    check_supported(ApiKey.ENVELOPE, version)
    cursor = Cursor("Envelope request", body, flexible=True)
    request, principal = cursor.bytes("request"), cursor.nullable_bytes("principal")
    address = cursor.bytes("client's address")
    cursor.tags()
    return EnvelopeRequest(request, principal, address)


def encode_envelope_request(request: bytes, principal: bytes | None, address: bytes) -> bytes:
    """``request`` has its header; ``address`` is the client's, 4 or 16 bytes."""
    return _nullable_bytes(request) + _nullable_bytes(principal) + _nullable_bytes(address) + NO_TAGS


def encode_envelope_response(error_code: int, response: bytes | None = None) -> bytes:
    """``response``: the response to the forwarded request, with its header; None with an error."""
    return _nullable_bytes(response) + INT16.pack(error_code) + NO_TAGS


def decode_envelope_response(body: Buffer) -> tuple[int, bytes | None]:
    """(error code, answer)."""
    cursor = Cursor("Envelope response", body, flexible=True)
    response = cursor.nullable_bytes("answer")
    error_code = cursor.int16("error code")
    cursor.tags()
    return error_code, response


def decode_principal(data: bytes) -> ForwardedPrincipal:
    """Kafka's DefaultKafkaPrincipalBuilder.deserialize. Raises FrameError for a malformed body."""
    cursor = Cursor("forwarded principal", data, flexible=True)
    version = cursor.int16("version")
    if version != _PRINCIPAL_VERSION:
        raise FrameError(f"forwarded principal: found version {version}, expected {_PRINCIPAL_VERSION}")
    found = ForwardedPrincipal(cursor.string("type"), cursor.string("name"), cursor.int8("by token") != 0)
    cursor.tags()
    return found


def encode_principal(principal: ForwardedPrincipal) -> bytes:
    """Kafka's DefaultKafkaPrincipalBuilder.serialize."""
    named = string(principal.type, flexible=True) + string(principal.name, flexible=True)
    return INT16.pack(_PRINCIPAL_VERSION) + named + bytes([principal.token_authenticated]) + NO_TAGS


def _nullable_bytes(data: bytes | None) -> bytes:
    return unsigned_varint(0) if data is None else unsigned_varint(len(data) + 1) + data
