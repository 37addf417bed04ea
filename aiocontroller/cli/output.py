"""What commands print: one JSON object, or a table and sentences.

A command that runs until it is told to end prints ``in_background``: nothing waits for its reader.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import click
import msgspec

from aiocontroller.cli.background import BackgroundWriter

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


_background: BackgroundWriter | None = None


def in_background(writer: BackgroundWriter) -> None:
    """From now on what is printed goes through ``writer``."""
    global _background  # noqa: PLW0603 - standard output is one for the process
    _background = writer


def print_json(value: object) -> None:
    """One line, flushed, so that a reader at the other end of a pipe sees it at once."""
    say(msgspec.json.encode(value, enc_hook=str).decode())


def say(text: str) -> None:
    """BrokenPipeError when nobody reads any more."""
    if _background is None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    elif not _background.write(text + "\n") and _background.broken:
        raise BrokenPipeError("nobody reads what is printed")


def dropped_lines(count: int, as_json: bool) -> str:
    """What stands in place of lines that were not read in time."""
    if as_json:
        return msgspec.json.encode({"event": "dropped", "lines": count}).decode() + "\n"
    return f"… {plural(count, 'line')} dropped\n"


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns with two spaces between them; numbers to the right."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(len(heading), *(len(row[i][0]) for row in cells), 0) for i, heading in enumerate(headings)]
    right = [bool(cells) and all(row[i][1] for row in cells) for i in range(len(headings))]

    def line(texts: Iterable[str]) -> str:
        aligned = (t.rjust(w) if r else t.ljust(w) for t, w, r in zip(texts, widths, right, strict=True))
        return "  ".join(aligned).rstrip()

    return "\n".join([line(headings), *(line(text for text, _ in row) for row in cells)])


def _cell(value: object) -> tuple[str, bool]:
    if value is None:
        return "-", False
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)), False
    return str(value), isinstance(value, (int, float))


def iso_time(epoch_ms: int) -> str:
    """Milliseconds since 1970 -> ``2024-05-01T12:00:00.123Z``."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
