"""Fits tables and sentences to the width of a terminal, without cutting anything.  Pure.

A line that is too wide continues in the next one, indented to where its text began.  So do the texts of a table's
cells, and if that is not enough, the last columns move below each row, with their headings.  Lines break only at
spaces, and JSON also after commas.  A name longer than a line is not broken, so that it can be copied as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from textwrap import TextWrapper

GAP = "  "
UNBROKEN = 26
"""A text of up to this many characters is not broken, such as a size, or a time with ``<`` before it."""
NONE = "-"
"""The text of an empty cell."""
INDENT = 4
_HANGING = re.compile(r" *(?:- |\S+ {2,})?")
"""The beginning of a line that stays clear in its continuation: a dash, or a first column."""
_AFTER_A_COMMA = re.compile("(?<=,)")


class _Wrapper(TextWrapper):
    """Breaks at spaces, and JSON that has none, if it is too long, after its commas."""

    def _split(self, text: str) -> list[str]:
        pieces: list[str] = []
        for word in super()._split(text):
            is_long_json = len(word) > self.width and ('":' in word or word.startswith("["))
            pieces += filter(None, _AFTER_A_COMMA.split(word)) if is_long_json else [word]
        return pieces


def lines_of(text: str, width: int) -> list[str]:
    """The text in lines of at most ``width``; at least one."""
    return _Wrapper(max(width, 1), break_long_words=False, break_on_hyphens=False).wrap(text) or [""]


def sentences(text: str, width: int) -> str:
    """Wrap each line that is too wide, with its continuation indented to where its text began."""
    return "\n".join(line if len(line) <= width else _goes_on(line, width) for line in text.split("\n"))


def _goes_on(line: str, width: int) -> str:
    found = _HANGING.match(line)
    begins = found.end() if found is not None else 0
    if begins > width // 2:
        begins = len(line) - len(line.lstrip())
    return line[:begins] + ("\n" + " " * begins).join(lines_of(line[begins:], width - begins))


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool], width: int | None) -> str:
    """Columns with two spaces between them, the ``right`` ones aligned right; ``width`` None: as wide as needed."""
    widths = [_widest(column) for column in _columns(headings, rows)]
    if width is None or _sum(widths) <= width:
        return "\n".join(_line([[text] for text in cells], widths, right)[0] for cells in (headings, *rows))
    narrowest = [_narrowest(column, min(UNBROKEN, width)) for column in _columns(headings, rows)]
    shown = len(headings)
    while shown > 1 and _sum(narrowest[:shown]) > width:
        shown -= 1
    widths = _shared(widths[:shown], narrowest[:shown], width)
    lines = _wrapped(headings[:shown], widths, right)
    for cells in rows:
        lines += _wrapped(cells[:shown], widths, right)
        lines += _below(headings[shown:], cells[shown:], width)
    return "\n".join(lines)


def _columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[list[str]]:
    return ([heading, *(row[i] for row in rows)] for i, heading in enumerate(headings))


def _widest(column: Iterable[str]) -> int:
    return max(map(len, column))


def _narrowest(column: Iterable[str], unbroken: int) -> int:
    """Width of the longest piece that stays on one line."""
    return max(len(text) if len(text) <= unbroken else max(map(len, text.split()), default=0) for text in column)


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _shared(widest: Sequence[int], narrowest: Sequence[int], width: int) -> list[int]:
    """Each column's width: its minimum, then, from the left, as much of the rest as it can use."""
    left = width - _sum(narrowest)
    widths = []
    for wide, narrow in zip(widest, narrowest, strict=True):
        more = min(wide - narrow, max(left, 0))
        left -= more
        widths.append(narrow + more)
    return widths


def _wrapped(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    return _line([lines_of(text, width) for text, width in zip(cells, widths, strict=True)], widths, right)


def _line(cells: Sequence[Sequence[str]], widths: Sequence[int], right: Sequence[bool]) -> list[str]:
    lines = []
    for texts in zip_longest(*cells, fillvalue=""):
        aligned = (t.rjust(w) if r else t.ljust(w) for t, w, r in zip(texts, widths, right, strict=False))
        lines.append(GAP.join(aligned).rstrip())
    return lines


def _below(headings: Sequence[str], cells: Sequence[str], width: int) -> list[str]:
    known = [(heading, text) for heading, text in zip(headings, cells, strict=True) if text not in ("", NONE)]
    sentence = "; ".join(f"{heading}: {text}" if heading else text for heading, text in known)
    return [" " * INDENT + line for line in lines_of(sentence, width - INDENT)] if sentence else []
