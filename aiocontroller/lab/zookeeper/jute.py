"""ZooKeeper's record format on the server's side: big-endian numbers, length-prefixed strings and buffers."""

from __future__ import annotations

import struct
from collections.abc import Collection

_INT = struct.Struct(">i")
_LONG = struct.Struct(">q")


def buffer(data: bytes | None) -> bytes:
    return _INT.pack(-1) if data is None else _INT.pack(len(data)) + data


def string(text: str) -> bytes:
    return buffer(text.encode())


def strings(texts: Collection[str]) -> bytes:
    return _INT.pack(len(texts)) + b"".join(map(string, texts))


class Reader:
    """Reads a payload from start to end.  Raises struct.error if the payload is too short."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._at = 0

    def peek_int32(self, ahead: int) -> int:
        """Return the number that begins ``ahead`` bytes from here, without consuming it."""
        return int(_INT.unpack_from(self._payload, self._at + ahead)[0])

    def __contains__(self, piece: bytes) -> bool:
        """Whether the payload contains these bytes anywhere."""
        return piece in self._payload

    def int32(self) -> int:
        (value,) = _INT.unpack_from(self._payload, self._at)
        self._at += 4
        return int(value)

    def int64(self) -> int:
        (value,) = _LONG.unpack_from(self._payload, self._at)
        self._at += 8
        return int(value)

    def boolean(self) -> bool:
        if self._at >= len(self._payload):
            raise struct.error("the payload ends before a bool")
        self._at += 1
        return self._payload[self._at - 1] != 0

    def buffer(self) -> bytes | None:
        length = self.int32()
        if length < 0:
            return None
        end = self._at + length
        if end > len(self._payload):
            raise struct.error(f"the payload ends before a buffer of {length}")
        data = self._payload[self._at : end]
        self._at = end
        return data

    def string(self) -> str:
        return (self.buffer() or b"").decode()

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.int32())]
