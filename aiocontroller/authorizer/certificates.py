"""Fields of an X.509 certificate, read from its DER: Python's ssl parses only a peer's, and too little of a name."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import NamedTuple

_SEQUENCE, _VERSION, _UTC_TIME = 0x30, 0xA0, 0x17


class Element(NamedTuple):
    """A DER element; ``whole`` has the tag and the length before the content."""

    tag: int
    content: bytes
    whole: bytes


def subject(certificate: bytes) -> bytes:
    """The subject's DER ``Name``; IndexError or ValueError if there is none."""
    return _fields(certificate)[4].whole


def not_after(certificate: bytes) -> datetime:
    """The end of its validity; IndexError or ValueError if there is none."""
    _, ends = elements(_fields(certificate)[3].content)
    text = ends.content.decode("ascii")
    if ends.tag == _UTC_TIME:  # RFC 5280: 50 to 99 are in the last century
        text = ("19" if text >= "5" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _fields(certificate: bytes) -> list[Element]:
    """Serial number, signature algorithm, issuer, validity, subject and more."""
    [signed, *_] = elements(only(certificate).content)
    return [each for each in elements(signed.content) if each.tag != _VERSION]


def only(data: bytes) -> Element:
    """The single sequence that ``data`` consists of; ValueError otherwise."""
    [element] = elements(data)
    if element.tag != _SEQUENCE:
        raise ValueError(f"type {element.tag:#x}")
    return element


def elements(data: bytes) -> list[Element]:
    """The consecutive elements in ``data``; IndexError or ValueError if it ends within one."""
    return list(_each(data))


def _each(data: bytes) -> Iterator[Element]:
    at = 0
    while at < len(data):
        start, tag, length = at, data[at], data[at + 1]
        at += 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4:
                raise ValueError(f"a length of {size} bytes")
            length = int.from_bytes(data[at : at + size], "big")
            at += size
        if at + length > len(data):
            raise ValueError(f"{at + length - len(data)} bytes are missing")
        yield Element(tag, data[at : at + length], data[start : at + length])
        at += length
