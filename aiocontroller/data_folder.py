"""A folder that one process at a time writes to: made for its owner only, locked for as long as the process runs.

The lock, not the files that a process leaves, is the truth: the system drops it with the process, however that ends.
The lock file names the process, so that others can say who it is, and whether a file that names it is left over.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from aiocontroller.core.errors import AioControllerError

LOCK_FILE = "process.lock"


class FolderInUseError(AioControllerError):
    """Another process has the folder; the message names both."""


class FolderUnusableError(AioControllerError):
    """The folder cannot be made or written to."""


def make_private_folder(folder: Path) -> None:
    """With its parents, where they are missing; what is there stays as it is.  OSError."""
    for each in reversed([each for each in folder.parents if not each.exists()]):
        each.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


class FolderLock:
    """Held by the process that has the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: int | None = None

    @property
    def held(self) -> bool:
        return self._file is not None

    def acquire(self) -> None:
        """Make the folder if need be, and lock it; FolderInUseError when another process has it.

        FolderUnusableError when the system refuses.  Nothing happens when it is held.
        """
        if self._file is not None:
            return
        try:
            make_private_folder(self._folder)
            self._file = self._locked()
            os.ftruncate(self._file, 0)
            os.write(self._file, f"{os.getpid()}\n".encode())
        except OSError as error:
            raise FolderUnusableError(
                f"the folder {self._folder} cannot be used: {error.strerror}; name another by --data"
            ) from error

    def _locked(self) -> int:
        path = self._folder / LOCK_FILE
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = _named(descriptor)
                os.close(descriptor)
                raise FolderInUseError(
                    f"process {holder or 'unknown'} has the folder {self._folder} already: "
                    "stop it, or give another folder by --data"
                ) from None
            if os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)  # its holder took the file away after we had opened it

    def release(self) -> None:
        """Drop the lock and take its file away; nothing happens when it is not held."""
        if self._file is not None:
            (self._folder / LOCK_FILE).unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


def holder_of(folder: Path) -> int | None:
    """The process that has the folder; None when there is none."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return _named(descriptor)
    finally:
        os.close(descriptor)
    return None


def _named(descriptor: int) -> int | None:
    """What the holder wrote; None in the instant before it does."""
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
