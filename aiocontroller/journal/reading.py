"""Finds the journals below a folder, and reads their lines; complete even across the deaths of controllers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from aiocontroller.journal.records import Record, decode_record


def journal_files(data: Path, *, since_us: int = 0) -> list[Path]:
    """All segments below ``data``, complete or not, of processes that started after ``since_us``; each process's in the
    order in which it wrote them, and processes in the order in which they started."""
    # os.walk, unlike Path.rglob, skips folders that vanish meanwhile, as brokers' folders of deleted topics do
    found = (Path(folder, name) for folder, _, names in os.walk(data) for name in names)
    journals = (p for p in found if p.match("*journal-*.jsonl") and p.is_file() and _written(p)[0] >= since_us)
    return sorted(journals, key=lambda path: (_written(path), path))


def _written(path: Path) -> tuple[int, int]:
    """Start and segment in the name ``journal-{node}-{epoch}-{start}-{segment}``; zeros for other names."""
    parts = path.stem.split("-")
    known = len(parts) == 5 and all(part.isascii() and part.isdigit() for part in parts[3:])
    return (int(parts[3]), int(parts[4])) if known else (0, 0)


def lines(files: Iterable[Path]) -> Iterator[bytes]:
    """The lines of all files, each with its end if it has one; a file that has vanished meanwhile is skipped."""
    for path in files:
        try:
            with path.open("rb") as file:
                yield from file
        except FileNotFoundError:
            continue


def decoded(line: bytes) -> Record | None:
    """The record of a line; None for a torn or foreign one."""
    try:
        return decode_record(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
