"""Properties files, as ``java.util.Properties`` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from aiocontroller.core.errors import BadInputError

LARGEST_BYTES: Final = 4 << 20
"""A hundred times the longest file of properties: a device would never end, and a wrong file could fill the memory."""


def read_properties(file: Path) -> Iterator[FoundProperty]:
    """Yield each property of a file; BadInputError if it is binary or too large, OSError if it is not readable.

    Editors write UTF-8, some with a byte order mark; other files are read as ISO 8859-1, as Kafka reads all files.
    """
    with file.open("rb") as stream:
        data = stream.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise BadInputError(f"{file}: found more than {LARGEST_BYTES:,} bytes, expected lines of key=value")
    if b"\0" in data:
        raise BadInputError(f"{file.name}: found binary data, expected lines of key=value")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("iso-8859-1")
    return parse_properties(text, file.name)


class FoundProperty(NamedTuple):
    """One property as found; ``source`` says where, for messages."""

    key: str
    value: str
    source: str


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_LINE_END = re.compile(r"\r\n|\r|\n")
_SEPARATOR = re.compile(r"((?:[^\\=:\s]|\\.)+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)


def parse_properties(text: str, name: str) -> Iterator[FoundProperty]:
    """Yield each property with its file and line; comments, continued lines and escapes are as in Java."""
    lines = enumerate(_LINE_END.split(text), 1)
    for number, line in lines:
        logical = line.lstrip()
        if not logical or logical[0] in "#!":
            continue
        while _continues(logical):
            _, following = next(lines, (0, ""))
            logical = logical[:-1] + following.lstrip()
        match = _SEPARATOR.match(logical)
        if match is not None:
            yield FoundProperty(_unescaped(match[1]), _unescaped(match[2]), f"{name} line {number}")


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", replace, text)
