"""Output of commands: one JSON object, or a table and sentences.

A command that runs until it is stopped prints ``in_background``, without waiting for its reader.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime

import click
import msgspec

from aiocontroller.cli import fitting
from aiocontroller.cli.background import BackgroundWriter
from aiocontroller.core.text import on_one_line, plural, printable

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


_background: BackgroundWriter | None = None


def in_background(writer: BackgroundWriter) -> None:
    """Print through ``writer`` from now on."""
    global _background  # noqa: PLW0603 - standard output is one for the process
    _background = writer


def print_json(value: object) -> None:
    """Print one line and flush it, so that the reader of a pipe sees it at once."""
    say(_escaped_in_json(msgspec.json.encode(value, enc_hook=str).decode()))


def _escaped_in_json(text: str) -> str:
    """The same JSON; characters that control a terminal, or that the output's encoding lacks, are escaped."""
    plain = (sys.stdout.encoding or "ascii").lower().replace("_", "-") in ("utf-8", "utf8")
    if text.isprintable() and (plain or text.isascii()):
        return text
    return "".join(c if c.isprintable() and (plain or c.isascii()) else json.dumps(c)[1:-1] for c in text)


def print_nothing_more() -> None:
    """The reader of our output (head, a pager) has exited: nothing may be written at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def while_read() -> Iterator[None]:
    """Print here without failing: once the reader or the terminal is gone, nothing more is written."""
    try:
        yield
    except OSError:
        print_nothing_more()


def say(text: str) -> None:
    """Print a text; BrokenPipeError when the reader is gone."""
    if _background is None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    elif not _background.write(text + "\n") and _background.broken:
        raise BrokenPipeError("the reader of the output is gone")


def dropped_lines(count: int, as_json: bool) -> str:
    """The text in place of dropped lines."""
    if as_json:
        return msgspec.json.encode({"event": "dropped", "lines": count}).decode() + "\n"
    return f"… {plural(count, 'line')} dropped\n"


def terminal_width() -> int | None:
    """Columns of the terminal; None if standard output is not one, so that nothing has to fit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def fitted(text: str) -> str:
    """Sentences and tables without characters that control a terminal, and no wider than it."""
    width = terminal_width()
    return printable(text) if width is None else fitting.sentences(printable(text), width)


def print_text(text: str) -> None:
    """Print sentences and tables for a person; BrokenPipeError when the reader is gone."""
    say(fitted(text))


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, indent: int = 0) -> str:
    """Columns with two spaces between them, numbers aligned right; cells may contain untrusted text.

    On a terminal it is no wider than that, with ``indent`` columns before each line.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    right = [_are_numbers([row[i] for row in cells]) for i in range(len(headings))]
    width = terminal_width()
    texts = [[text for text, _ in row] for row in cells]
    return fitting.table(headings, texts, right, None if width is None else width - indent)


def _are_numbers(column: Sequence[tuple[str, bool]]) -> bool:
    return any(number for _, number in column) and all(number or text == fitting.NONE for text, number in column)


def _cell(value: object) -> tuple[str, bool]:
    if value is None:
        return fitting.NONE, False
    if isinstance(value, (list, tuple)):
        return on_one_line(",".join(map(str, value))), False
    return on_one_line(str(value)), isinstance(value, (int, float))


def reading_progress() -> Callable[[str, int, int], None] | None:
    """A function that shows how much of a cluster has been read; None if standard error is not a terminal."""
    if not sys.stderr.isatty():
        return None

    def progress(what: str, done: int, total: int) -> None:
        sys.stderr.write(f"\r{done:,} of {plural(total, what[:-1])} read" + ("\n" if done == total else ""))
        sys.stderr.flush()

    return progress


def iso_time(epoch_ms: int) -> str:
    """Milliseconds since 1970 -> ``2024-05-01T12:00:00.123Z``."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def byte_count(count: float) -> str:
    """``950 B``, ``1.2 MB``: in powers of 1000, as disks and networks are sold."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"
