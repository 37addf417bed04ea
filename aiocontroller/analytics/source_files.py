"""Attributes of the input files."""

from __future__ import annotations

import zlib
from dataclasses import asdict, dataclass
from typing import Any

from aiocontroller.analytics import schema
from aiocontroller.analytics.framing import Framing

DEFAULT_CLUSTER = "default"
ZONELESS = "times without a zone were taken as UTC"
"""A remark."""
_POSITIONS_OF_A_FILE = 36
"""In bits: more lines than any log has."""
_OPEN = "not read: it is still being written (--in-progress reads such journals)"


_KINDS = (schema.CONTROLLER_LOG, schema.SERVER_LOG, schema.STATE_CHANGE_LOG)


@dataclass(frozen=True)
class SourceFile:
    """One file.

    ``path`` is Hadoop's name for the file, unquoted; ``name`` is shown to people and relative to the given path.
    """

    path: str
    name: str
    size: int
    """In bytes, as it is stored."""
    modified_us: int
    source: str = ""
    """One of ``schema.SOURCES``; empty while unknown."""
    cluster: str = DEFAULT_CLUSTER
    process: str = ""
    start_us: int | None = None
    node: int | None = None
    """The broker that wrote a log, from the manifest or the head; its lines may be more precise."""
    time_zone: str = "UTC"
    date: str | None = None
    """The day of a log whose lines have only a time."""
    version: str | None = None
    framing: Framing | None = None
    layout: str | None = None
    """What ``layouts`` converts to plain text; ``framing`` is that of the plain text."""
    problem: str = ""
    """Why it cannot be opened, if listing it showed that."""
    remarks: tuple[str, ...] = ()
    """The assumptions about the file, as text."""

    @property
    def first_position(self) -> int:
        """Return the position of the file's first line among those of all files, below 2**58; it orders lines of equal
        time.

        A decision is in controller.log and the request about it in state-change.log, so the former comes first.  The
        order of files of the same kind is arbitrary, but the same in every run, whichever other files are read.
        """
        kind = _KINDS.index(self.source) if self.source in _KINDS else len(_KINDS)
        return (kind << 20 | zlib.crc32(self.name.encode()) >> 12) << _POSITIONS_OF_A_FILE


@dataclass(frozen=True)
class Lack:
    """Records that should be there and were not read: a damaged or missing file, or the end of one."""

    file: str
    words: str
    """As the report shows it."""
    source: str = ""
    """One of ``schema.SOURCES``; empty while unknown."""
    cluster: str | None = None
    """None: any of them is possible."""
    node: int | None = None
    process: str = ""
    """Of a journal that is still being written."""
    at_end: bool = False
    """Only what would follow the file's last record is missing."""
    known: bool = False
    """The records are there nevertheless, as in another copy."""


@dataclass(frozen=True)
class Looked:
    """A file that was scanned."""

    file: SourceFile
    cluster_ids: frozenset[str] = frozenset()
    """The cluster ids in the file."""
    problem: str = ""
    """The reason if nothing in the file can be read."""
    lost: str = ""
    """What is missing if only a part of it can be read."""
    cut_off: bool = False
    """Whether its last line has no newline."""


@dataclass(frozen=True)
class Found:
    """The ``files`` to read, and those not read: ``copies`` (name, original), ``unknown`` ones, and others."""

    files: tuple[SourceFile, ...]
    copies: tuple[tuple[str, str], ...] = ()
    unknown: tuple[str, ...] = ()
    in_progress: tuple[str, ...] = ()
    unreadable: tuple[tuple[str, str], ...] = ()
    """(name, reason)"""
    lacks: tuple[Lack, ...] = ()
    in_place: tuple[SourceFile, ...] = ()
    """Those of ``files`` that are read in place and not from a copy, as they were listed."""

    def names(self) -> set[str]:
        """Return the names of all files, read or not."""
        return {
            *(file.name for file in self.files), *(name for name, _ in (*self.copies, *self.unreadable)),
            *self.unknown, *self.in_progress,
        }  # fmt: skip

    def lacks_as_rows(self) -> list[dict[str, Any]]:
        """Return ``lacks`` for a commit."""
        return [asdict(lack) for lack in self.lacks]

    def remarks(self) -> dict[str, list[str]]:
        """Return the assumptions about files and the reasons for skipping others: text -> names."""
        pairs = [(remark, file.name) for file in self.files for remark in file.remarks]
        pairs += [(f"not read: a copy of {whole}", name) for name, whole in self.copies]
        pairs += [(f"not read: {why}", name) for name, why in self.unreadable]
        pairs += [("not read: neither a journal nor a Kafka log", name) for name in self.unknown]
        read = {file.name for file in self.files}
        pairs += [(_OPEN, name) for name in self.in_progress if name not in read]
        return {words: sorted(name for w, name in pairs if w == words) for words in sorted({w for w, _ in pairs})}
