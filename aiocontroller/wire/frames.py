"""Framing and headers: finds messages in a stream, and codes their headers.

A frame is an int32 length and that many bytes.  A request begins with API key, version, correlation id (header v0),
client id (v1) and tagged fields (v2, flexible versions); a response begins with the correlation id (v0) and tagged
fields (v1).  See ``apis`` for the exceptions.

A frame that arrives in one chunk is sliced from it; otherwise its pieces are joined in a buffer.  Memory grows with the
bytes received, never with what a length prefix announces.
"""

from __future__ import annotations

from struct import Struct

import msgspec

from aiocontroller.wire.apis import ApiKey, api_name, is_flexible
from aiocontroller.wire.errors import FrameError, UnsupportedApiError
from aiocontroller.wire.primitives import INT32, NO_TAGS, Buffer, Cursor, nullable_string

__all__ = [
    "MAX_FRAME_BYTES",
    "FrameBuffer",
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
"""The limit of Kafka's brokers by default (``socket.request.max.bytes``)."""

_REQUEST_START = Struct(">hhi")
_PREFIX = 4


class FrameBuffer:
    """Splits a stream into frames, whatever its chunks: ``put`` received bytes, ``take`` one frame at a time.

    Unusable after an error.
    """

    __slots__ = ("_at", "_data", "_max_bytes", "_subject")

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES, subject: str = "frame") -> None:
        self._max_bytes = max_bytes
        self._subject = subject
        self._data: bytes | bytearray = b""
        self._at = 0
        """Start of the current frame's length prefix."""

    def __len__(self) -> int:
        """Bytes received and not taken, length prefixes included."""
        return len(self._data) - self._at

    def put(self, data: bytes) -> None:
        """Append what has arrived; what was taken before is released."""
        if self._at == len(self._data):
            self._data, self._at = data, 0
            return
        if isinstance(self._data, bytearray):
            del self._data[: self._at]
        else:
            # pieces of one byte each, kept one by one, would take forty times their size
            self._data = bytearray(memoryview(self._data)[self._at :])
        self._at = 0
        self._data += data

    def size(self) -> int | None:
        """The bytes announced for the current frame; None until its prefix has arrived; FrameError if it is invalid."""
        if len(self._data) - self._at < _PREFIX:
            return None
        length: int = INT32.unpack_from(self._data, self._at)[0]
        if not 0 <= length <= self._max_bytes:
            raise FrameError(f"{self._subject}: found a length of {length} bytes, expected 0 to {self._max_bytes}")
        return length

    def peek(self, count: int) -> bytes | None:
        """The first bytes of the current frame; None until they have arrived."""
        start = self._at + _PREFIX
        return bytes(self._data[start : start + count]) if len(self._data) >= start + count else None

    @property
    def is_whole(self) -> bool:
        """Whether the current frame has arrived completely."""
        size = self.size()
        return size is not None and len(self) >= _PREFIX + size

    def take(self) -> bytes | None:
        """The next frame, without its length prefix; None until it has arrived completely."""
        length = self.size()
        if length is None:
            return None
        start = self._at + _PREFIX
        end = start + length
        data = self._data
        if end > len(data):
            return None
        if isinstance(data, bytearray):
            with memoryview(data) as view:
                frame = bytes(view[start:end])
        else:
            frame = data[start:end]
        if end == len(data):
            self._data, self._at = b"", 0
        else:
            self._at = end
        return frame


class FrameReader(FrameBuffer):
    """A FrameBuffer for callers that take all frames as they arrive."""

    __slots__ = ()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that this piece completes, without their length prefixes.

        Raises FrameError when a length is negative or above the limit; its ``frames`` are those completed before it.
        """
        self.put(bytes(data))
        frames: list[bytes] = []
        try:
            while (frame := self.take()) is not None:
                frames.append(frame)
        except FrameError as error:
            raise FrameError(str(error), tuple(frames)) from None
        return frames


class RequestHeader(msgspec.Struct, frozen=True, gc=False):
    """The header of a request; ``client_id`` is null or text."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None = None


def _has_client_id(api_key: int, version: int) -> bool:
    return not (api_key == ApiKey.CONTROLLED_SHUTDOWN and version == 0)


def encode_request_header(api_key: int, version: int, correlation_id: int, client_id: str | None) -> bytes:
    """The header of a request in the version that the API and its version need (KIP-482)."""
    flexible = is_flexible(api_key, version)
    start = _REQUEST_START.pack(api_key, version, correlation_id)
    if not _has_client_id(api_key, version):
        return start
    return start + nullable_string(client_id, flexible=False) + (NO_TAGS if flexible else b"")


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, memoryview]:
    """The header and the body behind it (a view).

    Raises FrameError when it is truncated and UnsupportedApiError for an unknown API key.  The server must check the
    version (``apis.check_supported``), since an ApiVersions request of any version gets an answer.
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
    """``api_key`` and ``version`` are those of the request."""
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
    """A complete request in pieces for ``writelines``: length and header, then the body's pieces, not copied."""
    return _frame(encode_request_header(api_key, version, correlation_id, client_id), body)


def response_frame(api_key: int, version: int, correlation_id: int, *body: bytes) -> list[bytes]:
    """A complete response in pieces for ``writelines``; ``api_key`` and ``version`` are those of the request."""
    return _frame(encode_response_header(api_key, version, correlation_id), body)
