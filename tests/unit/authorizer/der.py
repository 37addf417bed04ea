"""Puts together certificates that say only what a test needs."""

from __future__ import annotations


def element(tag: int, content: bytes = b"") -> bytes:
    length = bytes([len(content)]) if len(content) < 0x80 else b"\x82" + len(content).to_bytes(2, "big")
    return bytes([tag]) + length + content


def certificate(name: bytes, ends: bytes) -> bytes:
    """Version, serial number, signature algorithm, issuer, validity and subject; nobody has signed it."""
    validity = element(0x30, element(0x17, b"200101000000Z") + ends)
    fields = element(0xA0, element(0x02, b"\x02")) + element(0x02, b"\x01") + element(0x30) + element(0x30)
    return element(0x30, element(0x30, fields + validity + name))
