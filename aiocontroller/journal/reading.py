"""Finds the journals below a folder, and reads their lines; complete even across the deaths of controllers."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from aiocontroller.journal.records import Record, decode_record


def journal_files(data: Path, *, since_us: int = 0) -> list[Path]:
    """All segments below ``data``, complete or not, of processes that started after ``since_us``."""
    # os.walk, unlike Path.rglob, passes over folders that go meanwhile: brokers' folders of deleted topics do
    found = (Path(folder, name) for folder, _, names in os.walk(data) for name in names)
    return sorted(p for p in found if p.match("*journal-*.jsonl") and p.is_file() and _start_us(p) >= since_us)


def _start_us(path: Path) -> int:
    """The start in the name ``journal-{node}-{epoch}-{start}-{segment}``; 0 for other names."""
    parts = path.name.split("-")
    return int(parts[3]) if len(parts) == 5 and parts[3].isdigit() else 0


def lines(files: Iterable[Path]) -> Iterator[bytes]:
    """The lines of all files, each with its end if it has one; a file that has gone meanwhile is passed over."""
    for path in files:
        try:
            with path.open("rb") as file:
                yield from file
        except FileNotFoundError:
            continue


def decoded(line: bytes) -> Record | None:
    """The record of a line; None for a torn one."""
    try:
        return decode_record(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
