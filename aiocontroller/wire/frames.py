"""Framing and headers: where a message begins and ends in a stream, and who it is from.

A frame is an int32 length and that many bytes.  A request begins with API key, version, correlation id (header v0),
client id (v1) and tagged fields (v2, flexible versions); an answer with the correlation id (v0) and tagged fields (v1).
See ``apis`` for the exceptions.

A frame is copied once at most: it is cut out of the chunk that brought it whole, or joined from the chunks that brought
its pieces.  Memory grows with what arrived, never with what a length prefix announces.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from aiocontroller.wire.apis import ApiKey, api_name, is_flexible
from aiocontroller.wire.errors import FrameError, UnsupportedApiError
from aiocontroller.wire.primitives import INT32, NO_TAGS, Buffer, Cursor, nullable_string

__all__ = [
    "MAX_FRAME_BYTES",
    "FrameError",
    "FrameReader",
    "RequestHeader",
    "UnsupportedApiError",
    "decode_request_header",
    "decode_response_header",
    "encode_request_header",
    "encode_response_header",
    "request_frame",
    "response_frame",
]

MAX_FRAME_BYTES = 100 * 1024 * 1024
"""What Kafka's brokers accept by default (``socket.request.max.bytes``)."""

_REQUEST_START = Struct(">hhi")
_PREFIX = 4


class FrameReader:
    """Cuts a stream into frames, however it is chopped up.  After an error it is of no more use."""

    __slots__ = ("_max_bytes", "_missing", "_parts", "_prefix", "_subject")

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES, subject: str = "frame") -> None:
        self._max_bytes = max_bytes
        self._subject = subject
        self._prefix = b""
        self._parts: list[bytes] = []
        self._missing = -1
        """Bytes of the current frame that have not come yet; -1 while its length is not known."""

    @property
    def buffered_bytes(self) -> int:
        """Received of a frame that is not complete yet."""
        return len(self._prefix) + sum(map(len, self._parts))

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that this piece completes, without their length prefixes.

        FrameError when a length is negative or above the limit; its ``frames`` are those completed before it.
        """
        frames: list[bytes] = []
        at, end = 0, len(data)
        while at < end:
            if self._missing < 0:
                at = self._read_prefix(data, at, frames)
                if self._missing < 0:
                    continue  # an empty frame, or no more input
            stop = at + self._missing
            if stop > end:
                self._parts.append(data[at:] if at else bytes(data))
                self._missing = stop - end
                break
            piece = bytes(data[at:stop])
            frames.append(b"".join((*self._parts, piece)) if self._parts else piece)
            self._parts.clear()
            self._missing = -1
            at = stop
        return frames

    def _read_prefix(self, data: bytes, at: int, frames: list[bytes]) -> int:
        if not self._prefix and len(data) - at >= _PREFIX:
            length = INT32.unpack_from(data, at)[0]
            at += _PREFIX
        else:
            stop = at + _PREFIX - len(self._prefix)
            self._prefix += data[at:stop]
            at = min(stop, len(data))
            if len(self._prefix) < _PREFIX:
                return at
            length = INT32.unpack(self._prefix)[0]
            self._prefix = b""
        if not 0 <= length <= self._max_bytes:
            raise FrameError(
                f"{self._subject}: found a length of {length} bytes, expected 0 to {self._max_bytes}", tuple(frames)
            )
        if length == 0:
            frames.append(b"")
        else:
            self._missing = length
        return at


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def _has_client_id(api_key: int, version: int) -> bool:
    return not (api_key == ApiKey.CONTROLLED_SHUTDOWN and version == 0)


def encode_request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    flexible = is_flexible(api_key, version)
    start = _REQUEST_START.pack(api_key, version, correlation_id)
    if not _has_client_id(api_key, version):
        return start
    return start + nullable_string(client_id, flexible=False) + (NO_TAGS if flexible else b"")


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, memoryview]:
    """The header and the body behind it (a view).

    FrameError when it is cut short; UnsupportedApiError for an API key that nobody knows.  Versions are not judged:
    whoever serves must (``apis.check_supported``), since an ApiVersions request of any version gets an answer.
    """
    cursor = Cursor("request header", frame, flexible=False)
    api_key, version, correlation_id = cursor.unpack(_REQUEST_START, "API key, version and correlation id")
    flexible = is_flexible(api_key, version)
    client_id = None
    if _has_client_id(api_key, version):
        cursor.subject = f"request header of {api_name(api_key)} version {version}"
        client_id = cursor.nullable_string("client id")
        cursor.flexible = flexible
        cursor.tags()
    return RequestHeader(api_key, version, correlation_id, client_id), memoryview(frame)[cursor.at :]


def _response_header_is_flexible(api_key: int, version: int) -> bool:
    return api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version)


def encode_response_header(api_key: int, version: int, correlation_id: int) -> bytes:
    """``api_key`` and ``version`` are those of the request that is answered."""
    return INT32.pack(correlation_id) + (NO_TAGS if _response_header_is_flexible(api_key, version) else b"")


def decode_response_header(api_key: int, version: int, frame: Buffer) -> tuple[int, memoryview]:
    """Correlation id and body (a view); ``api_key`` and ``version`` are those of the request."""
    subject = f"response header of {api_name(api_key)} version {version}"
    cursor = Cursor(subject, frame, flexible=_response_header_is_flexible(api_key, version))
    correlation_id = cursor.int32("correlation id")
    cursor.tags()
    return correlation_id, memoryview(frame)[cursor.at :]


def _frame(header: bytes, body: tuple[bytes, ...]) -> list[bytes]:
    return [INT32.pack(len(header) + sum(map(len, body))) + header, *body]


def request_frame(api_key: int, version: int, correlation_id: int, client_id: str | None, *body: bytes) -> list[bytes]:
    """A whole request in pieces for ``writelines``: length and header, then the body's own pieces, not copied."""
    return _frame(encode_request_header(api_key, version, correlation_id, client_id), body)


def response_frame(api_key: int, version: int, correlation_id: int, *body: bytes) -> list[bytes]:
    """A whole answer in pieces for ``writelines``; ``api_key`` and ``version`` are those of the request."""
    return _frame(encode_response_header(api_key, version, correlation_id), body)
