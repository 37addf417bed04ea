"""A journal's segment files: their names, writing them, and adopting those left by crashed processes.

    _journal-{node}-{epoch}-{start}-{segment:06d}.jsonl     being written; Spark and others skip names with a "_"
     journal-{node}-{epoch}-{start}-{segment:06d}.jsonl     complete; not changed again; the oldest are deleted

``start`` is the process's start time (microseconds since 1970).  Each process writes its own files, since most readers
would silently lose the second of two JSON objects on a torn line.  A file holds records of one epoch.

The lock (``flock``) on an open segment shows that it is in use; the operating system releases it when the process dies.
"""

from __future__ import annotations

import fcntl
import os
import re
from pathlib import Path
from typing import NamedTuple

from aiocontroller.data_folder import make_private_folder
from aiocontroller.journal.records import Record, encode_records

ENCODE_AT_ONCE = 500
"""Records per call of the encoder, which holds the interpreter lock: 500 records take about 0.2 ms."""
WRITE_AT_ONCE_BYTES = 4 << 20
_COMPLETE = re.compile(r"journal-[0-9]+-[0-9]+-([0-9]+)-([0-9]{6,})\.jsonl", re.ASCII)


class SegmentName(NamedTuple):
    """The parts of a file's name; ``docs/journal.md`` explains them."""

    node: int
    epoch: int
    start_us: int
    segment: int

    @property
    def complete(self) -> str:
        """The file's name once it is complete."""
        return f"journal-{self.node}-{self.epoch}-{self.start_us}-{self.segment:06d}.jsonl"

    @property
    def open(self) -> str:
        """The file's name while it is written: readers skip names with ``_``."""
        return f"_{self.complete}"


class Segment:
    """One open file.  All methods block, run in the writer's thread, and raise OSError if the system refuses."""

    def __init__(self, directory: Path, name: SegmentName) -> None:
        self.directory = directory
        self.name = name
        self.size = 0
        self._path = directory / name.open
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Another process that is starting adopted the file just before this lock, and will rename or remove it.
            # The caller continues with the next number.
            os.close(self._fd)
            raise

    def still_ours(self) -> bool:
        """Whether the file kept its name between its creation and its lock."""
        try:
            return os.stat(self._path).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False

    @property
    def deleted(self) -> bool:
        """Whether the file was deleted, alone or with its folder, so that further writes would be lost."""
        return os.fstat(self._fd).st_nlink == 0

    def write(self, data: bytes | bytearray) -> None:
        """Append and sync; after an error the file is restored if the system allows it."""
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(self._fd, view) :]
            os.fdatasync(self._fd)
        except OSError:
            try:
                os.ftruncate(self._fd, self.size)
                os.lseek(self._fd, self.size, os.SEEK_SET)
            except OSError:
                pass  # leaves a torn last line, which readers handle
            raise
        self.size += len(data)

    def abandon(self) -> None:
        """Close a file that another process adopted, or that was deleted."""
        os.close(self._fd)

    def complete(self) -> None:
        """Give the file its final name; an empty one is removed."""
        try:
            if self.size:
                os.rename(self._path, self.directory / self.name.complete)
            else:
                os.unlink(self._path)
        finally:
            os.close(self._fd)


def adopt_leftovers(directory: Path) -> list[str]:
    """Complete the files that crashed processes left open; returns their names.  Files in use are left alone."""
    adopted = []
    for path in sorted(directory.glob("_journal-*.jsonl")):
        if not _COMPLETE.fullmatch(path.name[1:]) or path.is_symlink() or not path.is_file():
            continue  # not one of ours
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # its owner or another starting process was faster
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_size:
                os.rename(path, directory / path.name[1:])
                adopted.append(path.name[1:])
            else:
                os.unlink(path)
        except (BlockingIOError, FileNotFoundError):
            pass  # in use or deleted
        finally:
            os.close(fd)
    return adopted


def expire(directory: Path, retention_bytes: int, own_start_us: int | None = None) -> int:
    """Delete the oldest complete files until the rest has at most ``retention_bytes``; returns how many it deleted.

    It may be any process's: those of a dead node would stay for ever.  Those of the process that began at
    ``own_start_us`` are the last: they are the newest even if the clock was set back before it began.  Other files are
    left alone.  Raises OSError after the others if one cannot be deleted.
    """
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            name = _COMPLETE.fullmatch(entry.name)
            if name is not None and entry.is_file(follow_symlinks=False):
                try:
                    size = entry.stat(follow_symlinks=False).st_size
                except FileNotFoundError:
                    continue  # another process with this folder, or a person, was faster
                start_us = int(name[1])
                found.append((start_us == own_start_us, start_us, int(name[2]), entry.path, size))
    excess = sum(size for *_, size in found) - retention_bytes
    deleted, refusal = 0, None
    for *_, path, size in sorted(found):
        if excess <= 0:
            break
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            refusal = error
            continue
        else:
            deleted += 1
        excess -= size
    if refusal is not None:
        raise refusal
    return deleted


class SegmentWriter:
    """Writes batches into segments, in one thread.  Starts a new segment for a new epoch and after ``rotate_bytes``."""

    def __init__(self, directory: Path, node: int, start_us: int, rotate_bytes: int) -> None:
        self.directory = directory
        self.node = node
        self.start_us = start_us
        self.rotate_bytes = rotate_bytes
        self.written = self.written_bytes = self.segments = 0
        self.deleted = 0
        """Number of segments deleted by others while they were written."""
        self.durable_seq = 0
        """``seq`` of the last durable record."""
        self._segment: Segment | None = None
        self._number = 0

    def prepare(self) -> list[str]:
        """Create the directory, for its owner only, and adopt leftovers."""
        make_private_folder(self.directory)
        return adopt_leftovers(self.directory)

    def write(self, batch: list[Record]) -> None:
        """Write and sync ``batch``; durable records leave it at once, so that a retry after a failure repeats none."""
        while batch:
            epoch = batch[0].epoch
            data, taken = bytearray(), 0
            while taken < len(batch) and len(data) < WRITE_AT_ONCE_BYTES:
                chunk = batch[taken : taken + ENCODE_AT_ONCE]
                if chunk[-1].epoch != epoch:
                    chunk = chunk[: next(i for i, record in enumerate(chunk) if record.epoch != epoch)]
                    if not chunk:
                        break
                data += encode_records(chunk)
                taken += len(chunk)
            self._segment_for(epoch).write(data)
            self.durable_seq = batch[taken - 1].seq
            self.written += taken
            self.written_bytes += len(data)
            del batch[:taken]

    def complete(self) -> None:
        """Complete the open segment, if any."""
        self._let_go_of_what_is_deleted()
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.complete()

    def _let_go_of_what_is_deleted(self) -> None:
        if self._segment is not None and self._segment.deleted:
            self.deleted += 1
            segment, self._segment = self._segment, None
            segment.abandon()

    def _segment_for(self, epoch: int) -> Segment:
        self._let_go_of_what_is_deleted()
        segment = self._segment
        if segment is not None and segment.name.epoch == epoch and segment.size < self.rotate_bytes:
            return segment
        self.complete()
        for _ in range(10):
            self._number += 1
            name = SegmentName(self.node, epoch, self.start_us, self._number)
            try:
                segment = Segment(self.directory, name)
            except (BlockingIOError, FileExistsError):
                continue
            if segment.still_ours():
                self._segment = segment
                self.segments += 1
                return segment
            segment.abandon()
        raise FileExistsError(f"no free name for a segment up to number {self._number}")
