"""The protocol's primitive types: functions write them, a checked cursor reads them.

There are two dialects.  *Legacy*: a string has an int16 length, an array an int32 one, -1 is null.  *Flexible*
(KIP-482): both have an unsigned varint of length + 1, 0 is null, and structs end with tagged fields (one zero byte for
none).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct, unpack_from
from typing import Any

from aiocontroller.core.errors import BadInputError
from aiocontroller.wire.errors import FrameError

Buffer = bytes | memoryview
UNLIMITED = 1 << 62
MAX_TAGGED_FIELDS = 1000
"""Limit for one request or header: a field takes a microsecond to read and two bytes.  Kafka's clients send a few."""
Raw = bytes
"""``bytes``, for use in a class with a method of that name."""

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")
UINT16 = Struct(">H")
FLOAT64 = Struct(">d")

NO_TAGS = b"\x00"
MAX_LEGACY_STRING_BYTES = (1 << 15) - 1

_ONE_BYTE = tuple(bytes((n,)) for n in range(128))
_MAX_VARINT_BYTES = 5


def unsigned_varint(n: int) -> bytes:
    """Seven bits a byte, lowest first."""
    if n < 128:
        return _ONE_BYTE[n]
    out = bytearray()
    while n >= 128:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def string(text: str, *, flexible: bool) -> bytes:
    """A string with its length.  Raises BadInputError if it is too long for the legacy dialect."""
    data = text.encode()
    if flexible:
        return unsigned_varint(len(data) + 1) + data
    if len(data) > MAX_LEGACY_STRING_BYTES:
        raise BadInputError(
            f"string {text[:40]!r}…: found {len(data)} bytes, expected at most {MAX_LEGACY_STRING_BYTES}"
        )
    return INT16.pack(len(data)) + data


def nullable_string(text: str | None, *, flexible: bool) -> bytes:
    """A string, or null as length -1 (compact: 0)."""
    if text is None:
        return NO_TAGS if flexible else b"\xff\xff"
    return string(text, flexible=flexible)


def array_length(n: int, *, flexible: bool) -> bytes:
    """The number of elements before an array's elements; compact: plus one, as a varint."""
    return unsigned_varint(n + 1) if flexible else INT32.pack(n)


class Int32ArrayWriter(dict[int, Struct]):
    """Writes tuples of int32 as arrays of one dialect; keeps one compiled form for each length."""

    def __init__(self, *, flexible: bool) -> None:
        super().__init__()
        self._flexible = flexible

    def __missing__(self, n: int) -> Struct:
        length = array_length(n, flexible=self._flexible)
        form = self[n] = Struct(f">{len(length)}s{n}i")
        return form

    def __call__(self, values: Sequence[int]) -> bytes:
        """The array's length and values, big-endian; struct.error for a value beyond 32 bits."""
        n = len(values)
        if n < 127 and self._flexible:
            return self[n].pack(_ONE_BYTE[n + 1], *values)
        return self[n].pack(array_length(n, flexible=self._flexible), *values)


COMPACT_INT32_ARRAY = Int32ArrayWriter(flexible=True)
LEGACY_INT32_ARRAY = Int32ArrayWriter(flexible=False)


def int32_array(values: Sequence[int], *, flexible: bool) -> bytes:
    """An array of signed 32-bit integers with its length."""
    return COMPACT_INT32_ARRAY(values) if flexible else LEGACY_INT32_ARRAY(values)


