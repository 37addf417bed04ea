"""A folder that one process at a time writes to: private to its owner, locked while the process runs.

Only the lock counts, not files left by a process: the system releases it however the process ends.  The lock file names
the process, so that others can report it and recognise leftover files.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from aiocontroller.core.errors import AioControllerError

DEFAULT_DATA = Path(".aiocontroller")
"""The default folder of a cluster on this machine."""
LOCK_FILE = "process.lock"


class FolderInUseError(AioControllerError):
    """Another process has the folder; the message names both."""


class FolderUnusableError(AioControllerError):
    """The folder cannot be made or written to."""


def make_private_folder(folder: Path) -> None:
    """Create the folder and missing parents; existing ones stay unchanged.  Raises OSError."""
    for each in reversed([each for each in folder.parents if not each.exists()]):
        each.mkdir(mode=0o700, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)


class FolderLock:
    """The lock of the process that has the folder."""

    def __init__(self, folder: Path, named_by: str = "--data") -> None:
        """``named_by``: the option that error messages name for choosing another folder."""
        self._folder = folder
        self._named_by = named_by
        self._file: int | None = None

    @property
    def held(self) -> bool:
        """Whether this process holds the lock."""
        return self._file is not None

    def acquire(self) -> None:
        """Create the folder if necessary, and lock it; raises FolderInUseError if another process has it.

        Raises FolderUnusableError if the system refuses.  Does nothing if already held.
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
                f"the folder {self._folder} cannot be used: {error.strerror}; name another by {self._named_by}"
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
                    f"stop it, or give another folder by {self._named_by}"
                ) from None
            if os.fstat(descriptor).st_nlink:
                return descriptor
            os.close(descriptor)  # its holder removed the file after we had opened it

    def release(self) -> None:
        """Release the lock and remove its file; does nothing if not held."""
        if self._file is not None:
            (self._folder / LOCK_FILE).unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


def holder_of(folder: Path) -> int | None:
    """Return the id of the process that has the folder; None if there is none, or while it is not written yet."""
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
    """Return the process id in the file; None just before the holder writes it."""
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else None
