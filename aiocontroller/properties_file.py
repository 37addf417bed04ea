"""Properties files, as ``java.util.Properties`` reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Setting(NamedTuple):
    """One property as it was found; ``source`` is where, for messages."""

    key: str
    value: str
    source: str


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SEPARATOR = re.compile(r"((?:[^\\=:\s]|\\.)+)(?:\s*[=:]\s*|\s+|$)(.*)", re.DOTALL)


def parse_properties(text: str, name: str) -> Iterator[Setting]:
    """Each property with its file and line; comments, continued lines and escapes as Java has them."""
    lines = enumerate(text.splitlines(), 1)
    for number, line in lines:
        logical = line.lstrip()
        if not logical or logical[0] in "#!":
            continue
        while _continues(logical):
            _, following = next(lines, (0, ""))
            logical = logical[:-1] + following.lstrip()
        match = _SEPARATOR.match(logical)
        if match is not None:
            yield Setting(_unescaped(match[1]), _unescaped(match[2]), f"{name} line {number}")


def _continues(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return chr(int(match[1], 16))
        return _ESCAPES.get(match[2], match[2])

    return re.sub(r"\\(?:u([0-9A-Fa-f]{4})|(.))", replace, text)
