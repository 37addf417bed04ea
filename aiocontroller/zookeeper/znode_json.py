"""Typed JSON decoding of znodes, in which damage is a value.

Rule.  Znodes may contain anything, so no decoder raises: for unreadable bytes it returns a ``BadZNode`` that names the
path, what was found and what was expected.  The caller counts it, reports it and goes on with the rest of the cluster.
Unknown keys are ignored, as Kafka does.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable
from typing import Annotated, TypeVar

import msgspec

from aiocontroller.core.ids import MAX_PARTITIONS_PER_TOPIC, NO_TOPIC_ID

T = TypeVar("T")

MAX_INT32 = 2**31 - 1
EXCERPT_BYTES = 160
REASON_CHARACTERS = 300
"""Reasons quote what they refuse, which may be a megabyte."""

Id = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT32)]
"""A broker's id, or an epoch."""
MAX_LEADER_EPOCH = MAX_INT32 - (1 << 20)
Epoch = Annotated[int, msgspec.Meta(ge=0, le=MAX_LEADER_EPOCH)]
"""A leader epoch.  Partitions never get this far; one that was set to the maximum must still have a next epoch."""
Leader = Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT32)]
PartitionNumber = Annotated[int, msgspec.Meta(ge=0, lt=MAX_PARTITIONS_PER_TOPIC)]
TopicName = Annotated[str, msgspec.Meta(min_length=1)]


class BadZNode(msgspec.Struct, frozen=True):
    """A znode that could not be decoded."""

    path: str
    found: str
    """A short excerpt of the data."""
    expected: str
    """The expected form, and where the data departs from it."""

    def __str__(self) -> str:
        return f"{self.path} is unreadable: found {self.found}, expected {self.expected}"


def excerpt(data: bytes | None) -> str:
    """The beginning of ``data``, printable, on one line."""
    if not data:
        return "no data"
    text = data[:EXCERPT_BYTES].decode("utf-8", "backslashreplace")
    text = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    rest = len(data) - EXCERPT_BYTES
    return f"{text}… ({rest} bytes more)" if rest > 0 else text


def bad(path: str, data: bytes | None, expected: str, reason: object = None) -> BadZNode:
    """A znode that cannot be read, with an excerpt of what was found, and the reason."""
    if reason is None:
        return BadZNode(path, excerpt(data), expected)
    why = str(reason)
    cut = why if len(why) <= REASON_CHARACTERS else f"{why[:REASON_CHARACTERS]}…"
    return BadZNode(path, excerpt(data), f"{expected} ({cut})")


class Wrong(ValueError):
    """Raised inside a codec for errors that types do not express; never leaves this package."""


def reading(path: str, data: bytes | None, expected: str, read: Callable[[bytes], T]) -> T | BadZNode:
    """``read(data)``, or a BadZNode if that fails; RecursionError comes from deeply nested JSON."""
    if not data:
        return bad(path, data, expected)
    try:
        return read(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return bad(path, data, expected, error)


def check_replicas(replicas: tuple[int, ...], what: str) -> None:
    """Check one partition's broker ids: at least one, none twice; Wrong otherwise."""
    if not replicas:
        raise Wrong(f"{what} has no replicas")
    check_distinct(replicas, what)


def check_distinct(ids: tuple[int, ...], what: str) -> None:
    """Raises Wrong if a broker occurs twice; ``what`` names the list."""
    if len(set(ids)) != len(ids):
        raise Wrong(f"{what} names a broker twice: {list(ids)}")


def topic_id_to_text(topic_id: bytes) -> str:
    """Kafka's ``Uuid.toString``: url-safe base64 of the 16 bytes without padding, 22 characters."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def topic_id_from_text(text: str | None) -> bytes:
    """16 bytes; the zero id for None or ''; Wrong for another form."""
    if not text:
        return NO_TOPIC_ID
    if "+" in text or "/" in text:
        raise Wrong(f"topic_id {text!r} is base64, but not its url-safe kind")
    try:
        topic_id = base64.b64decode(text.rstrip("=") + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise Wrong(f"topic_id {text!r} is not url-safe base64: {error}") from None
    if len(topic_id) != 16:
        raise Wrong(f"topic_id {text!r} has {len(topic_id)} bytes instead of 16")
    return topic_id


def int_from_text(text: str, what: str) -> int:
    """A decimal number in the form of Java's ``parseLong``: no spaces, no underscores; Wrong otherwise."""
    digits = text[1:] if text[:1] in ("-", "+") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        raise Wrong(f"{what} is not a number: {text!r}")
    return int(text)


def ints_as_json(values: Iterable[int]) -> bytes:
    """A JSON list of whole numbers."""
    return b"[%b]" % b",".join(b"%d" % value for value in values)
