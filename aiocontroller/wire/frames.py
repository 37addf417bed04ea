"""Framing and headers: where a message begins and ends in a stream, and who it is from.

A frame is an int32 length and that many bytes.  A request begins with API key, version, correlation id (header v0),
client id (v1) and tagged fields (v2, flexible versions); an answer with the correlation id (v0) and tagged fields (v1).
See ``apis`` for the exceptions.

A frame is cut out of the chunk that brought it whole, or of a buffer in which its pieces were joined.  Memory grows
with what arrived, never with what a length prefix announces.
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
"""What Kafka's brokers accept by default (``socket.request.max.bytes``)."""

_REQUEST_START = Struct(">hhi")
_PREFIX = 4


class FrameBuffer:
    """Cuts a stream into frames, however it is chopped up: ``put`` what came, ``take`` one frame at a time.

    After an error it is of no more use.
    """

    __slots__ = ("_at", "_data", "_max_bytes", "_subject")

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES, subject: str = "frame") -> None:
        self._max_bytes = max_bytes
        self._subject = subject
        self._data: bytes | bytearray = b""
        self._at = 0
        """Where the current frame begins, with its length prefix."""

    def __len__(self) -> int:
        """Bytes received and not taken, length prefixes included."""
        return len(self._data) - self._at

    def put(self, data: bytes) -> None:
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
        """What the current frame announces; None while its prefix has not come; FrameError when it cannot be."""
        if len(self._data) - self._at < _PREFIX:
            return None
        length: int = INT32.unpack_from(self._data, self._at)[0]
        if not 0 <= length <= self._max_bytes:
            raise FrameError(f"{self._subject}: found a length of {length} bytes, expected 0 to {self._max_bytes}")
        return length

    def peek(self, count: int) -> bytes | None:
        """The first bytes of the current frame; None while they have not come."""
        start = self._at + _PREFIX
        return bytes(self._data[start : start + count]) if len(self._data) >= start + count else None

    @property
    def is_whole(self) -> bool:
        """The current frame has come."""
        size = self.size()
        return size is not None and len(self) >= _PREFIX + size

    def take(self) -> bytes | None:
        """The next frame, without its length prefix; None while it has not come whole."""
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
    """The same for who takes all frames as they come."""

    __slots__ = ()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that this piece completes, without their length prefixes.

        FrameError when a length is negative or above the limit; its ``frames`` are those completed before it.
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
