"""Segment files of a journal: their names, and what is done with those that a crashed process left behind.

    _journal-{node}-{epoch}-{start}-{segment:06d}.jsonl     being written; Spark and others skip names with a "_"
     journal-{node}-{epoch}-{start}-{segment:06d}.jsonl     complete; never touched again

``start`` is when the process began (microseconds since 1970); each process writes files of its own, since two JSON
objects on one torn line would lose the second one silently in most readers.  A file holds records of one epoch.

Whether an open segment is in use is what its lock (``flock``) says, which the operating system takes back when the
process dies, however it dies.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

from aiocontroller.data_folder import make_private_folder
from aiocontroller.journal.records import Record, encode_records

ENCODE_AT_ONCE = 500
"""Records per call of the encoder: it holds the interpreter lock, and 500 records are about 0.2 ms."""
WRITE_AT_ONCE_BYTES = 4 << 20


class SegmentName(NamedTuple):
    node: int
    epoch: int
    start_us: int
    segment: int

    @property
    def complete(self) -> str:
        return f"journal-{self.node}-{self.epoch}-{self.start_us}-{self.segment:06d}.jsonl"

    @property
    def open(self) -> str:
        return f"_{self.complete}"


class Segment:
    """One open file.  All methods block and belong to the writer's thread; OSError when the system refuses."""

    def __init__(self, directory: Path, name: SegmentName) -> None:
        self.directory = directory
        self.name = name
        self.size = 0
        self._path = directory / name.open
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            # Another process that is just starting took it for a leftover, in the instant before this lock; it will
            # rename or remove it.  The caller goes on with the next number.
            os.close(self._fd)
            raise

    def still_ours(self) -> bool:
        """Whether nobody renamed the file between its creation and its lock."""
        try:
            return os.stat(self._path).st_ino == os.fstat(self._fd).st_ino
        except FileNotFoundError:
            return False

    def write(self, data: bytes | bytearray) -> None:
        """Append and sync; after an error the file is as it was before, as far as the system lets us."""
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
                pass  # a torn last line, then; readers know those
            raise
        self.size += len(data)

    def abandon(self) -> None:
        """Let go of a file that another process took for a leftover."""
        os.close(self._fd)

    def complete(self) -> None:
        """Hand the file over under its final name; an empty one is removed."""
        try:
            if self.size:
                os.rename(self._path, self.directory / self.name.complete)
            else:
                os.unlink(self._path)
        finally:
            os.close(self._fd)


def adopt_leftovers(directory: Path) -> list[str]:
    """Complete what crashed processes left open; returns the names.  Files in use by a living process stay."""
    adopted = []
    for path in sorted(directory.glob("_journal-*.jsonl")):
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue  # its owner or another starter was faster
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(fd).st_size:
                os.rename(path, directory / path.name[1:])
                adopted.append(path.name[1:])
            else:
                os.unlink(path)
        except (BlockingIOError, FileNotFoundError):
            pass  # in use, or gone
        finally:
            os.close(fd)
    return adopted


class SegmentWriter:
    """Writes batches into segments, in one thread.  Starts a new segment for a new epoch and after ``rotate_bytes``."""

    def __init__(self, directory: Path, node: int, start_us: int, rotate_bytes: int) -> None:
        self.directory = directory
        self.node = node
        self.start_us = start_us
        self.rotate_bytes = rotate_bytes
        self.written = self.written_bytes = self.segments = 0
        self.durable_seq = 0
        """``seq`` of the last record that is safe."""
        self._segment: Segment | None = None
        self._number = 0

    def prepare(self) -> list[str]:
        """Make the directory, for its owner only; adopt leftovers."""
        make_private_folder(self.directory)
        return adopt_leftovers(self.directory)

    def write(self, batch: list[Record]) -> None:
        """Write and sync all of ``batch``; what is safe leaves it at once: a failure half way repeats nothing."""
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
        """Complete the segment that is open, if one is."""
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.complete()

    def _segment_for(self, epoch: int) -> Segment:
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