class Cursor:
    """Reads a message from front to back; malformed data raises FrameError, which names message and place."""

    __slots__ = ("at", "data", "elements_left", "flexible", "subject", "tags_left")

    def __init__(self, subject: str, data: Buffer, *, flexible: bool, at: int = 0) -> None:
        self.subject = subject
        self.data = data
        self.flexible = flexible
        self.at = at
        self.elements_left = UNLIMITED
        """Limit for all arrays together; readers of arrays call ``count``."""
        self.tags_left = MAX_TAGGED_FIELDS

    def error(self, what: str, found: object, expected: object) -> FrameError:
        """The error for a field at the current byte; the caller raises it."""
        return FrameError(f"{self.subject}, byte {self.at}: {what}: found {found}, expected {expected}")

    def _need(self, what: str, n: int) -> int:
        """Return the position of the next n bytes and move past them."""
        at, left = self.at, len(self.data) - self.at
        if n > left:
            raise self.error(what, f"{left} bytes left", f"{n}")
        self.at = at + n
        return at

    def unpack(self, form: Struct, what: str) -> tuple[Any, ...]:
        """Read fixed fields; FrameError if fewer bytes remain."""
        at = self._need(what, form.size)
        return form.unpack_from(self.data, at)

    def skip(self, n: int, what: str) -> None:
        """Pass ``n`` bytes; FrameError if fewer remain."""
        self._need(what, n)

    def int8(self, what: str) -> int:
        """Read a signed integer of 8 bits."""
        number: int = self.unpack(INT8, what)[0]
        return number

    def int16(self, what: str) -> int:
        """Read a signed integer of 16 bits."""
        number: int = self.unpack(INT16, what)[0]
        return number

    def int32(self, what: str) -> int:
        """Read a signed integer of 32 bits."""
        number: int = self.unpack(INT32, what)[0]
        return number

    def int64(self, what: str) -> int:
        """Read a signed integer of 64 bits."""
        number: int = self.unpack(INT64, what)[0]
        return number

    def raw(self, n: int, what: str) -> Raw:
        """Read ``n`` bytes, as a copy."""
        at = self._need(what, n)
        return memoryview(self.data)[at : at + n].tobytes()

    def uuid(self, what: str) -> Raw:
        """Read the 16 bytes of a topic id."""
        return self.raw(16, what)

    def varint(self, what: str) -> int:
        """Read an unsigned varint of at most five bytes."""
        value = 0
        for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
            byte = self.data[self._need(what, 1)]
            value |= (byte & 0x7F) << shift
            if byte < 128:
                return value
        raise self.error(what, f"a varint of more than {_MAX_VARINT_BYTES} bytes", "a shorter one")

    def nullable_string(self, what: str) -> str | None:
        """Read a string or null; FrameError if it is not UTF-8."""
        n = self.varint(what) - 1 if self.flexible else self.int16(what)
        if n == -1:
            return None
        if n < 0:
            raise self.error(what, f"length {n}", "a length of -1 or more")
        at = self._need(what, n)
        try:
            return str(self.data[at : at + n], "utf-8")
        except UnicodeDecodeError as broken:
            raise self.error(what, f"bytes that are not UTF-8 ({broken.reason})", "UTF-8") from None

    def string(self, what: str) -> str:
        """Read a string; FrameError if it is null or not UTF-8."""
        text = self.nullable_string(what)
        if text is None:
            raise self.error(what, "null", "a string")
        return text

    def nullable_bytes(self, what: str) -> Raw | None:
        """Read bytes with their length, or null."""
        n = self.nullable_array_length(what, 1)
        return None if n < 0 else self.raw(n, what)

    def bytes(self, what: str) -> Raw:
        """Read bytes with their length; FrameError if they are null."""
        return self.raw(self.array_length(what, 1), what)

    def nullable_array_length(self, what: str, least_bytes_each: int) -> int:
        """The number of elements, -1 for null; checked against the bytes left, so a false length allocates nothing."""
        n = self.varint(what) - 1 if self.flexible else self.int32(what)
        left = len(self.data) - self.at
        if n < -1 or n * least_bytes_each > left:
            raise self.error(what, f"{n} elements in {left} bytes", f"0 to {left // least_bytes_each}")
        return n

    def array_length(self, what: str, least_bytes_each: int) -> int:
        """Read a number of elements; FrameError if it is null or the remaining bytes cannot hold so many."""
        n = self.nullable_array_length(what, least_bytes_each)
        if n < 0:
            raise self.error(what, "null", "an array")
        return n

    def count(self, what: str, n: int) -> None:
        """Count elements about to be read against the limit."""
        self.elements_left -= n
        if self.elements_left < 0:
            raise self.error(what, f"{-self.elements_left} elements too many", "fewer in one message")

    def nullable_int32_array(self, what: str) -> tuple[int, ...] | None:
        """Read an array of signed 32-bit integers, or null."""
        n = self.nullable_array_length(what, 4)
        if n < 0:
            return None
        at = self._need(what, 4 * n)
        return unpack_from(f">{n}i", self.data, at)

    def int32_array(self, what: str) -> tuple[int, ...]:
        """Read an array of signed 32-bit integers; FrameError if it is null."""
        numbers = self.nullable_int32_array(what)
        if numbers is None:
            raise self.error(what, "null", "an array")
        return numbers

    def tag_count(self, what: str = "tagged fields") -> int:
        """The number of tagged fields that follow."""
        n = self.varint(what)
        self.tags_left -= n
        if self.tags_left < 0:
            raise self.error(what, f"{-self.tags_left} too many", f"at most {MAX_TAGGED_FIELDS} in one message")
        return n

    def tags(self, what: str = "tagged fields") -> None:
        """Skip tagged fields, all of which are unknown here; does nothing in the legacy dialect."""
        if not self.flexible:
            return
        for _ in range(self.tag_count(what)):
            self.varint(what)
            self._need(what, self.varint(what))

    def end(self) -> None:
        """Raise FrameError if bytes are left over."""
        if self.at != len(self.data):
            raise self.error("end of message", f"{len(self.data) - self.at} bytes more", "none")
